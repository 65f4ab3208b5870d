"""A worker's part of what the workers of a fleet learn from each other: it reports, and uses the
view of the fleet.

Without a fresh view it works on alone: it uses nothing of others and needs no turns.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.internal_errors import contained
from splitsecond.gateway.fleet.learned import (
    LONGEST_NAME,
    MAX_COUNT,
    MAX_TARGETS,
    Limits,
    Opening,
    Speed,
    TargetReport,
    bounded,
    histogram,
    samples_of,
)
from splitsecond.gateway.fleet.view import STALE_S, FleetView, WorkerReport
from splitsecond.routing.targets.headroom import RateLimitHeadroom
from splitsecond.routing.targets.target_state import TargetState
from splitsecond.routing.targets.target_states import TargetStates

EVERY_S = 0.5
"""Time between two reports."""
SPEED_NS = 5 * clock.NS_PER_S
"""Time between two histograms of a target."""
MAX_SPEEDS = 16
"""Histograms computed at once. Each takes a tenth of a millisecond, and requests wait meanwhile."""
MIN_WEIGHT = 0.5
"""The least weight of samples that is worth a report."""
WANTED_NS = 15 * clock.NS_PER_S
"""A call for a target that is down shows for this long that the worker could probe it."""
SOON_NS = 3 * clock.NS_PER_S
"""How long before its probe is due a worker wants the turn, which takes a second or two to get."""
_LONGEST_REASON = 300
_SMOOTHING = 0.3


class _Known(Struct):
    sent: int = 0
    at_ns: int = 0
    per_s: float = 0.0
    speed: Speed | None = None
    speed_ns: int = 0


class WorkerExchange:
    def __init__(self, states: TargetStates, send: Callable[[WorkerReport], object]) -> None:
        """`send` gets reports for the hub. Its views go to `received`."""
        self._send = send
        self._latest: FleetView | None = None
        self._states = states
        self._known: dict[str, _Known] = {}
        self._routed: tuple[str, ...] = ()
        self._key: Callable[[str], str] = lambda target: ""
        self._accounts: dict[str, str] = {}
        self._received: set[str] = set()
        self.view: FleetView | None = None
        """The latest view of the fleet; None if there is no fresh one."""

    def use(self, routed: Iterable[str], key: Callable[[str], str]) -> None:
        self._routed, self._key, self._accounts = tuple(routed), key, {}

    async def run(self) -> None:
        try:
            while True:
                with contained("task"):
                    self.step()
                await asyncio.sleep(EVERY_S)
        finally:
            self._receive(None, clock.now_ns())

    def received(self, view: FleetView) -> None:
        self._latest = view

    def step(self) -> None:
        now_ns = clock.now_ns()
        report = WorkerReport(now_ns, self._report(now_ns))
        self._send(report)
        view = self._latest
        if view is not None and now_ns - view.at_ns >= STALE_S * clock.NS_PER_S:
            view = None
        self._receive(view, now_ns)

    def _report(self, now_ns: int) -> dict[str, TargetReport]:
        states = self._states.by_name()
        names = dict.fromkeys([*(name for name in self._routed if name in states), *states])
        self._known = {name: each for name, each in self._known.items() if name in states}
        reports: dict[str, TargetReport] = {}
        left = MAX_SPEEDS
        for name in [each for each in names if len(each) <= LONGEST_NAME and each.isprintable()][
            :MAX_TARGETS
        ]:
            measurement = self._known.setdefault(name, _Known())
            left -= self._measure(measurement, states[name], now_ns, may_compute=left > 0)
            report = self._of_target(states[name], measurement, now_ns)
            if report != TargetReport():
                reports[name] = report
        return reports

    def _measure(
        self, measurement: _Known, state: TargetState, now_ns: int, *, may_compute: bool
    ) -> bool:
        if measurement.at_ns and now_ns > measurement.at_ns:
            rate = (state.sent - measurement.sent) * clock.NS_PER_S / (now_ns - measurement.at_ns)
            measurement.per_s += _SMOOTHING * (rate - measurement.per_s)
        measurement.sent, measurement.at_ns = state.sent, now_ns
        estimate = state.estimates.get(True)
        if estimate is None or not may_compute or now_ns - measurement.speed_ns < SPEED_NS:
            return False
        measurement.speed_ns = now_ns
        ttft, tpot, tokens = estimate.weighted()
        answers = sum(weight for _, _, weight in tokens)
        measurement.speed = None
        if sum(weight for _, _, weight in ttft) >= MIN_WEIGHT:
            measurement.speed = Speed(
                ttft=histogram(ttft),
                tpot=histogram(tpot),
                tokens=bounded(sum(number * weight for number, _, weight in tokens) / answers)
                if answers
                else 0.0,
                answers=round(answers, 3),
            )
        return True

    def _of_target(self, state: TargetState, measurement: _Known, now_ns: int) -> TargetReport:
        breaker = state.breaker
        opening = None
        if breaker.is_failing and not breaker.received:
            opening = Opening(
                age_s=_since_s(breaker.opened_ns, now_ns),
                left_s=_since_s(now_ns, breaker.open_until_ns),
                reason=breaker.reason[:_LONGEST_REASON],
                client=breaker.client[:LONGEST_NAME],
            )
        needs_turn = breaker.needs_turn()
        return TargetReport(
            opening=opening,
            good_s=None
            if breaker.good_began_ns is None
            else _since_s(breaker.good_began_ns, now_ns),
            limits=self._limits(state, measurement, now_ns),
            speed=measurement.speed,
            wants=needs_turn
            and now_ns - state.wanted_ns < WANTED_NS
            and now_ns + SOON_NS >= breaker.open_until_ns,
            due=needs_turn and now_ns >= breaker.open_until_ns,
            probing=breaker.state == "open" and bool(breaker.probe_attempt),
        )

    def _limits(self, state: TargetState, measurement: _Known, now_ns: int) -> dict[str, Limits]:
        breaker, headroom = state.breaker, state.headroom
        if breaker.must_wait(now_ns):
            own_limits = Limits(
                age_s=_since_s(breaker.opened_ns, now_ns),
                requests_left=0,
                requests_reset_s=_since_s(breaker.opened_ns, breaker.open_until_ns),
            )
        elif headroom is not None and headroom.own is not None:
            limits, at_ns = headroom.own
            own_limits = Limits(
                age_s=_since_s(at_ns, now_ns),
                requests_left=_count(limits.requests_left),
                tokens_left=_count(limits.tokens_left),
                requests_reset_s=_seconds(limits.requests_reset_ns),
                tokens_reset_s=_seconds(limits.tokens_reset_ns),
                per_s=bounded(measurement.per_s),
            )
        else:
            return {}
        return {self._account(state.name): own_limits}

    def _receive(self, view: FleetView | None, now_ns: int) -> None:
        fresh = view is None or self.view is None or view.at_ns != self.view.at_ns
        self.view = view
        if fresh:
            self._use_reports(
                {} if view is None else view.targets, now_ns if view is None else view.at_ns, now_ns
            )
        for state in self._states.by_name().values():
            needs_turn = view is not None and state.breaker.needs_turn()
            state.breaker.turn_until_ns = (
                view.turns.get(state.name, 0) if view is not None and needs_turn else None
            )

    def _use_reports(self, targets: Mapping[str, TargetReport], at_ns: int, now_ns: int) -> None:
        states, routed = self._states.by_name(), set(self._routed)
        reports = {
            name: report for name, report in targets.items() if name in states or name in routed
        }
        for name in self._received - reports.keys():
            if name in states:
                self._use(states[name], TargetReport(), now_ns, now_ns)
        self._received = set(reports)
        for name, report in reports.items():
            self._use(self._states.state(name), report, at_ns, now_ns)

    def _use(self, state: TargetState, report: TargetReport, at_ns: int, now_ns: int) -> None:
        breaker, opening = state.breaker, report.opening
        if opening is not None and (report.good_s is None or report.good_s > opening.age_s):
            opened_ns = at_ns - round(opening.age_s * clock.NS_PER_S)
            until_ns = at_ns + round(opening.left_s * clock.NS_PER_S)
            breaker.receive_opening(now_ns, opened_ns, until_ns, opening.reason, opening.client)
        elif report.good_s is not None:
            breaker.receive_recovery(now_ns, at_ns - round(report.good_s * clock.NS_PER_S))
        limits = report.limits.get(self._account(state.name)) if report.limits else None
        if limits is not None:
            if state.headroom is None:
                state.headroom = RateLimitHeadroom()
            reported_ns = at_ns - round(limits.age_s * clock.NS_PER_S)
            state.headroom.receive(
                limits.rate_limits(), reported_ns, state.sent - len(state.in_flight)
            )
        if state.headroom is not None:
            state.headroom.others_per_s = 0.0 if limits is None else limits.per_s
        speed = report.speed
        if speed is not None:
            tokens = [(speed.tokens, False, speed.answers)] if speed.answers else []
            state.estimate(True).receive(samples_of(speed.ttft), samples_of(speed.tpot), tokens)
        elif True in state.estimates:
            state.estimates[True].receive([], [], [])

    def _account(self, target: str) -> str:
        """Return a fingerprint of the provider's key, so that limits of different keys are not
        confused."""
        fingerprint = self._accounts.get(target)
        if fingerprint is None:
            try:
                key = self._key(target).encode("utf-8", "surrogateescape")
            except CallerFault:  # the provider has left the configuration
                key = b""
            fingerprint = (
                hashlib.blake2b(key, digest_size=8, person=b"ss-fleet").hexdigest()
                if key
                else "none"
            )
            self._accounts[target] = fingerprint
        return fingerprint


def _since_s(begin_ns: int, end_ns: int) -> float:
    return bounded((end_ns - begin_ns) / clock.NS_PER_S)


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else bounded(ns / clock.NS_PER_S)


def _count(left: int | None) -> int | None:
    return None if left is None else min(max(left, 0), MAX_COUNT)
