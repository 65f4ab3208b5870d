"""Files through which the processes of a gateway exchange what they know, in a folder that they share.

A file is replaced as a whole, so that nobody reads half of one.
"""

import contextlib
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from splitsecond.core.errors import PARSER_ERRORS

T = TypeVar("T")


def write(path: Path, value: Struct) -> str:
    part = path.with_suffix(".part")
    try:
        part.write_bytes(msgspec.msgpack.encode(value))
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):  # the disk takes no change at all
            part.unlink()
        return error.strerror or str(error)
    return ""


def read(path: Path, of: type[T]) -> T | None:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=of)
    except (OSError, *PARSER_ERRORS):
        return None
