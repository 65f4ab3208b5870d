"""The search against continuous-batching servers whose capacity is known from their parameters, in
virtual time."""

import asyncio
from itertools import count

import pytest
from benchmarks.served_engine import ServedEngine
from msgspec.structs import replace

from splitsecond.benchmark.findings.capacity import capacity_of
from splitsecond.benchmark.load import search_driver
from splitsecond.benchmark.load.block import BlockRun, RequestBlock
from splitsecond.benchmark.load.plan import Condition, PlanSettings
from splitsecond.benchmark.load.search_driver import FIRST_ROUNDS, ROUNDS, LoadSearchDriver
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Capacity
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.statistics.search import PRECISION, Search, Verdict
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.simulator.profile import EngineSpec
from splitsecond.testing.virtual_time import run_virtual

TOKENS = 20
SPEC = EngineSpec(
    slots=64,
    prefill_tokens_per_s=1e9,
    prefill_chunk_tokens=2048,
    step_base_ms=10,
    step_per_sequence_ms=1,
)
"""With C sequences a step takes 10 + C ms, and so does each token: its prefill costs nothing."""


class SearchedEngine(ServedEngine):
    """An engine that a search measures. At `breaks_from` requests at once it breaks permanently."""

    def __init__(self, spec: EngineSpec, breaks_from: int | None = None) -> None:
        super().__init__(spec, breaks_from=breaks_from)
        self.observations: list[Observation] = []
        self.readings: list[InstrumentReading] = []
        self.sent: list[RequestBlock] = []

    async def search(self, search: LoadSearchDriver) -> None:
        async with self.serving() as pacer:
            for block in search.blocks(
                asked, self.observations, self.readings, lambda row, verdict: None
            ):
                self.sent.append(block)
                composer = Composer(Workload(run="r", output_tokens=TOKENS))
                await BlockRun(block, self.service, composer, pacer).send(
                    self.observations.append, self._read
                )
                await asyncio.sleep(0.001)  # the delay of the messages between two processes

    def _read(self, reading: InstrumentReading) -> None:
        """Drop the run-queue wait, which is real time, from the reading."""
        self.readings.append(replace(reading, runqueue_wait_ns=None))


def asked(condition: Condition) -> AskedCondition:
    load = condition.load
    return AskedCondition(
        condition=condition.condition,
        target="t",
        concurrency=load.concurrency,
        rate=load.rate,
        output_tokens=TOKENS,
    )


def search(
    served: SearchedEngine, slo: str, last: float, *, share: float = 0.95, rate: bool = False
) -> Capacity:
    limits = parse_slo(slo)
    search = LoadSearchDriver(
        "t", "http://t", Search(1, last, whole=not rate), limits, share, open_loop=rate
    )
    search.pilot_s = 0.3
    run_virtual(served.search(search))
    conditions = [asked(condition) for condition in search.conditions]
    found = condition_rows(
        conditions, served.observations, served.readings, slo=limits, searched=True
    )
    for row, condition in zip(found, search.conditions, strict=True):
        assert row.requests <= condition.requests
    capacity = capacity_of(found, served.observations, limits, share)
    assert capacity is not None
    return capacity


@pytest.mark.sampled(5)
@pytest.mark.parametrize("batch_size", [2, 5, 8, 20, 47])
def test_tpot_limit_bounds_the_capacity(batch_size: int) -> None:
    """A request is in flight for one step more than it has tokens, as it joins the engine's next
    step. So with slots that are out of step, of C requests C times TOKENS / (TOKENS + 1) are in
    each step."""
    most = int((batch_size + 0.5) * (TOKENS + 1) / TOKENS)
    found = search(SearchedEngine(SPEC), f"ttft=2s,tpot={10 + batch_size}.5ms", 64)
    assert (found.holds or 0) <= most < (found.ceiling or 0)
    assert (found.ceiling or 0) <= max((found.holds or 0) * (1 + PRECISION), (found.holds or 0) + 1)
    assert (found.why, found.undecided) == ("fails", [])
    (over,) = (step for step in found.steps if step.load == found.ceiling)
    assert next(iter(over.missed)) == "tpot"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slots", [1, 3, 6, 12])
def test_a_request_beyond_the_slots_waits_for_the_end_of_another(slots: int) -> None:
    """The slots end one after another, so with one request more than slots each waits for a part of
    a response."""
    found = search(SearchedEngine(replace(SPEC, slots=slots)), "ttft=60ms", 64)
    assert (found.holds, found.undecided, found.ceiling) == (slots, [], slots + 1)
    assert found.why == "fails"


@pytest.mark.system
def test_capacity_in_requests_per_second_is_below_the_slots_rate() -> None:
    spec = replace(SPEC, slots=4)
    most = 4 / (TOKENS * 0.014)
    """Answers a second, with four at once in steps of 14 ms: 14.3."""
    found = search(SearchedEngine(spec), "ttft=400ms", 100, rate=True)
    assert found.open_loop
    assert 0.6 * most < (found.holds or 0) < most
    assert (found.ceiling or 0) < 1.2 * most
    assert found.knee is None or found.knee > 0.6 * most


@pytest.mark.system
def test_server_that_meets_every_limit_holds_the_highest_load() -> None:
    served = SearchedEngine(replace(SPEC, step_per_sequence_ms=0))
    found = search(served, "voice", 32)
    assert (found.holds, found.ceiling, found.why, found.knee) == (32, None, "", None)
    assert [step.verdict for step in found.steps] == ["promising"] * 5 + ["holds"]
    assert [block.requests for block in served.sent] == [20, 20, 20, 24, 48, *[96] * 5]


