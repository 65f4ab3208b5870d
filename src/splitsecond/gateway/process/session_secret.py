"""The secret with which ids of sessions are hashed: the same for all gateways of a fleet or log,
after restarts too."""

import contextlib
import os
import secrets
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from splitsecond.gateway.records.sessions import SECRET_BYTES
from splitsecond.log.store.database import sqlite_file
from splitsecond.routing.router.settings import LogSettings

_SUFFIX = ".secret"


def session_secret(
    log: LogSettings | None, say: Callable[[str], None], *, shared: str = ""
) -> bytes:
    """Return the secret beside a SQLite log, which is created with the first call, or that of the
    server of the log.

    The latter is a hash of the log's URL with its password, so its gateways need not be given one;
    those of a fleet use `shared`, the URL of its database. Without a log, and if the file cannot be
    read or created, the secret is a new one.
    """
    if shared:
        return _of_server(shared)
    if log is None:
        return secrets.token_bytes(SECRET_BYTES)
    file = sqlite_file(log.url)
    if file is None:
        return _of_server(log.url)
    path = file.with_name(file.name + _SUFFIX)
    try:
        return _kept(path)
    except OSError as error:
        say(
            f"The secret {path} of sessions cannot be used: {error.strerror}. Sessions get other "
            f"ids in the log."
        )
        return secrets.token_bytes(SECRET_BYTES)


def _of_server(url: str) -> bytes:
    return blake2b(url.encode(), digest_size=SECRET_BYTES, person=b"sessions").digest()


def _kept(path: Path) -> bytes:
    """Return the secret in the file. Create the file if it does not exist. Raises `OSError`."""
    with contextlib.suppress(FileNotFoundError):
        return _read(path)
    new = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as writing:
            writing.write(secrets.token_bytes(SECRET_BYTES))
        with contextlib.suppress(FileExistsError):  # another gateway has just created it
            os.link(new, path)
    finally:
        new.unlink()
    return _read(path)


def _read(path: Path) -> bytes:
    found = path.read_bytes()
    if len(found) != SECRET_BYTES:
        raise OSError(0, f"it has {len(found)} bytes in place of {SECRET_BYTES}")
    return found
