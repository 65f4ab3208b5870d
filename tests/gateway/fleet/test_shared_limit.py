"""A limit that several gateways share: it holds for every interleaving of requests, reports and
faults."""

from collections.abc import Callable
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from splitsecond.core.clock import NS_PER_S
from splitsecond.gateway.fleet.holder import LONGEST_ANSWER_S, Holder, LimitUse
from splitsecond.gateway.fleet.shared_limit import (
    COUNTS_S,
    FORGET_S,
    LONGEST_STEP_S,
    RAISE_S,
    SILENT_S,
    Lease,
    Moment,
    Period,
    Present,
    Report,
    SharedLimit,
    decode,
    encode,
    leave,
    renew,
)

Outcome = Literal["ok", "answer lost", "not committed"]


class SimulatedGateway:
    """A gateway whose workers admit requests below the ceiling, as `KeyLimits` does."""

    def __init__(self, name: str, instance: str, period: Period, limit: int) -> None:
        self.name, self.instance = name, instance
        self.holder = Holder(period, limit)
        self.counts: dict[int, int] = {}
        self.refused = 0
        self.answered_s: float | None = None

    def weighted(self, now_s: float) -> float:
        """Return the requests of the sliding minute; all of the day if the period is one."""
        if self.holder.period == "day":
            return sum(self.counts.values())
        minute, into_s = divmod(now_s, 60)
        return self.counts.get(int(minute), 0) + self.counts.get(int(minute) - 1, 0) * (
            1 - into_s / 60
        )

    def alone(self, now_s: float) -> None:
        if self.answered_s is not None:
            self.holder.alone(now_s - self.answered_s)

    def request(self, now_s: float) -> bool:
        self.alone(now_s)
        if self.weighted(now_s) + 1 > self.holder.ceiling:
            self.refused += 1
            return False
        self.counts[int(now_s // 60)] = self.counts.get(int(now_s // 60), 0) + 1
        return True

    def use(self, now_s: float) -> LimitUse:
        return LimitUse(-int(-self.weighted(now_s) // 1), self.refused)


class Fleet:
    """Gateways, one limit, and a time that the test moves. The database's clock can be set."""

    def __init__(self, limit: int, number: int, period: Period = "minute") -> None:
        self.limit, self.period = limit, period
        self.now_s = 600.0
        self.clock_s = 86_400.0 * 20_000
        self.wall_s = self.now_s + self.clock_s
        self.fleet_s = 0.0
        self.stored = encode(SharedLimit())
        self.seen: dict[str, tuple[str, float, float]] = {}
        self.made = 0
        self.ended: list[SimulatedGateway] = []
        self.gateways = [self.gateway(str(each)) for each in range(number)]

    def gateway(self, name: str) -> SimulatedGateway:
        self.made += 1
        return SimulatedGateway(name, f"run {self.made}", self.period, self.limit)

    def moment(self) -> Moment:
        """Advance fleet time, and return the moment."""
        wall_s = self.now_s + self.clock_s
        self.fleet_s += min(max(wall_s - self.wall_s, 0.0), LONGEST_STEP_S)
        self.wall_s = wall_s
        return Moment(self.fleet_s, int(wall_s // 86_400))

    def present(self) -> dict[str, Present]:
        self.seen = {
            name: each for name, each in self.seen.items() if self.fleet_s - each[2] < FORGET_S
        }
        return {
            name: Present(run, max(self.wall_s - wall_s, self.fleet_s - fleet_s) >= SILENT_S)
            for name, (run, wall_s, fleet_s) in self.seen.items()
        }

    def exchange(
        self, gateway: SimulatedGateway, outcome: Outcome = "ok", took_s: float = 0.0
    ) -> None:
        """Let a gateway report, and get its lease `took_s` later, unless that is too late."""
        begin_s = self.now_s
        gateway.alone(begin_s)
        report = gateway.holder.report(gateway.use(begin_s), round(begin_s * NS_PER_S))
        if outcome == "not committed":
            return
        now = self.moment()
        self.seen[gateway.name] = gateway.instance, self.wall_s, self.fleet_s
        shared = decode(self.stored)
        lease = renew(shared, gateway.name, report, self.present(), period=self.period, now=now)
        self.now_s += took_s
        self.stored = encode(shared)
        self.check()
        if outcome == "ok" and took_s <= LONGEST_ANSWER_S:
            gateway.holder.take(lease)
            gateway.answered_s = begin_s

    def leave(self, gateway: SimulatedGateway) -> None:
        shared = decode(self.stored)
        used = gateway.use(self.now_s).used
        now = self.moment()
        # as in an exchange: it may be its first
        self.seen[gateway.name] = gateway.instance, self.wall_s, self.fleet_s
        leave(shared, gateway.name, used, self.present(), period=self.period, now=now)
        self.seen.pop(gateway.name, None)
        self.stored = encode(shared)

    def requests(self, gateway: SimulatedGateway, number: int) -> int:
        done = sum(gateway.request(self.now_s) for _ in range(number))
        self.check()
        return done

    def end(self, place: int, *, name: str | None = None) -> None:
        """End a gateway, and begin another in its place, perhaps under the same name."""
        self.ended.append(self.gateways[place])
        self.gateways[place] = self.gateway(name or f"new {self.made}")

    def check(self) -> None:
        """The use of the fleet is never more than the limit: over the sliding minute, and in each
        minute."""
        everyone = [*self.gateways, *self.ended]
        assert sum(each.weighted(self.now_s) for each in everyone) <= self.limit + 1e-6
        assert sum(each.counts.get(int(self.now_s // 60), 0) for each in everyone) <= self.limit


def seconds(
    fleet: Fleet, number: int, demand: Callable[[int], int], *, away: tuple[int, ...] = ()
) -> list[int]:
    """Let gateways exchange once a second, except those `away`, with a steady demand. Return what
    each was allowed."""
    done = [0] * len(fleet.gateways)
    for _ in range(number):
        fleet.now_s += 1
        for place, gateway in enumerate(fleet.gateways):
            done[place] += fleet.requests(gateway, demand(place))
            if place not in away:
                fleet.exchange(gateway)
    return done


steps = st.lists(
    st.one_of(
        st.tuples(st.just("requests"), st.integers(0, 3), st.integers(1, 70)),
        st.tuples(
            st.just("wait"),
            st.just(0),
            st.sampled_from([0, 1, 2, 7, 11, 30, 59, 61, 119, 151, 400]),
        ),
        st.tuples(st.just("ok"), st.integers(0, 3), st.integers(0, 4)),
        st.tuples(st.just("round"), st.just(0), st.integers(1, 5)),
        st.tuples(st.just("cut off"), st.integers(0, 3), st.sampled_from([3, 9, 13, 165])),
        st.tuples(st.just("answer lost"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("not committed"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("killed"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("left"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("clock"), st.just(0), st.sampled_from([-7200, -30, 30, 59])),
    ),
    max_size=25,
)


def follow(fleet: Fleet, given: list[tuple[str, int, int]], *, wait_longest: int = 10_000) -> None:
    for action, place, amount in given:
        gateway = fleet.gateways[place]
        if action == "requests":
            fleet.requests(gateway, amount)
        elif action == "wait":
            for _ in range(min(amount, wait_longest)):
                fleet.now_s += 1
                for each in fleet.gateways:
                    each.alone(fleet.now_s)
        elif action == "round":
            for _ in range(amount):
                fleet.now_s += 1
                for each in fleet.gateways:
                    fleet.exchange(each)
        elif action == "cut off":
            seconds(fleet, amount, lambda place: place + 1, away=(place,))
        elif action == "killed":
            fleet.end(place, name=gateway.name if amount else None)
        elif action == "left":
            fleet.leave(gateway)
            fleet.end(place)
        elif action == "clock":
            fleet.clock_s += amount
        elif action in ("ok", "answer lost", "not committed"):
            fleet.exchange(gateway, action, amount)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(limit=st.integers(1, 100), given=steps)
@example(
    limit=1,
    given=[("ok", 1, 0), ("requests", 1, 1), ("killed", 1, 1), ("left", 1, 0), ("cut off", 0, 3)],
)
def test_minute_limit_holds_for_any_sequence_of_steps(
    limit: int, given: list[tuple[str, int, int]]
) -> None:
    follow(Fleet(limit, 4), given)


@settings(max_examples=50, deadline=None)
@given(limit=st.integers(1, 100), given=steps)
def test_daily_limit_holds_for_any_sequence_of_steps(
    limit: int, given: list[tuple[str, int, int]]
) -> None:
    fleet = Fleet(limit, 4, "day")
    follow(fleet, [each for each in given if each[0] != "clock"], wait_longest=60)


def test_busy_gateway_gets_the_limit_if_the_others_are_idle() -> None:
    fleet = Fleet(600, 3)
    seconds(fleet, 20, lambda place: 0)
    assert sum(seconds(fleet, 60, lambda place: 40 if place == 1 else 0)) >= 0.97 * 600


def test_gateways_that_all_want_more_get_equal_parts() -> None:
    fleet = Fleet(600, 3)
    seconds(fleet, 180, lambda place: 100)
    done = seconds(fleet, 120, lambda place: 100 if place else 50)
    assert sum(done) >= 0.95 * 1200
    assert min(done) >= 0.8 * 400


def test_limit_follows_demand_to_another_gateway() -> None:
    fleet = Fleet(600, 3)
    seconds(fleet, 120, lambda place: 10 if place == 0 else 0)
    done = seconds(fleet, 120, lambda place: 10 if place == 2 else 0)
    assert done[2] >= 0.9 * 1200


def test_limit_smaller_than_the_fleet_reaches_the_busy_gateway() -> None:
    fleet = Fleet(2, 8)
    seconds(fleet, 5, lambda place: 0)
    assert seconds(fleet, 10, lambda place: 1 if place == 7 else 0)[7] == 2


def test_each_gateway_has_an_equal_share_without_the_database() -> None:
    fleet = Fleet(300, 3)
    seconds(fleet, 60, lambda place: 100 if place == 0 else 0)
    everyone = (0, 1, 2)
    seconds(fleet, round(RAISE_S) + 2, lambda place: 100, away=everyone)
    done = seconds(fleet, 600, lambda place: 100, away=everyone)
    assert min(done) >= 900
    back = seconds(fleet, 240, lambda place: 100 if place == 2 else 0)
    assert back[2] >= 0.8 * 4 * 300


def test_disconnected_gateway_keeps_its_share() -> None:
    fleet = Fleet(300, 3)
    seconds(fleet, 60, lambda place: 100 if place == 0 else 0)
    done = seconds(fleet, 600, lambda place: 100, away=(2,))
    assert done[2] >= 7 * 100
    assert sum(done) <= 10 * 300 + 300


def test_gateway_that_never_reached_the_database_admits_none() -> None:
    fleet = Fleet(300, 2)
    assert seconds(fleet, 400, lambda place: 10, away=(0, 1)) == [0, 0]


def test_replacement_of_a_killed_gateway_gets_its_part() -> None:
    fleet = Fleet(300, 2)
    seconds(fleet, 60, lambda place: 100)
    fleet.end(0, name="0")
    assert sum(seconds(fleet, round(COUNTS_S), lambda place: 100)) <= 2 * 300
    assert sum(seconds(fleet, 60, lambda place: 100)) >= 0.9 * 300


@pytest.mark.system
def test_a_gateway_that_is_gone_for_good_is_forgotten() -> None:
    fleet = Fleet(300, 2)
    seconds(fleet, 60, lambda place: 100)
    fleet.end(0)
    replacement = fleet.gateways.pop(0)
    assert replacement.counts == {}
    seconds(fleet, round(FORGET_S + COUNTS_S), lambda place: 100)
    assert sum(seconds(fleet, 60, lambda place: 100)) >= 0.95 * 300


def test_spending_counts_until_the_end_of_the_day() -> None:
    fleet = {"a": Present("1"), "b": Present("1")}
    shared = SharedLimit()
    ask = Report(limit=1000, used=400, ceiling=500, share=0, wanted=0)
    renew(shared, "a", ask, fleet, period="day", now=Moment(0, 0))
    leave(shared, "a", 450, fleet, period="day", now=Moment(80000, 0))
    other = Report(limit=1000, used=0, ceiling=0, share=0, wanted=1000)
    assert renew(shared, "b", other, fleet, period="day", now=Moment(86399, 0)) == Lease(
        550, 0, 450, short=True
    )
    assert renew(shared, "b", other, fleet, period="day", now=Moment(86400, 1)).ceiling == 1000


def test_lowered_limit_grants_nothing_until_the_use_has_fallen() -> None:
    fleet = {"a": Present("1"), "b": Present("1", silent=True)}
    shared, now = SharedLimit(), Moment(0, 0)
    first = Report(limit=100, used=0, ceiling=0, share=0, wanted=90)
    assert renew(shared, "a", first, fleet, period="minute", now=now) == Lease(
        90, 50, 0, short=False
    )
    second = Report(limit=10, used=0, ceiling=0, share=0, wanted=9)
    assert renew(shared, "b", second, fleet, period="minute", now=now) == Lease(0, 0, 0, short=True)


def asked(
    shared: SharedLimit, name: str, fleet: dict[str, Present], at_s: float, **given: int
) -> int:
    """Return the ceiling that a gateway gets of 100 requests per minute."""
    report = Report(**{"limit": 100, "used": 0, "ceiling": 0, "share": 0, "wanted": 0} | given)
    return renew(shared, name, report, fleet, period="minute", now=Moment(at_s, 0)).ceiling


def test_old_ceiling_counts_until_its_reduction_is_confirmed() -> None:
    shared, fleet = SharedLimit(), {"a": Present("1"), "b": Present("1")}
    assert asked(shared, "a", fleet, 0, wanted=80) == 80
    assert asked(shared, "a", fleet, 1, ceiling=80) == 25
    assert asked(shared, "b", fleet, 1, wanted=100) == 20
    assert asked(shared, "a", fleet, 2, ceiling=25) <= 25
    assert asked(shared, "b", fleet, 2, wanted=100, ceiling=20) == 75


def test_ceiling_of_a_gateway_that_is_gone_counts_as_used() -> None:
    shared, fleet = SharedLimit(), {"a": Present("1"), "b": Present("1")}
    assert asked(shared, "a", fleet, 0, wanted=80) == 80
    assert asked(shared, "b", {"b": Present("1")}, 1, wanted=100) == 20
    restarted = SharedLimit()
    assert asked(restarted, "a", fleet, 0, wanted=80) == 80
    assert asked(restarted, "b", {"a": Present("2"), "b": Present("1")}, 1, wanted=100) == 20


def test_requests_of_a_departed_gateway_fade_after_a_minute() -> None:
    for age_s, left in ((0, 40), (59, 40), (90, 70), (121, 100)):
        shared, fleet = SharedLimit(), {"a": Present("1"), "b": Present("1")}
        asked(shared, "a", fleet, 0, wanted=60)
        leave(shared, "a", 60, fleet, period="minute", now=Moment(0, 0))
        assert asked(shared, "b", {"b": Present("1")}, age_s, wanted=100) == left


def test_a_step_of_the_database_clock_and_back_frees_no_spending() -> None:
    shared, fleet = SharedLimit(), {"a": Present("1"), "b": Present("1")}
    ask = Report(limit=1000, used=0, ceiling=0, share=0, wanted=1000)
    renew(shared, "a", ask, fleet, period="day", now=Moment(0, 7))
    leave(shared, "a", 450, fleet, period="day", now=Moment(1, 7))
    for day, ceiling in ((8, 1000), (7, 550), (6, 1000), (7, 550), (8, 1000)):
        shared = decode(encode(shared))
        assert renew(shared, "b", ask, fleet, period="day", now=Moment(2, day)).ceiling == ceiling
        leave(shared, "b", 0, fleet, period="day", now=Moment(2, day))
