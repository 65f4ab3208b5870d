"""The search against continuous-batching servers whose capacity is known from their parameters, in virtual time."""

import asyncio

import pytest
from msgspec.structs import replace

from splitsecond import clock
from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.capacity import capacity_of
from splitsecond.analysis.findings import Capacity
from splitsecond.analysis.run import summarise
from splitsecond.analysis.search import PRECISION, Search
from splitsecond.analysis.slo import parse_slo
from splitsecond.errors import CallerFault, NetworkFault, Overloaded, ProviderFault
from splitsecond.load.block import Block, run_block
from splitsecond.load.climb import LOOKS, SCOUTS, Climb
from splitsecond.load.ledger import Ledger
from splitsecond.load.plan import Condition
from splitsecond.load.workload import Composer, Workload
from splitsecond.pacing import Pacer
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import EngineSpec
from splitsecond.testing.fake_service import FakeCall, FakeService
from splitsecond.testing.virtual_time import run_virtual
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation

TOKENS = 20
SPEC = EngineSpec(
    slots=64, prefill_tokens_per_s=1e9, prefill_chunk_tokens=2048, step_base_ms=10, step_per_sequence_ms=1
)
"""With C sequences a step takes 10 + C ms, and so does each token: its prefill costs nothing."""


class Served:
    """An engine as a service. From `breaks_from` requests at once on, it is broken for good."""

    def __init__(self, spec: EngineSpec, breaks_from: int | None = None) -> None:
        self.observations: list[Observation] = []
        self.readings: list[InstrumentReading] = []
        self.sent: list[Block] = []
        self._ledger = Ledger(self.observations.append)
        self._fake = FakeService(target="t", observer=self._ledger.observed)
        self._engine: Engine[FakeCall] = Engine(spec)
        self._left = breaks_from
        self._breaks_from = breaks_from
        self._held = 0
        self._broken = False
        self._submitted = asyncio.Event()

    async def climb(self, climb: Climb) -> None:
        with Pacer(asyncio.get_running_loop()) as pacer:
            serving = [asyncio.create_task(self._take()), asyncio.create_task(self._step(pacer))]
            for block in climb.blocks(asked, self.observations, self.readings, lambda row, verdict: None):
                self.sent.append(block)
                await run_block(block, self._fake, Composer(Workload(run="r")), self._ledger, pacer, self._read)
                await asyncio.sleep(0.001)  # two processes need that long to say that a block is done
            for task in serving:
                task.cancel()

    def _read(self, reading: InstrumentReading) -> None:
        """How long a real processor was waited for says nothing of virtual time."""
        self.readings.append(replace(reading, runqueue_wait_ns=None))

    async def _take(self) -> None:
        while True:
            told = await self._fake.expect()
            self._held += 1
            self._broken |= self._breaks_from is not None and self._held >= self._breaks_from
            if self._broken:
                self._held -= 1
                told.fail(NetworkFault("nobody listens", kind="refused", phase="connect"))
                continue
            try:
                self._engine.submit(told, prompt_tokens=100, output_tokens=TOKENS, now_ns=clock.now_ns())
            except Overloaded as fault:
                self._held -= 1
                told.fail(ProviderFault(str(fault), kind="http_503", phase="head", status=503))
            self._submitted.set()

    async def _step(self, pacer: Pacer) -> None:
        while True:
            while (ends_ns := self._engine.next_ns) is None:
                self._submitted.clear()
                await self._submitted.wait()
            await pacer.sleep_until(ends_ns)
            for emission in self._engine.advance():
                emission.key.first_token()
                if emission.index == TOKENS - 1:
                    self._held -= 1
                    emission.key.finish(input_tokens=100)


def asked(condition: Condition) -> AskedCondition:
    load = condition.load
    return AskedCondition(
        condition=condition.condition, target="t", concurrency=load.concurrency, rate=load.rate, output_tokens=TOKENS
    )


def search(served: Served, slo: str, last: float, *, share: float = 0.95, rate: bool = False) -> Capacity:
    limits = parse_slo(slo)
    climb = Climb("t", "http://t", Search(1, last, whole=not rate), limits, share, open_loop=rate)
    run_virtual(served.climb(climb))
    conditions = [asked(condition) for condition in climb.conditions]
    found = summarise(conditions, served.observations, served.readings, slo=limits)
    for row, condition in zip(found, climb.conditions, strict=True):
        assert row.requests <= condition.requests
    capacity = capacity_of(found, served.observations, limits, share)
    assert capacity is not None
    return capacity


