"""Render a request to bytes, and refuse what must not be sent, such as a line break in a header.

Accept-Encoding is "identity": a compressor holds tokens back until it has a block, which would be
measured as the model's latency. Headers and body are one piece, so that they leave in one packet if
they fit. Only a long body is not copied behind the headers.
"""

import re
from functools import lru_cache

from splitsecond.core.errors import CallerFault
from splitsecond.core.transport.exchange import Origin, Request, check_target

LONG_BODY = 65_536
"""From so many bytes on, a body is a piece of its own."""
_OURS = frozenset({"content-length", "transfer-encoding"})
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 section 5.6.2
_NOT_IN_VALUE = re.compile(r"[^\t\x20-\x7e\x80-\xff]")


def render(
    request: Request, origin: Origin, *, via_proxy: bool = False, extra: str = ""
) -> tuple[bytes, bytes]:
    """Return the bytes of `request`, and a long body that follows them, else b"". `via_proxy`: the
    request line has the whole URL; `extra`: additional header lines.

    Raises `CallerFault` for a method, path or header that cannot be sent. No message contains a
    header's value.
    """
    head, names = _head(request.method, request.path, request.headers, origin, via_proxy, extra)
    fresh, body = "", request.body
    for name, value in request.fresh:
        if _key(name) in names:
            raise CallerFault("the request has the same header twice", kind="bad_header")
        if not (value.isascii() and value.isprintable()) and (match := _NOT_IN_VALUE.search(value)):
            raise _bad_value(name, match)
        fresh += f"{name}: {value.strip()}\r\n"
    if body or request.method in _METHODS_WITH_BODY:
        fresh += f"Content-Length: {len(body)}\r\n"
    lines = fresh.encode("latin-1")
    if len(body) >= LONG_BODY:
        return b"".join((head, lines, b"\r\n")), body
    return b"".join((head, lines, b"\r\n", body)), b""


@lru_cache(maxsize=512)
def _head(
    method: str,
    path: str,
    headers: tuple[tuple[str, str], ...],
    origin: Origin,
    via_proxy: bool,
    extra: str,
) -> tuple[bytes, frozenset[str]]:
    if not _TOKEN.fullmatch(method):
        raise CallerFault(f"got the method {method!r}, expected one like POST", kind="bad_request")
    check_target(path)
    names = frozenset(_key(name) for name, _ in headers)
    for name, value in headers:
        if match := _NOT_IN_VALUE.search(value):
            raise _bad_value(name, match)
    lines = [f"{method} {origin if via_proxy else ''}{path} HTTP/1.1"]
    if "host" not in names:
        lines.append(f"Host: {origin.authority}")
    lines += [f"{name}: {value.strip()}" for name, value in headers]
    if "accept-encoding" not in names:
        lines.append("Accept-Encoding: identity")
    return ("\r\n".join(lines) + "\r\n" + extra).encode("latin-1"), names


@lru_cache(maxsize=512)
def _key(name: str) -> str:
    """Return the header's name in lower case. Raises `CallerFault` if it may not be sent."""
    key = name.lower()
    if not _TOKEN.fullmatch(name):
        raise CallerFault(
            f"got the header name {name!r}, expected letters, digits and dashes", kind="bad_header"
        )
    if key in _OURS:
        raise CallerFault(
            f"the header {name} is set by the transport; remove it from the request",
            kind="bad_header",
        )
    return key


def _bad_value(name: str, match: re.Match[str]) -> CallerFault:
    return CallerFault(
        f"the value of header {name} holds {match.group()!r} at position {match.start()} of "
        f"{len(match.string)}",
        kind="bad_header",
        hint="If it is a key, look for a line break or a copied character in it.",
    )