@pytest.mark.system
def test_knee_is_at_the_slots_of_the_server() -> None:
    found = search(SearchedEngine(replace(SPEC, slots=8, step_per_sequence_ms=0.1)), "ttft=10s", 64)
    assert (found.holds, found.ceiling, found.knee) == (64, None, 8)


def test_search_continues_if_the_server_sheds_load() -> None:
    found = search(SearchedEngine(replace(SPEC, slots=4, queue_limit=1)), "ttft=10s", 64)
    assert (found.holds, found.ceiling, found.why) == (5, 6, "fails")
    assert all(step.missed.keys() <= {"errors"} for step in found.steps)


def test_a_server_that_breaks_ends_the_search_at_once() -> None:
    served = SearchedEngine(SPEC, breaks_from=16)
    found = search(served, "ttft=2s", 64)
    assert (found.holds, found.ceiling, found.why) == (None, 16, "breaks")
    assert [step.load for step in found.steps] == [1, 2, 4, 8, 16]
    broken = [o for o in served.observations if o.condition == "t@c16" and o.role == "measured"]
    assert len(broken) < served.sent[-1].requests
    assert found.undecided == [1, 2, 4, 8]


def test_no_capacity_if_one_request_misses_the_limit() -> None:
    found = search(SearchedEngine(SPEC), "ttft=5ms", 64)
    assert (found.holds, found.ceiling, found.why) == (None, 1, "fails")


@pytest.mark.system
def test_step_numbers_its_requests_through_its_blocks() -> None:
    """At concurrency 5 one request of four waits, so whether 75% do not is undecided."""
    served = SearchedEngine(replace(SPEC, slots=4))
    found = search(served, "ttft=100ms", 16, share=0.75)
    assert (found.holds, found.undecided, found.ceiling) == (4, [5], 6)
    by_condition: dict[str, list[RequestBlock]] = {}
    for block in served.sent:
        by_condition.setdefault(block.condition, []).append(block)
    for blocks in by_condition.values():
        assert len(blocks) <= FIRST_ROUNDS + ROUNDS
        first = 0
        for block in blocks:
            assert block.first == first
            first += block.warmups + block.requests + block.cooldowns
    assert len({o.call for o in served.observations}) == len(served.observations)


def test_confirming_rounds_begin_evenly_over_a_time() -> None:
    served = SearchedEngine(SPEC)
    limits = parse_slo("tpot=20ms")
    driver = LoadSearchDriver(
        "t", "http://t", Search(1, 16, whole=True), limits, 0.95, PlanSettings(over_s=1100.0)
    )
    driver.pilot_s = 0.3
    run_virtual(served.search(driver))
    apart = [block for block in served.sent if block.apart_s]
    assert {block.apart_s for block in apart} == {100.0}
    assert len({block.condition for block in apart}) == 1
    assert apart == served.sent[-len(apart) :]
    first = next(block for block in served.sent if block.condition == apart[0].condition)
    assert first.apart_s == 0


def test_too_few_requests_for_the_share_are_refused() -> None:
    with pytest.raises(CallerFault, match="12 times 10 requests cannot show that 95") as raised:
        LoadSearchDriver(
            "t",
            "http://t",
            Search(1, 8, whole=True),
            parse_slo("voice"),
            0.95,
            PlanSettings(requests=10),
        )
    assert "11 or more" in raised.value.hint


def test_search_begins_with_its_first_load() -> None:
    search = LoadSearchDriver("t", "http://t", Search(2, 8, whole=True), parse_slo("voice"), 0.95)
    plan = search.beginning()
    assert [condition.condition for condition in plan.conditions] == ["t@c2"]
    assert plan.lanes == []
    assert search.conditions == []
    assert search.status.endswith("in 95% of requests: concurrency 2 to 8")


def test_the_time_left_follows_from_the_rounds_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    search = LoadSearchDriver("t", "http://t", Search(2, 8, whole=True), parse_slo("voice"), 0.95)
    seconds = count(step=10)
    monkeypatch.setattr(clock, "now_ns", lambda: next(seconds) * NS_PER_S)
    # without an answer: each load fails at once
    blocks = search.blocks(asked, [], [], lambda row, verdict: None)
    next(blocks)
    assert search.seconds_left == 0  # no verdict yet
    assert "left" not in search.status
    list(blocks)
    assert search.seconds_left == 10 * ROUNDS
    assert search.status.endswith(", about 2:00 left")


def test_the_time_left_of_a_confirmation_shrinks_with_each_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    search = Search(4, 4, whole=True)
    search.record(4, "promising")
    driver = LoadSearchDriver("t", "http://t", search, parse_slo("voice"), 0.95)
    seconds = count(step=10)
    monkeypatch.setattr(clock, "now_ns", lambda: next(seconds) * NS_PER_S)
    monkeypatch.setattr(search_driver, "judge", lambda *_, **__: "undecided")
    left = [driver.seconds_left for _ in driver.blocks(asked, [], [], lambda row, verdict: None)]
    assert left == [0, *(10 * (ROUNDS - rounds) for rounds in range(1, ROUNDS))]
    assert "left" not in driver.status


def test_the_range_that_remains_shrinks_with_each_verdict() -> None:
    search = Search(1, 64, whole=True)
    found = [search.remaining]
    verdicts: list[tuple[float, Verdict]] = [
        (1, "holds"),
        (4, "holds"),
        (16, "fails"),
        (8, "fails"),
    ]
    for load, verdict in verdicts:
        search.record(load, verdict)
        found.append(search.remaining)
    assert found == [(1, 64), (1, 64), (4, 64), (4, 16), (4, 8)]