@pytest.mark.parametrize("bears", [2, 5, 8, 20, 47])
def test_the_pace_of_tokens_gives_first(bears: int) -> None:
    found = search(Served(SPEC), f"ttft=2s,tpot={10 + bears}.5ms", 64)
    assert (found.holds or 0) <= bears < (found.ceiling or 0)
    assert (found.ceiling or 0) <= max((found.holds or 0) * (1 + PRECISION), (found.holds or 0) + 1)
    assert (found.why, found.undecided) == ("fails", [])
    (over,) = (step for step in found.steps if step.load == found.ceiling)
    assert next(iter(over.missed)) == "tpot"


@pytest.mark.parametrize("slots", [1, 3, 6, 12])
def test_who_finds_no_slot_waits_for_one(slots: int) -> None:
    """With one request more than slots, one in each round of them waits for a whole answer. One in 12 is too near to
    one in 20 to be decided."""
    found = search(Served(replace(SPEC, slots=slots)), "ttft=100ms", 64)
    undecided = [13] if slots == 12 else []
    assert (found.holds, found.undecided, found.ceiling) == (slots, undecided, slots + 1 + len(undecided))
    assert found.why == "fails"


def test_the_rate_that_an_open_loop_bears_is_below_what_the_slots_can_give() -> None:
    spec = replace(SPEC, slots=4)
    most = 4 / (TOKENS * 0.014)
    """Answers a second, with four at once in steps of 14 ms: 14.3."""
    found = search(Served(spec), "ttft=400ms", 100, rate=True)
    assert found.open_loop
    assert 0.6 * most < (found.holds or 0) < most
    assert (found.ceiling or 0) < 1.2 * most
    assert found.knee is None or found.knee > 0.6 * most


def test_all_steps_of_a_server_that_bears_everything() -> None:
    served = Served(replace(SPEC, step_per_sequence_ms=0))
    found = search(served, "voice", 32)
    assert (found.holds, found.ceiling, found.why, found.knee) == (32, None, "", None)
    assert [step.verdict for step in found.steps] == ["promising"] * 5 + ["holds"]
    assert [block.requests for block in served.sent] == [SCOUTS, SCOUTS, SCOUTS, 24, 48, 96]


def test_throughput_hardly_grows_beyond_the_slots() -> None:
    found = search(Served(replace(SPEC, slots=8, step_per_sequence_ms=0.1)), "ttft=10s", 64)
    assert (found.holds, found.ceiling, found.knee) == (64, None, 8)


def test_a_server_that_sheds_load_is_well_and_the_search_goes_on() -> None:
    found = search(Served(replace(SPEC, slots=4, queue_limit=1)), "ttft=10s", 64)
    assert (found.holds, found.ceiling, found.why) == (5, 6, "fails")
    assert all(step.missed.keys() <= {"errors"} for step in found.steps)


def test_a_server_that_breaks_ends_the_search_at_once() -> None:
    served = Served(SPEC, breaks_from=16)
    found = search(served, "ttft=2s", 64)
    assert (found.holds, found.ceiling, found.why) == (None, 16, "breaks")
    assert [step.load for step in found.steps] == [1, 2, 4, 8, 16]
    broken = [o for o in served.observations if o.condition == "t@c16" and o.role == "measured"]
    assert len(broken) < served.sent[-1].requests
    assert found.undecided == [1, 2, 4, 8]


def test_not_even_one_request_at_a_time() -> None:
    found = search(Served(SPEC), "ttft=5ms", 64)
    assert (found.holds, found.ceiling, found.why) == (None, 1, "fails")


def test_a_step_has_no_more_blocks_than_looks_and_numbers_its_requests_through() -> None:
    """At concurrency 5 one request of four waits, so that 75 % do not can be neither shown nor refuted."""
    served = Served(replace(SPEC, slots=4))
    found = search(served, "ttft=100ms", 16, share=0.75)
    assert (found.holds, found.undecided, found.ceiling) == (4, [5], 6)
    by_condition: dict[str, list[Block]] = {}
    for block in served.sent:
        by_condition.setdefault(block.condition, []).append(block)
    for blocks in by_condition.values():
        assert len(blocks) <= LOOKS + 1
        first = 0
        for block in blocks:
            assert block.first == first
            first += block.warmups + block.requests
    assert len({o.call for o in served.observations}) == len(served.observations)


def test_so_few_requests_that_nothing_could_be_shown_are_refused() -> None:
    with pytest.raises(CallerFault, match="4 times 10 requests cannot show that 95 % keep to the limits") as raised:
        Climb("t", "http://t", Search(1, 8, whole=True), parse_slo("voice"), 0.95, requests=10)
    assert "23 or more" in raised.value.hint


def test_what_is_known_before_anything_was_sent_is_the_first_step() -> None:
    climb = Climb("t", "http://t", Search(2, 8, whole=True), parse_slo("voice"), 0.95)
    plan = climb.beginning()
    assert [condition.condition for condition in plan.conditions] == ["t@c2"]
    assert plan.lanes == []
    assert climb.conditions == []
