"""One worker of the gateway: its router, front door, metrics, limits and dashboard, put
together."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from splitsecond.core.errors import CallerFault, say
from splitsecond.core.internal_errors import contained
from splitsecond.core.money.closed_early import Billing
from splitsecond.core.observation import Observation
from splitsecond.gateway.dashboard.collection import DashboardData
from splitsecond.gateway.fleet.view import FleetView
from splitsecond.gateway.http.advice import Advice, OperatorNotices
from splitsecond.gateway.http.app import Gateway
from splitsecond.gateway.hub.messages import ToWorker
from splitsecond.gateway.process.slot import SharedTables, WorkerSlot
from splitsecond.gateway.records.access_log import AccessLog
from splitsecond.gateway.records.fleet_ceilings import FleetCeilings
from splitsecond.gateway.records.journal import Journal
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.limits import today, used_tokens, with_budget
from splitsecond.gateway.records.metrics import LogState, Metrics
from splitsecond.gateway.records.orphans import save_orphans, settle
from splitsecond.gateway.records.recent_calls import RecentCalls
from splitsecond.gateway.records.response_owners import ResponseOwners
from splitsecond.gateway.records.session_budgets import SessionBudgets, SessionCounters
from splitsecond.gateway.records.sessions import Sessions
from splitsecond.gateway.records.shared_counters import SharedCounters
from splitsecond.gateway.records.telemetry import Telemetry
from splitsecond.log.production.token_cost import spent_usd
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.hub_connection import HubConnection
from splitsecond.log.store.unwritten import left_before
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.construction.expression import hedge_targets
from splitsecond.routing.router.router import Listeners, Router
from splitsecond.routing.router.settings import Team
from splitsecond.routing.targets.target_states import TargetStates

if TYPE_CHECKING:
    from splitsecond.gateway.fleet.worker_exchange import WorkerExchange
    from splitsecond.gateway.records.limits import Used
    from splitsecond.log.store.log import Log

LEARN_S = 5.0
"""Least time between two look-ups of prices, each of which takes a second of CPU."""
COST_WAIT_S = 10.0
"""How long a call waits for what its cost depends on. A look-up may have to wait for `LEARN_S`
before it begins."""
SPENDING_READ = "\0spending read"
"""A name in the shared counters, which no key has: the first worker has counted what clients spent
before the gateway started."""
EARLIER_S, LOOK_S = 9.0, 0.1
"""How long the first worker waits until calls of an earlier gateway are in the log, and how often
it looks."""
LOG_AWAY_S = 10.0
"""Time between two attempts to read from the log what clients have spent before."""
MAX_UNPRICED = 10_000


class GatewayWorker:
    """One worker of the gateway. Use it within one event loop, and close it at the end.

    What it learned about targets survives a change of settings, except what concerns a key that has
    changed.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        slot: WorkerSlot | None = None,
        *,
        chance: Random | None = None,
    ) -> None:
        """Raises `CallerFault` for settings that cannot be built, or a log that cannot be
        opened."""
        self._slot = slot or WorkerSlot()
        self._spending_unknown = False
        folder = None if self._slot.folder is None else Path(self._slot.folder)
        shared = self._slot.shared
        self._settings = settings
        self._hub = None
        if self._slot.hub is not None:
            self._hub = HubConnection(Path(self._slot.hub), self._slot.number, ToWorker)
        self._metrics = self._own_metrics()
        self._recent = RecentCalls()
        self._telemetry = (
            Telemetry(settings.telemetry, worker=self._slot.number)
            if settings.telemetry is not None
            else None
        )
        self._access_log = (
            None if settings.access_log is None else AccessLog(settings.access_log, say)
        )
        self.router = Router(
            settings,
            say=say,
            is_first=not self._slot.number,
            listeners=Listeners(
                self._observe,
                [
                    self._metrics.add,
                    self._recent.add,
                    *(each.add for each in (self._telemetry, self._access_log) if each),
                ],
                self._charge,
            ),
            chance=chance,
            hub=self._hub,
        )
        self._counters = SharedCounters(
            None if shared is None else shared.counters,
            workers=self._slot.workers,
            number=self._slot.number,
        )
        self._session_counters = SessionCounters(
            None if shared is None else shared.budgets,
            workers=self._slot.workers,
            number=self._slot.number,
        )
        self._session_counters.forfeit()
        self._ceilings: FleetCeilings | None = None
        self._exchange: WorkerExchange | None = None
        if settings.shared is not None:
            self._join_fleet(shared)
        self._journal = None if self._slot.journal is None else Journal(self._slot.journal, say)
        self._limits = self._key_limits()
        if self._journal is not None:
            self._settle(self._journal)
        self._advice = Advice(settings, self.router.directory)
        self._notices = OperatorNotices(self.router.states, say, folder)
        self._unpriced: deque[tuple[str, Observation]] = deque(maxlen=MAX_UNPRICED)
        self._awaited: set[str] = set()
        self._missing_said: set[str] = set()
        self._spending_read = self.router.log is None or self._ceilings is not None
        self._changed, self._learned = asyncio.Event(), asyncio.Event()
        self._dashboard = DashboardData(
            self._metrics,
            self.router.states,
            say,
            log=self.router.log,
            recent=self._recent,
            slots=self._slot.workers,
            fleet=lambda: None if self._exchange is None else self._exchange.view,
        )
        self.gateway = self._own_gateway()
        self._serve()

    def __repr__(self) -> str:
        return repr(self.router)

    def _own_metrics(self) -> Metrics:
        return Metrics(
            hub=None if self._slot.shared is None else self._hub,
            available=self._available,
            cascades=self._cascades,
            log=self._log_state,
            missing=lambda: 0 if self._journal is None else self._journal.missing,
            billing=Billing(
                lambda attempt: self.router.directory.cost_usd(attempt),
                lambda target: self.router.directory.closing_stops_billing(target),
            ),
            hedged=self._hedged,
        )

    def _own_gateway(self) -> Gateway:
        shared, sessions, conversations = self._slot.shared, Sessions(self._slot.sessions), None
        if self._slot.workers > 1:
            conversations = self.router.states.conversations
            conversations.share = sessions.note_cached
        return Gateway(
            tracker=self.router.tracker,
            metrics=self._metrics,
            dashboard=self._dashboard,
            owners=ResponseOwners(None if shared is None else shared.owners),
            sessions=sessions,
            conversations=conversations,
            access_log=self._access_log,
        )

    def _join_fleet(self, shared: SharedTables | None) -> None:
        if self._hub is not None and shared is not None:
            self._ceilings = FleetCeilings(
                shared.ceilings, workers=self._slot.workers, number=self._slot.number
            )
            self._exchange = worker_exchange(self.router.states, self._hub)

    def renew(self, settings: GatewaySettings) -> None:
        """Serve by other settings from the next request on: see `Router.renew`. Raises
        `CallerFault`, and then nothing has changed. After any other exception, too, it serves by
        the old settings."""
        before = self._settings
        try:
            self._use(settings)
        except CallerFault:
            raise
        except Exception:
            self._use(before)
            raise

    def _use(self, settings: GatewaySettings) -> None:
        self.router.renew(settings)
        self._settings = settings
        self._limits = self._key_limits()
        self._advice = Advice(settings, self.router.directory)
        self._notices.renew()
        self._serve()
        self._changed.set()

    async def learn(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._warm_start())
            await self._learn_costs()

    async def _warm_start(self) -> None:
        with contained("task"):
            await self.router.warm_start()

    async def _learn_costs(self) -> None:
        used = None
        while True:
            complete = False
            with contained("task"):
                if used is None:
                    used = await self._used_earlier()
                await self._learn_prices(used or {})
                complete = used is not None
            learned, self._learned = self._learned, asyncio.Event()
            learned.set()
            await asyncio.sleep(LEARN_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), None if complete else LOG_AWAY_S)
            self._changed.clear()

    async def exchange(self) -> None:
        if self._exchange is not None:
            await self._exchange.run()

    def metrics_changed(self) -> None:
        self._metrics.changed()

    def close(self) -> None:
        self._metrics.close()
        self.router.close()
        if self._hub is not None:
            self._hub.close()
        if self._telemetry is not None:
            self._telemetry.close()
        if self._access_log is not None:
            self._access_log.close()

    async def _learn_prices(self, used: "dict[str, Used]") -> None:
        """Learn the prices of routes and of targets that were used, and charge what was `used`
        before and since."""
        used_targets = {tokens.target for each in used.values() for part in each for tokens in part}
        unpriced = [attempt.target for _, attempt in self._unpriced]
        awaited = [*self._awaited]
        self._awaited.clear()
        await self.router.learn_prices([*awaited, *self.router.routed(), *used_targets, *unpriced])
        for name in sorted(used_targets):
            has_left = name.partition("/")[0] not in self._settings.providers
            if has_left and self.router.price(name) is None:
                say(
                    f"{name} has left the configuration and has no known price, so spending limits "
                    f"do not count what it cost earlier."
                )
        self._limits.carry_over(
            {
                counter: (spent_usd(now, self.router.price), spent_usd(before, self.router.price))
                for counter, (now, before) in used.items()
            }
        )
        self._note_spending_read()
        self._say_missing_prices()
        for _ in range(len(self._unpriced)):
            self._limits.charge(*self._unpriced.popleft())

    async def _used_earlier(self) -> "dict[str, Used] | None":
        """Return what keys and teams with a spending limit used before the gateway started, by
        counter; None if the log cannot be read. Only the first worker reads it."""
        log = self.router.log
        # a fleet's database knows
        if log is None or self._slot.number or self._ceilings is not None:
            return {}
        bearers = with_budget(self._settings.keys)
        if bearers:
            await self._wait_for_earlier_records(log)
        try:
            return {
                each.counter: await asyncio.to_thread(
                    used_tokens,
                    log,
                    each.name,
                    self._slot.began,
                    is_team=isinstance(each, Team),
                    of_month=each.usd_per_month is not None,
                )
                for each in bearers
            }
        except CallerFault as fault:
            if not self._spending_unknown:
                say(
                    f"{fault} Until it can be read, spending limits do not count what was spent "
                    f"earlier."
                )
            self._spending_unknown = True
            return None

    async def _wait_for_earlier_records(self, log: "Log") -> None:
        for _ in range(round(EARLIER_S / LOOK_S)):
            if not left_before(log.unwritten, self._slot.began):
                return
            await asyncio.sleep(LOOK_S)
        say(
            f"log {log.where}: spending limits do not count earlier calls that wait in "
            f"{log.unwritten}*."
        )

    def _serve(self) -> None:
        if self._exchange is not None:
            self._exchange.use(self.router.routed(), self._settings.credential)
        self._dashboard.use(self._settings, self._limits, self.router.directory)
        self.gateway.use(
            self.router.routes,
            self._settings.keys,
            listen=self._settings.listen,
            limits=self._limits,
            budgets=self._session_budgets(),
            billing=Billing(
                self.router.directory.cost_usd, self.router.directory.closing_stops_billing
            ),
            advise=self._advice.for_client,
        )

    def _session_budgets(self) -> SessionBudgets | None:
        keys, routes = self._settings.keys, self._settings.budgets
        if not routes and all(key.session is None for key in keys):
            return None
        return SessionBudgets(keys, routes, self._limits, self._session_counters)

    def _key_limits(self) -> KeyLimits:
        return KeyLimits(
            self._settings.keys,
            self.router.directory,
            counters=self._counters,
            journal=self._journal,
            ceilings=self._ceilings,
            unknown=self._unknown,
            learn=self._wait_for_costs,
        )

    def _unknown(self, targets: Sequence[str]) -> str:
        if not self._is_spending_read():
            return "what it has spent"
        unread = (name for name in targets if self.router.directory.price_state(name) == "unread")
        return f"the price of {name}" if (name := next(unread, None)) is not None else ""

    async def _wait_for_costs(self, targets: Sequence[str]) -> None:
        self._awaited.update(targets)
        self._changed.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(COST_WAIT_S):
                while self._unknown(targets):
                    await self._learned.wait()

    def _is_spending_read(self) -> bool:
        self._spending_read = self._spending_read or self._counters.is_carried_over(SPENDING_READ)
        return self._spending_read

    def _note_spending_read(self) -> None:
        if not self._slot.number:
            self._counters.carry_over(SPENDING_READ, today(), 0.0)

    def _say_missing_prices(self) -> None:
        if self._slot.number or not with_budget(self._settings.keys):
            return
        for name in self.router.routed():
            if (
                name not in self._missing_said
                and self.router.directory.price_state(name) == "missing"
            ):
                self._missing_said.add(name)
                say(
                    f"{name} has no known price. Keys with a limit in USD cannot use it: set price "
                    f"in the configuration."
                )

    def _settle(self, journal: Journal) -> None:
        def keep(records: Sequence[CallRecord]) -> bool:
            for each in records:
                self._metrics.add(each)
            log = self.router.log
            if log is not None and (self._hub is None or not save_orphans(log, records)):
                for each in records:
                    log.put(each)
            return True

        keys = self._settings.keys
        settle(self._counters, journal, worker=self._slot.number, keys=keys, keep=keep, say=say)

    def _observe(self, attempt: Observation) -> None:
        if attempt.fault is not None or self._notices.open:
            self._notices.observe(attempt, self._advice)

    def _charge(self, client: str, attempt: Observation) -> None:
        # names that clients invent need no price
        if not self._limits.counts(client) or attempt.unbilled:
            return
        if self.router.directory.knows(attempt.target):
            self._limits.charge(client, attempt)
        else:
            self._unpriced.append((client, attempt))
            self._changed.set()

    def _available(self) -> dict[str, bool]:
        return {
            name: not self.router.states.unavailable_reason(name) for name in self.router.routed()
        }

    def _cascades(self) -> dict[str, tuple[float, bool]]:
        return {
            name: (each.share, each.dearer) for name, each in self.router.states.cascades().items()
        }

    def _hedged(self, route: str) -> frozenset[str] | None:
        policy = self._settings.routes.get(route)
        return None if policy is None else hedge_targets(policy)

    def _log_state(self) -> LogState:
        log = self.router.log
        return LogState() if log is None else LogState(log.dropped, log.waiting, log.failing)


def worker_exchange(states: TargetStates, hub: HubConnection) -> "WorkerExchange":
    from splitsecond.gateway.fleet.worker_exchange import WorkerExchange

    exchange = WorkerExchange(states, hub.post)
    hub.handlers[FleetView] = exchange.received
    return exchange
