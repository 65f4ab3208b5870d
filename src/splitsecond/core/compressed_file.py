"""Files that users give, as they are or compressed by gzip, recognised by their first bytes."""

import gzip
from pathlib import Path
from typing import BinaryIO, cast

from splitsecond.core.errors import CallerFault

_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
}
"""First bytes of compressed files that are not read, and the names of their formats."""


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; its content is decompressed if it is a gzip file.

    Raises `OSError` like `open`, and while a broken gzip file is read also `EOFError` and
    `zlib.error`. Raises `CallerFault` for a file that another program has compressed.
    """
    file = path.open("rb")
    begin = file.peek(8)[:8]
    if begin.startswith(_GZIP):
        file.close()
        return cast(BinaryIO, gzip.open(path))
    for mark, name in _OTHERS.items():
        if begin.startswith(mark):
            file.close()
            raise CallerFault(
                f"{path} is compressed ({name})",
                kind="unreadable_file",
                hint="Decompress it, or compress it by gzip.",
            )
    return file
