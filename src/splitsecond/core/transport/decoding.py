"""Decoding of Content-Encoding (gzip and deflate) in pieces.

We request no compression, but some servers compress their error pages anyway. The output is bounded
relative to the input, so that a few kilobytes cannot become gigabytes.
"""

import zlib

MAX_RATIO = 200
"""Most output bytes for each input byte, over a whole body. Real text stays under 30; deflate's own
limit is 1032."""

FREE_BYTES = 1 << 20
"""Output that is allowed at any ratio, so that short repetitive bodies pass."""

_GZIP = zlib.MAX_WBITS | 16
_ZLIB = zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS


class BadEncoding(Exception):
    """A body that does not match its Content-Encoding; the message says why."""


class Inflater:
    def __init__(self) -> None:
        self._start = b""
        self._inflate: zlib._Decompress | None = None
        self._taken = self._given = 0

    def feed(self, data: bytes) -> bytes:
        self._taken += len(data)
        if self._inflate is None:
            data = self._start = self._start + data
            if len(data) < 2:
                return b""
            self._inflate = zlib.decompressobj(_window_bits(data))
        allowed = FREE_BYTES + MAX_RATIO * self._taken - self._given
        try:
            out = self._inflate.decompress(data, allowed)
        except zlib.error as error:
            raise BadEncoding(str(error)) from error
        self._given += len(out)
        if self._inflate.unconsumed_tail:
            raise BadEncoding(f"{self._taken} compressed bytes grow to more than {self._given}")
        if self._inflate.unused_data:
            raise BadEncoding("more bytes follow the end of the compressed data")
        return out

    @property
    def whole(self) -> bool:
        """Whether the compressed stream ended, or never began."""
        return self._taken == 0 or (self._inflate is not None and self._inflate.eof)


def _window_bits(start: bytes) -> int:
    """Return zlib's window bits for a body with these first two bytes (RFC 1952 section 2.3.1, RFC
    1950 section 2.2).

    Some servers send "deflate" without zlib's header, which every browser accepts.
    """
    if start[:2] == b"\x1f\x8b":
        return _GZIP
    if start[0] & 0x0F == zlib.DEFLATED and (start[0] << 8 | start[1]) % 31 == 0:
        return _ZLIB
    return _RAW


def inflater_for(content_encoding: str) -> Inflater | None:
    """Return a decoder for `content_encoding`, None if none is needed. Raises `BadEncoding` for an
    unknown one."""
    match content_encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return Inflater()
        case other:
            raise BadEncoding(f"got Content-Encoding {other!r}, expected none, gzip or deflate")
