"""Heads of requests that the parser has accepted before, so that they need not be parsed again.

A client sends the same head with each request of its connection, but for the length of the body.
Parsing it takes ten callbacks. So the heads of POST requests are stored without Content-Length,
after the parser and all checks have accepted them. A read that holds such a head with any length,
and exactly that many bytes after it, is a whole request.

Only heads are stored in which every line ends with CRLF and is one header, so that the parser
cannot have seen other lines than `KnownHeads`. A head with a second Content-Length never equals a
stored one.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

LONGEST_HEAD = 4096
"""Longer heads are not stored."""
MAX_HEADS = 256
"""When that many heads are stored, they are forgotten: clients that change a header each time must
not fill memory."""
_END = b"\r\n\r\n"
_split_at_length = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,9})\r\n").split
_NEVER = frozenset({b"transfer-encoding", b"upgrade", b"expect"})
"""Headers that change how a request is read."""


class KnownHead(Struct, frozen=True):
    """A head that was accepted. `url`: the decoded path, and the query. `headers`: by lower-case
    name, any length."""

    url: tuple[str, bytes]
    headers: Mapping[bytes, bytes]


class KnownHeads:
    def __init__(self) -> None:
        self._heads: dict[tuple[bytes, bytes], KnownHead] = {}

    def request(self, data: bytes) -> tuple[tuple[str, bytes], dict[bytes, bytes], bytes] | None:
        end = data.find(_END, 0, LONGEST_HEAD)
        parts = _split_at_length(data[: end + 2], 1)
        if end < 0 or len(parts) != 3:
            return None
        before, length, after = parts
        head = self._heads.get((before, after))
        body = data[end + 4 :]
        if head is None or len(body) != int(length):
            return None
        return head.url, {**head.headers, b"content-length": length}, body

    def learn(self, data: bytes, url: tuple[str, bytes], headers: Mapping[bytes, bytes]) -> None:
        """Store the head that `data` begins with. The parser has read `url` and `headers` in it, as
        those of a request in HTTP/1.1 that keeps the connection open, and everything was
        accepted."""
        end = data.find(_END, 0, LONGEST_HEAD)
        if end < 0 or not data.startswith(b"POST ") or not _NEVER.isdisjoint(headers):
            return
        lines = data.count(b"\r\n", 0, end)  # after the request line, one for each header
        if (
            lines != len(headers)
            or data.count(b"\n", 0, end) != lines
            or data.count(b"\r", 0, end) != lines
        ):
            return
        parts = _split_at_length(data[: end + 2], 1)
        if len(parts) == 3:
            if len(self._heads) >= MAX_HEADS:
                self._heads.clear()
            self._heads[parts[0], parts[2]] = KnownHead(url, headers)
