"""Collection of the dashboard's data, on request: serving requests costs nothing extra."""

import asyncio
import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from splitsecond import __version__
from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.dashboard.client_data import (
    Requests,
    client_overviews,
    requests_by,
    team_overviews,
)
from splitsecond.gateway.dashboard.data import (
    Overview,
    calls_by_cache_result,
    fleet_overview,
    recent_calls,
    recent_failures,
    route_overviews,
    target_overviews,
    worker_overviews,
)
from splitsecond.gateway.dashboard.speed_grades import SpeedPages, SpeedQuestion
from splitsecond.gateway.dashboard.spending import LoggedSpending, Spending, spenders
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.metric_fields import MetricCounts, ProcessMetrics
from splitsecond.gateway.records.metrics import OTHER, Metrics
from splitsecond.gateway.records.recent_calls import RecentCalls
from splitsecond.log.store.call_record import DIRECT
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.construction.preview import PreviewedChoice, preview, sample
from splitsecond.routing.router.explain import PROMPT
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.target_states import TargetStates

if TYPE_CHECKING:
    from splitsecond.gateway.dashboard.sessions import SessionPages
    from splitsecond.gateway.fleet.view import FleetView
    from splitsecond.log.store.log import Log

FRESH_NS = clock.NS_PER_S
PREVIEW_NS = 10 * clock.NS_PER_S
MAX_PREVIEWS = 4
"""Policies previewed for one request. Each takes some milliseconds."""
HISTORY_NS = 10 * clock.NS_PER_S
PERIOD_S = {1: 60, 6: 300, 24: 1200, 168: 7200}
"""Length of a period of a history in seconds, by the hours that it covers: up to 84 periods."""
CALLS = 10
"""Simulated calls of a preview."""


