"""One record for each call, however it ends, with all of its attempts."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw, Struct, structs
from tests.cases import each_case
from tests.gateway.limits import conservative_input_tokens
from tests.gateway.visitor import CHAT, STREAM, Visitor, visitor

from splitsecond.core.errors import NetworkFault, ProviderFault
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.service import Call, Service
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.policies.fallback import fallback
from splitsecond.routing.policies.hedge import hedge
from splitsecond.routing.policies.limit import limit
from splitsecond.routing.policies.race import race
from splitsecond.routing.router import call_tracker as tracker_module
from splitsecond.routing.router.call_tracker import CallTracker, with_estimated_tokens
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

DOWN = ProviderFault("down", kind="http_500", phase="head", status=500)
CUT = NetworkFault("cut", kind="reset", phase="between tokens")

RESET = FaultRecord(type="NetworkFault", kind="reset", phase="head", message="")
SILENT = FaultRecord(type="TimedOut", kind="timeout_head", phase="head", message="")


class Case(Struct):
    """A policy over fakes, and the record that a call of it leaves."""

    policy: Callable[[Any, Any], Service]
    first: Script
    second: Script
    status: int
    outcome: str
    fault: str
    target: str
    attempts: list[tuple[str, str, str]]  # target, role, outcome
    leaves_after: float | None = None


OK, SLOW = Script(ttft=0.1, tokens=5), Script(ttft=1.0, tokens=5)
CASES = {
    "one": Case(lambda a, b: a, OK, OK, 200, "ok", "", "a/x", [("a/x", "winner", "ok")]),
    "race": Case(
        race, OK, SLOW, 200, "ok", "", "a/x",
        [("b/x", "loser", "cancelled"), ("a/x", "winner", "ok")]
    ),
    "fallback": Case(
        fallback, Script(ttft=0.1, fault=DOWN), OK, 200, "ok", "", "b/x",
        [("a/x", "loser", "failed"), ("a/x", "loser", "failed"), ("b/x", "winner", "ok")],
    ),
    "hedge": Case(hedge, OK, SLOW, 200, "ok", "", "a/x", [("a/x", "winner", "ok")]),
    "refused": Case(
        lambda a, b: limit(a, concurrency=1), Script(ttft=0.1, fault=DOWN), OK, 502, "failed",
        "http_500", "",
        [("a/x", "loser", "failed")],
    ),
    "cut": Case(
        lambda a, b: a, Script(ttft=0.1, fault=CUT, breaks_after=2), OK, 200, "failed", "reset",
        "a/x",
        [("a/x", "winner", "failed")],
    ),
    "left before": Case(
        race, SLOW, SLOW, 499, "cancelled", "", "",
        [("a/x", "loser", "cancelled"), ("b/x", "loser", "cancelled")], 0.5
    ),
    "left within": Case(
        lambda a, b: a, Script(ttft=0.1, tokens=500), OK, 499, "cancelled", "", "a/x",
        [("a/x", "winner", "cancelled")], 0.5,
    ),
}  # fmt: skip


class Kept:
    """Books, and what they have written."""

    def __init__(self) -> None:
        self.records: list[CallRecord] = []
        self.tracker = CallTracker(self.records.append)

    def visitor(self, case: Case) -> Visitor:
        def fake(name: str, script: Script) -> FakeService:
            return FakeService(script=lambda call: script, target=name)

        fakes = [fake("a/x", case.first), fake("b/x", case.second)]
        return visitor(case.policy(*fakes), tracker=self.tracker)


@each_case("stream", [True, False])
@each_case("name", CASES)
def test_a_call_leaves_one_record(name: str, stream: bool) -> None:
    case = CASES[name]

    async def main() -> None:
        kept = Kept()
        client = kept.visitor(case)
        if case.leaves_after is not None:
            asyncio.get_running_loop().call_later(case.leaves_after, client.leave)
        await client.asks(STREAM if stream else CHAT)
        (record,) = kept.records
        status = 502 if name == "cut" and not stream else case.status
        assert (record.status, record.outcome, record.fault, record.target) == (
            status, case.outcome, case.fault, case.target,
        )  # fmt: skip
        attempts = [(attempt.target, attempt.role, attempt.outcome) for attempt in record.attempts]
        assert sorted(attempts) == sorted(case.attempts)
        assert (record.route, record.operation, record.stream) == ("fast", "chat", stream)
        assert record.start_ns <= record.end_ns
        assert (record.first_token_ns is not None) is bool(case.target)
        assert {attempt.call for attempt in record.attempts} == {record.call}

    run_virtual(main())


def test_closed_response_without_usage_is_charged_by_characters() -> None:
    closed = Observation(
        id="r.1", call="r", target="a/x", outcome="cancelled", sent_ns=0, first_token_ns=1,
        output_tokens=2,
        token_lengths=[400, 400], token_source="events",
    )  # fmt: skip
    asked = Call(id="r", body={"messages": "? " * 500})
    found = with_estimated_tokens(closed, asked)
    assert (found.input_tokens, found.output_tokens) == (conservative_input_tokens(asked), 200)
    whole = structs.replace(closed, input_tokens=3, token_source="usage")
    assert with_estimated_tokens(whole, asked) == whole


def test_estimates_are_the_same_in_the_record_and_the_charge() -> None:
    kept = Kept()
    charged: list[Observation] = []
    tracker = CallTracker(
        kept.records.append, charge=lambda client, attempt: charged.append(attempt)
    )
    asked = call(1)
    open_call = tracker.open(asked, "fast")
    assert asked.notes.observer is not None
    odd = structs.replace(
        observation(asked),
        sent_ns=0,
        first_token_ns=1,
        token_lengths=[400],
        output_tokens=1,
        token_source="estimate",
    )
    asked.notes.observer(odd)
    tracker.close(open_call, 200)
    ((recorded,),) = [record.attempts for record in kept.records]
    for each in (recorded, *charged):
        assert (each.input_tokens, each.output_tokens) == (conservative_input_tokens(asked), 100)
        assert each.token_source == "estimate"


def test_record_has_the_charged_estimate_of_an_uncounted_prompt() -> None:
    kept = Kept()
    charged: list[Observation] = []
    tracker = CallTracker(
        kept.records.append, charge=lambda client, attempt: charged.append(attempt)
    )
    asked = structs.replace(call(1), body={"messages": Raw(b'"' + b"a" * 38 + b'"')})
    open_call = tracker.open(asked, "fast")
    assert asked.notes.observer is not None
    asked.notes.observer(structs.replace(observation(asked), sent_ns=0, outcome="cancelled"))
    tracker.close(open_call, 499)
    ((recorded,),) = [record.attempts for record in kept.records]
    for each in (recorded, *charged):
        assert (each.input_tokens, each.output_tokens, each.token_source) == (10, 0, "estimate")
    assert recorded.closed_early


def observation(call: Call, number: int = 1) -> Observation:
    return Observation(id=f"{call.id}.{number}", call=call.id, target="a/x")


def call(attempts: int) -> Call:
    made = Call(id=f"req-{attempts}", body={}, client="web")
    made.notes.attempts = attempts
    return made


def test_an_attempt_that_ends_after_the_call_is_waited_for() -> None:
    kept = Kept()
    charged: list[tuple[str, str]] = []
    kept.tracker = CallTracker(
        kept.records.append, charge=lambda client, attempt: charged.append((client, attempt.id))
    )
    late = call(2)
    page = kept.tracker.open(late, "fast")
    observe = late.notes.observer
    assert observe is not None
    observe(observation(late, 1))
    page.target = "a/x"
    kept.tracker.close(page, 200)
    assert kept.records == []
    observe(observation(late, 2))
    (record,) = kept.records
    assert len(record.attempts) == 2
    observe(observation(late, 3))  # after the record: it changes nothing
    assert late.notes.observer is None
    kept.tracker.flush()
    assert len(kept.records) == 1
    assert charged == [("web", "req-2.1"), ("web", "req-2.2")]


@each_case(
    ("known", "charged"),
    [
        ({"input_tokens": 7, "output_tokens": 3}, (7, 3)),
        ({"input_tokens": None, "output_tokens": 3}, (10, 3)),
        ({"input_tokens": None, "output_tokens": None, "outcome": "cancelled"}, (10, 0)),
        ({"input_tokens": None, "output_tokens": None, "sent_ns": None}, (None, None)),
        (
            {"input_tokens": None, "output_tokens": None, "fault": RESET, "first_token_ns": None},
            (None, None),
        ),
        (
            {"input_tokens": None, "output_tokens": None, "fault": SILENT, "first_token_ns": None},
            (10, 0),
        ),
        ({"input_tokens": None, "output_tokens": 1, "fault": RESET, "first_token_ns": 5}, (10, 1)),
    ],
)
def test_attempt_closed_before_its_usage_is_charged_the_prompt(
    known: dict[str, Any], charged: Any
) -> None:
    counts: list[tuple[int | None, int | None]] = []
    tracker = CallTracker(
        charge=lambda client, attempt: counts.append((attempt.input_tokens, attempt.output_tokens))
    )
    asked = structs.replace(call(1), body={"messages": Raw(b'"' + b"a" * 38 + b'"')})
    tracker.open(asked, "fast")
    assert asked.notes.observer is not None
    asked.notes.observer(structs.replace(observation(asked, 1), **{"sent_ns": 1} | known))
    assert counts == [charged]


def test_records_that_wait_for_attempts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_module, "MAX_WAITING", 2)
    kept = Kept()
    for number in range(1, 6):
        made = call(number)
        kept.tracker.close(kept.tracker.open(made, "fast"), 200)
    assert [record.call for record in kept.records] == ["req-1", "req-2", "req-3"]
    kept.tracker.flush()
    assert len(kept.records) == 5
    assert all(record.attempts == () for record in kept.records)


def test_attempts_of_a_call_that_was_not_waited_for_are_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tracker_module, "MAX_WAITING", 0)
    charged: list[str] = []
    records: list[CallRecord] = []
    tracker = CallTracker(records.append, charge=lambda client, attempt: charged.append(attempt.id))
    made = call(2)
    tracker.close(tracker.open(made, "fast"), 200)
    assert [record.attempts for record in records] == [()]
    for number in (1, 2):
        assert made.notes.observer is not None
        made.notes.observer(observation(made, number))
    assert charged == [observation(made, number).id for number in (1, 2)]
    assert made.notes.observer is None
    assert len(records) == 1


def test_a_call_that_a_bug_ended_is_a_server_error() -> None:
    kept = Kept()
    kept.tracker.close(kept.tracker.open(call(0), "fast"), 0)
    assert (kept.records[0].status, kept.records[0].outcome) == (500, "failed")


@pytest.mark.parametrize(("status", "outcome"), [(200, "failed"), (499, "cancelled")])
def test_incomplete_response_is_recorded_as_failed_or_cancelled(status: int, outcome: str) -> None:
    kept = Kept()
    page = kept.tracker.open(call(0), "fast")
    page.target = "a/x"
    kept.tracker.close(page, status, complete=False)
    assert (kept.records[0].outcome, kept.records[0].fault) == (
        outcome,
        "broken_off" if status == 200 else "",
    )
