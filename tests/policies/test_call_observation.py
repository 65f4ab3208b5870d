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


class Recorder:
    """Branches whose observations are collected."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []
        self.fakes: list[FakeService] = []

    def branch(self, script: Script) -> FakeService:
        name = "abc"[len(self.fakes)] + "/x"
        self.fakes.append(
            FakeService(script=lambda call: script, target=name, observer=self.seen.append)
        )
        return self.fakes[-1]

    def of(
        self, service: Service, *, leave_after: float | None = None
    ) -> tuple[list[tuple[str, str]], Observation]:
        """Return the role of each target, and the observation of the call."""
        made: list[Observation] = []

        async def main() -> None:
            asking = asyncio.create_task(ask(service, a_call(within_ms=60_000)))
            await asyncio.wait([asking], timeout=leave_after)
            asking.cancel()
            await asyncio.wait([asking])
            fault = None if asking.cancelled() else asking.result().fault
            record = None if fault is None else record_fault(fault)
            made.extend(
                call_observations(
                    self.seen, target="policy", condition="p@c1", role="measured", fault=record
                )
            )

        play(main, self.fakes)
        *attempts, whole = made
        assert {o.condition for o in made} == {"p@c1"}
        assert (whole.id, whole.call, whole.target, whole.role) == (
            "call-1.0",
            "call-1",
            "policy",
            "measured",
        )
        return [(o.target, o.role) for o in attempts], whole


def test_observation_of_a_race_has_the_winners_ttft() -> None:
    recorder = Recorder()
    parts, whole = recorder.of(
        race(recorder.branch(SILENT), recorder.branch(Script(ttft=0.2)), recorder.branch(SILENT))
    )
    assert sorted(parts) == [("a/x", "loser"), ("b/x", "winner"), ("c/x", "loser")]
    assert (whole.outcome, whole.ttft_ns) == ("ok", 200 * NS_PER_MS)


def test_the_wait_begins_with_the_first_request() -> None:
    recorder = Recorder()
    parts, whole = recorder.of(
        fallback(
            recorder.branch(fails(status(503), 0.5)), recorder.branch(Script(ttft=0.2, tokens=9))
        )
    )
    assert parts == [("a/x", "loser"), ("b/x", "winner")]
    assert (whole.outcome, whole.ttft_ns, len(whole.token_at)) == ("ok", 700 * NS_PER_MS, 9)


def test_call_whose_attempts_all_fail_is_failed() -> None:
    recorder = Recorder()
    parts, whole = recorder.of(
        fallback(recorder.branch(fails(status(503), 0.5)), recorder.branch(fails(status(429), 0.2)))
    )
    assert parts == [("a/x", "loser"), ("b/x", "loser")]
    assert (whole.outcome, whole.ttft_ns, whole.fault and whole.fault.kind) == (
        "failed",
        None,
        "all_failed",
    )
    assert whole.end_ns - (whole.sent_ns or 0) == 700 * NS_PER_MS


def test_broken_response_belongs_to_the_winner() -> None:
    recorder = Recorder()
    broken = Script(ttft=0.1, fault=reset(), breaks_after=2)
    parts, whole = recorder.of(race(recorder.branch(SILENT), recorder.branch(broken)))
    assert parts == [("a/x", "loser"), ("b/x", "winner")]
    assert (whole.outcome, whole.fault and whole.fault.kind, len(whole.token_at)) == (
        "failed",
        "reset",
        2,
    )


def test_closed_response_belongs_to_the_winner() -> None:
    recorder = Recorder()
    endless = Script(ttft=0.1, tokens=1000, tps=10)
    parts, whole = recorder.of(
        race(recorder.branch(endless), recorder.branch(SILENT)), leave_after=1
    )
    assert sorted(parts) == [("a/x", "winner"), ("b/x", "loser")]
    assert whole.outcome == "cancelled"


def test_call_closed_before_any_token_is_cancelled() -> None:
    recorder = Recorder()
    parts, whole = recorder.of(
        race(recorder.branch(SILENT), recorder.branch(SILENT)), leave_after=1
    )
    assert [role for _, role in parts] == ["loser", "loser"]
    assert (whole.outcome, whole.ttft_ns) == ("cancelled", None)


def test_empty_response_is_an_empty_answer_of_the_winner() -> None:
    recorder = Recorder()
    parts, whole = recorder.of(recorder.branch(Script(tokens=0)))
    assert parts == [("a/x", "winner")]
    assert whole.fault is not None
    assert whole.fault.kind == "empty_answer"


def test_a_call_whose_attempts_were_never_sent() -> None:
    attempts = [Observation(id="c.1", call="c", target="a", outcome="failed", start_ns=5, end_ns=9)]
    whole = call_observations(attempts, target="p", condition="", role="measured")[-1]
    assert (whole.sent_ns, whole.start_ns, whole.end_ns) == (None, 5, 9)
