import os
import sys
from pathlib import Path

import msgspec

from splitsecond.core.errors import CallerFault
from splitsecond.core.pages.png import check_png


def check_json(where: str) -> None:
    """Raise `CallerFault` if `write_json` cannot write there. Called before the work, not after
    it."""
    if where != "-":
        check_file(where, "--json")


def check_picture(where: str) -> None:
    """Raise `CallerFault` if the PNG file cannot be written, or the package for it is missing."""
    check_file(where, "--png")
    if where:
        check_png()


def check_file(where: str, option: str) -> None:
    """Raise `CallerFault` if the file that `option` names cannot be written. "" is no file."""
    if not where:
        return
    path = Path(where)
    if path.is_dir():
        raise _unwritable(where, "it is a folder", option)
    if not path.parent.is_dir():
        raise _unwritable(where, f"there is no folder {path.parent}", option)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(where, "permission denied", option)


def write_file(data: bytes, where: str, option: str) -> None:
    try:
        Path(where).write_bytes(data)
    except OSError as error:
        raise _unwritable(where, error.strerror or str(error), option) from None


def write_json(result: object, where: str) -> None:
    """Write structs, or lists or dicts of them, as JSON: to a file, for "-" to standard output, for
    "" nowhere.

    Raises `CallerFault` if the file cannot be written.
    """
    if where:
        write_data(
            msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n", where, "--json"
        )


def write_data(data: bytes, where: str, option: str) -> None:
    if where != "-":
        write_file(data, where, option)
        return
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(where, error.strerror or str(error), option) from None


def _unwritable(where: str, why: str, option: str) -> CallerFault:
    return CallerFault(
        f"cannot write to {where}: {why}",
        kind="unwritable_file",
        hint=f"Name another file with {option}.",
    )
