"""A batch in virtual time: each request is answered once or refused once, whatever happens on the
way."""

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.policies.branches import (
    bad_request,
    fails,
    full,
    refused,
    reset,
    scripted,
    silent,
    status,
)

from splitsecond.core import clock
from splitsecond.core.errors import AllFailed, Fault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Reply
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.batch.batch_file import BatchItem, read
from splitsecond.routing.batch.concurrency_window import ConcurrencyWindow
from splitsecond.routing.batch.run import ENDS_WITHIN_NS, TRIES, Batch, BatchOutcome
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

OK = Script(ttft=0.5, tokens=10, tps=20, input_tokens=5)


class Played(msgspec.Struct):
    outcomes: list[BatchOutcome]
    served: list[CallRecord]
    left: int
    batch: Batch
    took_s: float

    def statuses(self) -> list[int]:
        return [outcome.result.response.status_code for outcome in self.outcomes]


@pytest.fixture
def items(tmp_path: Path) -> Callable[[int], list[BatchItem]]:
    def made(count: int) -> list[BatchItem]:
        path = tmp_path / "requests.jsonl"
        path.write_text(
            "".join(
                f'{{"custom_id":"{n}","body":{{"model":"m","stream":true}}}}\n'
                for n in range(count)
            )
        )
        return read(path)

    return made


def play(
    items: Sequence[BatchItem], fake: FakeService, *, most: int = 8, stop_at: float | None = None
) -> Played:
    async def played() -> Played:
        outcomes: list[BatchOutcome] = []
        served: list[CallRecord] = []
        tracker = CallTracker(served.append)
        batch = Batch(
            lambda model: fake, tracker, ConcurrencyWindow(most), outcomes.append, chance=Random(1)
        )
        if stop_at is not None:
            asyncio.get_running_loop().call_later(stop_at, batch.stop)
        begun_ns = clock.now_ns()
        left = await batch.run(items)
        tracker.flush()
        return Played(outcomes, served, left, batch, (clock.now_ns() - begun_ns) / clock.NS_PER_S)

    return run_virtual(played())


def test_each_request_is_answered_once_and_not_streamed(
    items: Callable[[int], list[BatchItem]],
) -> None:
    fake = scripted(OK)
    found = play(items(50), fake)
    assert sorted(int(o.result.custom_id) for o in found.outcomes) == list(range(50))
    assert set(found.statuses()) == {200}
    body = json.loads(bytes(found.outcomes[0].result.response.body))
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["message"]["content"]
    assert len(fake.calls) == 50
    assert not any(each.call.stream or "stream" in each.call.body for each in fake.calls)
    assert [s.outcome for s in found.served] == ["ok"] * 50
    assert found.batch.window.widest == 8
    assert fake.left_open == 0


@pytest.mark.parametrize(
    "fault", [status(429), status(503), status(500), reset(), silent(), full()], ids=repr
)
def test_transient_failures_are_retried(
    items: Callable[[int], list[BatchItem]], fault: Fault
) -> None:
    found = play(items(1), scripted(fails(fault), fails(fault), OK))
    assert found.statuses() == [200]
    assert (found.batch.retries, len(found.served)) == (2, 3)


def test_retries_are_bounded(items: Callable[[int], list[BatchItem]]) -> None:
    fake = scripted(fails(status(503)))
    found = play(items(2), fake)
    assert found.statuses() == [503, 503]
    assert len(fake.calls) == 2 * TRIES
    assert found.left == 0


@pytest.mark.parametrize("fault", [bad_request(), refused(), AllFailed([bad_request()])], ids=repr)
def test_other_failures_are_not_retried(
    items: Callable[[int], list[BatchItem]], fault: Fault
) -> None:
    fake = scripted(fails(fault), OK)
    found = play(items(3), fake, most=1)
    assert [outcome.ok for outcome in found.outcomes] == [False, True, True]
    assert "error" in json.loads(bytes(found.outcomes[0].result.response.body))
    assert len(fake.calls) == 3


def test_retry_after_of_a_minute_is_waited_for(items: Callable[[int], list[BatchItem]]) -> None:
    found = play(items(4), scripted(fails(status(429, retry_after_s=60), ttft=0.0), OK), most=1)
    assert found.statuses() == [200] * 4
    assert found.took_s >= 60


def test_retry_after_of_hours_ends_the_request_with_429(
    items: Callable[[int], list[BatchItem]],
) -> None:
    found = play(items(1), scripted(fails(status(429, retry_after_s=7200)), OK))
    assert found.statuses() == [429]
    assert found.took_s < 10


@pytest.mark.parametrize(
    "fault", [status(401), status(402), AllFailed([refused(), status(401)])], ids=repr
)
def test_a_rejected_key_stops_the_batch(
    items: Callable[[int], list[BatchItem]], fault: Fault
) -> None:
    fake = scripted(OK, fails(fault))
    found = play(items(20), fake, most=1)
    assert found.statuses() == [200]
    assert found.left == 19
    assert found.batch.stopped is not None
    assert len(fake.calls) == 2


def test_requests_in_flight_continue_after_a_stop(items: Callable[[int], list[BatchItem]]) -> None:
    fake = scripted(OK)
    found = play(items(100), fake, most=4, stop_at=2.2)
    assert set(found.statuses()) == {200}
    assert len(found.outcomes) + found.left == 100
    assert found.left > 80
    assert fake.left_open == 0


def test_a_truncated_response_is_retried(items: Callable[[int], list[BatchItem]]) -> None:
    broken = Script(tokens=10, breaks_after=3, fault=reset())
    found = play(items(1), scripted(broken, OK))
    assert found.statuses() == [200]
    assert [s.outcome for s in found.served] == ["failed", "ok"]


@pytest.mark.parametrize(("late_s", "known"), [(0.3, 3), (30.0, 0)])
def test_late_ends_of_attempts_are_awaited_for_a_bounded_time(
    items: Callable[[int], list[BatchItem]], late_s: float, known: int
) -> None:
    async def played() -> tuple[int, float]:
        served: list[CallRecord] = []
        tracker = CallTracker(served.append)

        fake = FakeService(script=lambda call: OK)

        async def observed_late(call: Call) -> Reply:
            observe = call.notes.observer
            assert observe is not None

            def later(attempt: Observation) -> None:
                asyncio.get_running_loop().call_later(late_s, observe, attempt)

            call.notes.observer = later
            return await fake(call)

        batch = Batch(
            lambda model: observed_late,
            tracker,
            ConcurrencyWindow(8),
            lambda _: None,
            chance=Random(1),
        )
        await batch.run(items(3))
        begun_ns = clock.now_ns()
        await batch.wait_for_attempts()
        return len(served), (clock.now_ns() - begun_ns) / clock.NS_PER_S

    found, waited_s = run_virtual(played())
    assert found == known
    assert waited_s == pytest.approx(min(late_s, ENDS_WITHIN_NS / clock.NS_PER_S), abs=0.01)
