"""One worker of the gateway: its router, front door, metrics, limits and dashboard, put together."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct, field

from splitsecond import clock
from splitsecond.analysis.cost import unbilled
from splitsecond.errors import CallerFault, say
from splitsecond.gateway.advice import Advice, OperatorNotices
from splitsecond.gateway.app import Gateway
from splitsecond.gateway.configuration.settings import GatewaySettings
from splitsecond.gateway.dashboard.collection import DashboardData
from splitsecond.gateway.records.access_log import AccessLog
from splitsecond.gateway.records.extra_attempts import hedge_targets
from splitsecond.gateway.records.fleet_ceilings import FILE, FleetCeilings
from splitsecond.gateway.records.journal import Journal
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.metrics import LogState, Metrics
from splitsecond.gateway.records.orphans import journal_of, save_orphans, settle
from splitsecond.gateway.records.recent_calls import RecentCalls
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.gateway.records.shared_counters import SHARED_COUNTERS, SharedCounters
from splitsecond.gateway.records.telemetry import Telemetry
from splitsecond.observation import Observation
from splitsecond.policies.targets.target_states import TargetStates
from splitsecond.router.router import Router
from splitsecond.router.warm_start import spent_usd
from splitsecond.store.call_record import CallRecord
from splitsecond.store.unwritten import left_before

if TYPE_CHECKING:
    from splitsecond.gateway.fleet.worker_exchange import WorkerExchange
    from splitsecond.store.log import Log, SpentTokens

RESPONSE_OWNERS = "response-owners"
"""The file of the table of stored responses that workers share, in their folder."""
LEARN_S = 5.0
"""Least time between two look-ups of prices, each of which takes a second of CPU."""
EARLIER_S, LOOK_S = 9.0, 0.1
"""How long the first worker waits until calls of an earlier gateway are in the log, and how often it looks."""
LOG_AWAY_S = 10.0
"""Time between two attempts to read from the log what clients have spent today."""
MOST_UNPRICED = 10_000
"""Attempts that wait for the price of their target."""


class WorkerSlot(Struct, frozen=True, kw_only=True):
    """The number of a worker among the workers of a gateway.

    `folder`: a temporary folder that all of them may write to; None: there is only one worker. `journal`: how the paths
    of the workers' journals begin; None: there are none. `log`: the socket of the log process; None: there is none.
    `began`: when the gateway started.
    """

    number: int = 0
    workers: int = 1
    folder: str | None = None
    journal: str | None = None
    log: str | None = None
    began: datetime = field(default_factory=clock.wall_time)


class GatewayWorker:
    """One worker of the gateway. Use it within one event loop, and close it at the end.

    What it learned about targets survives a change of settings, except what concerns a key that has changed.
    """

    def __init__(
        self, settings: GatewaySettings, slot: WorkerSlot | None = None, *, chance: Random | None = None
    ) -> None:
        """`chance`: source of random choices. Raises `CallerFault` for settings that cannot be built, or a log that
        cannot be opened."""
        self._slot = slot or WorkerSlot()
        self._spending_unknown = False
        folder = None if self._slot.folder is None else Path(self._slot.folder)
        self._settings = settings
        self._metrics = Metrics(
            folder=folder,
            available=self._available,
            cascades=self._cascades,
            log=self._log_state,
            cost=lambda attempt: self.router.directory.cost_usd(attempt),
            stops_billing=lambda target: self.router.directory.closing_stops_billing(target),
            hedged=self._hedged,
        )
        self._recent = RecentCalls()
        self._telemetry = (
            Telemetry(settings.telemetry, worker=self._slot.number) if settings.telemetry is not None else None
        )
        self._access_log = None if settings.access_log is None else AccessLog(settings.access_log, say)
        self.router = Router(
            settings,
            say=say,
            observe=self._observe,
            sinks=[
                self._metrics.took,
                self._recent.took,
                *(each.took for each in (self._telemetry, self._access_log) if each),
            ],
            charge=self._charge,
            chance=chance,
            log_process=None if self._slot.log is None else Path(self._slot.log),
            worker=self._slot.number,
        )
        self._counters = SharedCounters(
            folder and folder / SHARED_COUNTERS, workers=self._slot.workers, number=self._slot.number
        )
        self._ceilings: FleetCeilings | None = None
        self._exchange: WorkerExchange | None = None
        if settings.shared is not None and folder is not None:
            self._ceilings = FleetCeilings(folder / FILE, workers=self._slot.workers, number=self._slot.number)
            self._exchange = worker_exchange(folder, self._slot.number, self.router.states)
        stem = self._slot.journal
        self._journal = None if stem is None else journal_of(Path(stem), self._slot.number)
        self._limits = self._key_limits()
        if self._journal is not None:
            self._settle(self._journal)
        self._advice = Advice(settings, self.router.directory)
        self._notices = OperatorNotices(self.router.states, say, folder)
        self._unpriced: deque[tuple[str, Observation]] = deque(maxlen=MOST_UNPRICED)
        self._changed = asyncio.Event()
        self._dashboard = DashboardData(
            self._metrics,
            self.router.states,
            say,
            log=self.router.log,
            recent=self._recent,
            slots=self._slot.workers,
            fleet=lambda: None if self._exchange is None else self._exchange.view,
        )
        self.gateway = Gateway(
            self.router.routes,
            tracker=self.router.tracker,
            metrics=self._metrics,
            overview=self._dashboard.data,
            history=self._dashboard.history,
            speeds=self._dashboard.speeds,
            owners=ResponseOwners(folder and folder / RESPONSE_OWNERS),
            access_log=self._access_log,
        )
        self._serve()

    def __repr__(self) -> str:
        return repr(self.router)

    def renew(self, settings: GatewaySettings) -> None:
        """Serve by other settings from the next request on: see `Router.renew`. Raises `CallerFault`."""
        self.router.renew(settings)
        self._settings = settings
        self._limits = self._key_limits()
        self._advice = Advice(settings, self.router.directory)
        self._notices.renew()
        self._serve()
        self._changed.set()

    async def learn(self) -> None:
        """Learn how fast targets were, then what they cost, until cancelled. Requests do not wait for it."""
        await self.router.warm_start()
        used = await self._used_today()
        while True:
            known = used or {}
            used_targets = [target for each in known.values() for target in each]
            unpriced = [attempt.target for _, attempt in self._unpriced]
            await self.router.learn_prices([*self.router.routed(), *used_targets, *unpriced])
            self._limits.carry_over({client: spent_usd(each, self.router.price) for client, each in known.items()})
            for _ in range(len(self._unpriced)):
                self._limits.charge(*self._unpriced.popleft())
            await asyncio.sleep(LEARN_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), LOG_AWAY_S if used is None else None)
            self._changed.clear()
            if used is None:
                used = await self._used_today()

    async def exchange(self) -> None:
        """Exchange what was learned with the other workers of the fleet until cancelled; return if there is none."""
        if self._exchange is not None:
            await self._exchange.run()

    def close(self) -> None:
        """Close all connections to providers, and write the records and metrics that are not written yet."""
        self.router.close()
        self._metrics.close()
        if self._telemetry is not None:
            self._telemetry.close()
        if self._access_log is not None:
            self._access_log.close()
        if self._journal is not None:
            self._journal.close()

    async def _used_today(self) -> "dict[str, Mapping[str, SpentTokens]] | None":
        """Return what clients with a spending limit used today before the gateway started, by target; None if the log
        cannot be read. Only the first worker reads it."""
        log = self.router.log
        if log is None or self._slot.number or self._ceilings is not None:  # a fleet's database knows
            return {}
        clients = [key.name for key in self._settings.keys if key.usd_per_day is not None]
        if clients:
            await self._wait_for_earlier_records(log)
        today = clock.wall_time().replace(hour=0, minute=0, second=0, microsecond=0)
        try:
            return {
                client: await asyncio.to_thread(log.spent_tokens, client, today, self._slot.began) for client in clients
            }
        except CallerFault as fault:
            if not self._spending_unknown:
                say(f"{fault} Until it can be read, spending limits do not count what was spent earlier today.")
            self._spending_unknown = True
            return None

    async def _wait_for_earlier_records(self, log: "Log") -> None:
        """Wait until the log process has written what an earlier gateway left in files, for `EARLIER_S` at most."""
        for _ in range(round(EARLIER_S / LOOK_S)):
            if not left_before(log.unwritten, self._slot.began):
                return
            await asyncio.sleep(LOOK_S)
        say(f"log {log.where}: spending limits do not count earlier calls that wait in {log.unwritten}*.")

    def _serve(self) -> None:
        listen = self._settings.listen
        if self._exchange is not None:
            self._exchange.use(self.router.routed(), self._settings.credential)
        self._dashboard.use(self._settings, self._limits, self.router.directory)
        self.gateway.use(
            self.router.routes,
            self._settings.keys,
            max_body_bytes=listen.max_body_mib << 20,
            limits=self._limits,
            metrics_for=listen.metrics,
            cors=listen.cors,
            advise=self._advice.for_client,
            cost=self.router.directory.cost_usd,
            stops_billing=self.router.directory.closing_stops_billing,
        )

    def _key_limits(self) -> KeyLimits:
        return KeyLimits(
            self._settings.keys,
            self.router.directory.cost_usd,
            counters=self._counters,
            journal=self._journal,
            most_output=self.router.directory.output_tokens,
            ceilings=self._ceilings,
        )

    def _settle(self, journal: Journal) -> None:
        """Charge and log the calls of a worker that died in this slot."""

        def keep(found: Sequence[CallRecord]) -> None:
            for each in found:
                self._metrics.took(each)
            log = self.router.log
            if log is None or (self._slot.log is not None and save_orphans(log, found)):
                return
            for each in found:
                log.put(each)

        names = [key.name for key in self._settings.keys]
        settle(self._counters, journal, worker=self._slot.number, keys=names, keep=keep, say=say)

    def _observe(self, attempt: Observation) -> None:
        if attempt.fault is not None or self._notices.open:
            self._notices.observe(attempt, self._advice)

    def _charge(self, client: str, attempt: Observation) -> None:
        """Charge an attempt that has ended, or keep it until its price has been looked up."""
        if not self._limits.counts(client) or unbilled(attempt):  # names that clients invent need no price
            return
        if self.router.directory.knows(attempt.target):
            self._limits.charge(client, attempt)
        else:
            self._unpriced.append((client, attempt))
            self._changed.set()

    def _available(self) -> dict[str, bool]:
        return {name: not self.router.states.unavailable_reason(name) for name in self.router.routed()}

    def _cascades(self) -> dict[str, tuple[float, bool]]:
        return {name: (each.share, each.dearer) for name, each in self.router.states.cascades().items()}

    def _hedged(self, route: str) -> frozenset[str] | None:
        policy = self._settings.routes.get(route)
        return None if policy is None else hedge_targets(policy)

    def _log_state(self) -> LogState:
        log = self.router.log
        return LogState() if log is None else LogState(log.dropped, log.waiting, log.failing)


def worker_exchange(folder: Path, number: int, states: TargetStates) -> "WorkerExchange":
    """Return the exchange of a worker with its fleet process. Its module is loaded in a fleet only."""
    from splitsecond.gateway.fleet.worker_exchange import WorkerExchange

    return WorkerExchange(folder, number, states)