class DashboardData:
    """The dashboard's data, as one worker sees them. `slots`: configured number of workers.
    `fleet`: returns what is known of the fleet."""

    def __init__(
        self,
        metrics: Metrics,
        states: TargetStates,
        say: Callable[[str], None],
        *,
        log: "Log | None",
        recent: RecentCalls | None = None,
        slots: int = 1,
        fleet: "Callable[[], FleetView | None]" = lambda: None,
    ) -> None:
        self._metrics = metrics
        self._recent = recent or RecentCalls()
        self._histories: dict[int, tuple[int, bytes]] = {}
        self._reading = asyncio.Lock()
        self._speed_pages = SpeedPages()
        self._session_pages: SessionPages | None = None
        self._states = states
        self._log = log
        self._slots = slots
        self._fleet = fleet
        self._cached = b""
        self._cached_ns = 0
        self._previews: dict[str, tuple[int, list[PreviewedChoice]]] = {}
        self._spending = LoggedSpending(log, say)

    def use(self, settings: GatewaySettings, limits: KeyLimits, directory: TargetDirectory) -> None:
        self._settings = settings
        self._limits = limits
        self._directory = directory
        self._cached = b""
        self._previews = {}

    async def data(self) -> bytes:
        now_ns = clock.now_ns()
        if not self._cached or now_ns - self._cached_ns >= FRESH_NS:
            await self._preview(now_ns)
            self._cached = msgspec.json.encode(await self._overview(now_ns))
            self._cached_ns = now_ns
        return self._cached

    async def history(self, hours: int) -> bytes | None:
        """Return the calls of the last `hours` in periods as JSON, a key of `PERIOD_S`; None
        without a log.

        Raises `CallerFault` for another number of hours, or if the log cannot be read.
        """
        if self._log is None:
            return None
        if hours not in PERIOD_S:
            raise CallerFault(
                f"hours must be one of {', '.join(map(str, PERIOD_S))}", kind="bad_hours"
            )
        async with self._reading:
            entry = self._histories.get(hours)
            now_ns = clock.now_ns()
            if entry is None or now_ns - entry[0] >= HISTORY_NS:
                period = timedelta(seconds=PERIOD_S[hours])
                since = clock.wall_time() - timedelta(hours=hours)
                periods = await asyncio.to_thread(self._log.periods, since, period)
                read = {
                    "period_s": PERIOD_S[hours],
                    "since_s": since.timestamp(),
                    "periods": periods,
                }
                entry = self._histories[hours] = now_ns, msgspec.json.encode(read)
        return entry[1]

    async def speeds(self) -> bytes | None:
        """Return the page of speed grades; None without a log. Raises `CallerFault` if the log
        cannot be read."""
        return None if self._log is None else await self._speed_pages.page(self._speed_question)

    async def sessions(self, session: str) -> bytes | None:
        """Return the sessions of the log as JSON, or one of them; None without a log, or if it does
        not have it.

        Raises `CallerFault` if the log cannot be read.
        """
        if self._log is None or self._settings.log is None:
            return None
        if self._session_pages is None:
            # the log has imported its database
            from splitsecond.gateway.dashboard.sessions import SessionPages

            self._session_pages = SessionPages()
        return await self._session_pages.data(
            self._log, self._settings.log.url, self._directory.price, session
        )

    async def what_if(self) -> bytes | None:
        """Return the latest answer of `what-if` over the log as JSON, "null" without one; None
        without a log. Raises `CallerFault` if it cannot be read."""
        if self._log is None or self._settings.log is None:
            return None
        # the log has imported its database
        from splitsecond.log.store.kept_answer import kept_answer

        return await asyncio.to_thread(kept_answer, self._settings.log.url) or b"null"

    async def _speed_question(self) -> SpeedQuestion:
        assert self._log is not None  # checked by `speeds`
        assert self._settings.log is not None  # it has opened the log
        names = await asyncio.to_thread(self._log.targets)
        prices = {
            name: price for name in names if (price := self._directory.price(name)) is not None
        }
        return SpeedQuestion(url=self._settings.log.url, prices=prices)

    async def _overview(self, now_ns: int) -> Overview:
        counts, metrics = self._metrics.collected(await self._metrics.others())
        processes = [each for each in metrics if not each.fleet_connected]  # the hub is no worker
        policies, keys = self._settings.routes, self._settings.keys
        usd_today, spending = await self._spent(counts, processes, now_ns)
        targets, more_targets = target_overviews(
            counts, processes, policies.values(), self._states, self._is_usable
        )
        clients, more_clients = client_overviews(counts, keys, self._limits, spending)
        return Overview(
            version=__version__,
            at_s=now_ns / clock.NS_PER_S,
            pid=os.getpid(),
            slots=self._slots,
            workers=worker_overviews(processes, now_ns),
            requests=requests_by(counts, lambda route, client: "").get("", Requests()),
            rejected=sum(number for (route, _, _), number in counts.requests.items() if not route),
            direct=requests_by(counts, lambda route, client: route).get(DIRECT, Requests()),
            in_flight=sum(process.in_flight for process in processes),
            attempts=sum(counts.attempts.values()),
            lost=sum(counts.lost.values()),
            lost_usd=sum(counts.lost_usd.values()),
            lost_low_usd=sum(counts.lost_low_usd.values()),
            lost_high_usd=sum(counts.lost_high_usd.values()),
            input_tokens=_tokens(counts, "input"),
            output_tokens=_tokens(counts, "output"),
            usd=sum(counts.cost_usd.values()),
            usd_today=usd_today,
            cache=calls_by_cache_result(counts),
            routes=route_overviews(
                counts, policies, {name: choices for name, (_, choices) in self._previews.items()}
            ),
            targets=targets,
            clients=clients,
            teams=team_overviews(counts, keys, self._limits, spending),
            escalated=processes[0].escalated,
            more_targets=more_targets,
            more_clients=more_clients,
            logged=self._log is not None,
            calls=recent_calls(self._recent),
            failures=recent_failures(self._recent),
            fleet=fleet_overview(view, now_ns) if (view := self._fleet()) is not None else None,
        )

    def _is_usable(self, target: str) -> bool:
        """Return whether a client could name a target: its provider may have left the
        configuration."""
        if target == OTHER:  # targets beyond those that the metrics name
            return True
        try:
            self._settings.spec(target)
        except CallerFault:
            return False
        return True

    async def _spent(
        self, counts: MetricCounts, processes: list[ProcessMetrics], now_ns: int
    ) -> tuple[float | None, dict[str, Spending]]:
        usd_by_client: dict[str, float] = {}
        for (client, _), usd in counts.cost_usd.items():
            usd_by_client[client] = usd_by_client.get(client, 0.0) + usd
        up_s = (now_ns - min(process.began_ns for process in processes)) / clock.NS_PER_S
        began = clock.wall_time() - timedelta(seconds=up_s)
        by_counter = spenders(self._settings.keys, self._settings.listen.client)
        return await self._spending.spent(by_counter, usd_by_client, began, self._directory.price)

    async def _preview(self, now_ns: int) -> None:
        routes, previews = self._settings.routes, self._previews  # `use` may replace both meanwhile
        due = [name for name in routes if now_ns - self._previewed_ns(name) >= PREVIEW_NS]
        for name in sorted(due, key=self._previewed_ns)[:MAX_PREVIEWS]:
            previews[name] = (
                now_ns,
                await preview(routes[name], self._states, sample(PROMPT), route=name, calls=CALLS),
            )

    def _previewed_ns(self, route: str) -> int:
        return self._previews[route][0] if route in self._previews else -PREVIEW_NS


def _tokens(counts: MetricCounts, direction: str) -> int:
    return sum(number for (_, each), number in counts.tokens.items() if each == direction)
