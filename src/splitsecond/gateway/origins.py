"""Pages in a browser: which may ask, and how they are told.

A browser asks first (``OPTIONS``) before a page of another origin may send JSON or a key, and shows it the answer only
with our word for it. Nobody may unless the operator names the origin. Where there are no keys, that only this machine
can reach the gateway protects it, and a browser on this machine could be made to reach it by any page (whose name is
made to point here, so that the browser takes us for the page's own server); so a request of a page that is not named is
refused.
"""

import ipaddress
import re
from collections.abc import Collection

from splitsecond.errors import CallerFault
from splitsecond.gateway.refusal import Headers

_MOST_S = b"7200"
"""How long a browser may remember the answer; Chromium's own bound."""
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d+)?")
_SHOWN = (
    b"x-request-id, x-splitsecond-target, x-splitsecond-attempts, x-splitsecond-cache, x-splitsecond-chosen, "
    b"x-splitsecond-dropped, x-splitsecond-estimated, x-splitsecond-cost-usd, retry-after, server-timing, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests"
)


class Origins:
    """Those that may ask from a page: "https://app.example", or "*" for all."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        self._all = "*" in allowed
        self._allowed = frozenset(origin.rstrip("/").lower().encode() for origin in allowed)

    def allow(self, origin: bytes) -> bool:
        """Whether a page of `origin` may ask."""
        return self._all or origin.lower() in self._allowed

    def headers(self, origin: bytes) -> Headers:
        """What goes with every answer to a page of `origin`."""
        if not self.allow(origin):
            return []
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _SHOWN),
            (b"timing-allow-origin", origin),
            (b"vary", b"origin"),
        ]

    def preflight(self, method: str, asked: bytes) -> Headers:
        """The rest of what a browser wants to know first; `asked`: the headers that the page would send."""
        return [
            (b"access-control-allow-methods", method.encode()),
            (b"access-control-allow-headers", asked or b"authorization, content-type"),
            (b"access-control-max-age", _MOST_S),
        ]


def addressed(host: bytes) -> bool:
    """Whether a Host names us by an address, or as localhost. A page whose own name was made to point here cannot."""
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
    """The refusal of a page that nobody named."""
    shown = origin[:200].decode("ascii", "replace")
    return CallerFault(
        f"pages of {shown!r} may not ask here",
        kind="origin_not_allowed",
        status=403,
        hint="The operator allows it with listen.cors in the configuration.",
    )
