"""Observations of calls that a policy served: their attempts, and the call itself."""

import asyncio

from tests.policies.branches import SILENT, a_call, ask, fails, play, reset, status

from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.observation import Observation
from splitsecond.core.service import Service
from splitsecond.core.timing.timeline import record_fault
from splitsecond.routing.machinery.call_observation import call_observations
from splitsecond.routing.policies.fallback import fallback
from splitsecond.routing.policies.race import race
from splitsecond.testing.fake_service import FakeService, Script


class Books:
    """Branches whose observations are collected."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []
        self.fakes: list[FakeService] = []

    def branch(self, script: Script) -> FakeService:
        name = "abc"[len(self.fakes)] + "/x"
        self.fakes.append(FakeService(script=lambda call: script, target=name, observer=self.seen.append))
        return self.fakes[-1]

    def of(self, service: Service, *, leave_after: float | None = None) -> tuple[list[tuple[str, str]], Observation]:
        """Return the role of each target, and the observation of the call."""
        made: list[Observation] = []

        async def main() -> None:
            asking = asyncio.create_task(ask(service, a_call(within_ms=60_000)))
            await asyncio.wait([asking], timeout=leave_after)
            asking.cancel()
            await asyncio.wait([asking])
            fault = None if asking.cancelled() else asking.result().fault
            record = None if fault is None else record_fault(fault)
            made.extend(call_observations(self.seen, target="policy", condition="p@c1", role="measured", fault=record))

        play(main, self.fakes)
        *attempts, whole = made
        assert {o.condition for o in made} == {"p@c1"}
        assert (whole.id, whole.call, whole.target, whole.role) == ("call-1.0", "call-1", "policy", "measured")
        return [(o.target, o.role) for o in attempts], whole


def test_a_race() -> None:
    books = Books()
    parts, whole = books.of(race(books.branch(SILENT), books.branch(Script(ttft=0.2)), books.branch(SILENT)))
    assert sorted(parts) == [("a/x", "loser"), ("b/x", "winner"), ("c/x", "loser")]
    assert (whole.outcome, whole.ttft_ns) == ("ok", 200 * NS_PER_MS)


def test_the_wait_begins_with_the_first_request() -> None:
    books = Books()
    parts, whole = books.of(fallback(books.branch(fails(status(503), 0.5)), books.branch(Script(ttft=0.2, tokens=9))))
    assert parts == [("a/x", "loser"), ("b/x", "winner")]
    assert (whole.outcome, whole.ttft_ns, len(whole.token_at)) == ("ok", 700 * NS_PER_MS, 9)


def test_a_call_that_failed() -> None:
    books = Books()
    parts, whole = books.of(fallback(books.branch(fails(status(503), 0.5)), books.branch(fails(status(429), 0.2))))
    assert parts == [("a/x", "loser"), ("b/x", "loser")]
    assert (whole.outcome, whole.ttft_ns, whole.fault and whole.fault.kind) == ("failed", None, "all_failed")
    assert whole.end_ns - (whole.sent_ns or 0) == 700 * NS_PER_MS


def test_an_answer_that_breaks_is_the_winners() -> None:
    books = Books()
    broken = Script(ttft=0.1, fault=reset(), breaks_after=2)
    parts, whole = books.of(race(books.branch(SILENT), books.branch(broken)))
    assert parts == [("a/x", "loser"), ("b/x", "winner")]
    assert (whole.outcome, whole.fault and whole.fault.kind, len(whole.token_at)) == ("failed", "reset", 2)


def test_an_answer_that_the_caller_closed_is_the_winners_too() -> None:
    books = Books()
    endless = Script(ttft=0.1, tokens=1000, tps=10)
    parts, whole = books.of(race(books.branch(endless), books.branch(SILENT)), leave_after=1)
    assert sorted(parts) == [("a/x", "winner"), ("b/x", "loser")]
    assert whole.outcome == "cancelled"


def test_a_call_that_was_given_up_before_any_token() -> None:
    books = Books()
    parts, whole = books.of(race(books.branch(SILENT), books.branch(SILENT)), leave_after=1)
    assert [role for _, role in parts] == ["loser", "loser"]
    assert (whole.outcome, whole.ttft_ns) == ("cancelled", None)


def test_an_answer_without_a_token_through_a_policy_that_lets_it_pass() -> None:
    books = Books()
    parts, whole = books.of(books.branch(Script(tokens=0)))
    assert parts == [("a/x", "winner")]
    assert whole.fault is not None
    assert whole.fault.kind == "empty_answer"


def test_a_call_whose_attempts_were_never_sent() -> None:
    attempts = [Observation(id="c.1", call="c", target="a", outcome="failed", start_ns=5, end_ns=9)]
    whole = call_observations(attempts, target="p", condition="", role="measured")[-1]
    assert (whole.sent_ns, whole.start_ns, whole.end_ns) == (None, 5, 9)
