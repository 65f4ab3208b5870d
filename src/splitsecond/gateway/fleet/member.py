"""A gateway as a member of its fleet: it exchanges reports with the fleet's database, for all
workers."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import psycopg

from splitsecond import __version__
from splitsecond.core import clock
from splitsecond.core.internal_errors import contained
from splitsecond.gateway.fleet.database import About, Answer, FleetDatabase, NameTaken, Neighbour
from splitsecond.gateway.fleet.holder import Holder, LimitUse
from splitsecond.gateway.fleet.learning import Learning
from splitsecond.gateway.fleet.settings import FleetSettings, LimitedKey
from splitsecond.gateway.fleet.shared_limit import SILENT_S, Period
from splitsecond.gateway.fleet.view import FleetView
from splitsecond.gateway.records.fleet_ceilings import NANO, FleetCeilings, Limit
from splitsecond.gateway.records.key_limits import MINUTE_NS
from splitsecond.gateway.records.limits import DAY_S, today
from splitsecond.gateway.records.metric_fields import ProcessMetrics
from splitsecond.gateway.records.metrics import process_metrics
from splitsecond.gateway.records.session_budgets import SessionCounters
from splitsecond.gateway.records.shared_counters import MAX_NAMES, SharedCounters, nano
from splitsecond.routing.router.settings import Team

EVERY_S = 1.0
"""Time between two exchanges."""
LOOK_S = 0.05
"""Time between two looks at the counters, to report early. Also the least time between two
exchanges."""
AWAY_S = 3.0
"""Time without an answer after which the database is reported to be away."""
MAX_AT_ONCE = 200
"""Limits in one exchange."""
SLEW = 0.005
"""By how much the minutes may be shifted each second to follow the database's clock, as a share of
it."""
END_S = 30.0
"""How long the calls of workers that have died may have money reserved at the end."""
AGAIN_NS = clock.NS_PER_S
"""Counts that changed so long before the last exchange are sent again: a worker may have been about
to write them."""
TAKE_OVER_S = 2.0
"""How long a gateway of the same name must be silent to be replaced."""
_LIMITS: dict[Period, Limit] = {"minute": "requests", "day": "usd", "month": "usd_per_month"}


class FleetMember:
    """`learning` gets the reports of the workers; `publish` their views, by number."""

    def __init__(
        self,
        settings: FleetSettings,
        say: Callable[[str], None],
        publish: Callable[[int, FleetView], None] = lambda worker, view: None,
    ) -> None:
        self._workers = settings.workers
        self._say = say
        self._counters = SharedCounters(settings.counters, workers=settings.workers)
        self._ceilings = FleetCeilings(settings.ceilings, workers=settings.workers)
        self._sessions = SharedSessions(
            SessionCounters(settings.budgets, workers=settings.workers, number=None)
        )
        self.learning = Learning(settings.workers, say, publish)
        self._database = FleetDatabase(settings.url, settings.gateway, settings.instance)
        self._instance = settings.instance
        self._holders: dict[str, Holder] = {}
        self._registered = False
        self._short: frozenset[str] = frozenset()
        self._answer: Answer | None = None
        self._away = self._full = self._unlearned = False
        self._failures = 0
        self._tried_ns = 0
        self._began_ns = clock.now_ns()
        self.use(settings.keys)

    def use(self, keys: Iterable[LimitedKey]) -> None:
        limits: dict[str, tuple[Period, str, int]] = {}
        for key in keys:
            counter = Team(key.name).counter if key.is_team else key.name
            # a key may have the name of a team
            kind = "team " if key.is_team else ""
            if key.requests_per_minute is not None:
                limits[f"{kind}requests of {key.name}"] = "minute", counter, key.requests_per_minute
            if key.usd_per_day is not None:
                limits[f"{kind}usd of {key.name}"] = "day", counter, nano(key.usd_per_day)
            if key.usd_per_month is not None:
                amount = nano(key.usd_per_month)
                limits[f"{kind}usd per month of {key.name}"] = "month", counter, amount
        for name, (period, client, amount) in limits.items():
            if name in self._holders:
                self._holders[name].limit = amount
            else:
                ceiling, share = self._ceilings.held(_LIMITS[period], client)
                self._holders[name] = Holder(
                    period, amount, client=client, ceiling=ceiling, share=share
                )
        for name in self._holders.keys() - limits.keys():
            self._holders[name].limit = 0  # the next reports give its part back

    async def run(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            with contained("task"):
                await self.step()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), LOOK_S)
        await self._leave()

    async def step(self) -> None:
        now_ns = clock.now_ns()
        uses = {name: self._use(holder) for name, holder in self._holders.items()}
        due = now_ns - self._tried_ns >= EVERY_S * clock.NS_PER_S
        short = [name for name, holder in self._holders.items() if holder.is_short(uses[name])]
        if due or (short and not self._away):
            self._tried_ns = now_ns
            answered = await self._exchange(uses, due=due)
        self._apply()
        if due:
            await self._learn(answered)

    async def _exchange(self, uses: dict[str, LimitUse], *, due: bool) -> bool:
        try:
            if not self._registered:
                await self._register()
            names = [
                name
                for name, holder in self._holders.items()
                if holder.wants_report(uses[name]) or name in self._short
            ]
            for begin in range(0, max(len(names), 1), MAX_AT_ONCE):
                await self._report(names[begin : begin + MAX_AT_ONCE], uses)
            if due:
                await self._sessions.exchange(self._database)
        except (psycopg.Error, OSError) as error:
            self._failures += 1
            self._registered = self._registered and not isinstance(error, NameTaken)
            self._failed(self._database.error_text(error))
            return False
        if self._away:
            self._say("the database of the fleet answers again; limits are shared again.")
        self._away = False
        return True

    async def _learn(self, answers: bool) -> None:
        self.learning.collect(clock.now_ns())
        if answers:
            try:
                await self.learning.exchange(self._database)
                self._unlearned = False
            except (psycopg.Error, OSError) as error:
                self._failures += 1
                if not self._unlearned:
                    self._say(
                        f"gateways do not learn from each other now: "
                        f"{self._database.error_text(error)}"
                    )
                self._unlearned = True
        self.learning.publish(self._database.name, self._fleet(), self._ceilings.reached_ns)

    async def _register(self) -> None:
        namesake = await self._database.instance_of(self._database.name)
        if namesake is not None and namesake[0] != self._instance:
            await asyncio.sleep(TAKE_OVER_S)
            if await self._database.instance_of(self._database.name) != namesake:
                self._say(
                    f"another gateway of the fleet is named {self._database.name}; this one gets "
                    f"a longer name."
                )
                self._database.name += f"#{self._instance[:4]}"
        self._database.may_take_over = True
        self._registered = True

    async def _report(self, names: list[str], uses: dict[str, LimitUse]) -> None:
        begin_ns = clock.now_ns()
        holders = {name: self._holders[name] for name in names}
        reports = {name: holder.report(uses[name], begin_ns) for name, holder in holders.items()}
        periods = {name: holder.period for name, holder in holders.items()}
        before = {each.name for each in self._fleet()}
        answer = await self._database.exchange(reports, periods, self._about())
        for name, lease in answer.leases.items():
            holders[name].take(lease)
        self._answer, self._short = answer, answer.short
        if before != {each.name for each in answer.fleet}:
            self._short |= frozenset(self._holders)  # all shares change
        offset_ns = self._offset_ns(answer, begin_ns)
        self._ceilings.reach(begin_ns, begin_ns + round(SILENT_S * clock.NS_PER_S), offset_ns)

    def _fleet(self) -> tuple[Neighbour, ...]:
        return () if self._answer is None else self._answer.fleet

    def _offset_ns(self, answer: Answer, now_ns: int) -> int:
        """Return the offset of the minutes: the database's at first, later moved towards it, slowly
        and never back."""
        wanted_ns = round(answer.wall_s * clock.NS_PER_S) - answer.at_ns
        reached_ns, current_ns = self._ceilings.reached_ns, self._ceilings.offset_ns
        if not reached_ns:
            return wanted_ns
        most_ns = round((now_ns - reached_ns) * SLEW)
        apart_ns = (wanted_ns - current_ns + MINUTE_NS // 2) % MINUTE_NS - MINUTE_NS // 2
        return current_ns + min(max(apart_ns, -most_ns), most_ns)

    def _use(self, holder: Holder) -> LimitUse:
        """Return what all workers of this gateway use of a limit.

        Workers count by this machine's day, and the database by its own. If these differ, the
        larger sum is used: a wall clock that steps over midnight must not free what was spent.
        """
        client, refused = (
            holder.client,
            self._ceilings.refused(_LIMITS[holder.period], holder.client),
        )
        if holder.period != "minute":
            days = {today(), self._day()}
            spent = max(self._counters.spent_usd(client, day, holder.period) for day in days)
            return LimitUse(max(nano(spent + self._counters.reserved_usd(client)), 0), refused)
        minute, into_ns = divmod(clock.now_ns() + self._ceilings.offset_ns, MINUTE_NS)
        current, previous = self._counters.requests(client, minute)
        return LimitUse(current - (-previous * (MINUTE_NS - into_ns) // MINUTE_NS), refused)

    def _day(self) -> int:
        if self._answer is None:
            return today()
        since_s = (clock.now_ns() - self._answer.at_ns) / clock.NS_PER_S
        return int((self._answer.wall_s + since_s) // DAY_S)

    def _apply(self) -> None:
        reached_ns = self._ceilings.reached_ns
        for holder in self._holders.values():
            if reached_ns:
                holder.alone((clock.now_ns() - reached_ns) / clock.NS_PER_S)
            has_room = self._ceilings.set(
                _LIMITS[holder.period],
                holder.client,
                ceiling=holder.ceiling,
                share=holder.share,
                others=holder.others,
            )
            if not has_room and not self._full:
                self._full = True
                self._say(
                    f"more than {MAX_NAMES:,} keys with limits were configured since the gateway "
                    f"started, so {_label(holder.client)} and others are refused. Restart the "
                    f"gateway, with fewer keys with limits."
                )

    def _failed(self, why: str) -> None:
        reached_ns = self._ceilings.reached_ns
        if self._away or (reached_ns and clock.now_ns() - reached_ns < AWAY_S * clock.NS_PER_S):
            return
        self._away = True
        so = (
            "this gateway uses its part of each limit"
            if reached_ns
            else "keys with limits are refused until it does"
        )
        self._say(f"the database of the fleet does not answer, so {so}: {why}")

    def _about(self) -> About:
        names = tuple(each.name for each in self._fleet() if each.silent_s < SILENT_S)
        return About(version=__version__, workers=self._workers, sees=names)

    def metrics(self) -> ProcessMetrics:
        reached_ns, name = self._ceilings.reached_ns, self._database.name
        age_s = (clock.now_ns() - reached_ns) / clock.NS_PER_S
        return process_metrics(
            began_ns=self._began_ns,
            fleet_connected={name: bool(reached_ns) and not self._away},
            fleet_gateway_up={each.name: each.silent_s < SILENT_S for each in self._fleet()},
            fleet_answer_age_s={name: age_s} if reached_ns else {},
            fleet_failures={name: self._failures},
            fleet_reports_invalid={name: self.learning.invalid},
            fleet_turns={name: self.learning.turns},
            fleet_ceilings={
                (_LIMITS[holder.period], _label(holder.client)): holder.ceiling
                / (1 if holder.period == "minute" else NANO)
                for holder in self._holders.values()
            },
        )

    async def _leave(self) -> None:
        give_up_ns = clock.now_ns() + round(END_S * clock.NS_PER_S)
        clients = {holder.client for holder in self._holders.values() if holder.period != "minute"}
        while any(map(self._counters.reserved_usd, clients)):
            if clock.now_ns() >= give_up_ns:
                break
            await asyncio.sleep(LOOK_S)
        if not self._registered:
            await self._database.close()
            return
        now_ns = clock.now_ns()
        reports = {
            name: holder.report(self._use(holder), now_ns) for name, holder in self._holders.items()
        }
        periods = {name: holder.period for name, holder in self._holders.items()}
        try:
            await self._sessions.exchange(self._database)
            await self._database.exchange(reports, periods, self._about(), end=True)
        except NameTaken:
            pass  # its successor has counted what it held
        except (psycopg.Error, OSError) as error:
            self._say(f"the gateway could not leave its fleet: {self._database.error_text(error)}")
        await self._database.close()


def _label(counter: str) -> str:
    return counter.removeprefix("\0")


class SharedSessions:
    """What sessions use at all gateways: this gateway's counts to the database, theirs back."""

    def __init__(self, counters: SessionCounters) -> None:
        self._counters = counters
        self._sent_ns = 0
        self._read_s = 0.0  # in fleet time

    async def exchange(self, database: FleetDatabase) -> None:
        """Raises `psycopg.Error` and `OSError`, and then the next exchange sends the same again."""
        begin_ns = clock.now_ns()
        used = self._counters.used_since(self._sent_ns - AGAIN_NS)
        read_s, others = await database.share_sessions(used, self._read_s)
        self._sent_ns, self._read_s = begin_ns, read_s
        for session, use in others.items():
            self._counters.set_others(session, use)
