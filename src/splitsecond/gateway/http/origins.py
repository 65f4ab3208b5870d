"""Cross-origin requests (CORS): which pages in a browser may use the gateway.

A browser sends a preflight request (``OPTIONS``) before a page of another origin may send JSON or a
key, and shows the response to the page only with our permission. Only origins that the operator
names have it. Without client keys, the gateway is protected because only this machine can reach it,
but any page could make a browser on this machine send requests (a host name that resolves to this
machine makes the browser treat us as the page's own server). So requests from pages of other
origins are then refused.
"""

import ipaddress
import re
from collections.abc import Collection

from splitsecond.core.errors import CallerFault
from splitsecond.gateway.http.headers import RESPONSE_HEADERS
from splitsecond.routing.requests.error_response import Headers

_MAX_S = b"7200"
"""How long a browser may cache the preflight response; Chromium's limit."""
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d+)?")
_SHOWN = ", ".join(RESPONSE_HEADERS).encode()


class Origins:
    """The allowed origins: "https://app.example", or "*" for all."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._all = "*" in allowed
        self._allowed = frozenset(origin.rstrip("/").lower().encode() for origin in allowed)

    def allow(self, origin: bytes) -> bool:
        return self._all or origin.lower() in self._allowed

    def headers(self, origin: bytes) -> Headers:
        if not self.allow(origin):
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _SHOWN),
            (b"timing-allow-origin", origin),
            (b"vary", b"origin"),
        ]

    def preflight(self, method: str, requested_headers: bytes) -> Headers:
        return [
            (b"access-control-allow-methods", method.encode()),
            (b"access-control-allow-headers", requested_headers or b"authorization, content-type"),
            (b"access-control-max-age", _MAX_S),
        ]


def addressed(host: bytes) -> bool:
    """Return whether a Host header is an IP address or localhost, which a page's own host name
    cannot be."""
    parts = _HOST.fullmatch(host.decode("latin-1"))
    if parts is None:
        return False
    name = parts[1].strip("[]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return True


def stranger(origin: bytes) -> CallerFault:
    origin_text = origin[:200].decode("ascii", "replace")
    return CallerFault(
        f"pages of {origin_text!r} may not send requests to this gateway",
        kind="origin_not_allowed",
        status=403,
        hint="The operator can allow them with listen.cors in the configuration.",
    )
