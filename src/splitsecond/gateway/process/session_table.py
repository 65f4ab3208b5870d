"""The table of sessions of a gateway, and the secret with which their ids are hashed. Both are kept
beside a SQLite log, so that a session goes on after a restart."""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

from splitsecond.gateway.records.sessions import SECRET_BYTES, Sessions
from splitsecond.log.store.settings import LogSettings

_SECRET, _TABLE = ".secret", ".sessions"


@contextlib.contextmanager
def session_table(
    log: LogSettings | None, say: Callable[[str], None], *, shared: str = ""
) -> Iterator[int]:
    """Create the memory of `Sessions` for all processes of a gateway, with the sessions that the
    last one with the same log saved at its end. Save them when the context ends."""
    memory = Sessions.create(session_secret(log, say, shared=shared))
    sessions, path = Sessions(memory), None if log is None else log.file
    path = path and path.with_name(path.name + _TABLE)
    if path is None:
        yield memory
        return
    try:
        sessions.restore(path.read_bytes())
    except FileNotFoundError:
        pass
    except OSError as error:
        say(f"The sessions in {path} cannot be read: {error.strerror}. They begin again.")
    try:
        yield memory
    finally:
        try:
            _write(path, sessions.saved(), replace=True)
        except OSError as error:
            say(f"The sessions cannot be saved in {path}: {error.strerror}. They will begin again.")


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
    file = log.file
    if file is None:
        return _of_server(log.url)
    path = file.with_name(file.name + _SECRET)
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
    with contextlib.suppress(FileExistsError):  # another gateway has just created it
        _write(path, secrets.token_bytes(SECRET_BYTES), replace=False)
    return _read(path)


def _write(path: Path, data: bytes, *, replace: bool) -> None:
    """Create a file that only this user may read, in one step. `replace`: one that exists; else it
    raises `FileExistsError`."""
    new = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as writing:
            writing.write(data)
        if replace:
            new.replace(path)
        else:
            os.link(new, path)
    finally:
        new.unlink(missing_ok=True)


def _read(path: Path) -> bytes:
    secret = path.read_bytes()
    if len(secret) != SECRET_BYTES:
        raise OSError(0, f"it has {len(secret)} bytes in place of {SECRET_BYTES}")
    return secret
