"""The data of the dashboard, gathered when somebody asks: nothing is kept or counted for it while requests are served.

What it takes is bounded, however many look: within `FRESH_NS` all are given the same, and a policy is tried out only
every `AGAIN_NS`, a few at a time, with calls enough to see which way they go.

What was spent today is what the log holds of today when this is first asked, and what the counters have counted since.
What had ended a moment before and was not written yet is missing there: a second's worth at most.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from splitsecond import __version__, clock
from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.settings import Settings
from splitsecond.gateway.dashboard.data import (
    Overview,
    Requests,
    cached,
    clients_seen,
    requests_by,
    routes_seen,
    targets_seen,
    workers_seen,
)
from splitsecond.gateway.explain import PROMPT
from splitsecond.gateway.facts import TargetFacts
from splitsecond.gateway.records.allowance import Allowance, today
from splitsecond.gateway.records.history import spent_usd
from splitsecond.gateway.records.metrics import Metrics, Process
from splitsecond.policy.preview import Choice, preview, sample
from splitsecond.policy.targets.standing import Standing

if TYPE_CHECKING:
    from splitsecond.store.log import Log
    from splitsecond.store.reading import Tokens

FRESH_NS = clock.NS_PER_S
AGAIN_NS = 10 * clock.NS_PER_S
TRIED_AT_ONCE = 4
"""Policies, each of which takes some milliseconds."""
CALLS = 10


class Gathering:
    """Of one worker. `seats`: how many there are. `log`: None where none is kept."""

    def __init__(
        self, metrics: Metrics, standing: Standing, say: Callable[[str], None], *, log: "Log | None", seats: int = 1
    ) -> None:
        self._metrics = metrics
        self._standing = standing
        self._say = say
        self._log = log
        self._seats = seats
        self._fresh = b""
        self._fresh_ns = 0
        self._tried: dict[str, tuple[int, list[Choice]]] = {}
        self._day = -1
        self._used: list[Mapping[str, Tokens]] = []
        self._counted_usd = 0.0  # when `_used` was read

    def use(self, settings: Settings, allowance: Allowance, facts: TargetFacts) -> None:
        """These are in force from here on."""
        self._settings = settings
        self._allowance = allowance
        self._facts = facts
        self._fresh = b""
        self._tried = {}

    async def data(self) -> bytes:
        """An `Overview`, as JSON."""
        now_ns = clock.now_ns()
        if not self._fresh or now_ns - self._fresh_ns >= FRESH_NS:
            await self._try_out(now_ns)
            self._fresh = msgspec.json.encode(await self._overview(now_ns))
            self._fresh_ns = now_ns
        return self._fresh

    async def _overview(self, now_ns: int) -> Overview:
        counts, processes = self._metrics.collected()
        usd = sum(counts.cost_usd.values())
        usd_today = await self._today_usd(usd, processes, now_ns)
        policies, keys = self._settings.routes, self._settings.keys
        targets, more_targets = targets_seen(counts, processes, policies.values(), self._standing)
        clients, more_clients = clients_seen(counts, keys, self._allowance)
        return Overview(
            version=__version__,
            at_s=now_ns / clock.NS_PER_S,
            asked=os.getpid(),
            seats=self._seats,
            workers=workers_seen(processes, now_ns),
            requests=requests_by(counts, lambda route, client: "").get("", Requests()),
            no_calls=sum(number for (route, _, _), number in counts.requests.items() if not route),
            direct=requests_by(counts, lambda route, client: route).get("direct", Requests()),
            in_flight=sum(process.in_flight for process in processes),
            attempts=sum(counts.attempts.values()),
            lost=sum(counts.lost.values()),
            lost_usd=sum(counts.lost_usd.values()),
            input_tokens=sum(counts.input_tokens.values()),
            output_tokens=sum(counts.output_tokens.values()),
            usd=usd,
            usd_today=usd_today,
            cache=cached(counts),
            routes=routes_seen(counts, policies, {name: choices for name, (_, choices) in self._tried.items()}),
            targets=targets,
            clients=clients,
            escalated={policy: share for policy, (share, _) in processes[0].cascades.items()},
            more_targets=more_targets,
            more_clients=more_clients,
        )

    async def _try_out(self, now_ns: int) -> None:
        """Those routes that have waited longest for it."""
        routes, tried = self._settings.routes, self._tried  # which may be others by the time that this has ended
        due = [name for name in routes if now_ns - self._tried_ns(name) >= AGAIN_NS]
        for name in sorted(due, key=self._tried_ns)[:TRIED_AT_ONCE]:
            tried[name] = now_ns, await preview(routes[name], self._standing, sample(PROMPT), calls=CALLS)

    def _tried_ns(self, route: str) -> int:
        return self._tried[route][0] if route in self._tried else -AGAIN_NS

    async def _today_usd(self, usd: float, processes: list[Process], now_ns: int) -> float | None:
        """`usd`: what the counters hold."""
        if self._log is None:
            since_midnight_ns = clock.wall_time().timestamp() % (24 * 3600) * clock.NS_PER_S
            began_ns = min(process.began_ns for process in processes)
            return usd if now_ns - began_ns < since_midnight_ns else None
        if self._day != today():
            await self._read(self._log, usd)
        return sum(spent_usd(used, self._facts.price) for used in self._used) + usd - self._counted_usd

    async def _read(self, log: "Log", usd: float) -> None:
        """Reads what was spent of today so far. Where it cannot be read that is said, and counting begins here."""
        midnight = clock.wall_time().replace(hour=0, minute=0, second=0, microsecond=0)
        clients = [key.name for key in self._settings.keys] or [""]
        day, used = today(), []
        try:
            used = [await asyncio.to_thread(log.spent_tokens, client, midnight) for client in clients]
        except CallerFault as fault:
            self._say(f"{fault} The dashboard's cost of today begins here.")
        self._day, self._used, self._counted_usd = day, used, usd
