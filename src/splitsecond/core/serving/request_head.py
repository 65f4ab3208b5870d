"""Checks of a request's head: whether it is ambiguous, and its URL."""

from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import unquote

import httptools

BAD_REQUEST = b"400 Bad Request"
NOT_IMPLEMENTED = b"501 Not Implemented"
FRAMING = (b"content-length", b"transfer-encoding")
"""The headers that determine where a body ends."""
LONGEST_CACHED_URL = 512


def ambiguous(version: str, headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, bytes] | None:
    """Return status and message of the refusal of ambiguous headers; None if they are valid.

    A proxy in front of the server may read such headers differently, and take a part of one request
    for another.
    """
    hosts = sum(name == b"host" for name, _ in headers)
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if version not in ("1.0", "1.1"):
        return BAD_REQUEST, b"Use HTTP/1.1."
    if hosts > 1 or (not hosts and version == "1.1"):
        return BAD_REQUEST, b"A request needs exactly one Host header."
    if codings and version == "1.0":
        return BAD_REQUEST, b"HTTP/1.0 has no Transfer-Encoding."
    if codings and codings != [b"chunked"]:
        return NOT_IMPLEMENTED, b"The only Transfer-Encoding is chunked."
    return None


def parse_url(url: bytes) -> tuple[str, bytes]:
    return _parse_cached(url) if len(url) <= LONGEST_CACHED_URL else _parse_cached.__wrapped__(url)


@lru_cache(maxsize=256)
def _parse_cached(url: bytes) -> tuple[str, bytes]:
    parsed = httptools.parse_url(url)
    path: str = parsed.path.decode("ascii")
    return unquote(path) if "%" in path else path, parsed.query or b""
