"""One block of requests, in virtual time, against a fake service."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import cast
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.examples import examples

from splitsecond.benchmark.load.block import UNANSWERED, BlockRun, RequestBlock
from splitsecond.benchmark.load.cost_lease import CostLease, LeaseAccount
from splitsecond.benchmark.rows.condition import condition_findings
from splitsecond.benchmark.rows.records import AskedCondition
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import CallerFault, Fault, NetworkFault, ProviderFault, TimedOut
from splitsecond.core.observation import Observation
from splitsecond.core.pacing import Pacer
from splitsecond.core.service import Call, Reply
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.routing.policies.race import race
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import START_NS, run_virtual

COMPOSER = Composer(Workload(run="r", system_words=2, user_words=2, output_tokens=10))


class Ran:
    """A block with its observations and readings."""

    def __init__(
        self,
        block: RequestBlock,
        script: Callable[[Call], Script],
        *,
        most_in_flight: int = 100,
        composer: Composer = COMPOSER,
        account: LeaseAccount | None = None,
    ) -> None:
        self.observations: list[Observation] = []
        self.readings: list[InstrumentReading] = []
        self.fake = FakeService(target="t", script=script)
        self.block = block
        self.most_in_flight = most_in_flight
        self.composer = composer
        self.account = account

    async def run(self) -> str:
        with Pacer(asyncio.get_running_loop()) as pacer:
            return await BlockRun(
                self.block,
                self.fake,
                self.composer,
                pacer,
                most_in_flight=self.most_in_flight,
                account=self.account,
            ).send(self.observations.append, self.readings.append)

    def by_role(self, role: str) -> list[Observation]:
        return [observation for observation in self.observations if observation.role == role]

    def in_flight_at(self, at: int) -> int:
        return sum(o.start_ns <= at < o.end_ns for o in self.observations)


def run(block: RequestBlock, script: Callable[[Call], Script], most_in_flight: int = 100) -> Ran:
    ran = Ran(block, script, most_in_flight=most_in_flight)
    run_virtual(ran.run())
    return ran


def steady(call: Call) -> Script:
    return Script(ttft=0.2, tokens=101, tps=100)


def closed(concurrency: int, requests: int, warmups: int | None = None) -> RequestBlock:
    warmups = concurrency if warmups is None else warmups
    return RequestBlock(
        condition="c", target="t", requests=requests, warmups=warmups, concurrency=concurrency
    )


RATED = RequestBlock(
    condition="c", target="t", requests=60, due=[n * NS_PER_S // 2 for n in range(60)]
)


@pytest.mark.parametrize("reuse", [False, True])
def test_requests_with_cache_reuse_are_marked_for_caching(reuse: bool) -> None:
    asked: list[str] = []

    def script(call: Call) -> Script:
        asked.append(call.hints.get("prompt_cache", ""))
        return steady(call)

    run_virtual(
        Ran(closed(1, 2), script, composer=Composer(Workload(run="r"), "c", alike=reuse)).run()
    )
    assert asked == ["mark" if reuse else ""] * 3


def test_closed_loop_starts_spread_over_the_first_ttft() -> None:
    ran = run(closed(4, 8), steady)
    starts = sorted(o.start_ns - START_NS for o in ran.by_role("warmup"))
    assert starts == [0, 250 * NS_PER_MS, 300 * NS_PER_MS, 350 * NS_PER_MS]


def test_closed_loop_keeps_full_concurrency_without_gaps() -> None:
    ran = run(closed(4, 8), steady)
    measured = ran.by_role("measured")
    assert [ran.in_flight_at(o.start_ns) for o in measured] == [4] * 8
    ends = {o.end_ns for o in ran.observations}
    assert all(o.due_ns == o.start_ns and o.due_ns in ends for o in measured)


@pytest.mark.parametrize(
    ("concurrency", "requests", "tokens", "ttft_s", "tps"),
    [(8, 19, 32, 0.222, 300), (32, 32, 32, 0.3, 100)],
)
def test_throughput_is_that_of_independent_requests(
    concurrency: int, requests: int, tokens: int, ttft_s: float, tps: float
) -> None:
    rng = Random(1)

    def script(call: Call) -> Script:
        tokens = cast("int", call.body["max_tokens"])
        return Script(ttft=ttft_s * rng.uniform(0.9, 1.1), tokens=tokens, tps=tps)

    composer = Composer(Workload(run="r", system_words=2, user_words=2, output_tokens=tokens))
    rounds = [
        replace(
            closed(concurrency, requests),
            cooldowns=4 * (concurrency - 1),
            round=number,
            first=1000 * number,
        )
        for number in range(1, 6)
    ]
    ran = [Ran(block, script, composer=composer) for block in rounds]

    async def one_after_another() -> None:
        for each in ran:
            await each.run()

    run_virtual(one_after_another())
    observations = [o for each in ran for o in each.observations]
    asked = AskedCondition(condition="c", target="t", concurrency=concurrency)
    row = condition_findings(asked, observations, [])
    truth = concurrency / (ttft_s + (tokens - 1) / tps)
    assert row.requests_per_s == pytest.approx(truth, rel=0.03)
    assert row.output_tokens_per_s == pytest.approx(truth * tokens, rel=0.05)


def test_block_ends_at_the_maximum_of_failures() -> None:
    busy = ProviderFault("busy", kind="http_503", phase="head", status=503)

    def script(call: Call) -> Script:
        return Script(ttft=0.1, fault=busy) if int(call.id.split("-")[1]) % 2 else steady(call)

    ran = Ran(replace(closed(2, 40), most_failures=3), script)
    assert run_virtual(ran.run()) == "3 requests failed; the last: busy (while: head)."
    failed = [o for o in ran.by_role("measured") if not o.ok]
    assert (len(failed), len([o for o in ran.by_role("warmup") if not o.ok])) == (3, 1)
    assert len(ran.by_role("measured")) < 10
    assert ran.fake.in_flight == 0


@pytest.mark.parametrize("concurrency", [1, 3])
def test_short_requests_are_measured_at_full_concurrency(concurrency: int) -> None:
    ran = run(closed(concurrency, 9), lambda call: Script(ttft=0.2, tokens=1))
    assert len(ran.by_role("warmup")) == concurrency
    last_start = max(o.start_ns for o in ran.by_role("warmup"))
    assert all(o.start_ns >= last_start for o in ran.by_role("measured"))


@examples(60)
@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 15), st.integers(0, 2**16))
def test_closed_loop_laws(concurrency: int, requests: int, warmups: int, seed: int) -> None:
    """At most c requests are in flight, c is reached if there are enough requests, and the count is
    exact."""

    def script(call: Call) -> Script:
        chance = crc32(f"{seed} {call.id}".encode()) % 1000 / 1000
        if chance < 0.1:
            return Script(
                ttft=0.05, fault=ProviderFault("busy", kind="http_429", phase="head", status=429)
            )
        return Script(ttft=0.1 + chance / 10, tokens=10, tps=4 + 10 * chance)

    ran = run(closed(concurrency, requests, warmups), script)
    assert len(ran.by_role("measured")) == requests
    assert len(ran.by_role("warmup")) == warmups
    assert len({o.call for o in ran.observations}) == requests + warmups
    [reading] = ran.readings
    assert reading.peak_in_flight <= concurrency
    if warmups == 0:
        assert reading.peak_in_flight == min(concurrency, requests)
    assert ran.fake.in_flight == 0


def test_a_first_request_that_fails_makes_no_other_late() -> None:
    def script(call: Call) -> Script:
        fault = (
            NetworkFault("no", kind="refused", phase="connect") if call.id.endswith("-0") else None
        )
        return Script(ttft=0.3, tokens=10, tps=100, fault=fault)

    ran = run(closed(4, 8, 4), script)
    assert max(o.late_ns or 0 for o in ran.observations) < NS_PER_MS


def test_concurrency_is_reached() -> None:
    [reading] = run(closed(32, 64), steady).readings
    assert reading.peak_in_flight == 32


def test_without_warmups_all_start_at_once() -> None:
    ran = run(closed(3, 3, warmups=0), steady)
    assert {o.start_ns for o in ran.observations} == {START_NS}
    assert {o.role for o in ran.observations} == {"measured"}


def test_a_first_request_that_fails_does_not_hold_up_the_others() -> None:
    def script(call: Call) -> Script:
        fault = ProviderFault("down", kind="http_503", phase="head", status=503)
        return Script(ttft=1, fault=fault if call.id == "c-0" else None)

    ran = run(closed(4, 4), script)
    assert len(ran.observations) == 8
    assert sum(o.outcome == "failed" for o in ran.observations) == 1


offsets = st.lists(st.integers(0, 20 * NS_PER_S), min_size=1, max_size=40).map(sorted)


@examples(60)
@given(offsets, st.booleans())
def test_open_loop_sends_on_time_to_a_slow_service(due: list[int], hangs: bool) -> None:
    async def main() -> Ran:
        block = RequestBlock(condition="c", target="t", requests=len(due), due=due)
        ran = Ran(block, lambda call: Script(ttft=5, tokens=2, tps=0.1, hangs=hangs))
        task = asyncio.create_task(ran.run())
        await asyncio.sleep(60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return ran

    ran = run_virtual(main())
    assert sorted(o.start_ns - START_NS for o in ran.observations) == due
    assert all(o.due_ns == o.start_ns for o in ran.observations)
    assert {o.outcome for o in ran.observations} == {"cancelled" if hangs else "ok"}
    if hangs:
        assert ran.readings[0].peak_in_flight == len(due)


def test_open_loop_counts_lateness_from_when_it_was_due() -> None:
    class Slow(FakeService):
        """Delays each call by a second before it is sent, as an overloaded process does."""

        async def __call__(self, call: Call) -> Reply:  # type: ignore[override]
            await asyncio.sleep(1)
            return await super().__call__(call)

    async def main() -> list[Observation]:
        seen: list[Observation] = []
        slow = Slow(target="t", script=steady)
        block = RequestBlock(condition="c", target="t", requests=2, due=[0, NS_PER_S // 2])
        with Pacer(asyncio.get_running_loop()) as pacer:
            await BlockRun(block, slow, COMPOSER, pacer).send(seen.append, lambda reading: None)
        return seen

    assert [o.late_ns for o in run_virtual(main())] == [NS_PER_S, NS_PER_S]


def test_request_beyond_max_in_flight_is_refused_and_counted() -> None:
    block = RequestBlock(condition="c", target="t", requests=6, warmups=2, due=[0] * 8)
    ran = run(block, steady, most_in_flight=5)
    refused = [o for o in ran.observations if o.fault is not None]
    assert [o.fault.kind for o in refused if o.fault] == ["overloaded"] * 3
    assert {(o.condition, o.target, o.role) for o in refused} == {("c", "t", "measured")}
    assert all(o.due_ns == o.end_ns == START_NS for o in refused)
    assert len(ran.observations) == 8


def test_slices_start_together_with_distinct_request_numbers() -> None:
    begin = START_NS + NS_PER_S
    block = RequestBlock(
        condition="c", target="t", requests=2, due=[0, 10], begin_ns=begin, first=1, stride=2
    )
    ran = run(block, steady)
    assert [(o.call, o.start_ns) for o in ran.observations] == [("c-1", begin), ("c-3", begin + 10)]


@pytest.mark.parametrize("open_loop", [False, True])
@pytest.mark.parametrize(
    "fault", [NetworkFault("no", kind="refused", phase="connect"), TimedOut("no", phase="head")]
)
def test_block_ends_if_the_target_never_answers(open_loop: bool, fault: Fault) -> None:
    block = closed(2, 50)
    if open_loop:
        block = RequestBlock(
            condition="c", target="t", requests=50, due=[n * NS_PER_S for n in range(50)]
        )
    ran = Ran(block, lambda call: Script(ttft=0.1, fault=fault))
    reason = run_virtual(ran.run())
    assert reason.startswith(f"none of the first {UNANSWERED} requests was answered")
    assert UNANSWERED <= len(ran.observations) <= UNANSWERED + 2


@pytest.mark.parametrize("answer", [None, ProviderFault("busy", kind="http_503", phase="head")])
def test_block_continues_after_one_answer_of_the_target(answer: Fault | None) -> None:
    refused = NetworkFault("no", kind="refused", phase="connect")
    script = lambda call: Script(ttft=0.1, fault=answer if call.id == "c-3" else refused)  # noqa: E731
    ran = Ran(closed(1, 30), script)
    assert run_virtual(ran.run()) == ""
    assert len(ran.observations) == 31


def test_cancelled_block_keeps_results_and_closes_requests() -> None:
    async def main() -> Ran:
        ran = Ran(closed(3, 100), steady)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ran.run(), 10)
        assert ran.fake.in_flight == 0
        assert all(fake.closed_at is not None for fake in ran.fake.calls)
        return ran

    ran = run_virtual(main())
    outcomes = [o.outcome for o in ran.observations]
    assert outcomes.count("cancelled") == 3
    assert outcomes.count("ok") == len(outcomes) - 3 >= 20
    assert {o.condition for o in ran.observations} == {"c"}
    assert len(ran.readings) == 1


def test_a_call_that_never_became_an_attempt_is_counted() -> None:
    async def refuse(call: Call) -> Reply:
        raise CallerFault("not supported in this API format")

    async def main() -> list[Observation]:
        seen: list[Observation] = []
        with Pacer(asyncio.get_running_loop()) as pacer:
            await BlockRun(closed(2, 4), refuse, COMPOSER, pacer).send(
                seen.append, lambda reading: None
            )
        return seen

    seen = run_virtual(main())
    assert [o.role for o in seen].count("measured") == 4
    assert {(o.outcome, o.target) for o in seen} == {("failed", "t")}


def test_no_garbage_is_collected_inside_a_block() -> None:
    class Tree:
        def __init__(self) -> None:
            self.itself = self

    def script(call: Call) -> Script:
        for _ in range(200):
            Tree()
        assert not gc.isenabled()
        return steady(call)

    [reading] = run(closed(4, 40), script).readings
    assert reading.collections == 0
    assert gc.isenabled()
    assert reading.end_ns > reading.begin_ns
    assert reading.cpu_ns >= 0


def test_a_collection_inside_a_block_is_counted() -> None:
    def script(call: Call) -> Script:
        gc.collect(0)
        return steady(call)

    [reading] = run(closed(1, 1), script).readings
    assert reading.collections == 2


def test_the_attempts_of_a_policy_make_one_measured_call() -> None:
    seen: list[Observation] = []

    async def main() -> None:
        fast = FakeService(target="a/x", script=steady)
        mute = FakeService(target="b/x", script=lambda call: Script(hangs=True))
        block = RequestBlock(condition="c", target="both", requests=2, warmups=1, concurrency=1)
        with Pacer(asyncio.get_running_loop()) as pacer:
            await BlockRun(block, race(fast, mute), COMPOSER, pacer).send(
                seen.append, lambda reading: None
            )

    run_virtual(main())
    assert [(o.target, o.role) for o in seen if o.call == "c-0"] == [
        ("b/x", "loser"),
        ("a/x", "winner"),
        ("both", "warmup"),
    ]
    assert [o.id for o in seen if o.role == "measured"] == ["c-1.0", "c-2.0"]
    assert {o.condition for o in seen} == {"c"}


def test_cancelled_policy_reports_its_attempts() -> None:
    seen: list[Observation] = []

    async def main() -> None:
        mute = [FakeService(target=name, script=lambda call: Script(hangs=True)) for name in "ab"]
        block = RequestBlock(condition="c", target="both", requests=2, concurrency=1)
        with Pacer(asyncio.get_running_loop()) as pacer:
            sending = BlockRun(block, race(*mute), COMPOSER, pacer).send(
                seen.append, lambda reading: None
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(sending, 1)

    run_virtual(main())
    assert sorted((o.target, o.role, o.outcome) for o in seen) == [
        ("a", "loser", "cancelled"),
        ("b", "loser", "cancelled"),
        ("both", "measured", "cancelled"),
    ]


class Lingering:
    """A policy whose second target ends only `linger_s` after the reply, as an attempt does whose
    body stays open."""

    def __init__(self, linger_s: float | None) -> None:
        self._fast = FakeService(target="a/x", script=steady)
        self._linger_s = linger_s

    async def __call__(self, call: Call) -> Reply:
        call.notes.attempts += 1
        late = Observation(
            id=f"{call.id}.9",
            call=call.id,
            target="b/x",
            condition=call.notes.condition,
            role=call.notes.role,
            outcome="cancelled",
        )
        assert call.notes.observer is not None
        if self._linger_s is not None:
            asyncio.get_running_loop().call_later(self._linger_s, call.notes.observer, late)
        return await self._fast(call)


def test_attempt_that_outlives_its_call_delays_no_request() -> None:
    seen: list[Observation] = []

    async def main() -> None:
        block = RequestBlock(condition="c", target="both", requests=2, concurrency=1)
        with Pacer(asyncio.get_running_loop()) as pacer:
            await BlockRun(block, Lingering(2.0), COMPOSER, pacer).send(
                seen.append, lambda reading: None
            )

    run_virtual(main())
    calls = [o for o in seen if o.role == "measured"]
    assert [(o.id, o.target, o.ok) for o in calls] == [
        ("c-0.0", "both", True),
        ("c-1.0", "both", True),
    ]
    assert calls[1].start_ns == calls[0].end_ns
    assert sorted((o.call, o.target, o.role) for o in seen if o.role != "measured") == [
        ("c-0", "a/x", "winner"),
        ("c-0", "b/x", "loser"),
        ("c-1", "a/x", "winner"),
        ("c-1", "b/x", "loser"),
    ]
    assert {o.condition for o in seen} == {"c"}


def test_cancelled_block_reports_calls_with_open_attempts() -> None:
    seen: list[Observation] = []

    async def main() -> None:
        block = RequestBlock(condition="c", target="both", requests=1, concurrency=1)
        with Pacer(asyncio.get_running_loop()) as pacer, suppress(TimeoutError):
            sending = BlockRun(block, Lingering(None), COMPOSER, pacer).send(
                seen.append, lambda reading: None
            )
            await asyncio.wait_for(sending, 10)

    run_virtual(main())
    assert [(o.target, o.role) for o in seen] == [("a/x", "winner"), ("both", "measured")]


def test_one_slot_sends_one_after_the_other() -> None:
    ran = run(closed(1, 5), steady)
    assert all(b.start_ns == a.end_ns for a, b in pairwise(ran.observations))


@pytest.mark.parametrize("block", [closed(4, 60), RATED])
def test_block_never_costs_more_than_its_lease(block: RequestBlock) -> None:
    """Each answer costs 101 of at most 120 cents: 15 dollars pay for fewer than 15 of 64."""
    prices = {"t": Price(output_usd=10_000.0)}
    account = LeaseAccount(CostLease(usd=15.0, request_usd=1.2, input_tokens=0, prices=prices))
    ran = Ran(block, steady, account=account)
    assert run_virtual(ran.run()) == "the cost limit was reached"
    assert account.spent
    costs = [(o.output_tokens or 0) * 0.01 for o in ran.observations]
    assert 15.0 - 5 * 1.2 < sum(costs) <= 15.0
    assert not any(o.fault for o in ran.observations)


def test_answer_above_its_bound_raises_the_bound() -> None:
    prices = {"t": Price(output_usd=10_000.0)}
    account = LeaseAccount(CostLease(usd=10.0, request_usd=0.1, input_tokens=0, prices=prices))
    ran = Ran(closed(1, 60), steady, account=account)
    run_virtual(ran.run())
    assert len(ran.observations) == 9  # of 1.01 dollars
