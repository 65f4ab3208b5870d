"""Files with clients' keys, and the configuration that names them, written so that a running
gateway never reads a part of one."""

import contextlib
import os
import re
import secrets
import tempfile
from collections.abc import Mapping
from pathlib import Path

from splitsecond.core.errors import CallerFault, file_faults
from splitsecond.routing.configuration.error_messages import SeveralMistakes
from splitsecond.routing.configuration.reading import read

_NUMBERS = re.compile(r"\[\d+\]")
_NOT_IN_FILE_NAMES = re.compile(r"[^\w-]")


def write_key(path: Path) -> str:
    """Write a fresh client key that only the owner can read, and return it. Raises `OSError`, also
    if the file exists."""
    key = f"sk-{secrets.token_urlsafe(32)}"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{key}\n")
    return key


def new_key_file(configuration: Path, client: str) -> Path:
    """Return the path of a file that does not exist, beside the configuration."""
    stem = f"{configuration.stem}.{_NOT_IN_FILE_NAMES.sub('-', client)}"
    number, path = 1, configuration.with_name(f"{stem}.key")
    while path.exists():
        number += 1
        path = configuration.with_name(f"{stem}.{number}.key")
    return path


def read_text(path: Path) -> str:
    """Return the text of a configuration with its own ends of lines. Raises `CallerFault`."""
    with (
        file_faults(f"cannot read {path}", kind="bad_config"),
        path.open(encoding="utf-8", newline="") as file,
    ):
        return file.read()


def check_edit(before: str, after: str, environment: Mapping[str, str], folder: Path) -> None:
    """Raise `CallerFault` for a mistake of the configuration `after` that `before` does not have:
    the environment of a gateway may have keys that this one lacks."""
    old = {_without_number(fault) for fault in _mistakes(before, environment, folder)}
    for fault in _mistakes(after, environment, folder):
        if _without_number(fault) not in old:
            raise fault


def replace_text(path: Path, text: str) -> None:
    """Replace the text of a file at once. It keeps its mode. Raises `CallerFault`."""
    path = path.resolve()  # a link stays one
    with file_faults(f"cannot write {path}", kind="unwritable_file"):
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fchmod(descriptor, path.stat().st_mode & 0o7777)
                os.fsync(descriptor)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _mistakes(text: str, environment: Mapping[str, str], folder: Path) -> list[CallerFault]:
    try:
        read(text, environment, folder=folder)
    except SeveralMistakes as several:
        return several.mistakes
    except CallerFault as fault:
        return [fault]
    return []


def _without_number(fault: CallerFault) -> str:
    """Return the message without the numbers of entries, which an edit shifts."""
    return _NUMBERS.sub("[]", fault.message)
