"""Pages for the operator of the gateway: metrics, explanations and the dashboard."""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import parse_qsl

import msgspec

from splitsecond.core.errors import CallerFault
from splitsecond.core.serving.request_cycle import RequestCycle
from splitsecond.gateway.dashboard.collection import DashboardData
from splitsecond.gateway.dashboard.page import GUARDED, HTML, dashboard_page
from splitsecond.gateway.http.origins import addressed
from splitsecond.gateway.records.exposition import CONTENT_TYPE, exposed
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.routing.configuration.settings import MetricsFor
from splitsecond.routing.requests.endpoints import near_path
from splitsecond.routing.router.explain import PROMPT
from splitsecond.routing.router.routes import Routes
from splitsecond.routing.router.settings import ClientKey

_FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for", b"x-real-ip"})
"""Headers of proxies that forward the request of another client."""
_NO_FRAMES = (b"content-security-policy", b"frame-ancestors 'none'")
_SESSION_ID = re.compile("[0-9a-f]{16}")
LONGEST_NUMBER = 100
"""Digits of a number in a query."""


class OperatorPages:
    """Serves the pages that show what the gateway does, to those who may see it.

    `key` returns the key of a request and raises `CallerFault` for a wrong one. `dashboard` None:
    there are no data for the dashboard.
    """

    def __init__(
        self,
        key: Callable[[RequestCycle], ClientKey | None],
        metrics: Metrics,
        dashboard: DashboardData | None,
    ) -> None:
        self._key = key
        self._metrics = metrics
        self._data = dashboard
        self.handlers: Mapping[str, Callable[[RequestCycle], Awaitable[None]]] = {
            "/metrics": self._expose,
            "/explain": self._explain,
            "/dashboard": self._dashboard,
            **dict.fromkeys(_DATA, self._serve_data),
        }

    def use(self, routes: Routes, metrics_for: MetricsFor) -> None:
        self._routes = routes
        self._metrics_for: MetricsFor = metrics_for

    async def _expose(self, cycle: RequestCycle) -> None:
        self.check(cycle)
        await cycle.answer(
            200, exposed(self._metrics, await self._metrics.others()), kind=CONTENT_TYPE
        )

    async def _explain(self, cycle: RequestCycle) -> None:
        self.check(cycle)
        query = dict(parse_qsl(cycle.query.decode("latin-1")))
        report = await self._routes.explained(query.get("route", ""), query.get("prompt", PROMPT))
        await cycle.answer(200, msgspec.json.encode(report))

    async def _dashboard(self, cycle: RequestCycle) -> None:
        if self._metrics_for == "off":
            raise not_found(cycle)
        await cycle.answer(200, *dashboard_page(), kind=HTML)

    async def _serve_data(self, cycle: RequestCycle) -> None:
        self.check(cycle)
        query = dict(parse_qsl(cycle.query.decode("latin-1")))
        body = None if self._data is None else await _DATA[cycle.path](self._data, query)
        if body is None:
            raise not_found(cycle)
        if cycle.path == _SPEED:
            await cycle.answer(200, body, [*GUARDED, _NO_FRAMES], kind=HTML)
        else:
            await cycle.answer(200, body, GUARDED)

    def check(self, cycle: RequestCycle) -> None:
        """Raise `CallerFault` unless the client may read metrics. The Host header must be an
        address: the page of an attacker's host name that resolves to this machine would otherwise
        count as local."""
        if self._metrics_for == "off":
            raise not_found(cycle)
        here = _is_loopback(cycle.peer) and _FORWARDED.isdisjoint(cycle.headers)
        here = here and addressed(cycle.header(b"host"))
        if self._metrics_for == "key" or not here:
            key = self._key(cycle)
            if key is None or not {"*", cycle.path}.intersection(key.routes):
                message = "this page requires a key for all routes, or for this page"
                raise CallerFault(message, kind="not_allowed", status=403)


async def _history(data: DashboardData, query: Mapping[str, str]) -> bytes | None:
    hours = query.get("hours", "")
    # Python limits the digits
    return await data.history(
        int(hours) if hours.isdecimal() and len(hours) <= LONGEST_NUMBER else 0
    )


async def _sessions(data: DashboardData, query: Mapping[str, str]) -> bytes | None:
    identity = query.get("id", "")
    valid = not identity or _SESSION_ID.fullmatch(identity)
    return await data.sessions(identity) if valid else None


_SPEED = "/dashboard/speed"
_DATA: Mapping[str, Callable[[DashboardData, Mapping[str, str]], Awaitable[bytes | None]]] = {
    "/dashboard/data": lambda data, _: data.data(),
    "/dashboard/history": _history,
    "/dashboard/sessions": _sessions,
    _SPEED: lambda data, _: data.speeds(),
    "/dashboard/what-if": lambda data, _: data.what_if(),
}


def not_found(cycle: RequestCycle) -> CallerFault:
    near = near_path(cycle.path)
    ending = "in" if near.startswith("/v1" + cycle.path) else "without"
    hint = f"The path is {near}: end the client's base URL {ending} /v1." if near else ""
    return CallerFault(
        f"there is no {cycle.path[:200]!r} here", kind="not_found", status=404, hint=hint
    )


def _is_loopback(peer: str) -> bool:
    try:
        return ipaddress.ip_address(peer).is_loopback
    except ValueError:
        return False
