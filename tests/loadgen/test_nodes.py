"""Load from several nodes, in virtual time: a fake transport delays what a real worker reads and
writes, and gives each node a clock of its own."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from splitsecond.benchmark.load.arrivals import schedule
from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.coordinator import (
    Calibration,
    PlanListener,
    PlanResult,
    RunNote,
    WorkerSettings,
    run_plan,
)
from splitsecond.benchmark.load.messages import (
    ClockReport,
    Command,
    ObservationReport,
    ReadingReport,
    Report,
    SendBlock,
)
from splitsecond.benchmark.load.nodes import ClockOffset, on_our_clock, shares
from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.load.worker import LoadWorker
from splitsecond.benchmark.load.worker_pool import Pipe, WorkerLost
from splitsecond.benchmark.rows.round_spread import round_spread
from splitsecond.benchmark.statistics.steady import TimeWindows, in_flight, mean_in_flight
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Service
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

TARGET = "fake/m"


class VirtualPacer:
    """Waits in virtual time."""

    async def sleep_until(self, due_ns: int) -> None:
        await asyncio.sleep(max(0, due_ns - clock.now_ns()) / NS_PER_S)


class FakeNode:
    """A node whose clock is `ahead_ns` ahead of ours, and whose messages take `there_s` and
    `back_s`."""

    def __init__(
        self,
        name: str,
        script: Callable[[Call], Script],
        *,
        ahead_ns: int = 0,
        there_s: float = 0.0,
        back_s: float = 0.0,
        dies_after: int | None = None,
        has_key: bool = True,
    ) -> None:
        self.name = name
        self.script = script
        self.ahead_ns, self.there_s, self.back_s = ahead_ns, there_s, back_s
        self.dies_after, self.has_key = dies_after, has_key
        self.pipes: list[FakePipe] = []

    async def start(self, arguments: Sequence[str]) -> Pipe:
        if self.dies_after == 0:
            raise WorkerLost(
                f"worker on node {self.name}: lost the node", kind="worker_lost", phase="queue"
            )
        self.pipes.append(FakePipe(self))
        return self.pipes[-1]


class FakePipe:
    """The pipe of a worker in this event loop. All times that pass through it are moved to the
    clock of its node."""

    def __init__(self, node: FakeNode) -> None:
        self._node = node
        self._commands: asyncio.Queue[Command | None] = asyncio.Queue()
        self._reports: asyncio.Queue[tuple[int, Report | None]] = asyncio.Queue()
        self._reported = 0
        self._dead = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    async def write(self, data: bytes) -> None:
        await asyncio.sleep(self._node.there_s)
        command = msgspec.json.decode(data, type=Command)
        if isinstance(command, SendBlock) and command.block.begin_ns:
            begin_ns = command.block.begin_ns - self._node.ahead_ns
            command = replace(command, block=replace(command.block, begin_ns=begin_ns))
        self._commands.put_nowait(command)

    async def read_line(self) -> bytes | None:
        arrives_ns, report = await self._reports.get()
        await VirtualPacer().sleep_until(arrives_ns)
        if report is None:
            self._reports.put_nowait((arrives_ns, None))  # the end stays the end
            return None
        return msgspec.json.encode(report)

    async def ending(self) -> str:
        await self._dead.wait()
        return f"on node {self._node.name}: lost the node"

    async def stop(self) -> None:
        self._task.cancel()

    async def _work(self) -> None:
        node = self._node

        def connect(spec: TargetSpec, observer: Callable[[Observation], None], /) -> Service:
            if not node.has_key:
                raise CallerFault(
                    "no key: KEY is not set", kind="missing_key", target=spec.name, hint="Set it."
                )
            return FakeService(script=node.script, target=spec.name, observer=observer)

        async def commands() -> AsyncIterator[Command]:
            while (command := await self._commands.get()) is not None:
                yield command

        await LoadWorker(connect, self._put, VirtualPacer()).run(commands())
        self._end()

    def _put(self, report: Report) -> None:
        self._reported += 1
        if self._node.dies_after is not None and self._reported > self._node.dies_after:
            self._end()
        else:
            self._send(_by_clock_of(self._node, report))

    def _send(self, report: Report | None) -> None:
        self._reports.put_nowait((clock.now_ns() + round(self._node.back_s * NS_PER_S), report))

    def _end(self) -> None:
        if not self._dead.is_set():
            self._dead.set()
            self._send(None)
            self._commands.put_nowait(None)


def _by_clock_of(node: FakeNode, report: Report) -> Report:
    ahead_ns = node.ahead_ns
    match report:
        case ClockReport(now_ns):
            return ClockReport(now_ns + ahead_ns)
        case ObservationReport(observation):
            return ObservationReport(on_our_clock(observation, "", -ahead_ns))
        case ReadingReport(reading):
            begin_ns, end_ns = reading.begin_ns + ahead_ns, reading.end_ns + ahead_ns
            return ReadingReport(replace(reading, begin_ns=begin_ns, end_ns=end_ns))
    return report


def answers(call: Call) -> Script:
    """Answers after a time that depends on the request, so that slots do not end at the same
    time."""
    messages: list[dict[str, str]] = call.body["messages"]  # type: ignore[assignment]
    words = sum(len(message["content"].split()) for message in messages)
    ttft = 0.1 + 0.03 * (sum(map(ord, call.id)) % 7)
    return Script(ttft=ttft, tokens=10, tps=100, input_tokens=words)


class Bench:
    """A run over nodes, with all of its reports."""

    def __init__(self, *nodes: FakeNode) -> None:
        self.nodes = nodes
        self.observations: list[Observation] = []
        self.readings: list[InstrumentReading] = []
        self.notes: list[RunNote] = []
        self.pauses: list[tuple[int, float]] = []

    def run(
        self, load: PlannedLoad, requests: int, *, blocks: int | None = 2, **planned: Any
    ) -> PlanResult:
        return run_virtual(self.running(load, requests, blocks=blocks, **planned))

    async def running(self, load: PlannedLoad, requests: int, **planned: Any) -> PlanResult:
        spec = TargetSpec(name=TARGET, base_url="http://fake.example/v1", model="m")
        plan = make_plan(
            {TARGET: spec.base_url}, [load], PlanSettings(requests=requests, **planned)
        )
        return await run_plan(
            plan,
            {TARGET: spec},
            Calibration(workload=Workload(run="r", output_tokens=10), input_tokens=64),
            PlanListener(
                on_observation=self.observations.append,
                on_reading=self.readings.append,
                on_note=self.notes.append,
                on_pause=lambda block, left_s: self.pauses.append((block.round, left_s)),
            ),
            WorkerSettings(nodes=self.nodes),
        )

    def measured(self) -> list[Observation]:
        return [o for o in self.observations if o.role == "measured"]


def far_nodes() -> list[FakeNode]:
    """Three nodes whose clocks have nothing in common, at different distances."""
    return [
        FakeNode("a", answers),
        FakeNode("b", answers, ahead_ns=7_000 * NS_PER_S, there_s=0.004, back_s=0.006),
        FakeNode("c", answers, ahead_ns=-300 * NS_PER_S, there_s=0.020, back_s=0.010),
    ]


def test_rounds_over_a_time_begin_at_even_distances() -> None:
    bench = Bench(FakeNode("a", answers))
    bench.run(PlannedLoad(concurrency=4), 50, blocks=None, over_s=900.0)
    rounds = {o.round: o.start_ns for o in reversed(bench.observations) if o.role == "warmup"}
    starts_s = [rounds[number] / NS_PER_S for number in sorted(rounds)]
    assert np.diff(starts_s) == pytest.approx([180.0] * 5, abs=0.01)
    ends_s = [
        max(o.end_ns for o in bench.observations if o.round == number) / NS_PER_S
        for number in sorted(rounds)
    ]
    assert all(end_s < start_s - 150 for end_s, start_s in zip(ends_s, starts_s[1:], strict=False))
    spread = round_spread(bench.observations)
    assert spread is not None
    assert spread.claims


def test_what_was_measured_before_a_pause_is_kept() -> None:
    bench = Bench(FakeNode("a", answers))

    async def stopped() -> None:
        async with asyncio.timeout(60):
            await bench.running(PlannedLoad(concurrency=4), 50, blocks=None, over_s=900.0)

    with pytest.raises(TimeoutError):
        run_virtual(stopped())
    assert {o.round for o in bench.measured()} == {1}
    number, left_s = bench.pauses[-1]
    assert number == 2
    assert left_s == pytest.approx(121, abs=2)


def test_a_pause_says_how_long_it_still_takes() -> None:
    bench = Bench(FakeNode("a", answers))
    bench.run(PlannedLoad(concurrency=1), 10, blocks=2, over_s=30.0)
    assert {number for number, _ in bench.pauses} == {2}
    left_s = [left_s for _, left_s in bench.pauses]
    assert np.diff(left_s[:-1]) == pytest.approx(-1.0, abs=0.01)
    assert left_s[-1] == 0
    bench = Bench(FakeNode("a", answers))
    bench.run(PlannedLoad(concurrency=1), 50, blocks=5, over_s=0.1)
    assert bench.pauses == [], "a round takes longer than that"


def test_parts_of_a_closed_loop_start_together_on_all_nodes() -> None:
    bench = Bench(*far_nodes())
    outcome = bench.run(PlannedLoad(concurrency=7), 40)
    assert not outcome.interrupted
    assert not bench.notes
    assert len(bench.measured()) == 40
    assert len({o.call for o in bench.observations}) == len(bench.observations)
    assert {o.node for o in bench.measured()} == {"a", "b", "c"}
    peaks = Counter[str]()
    for reading in bench.readings:
        peaks[reading.node] = max(peaks[reading.node], reading.peak_in_flight)
    assert peaks == {"a": 3, "b": 2, "c": 2}
    for number in (1, 2):
        first = [
            min(o.due_ns for o in bench.observations if (o.round, o.node) == (number, node))
            for node in "abc"
        ]
        worst_ns = max(reading.clock_error_ns for reading in bench.readings)
        assert max(first) - min(first) <= 2 * worst_ns <= 40 * NS_PER_MS


def test_the_clocks_are_known_to_half_the_shortest_round_trip() -> None:
    bench = Bench(*far_nodes())
    bench.run(PlannedLoad(concurrency=6), 12)
    truth = {node.name: node.ahead_ns for node in bench.nodes}
    round_trips = {"a": 0.0, "b": 0.010, "c": 0.030}
    assert len(bench.readings) == 6
    for reading in bench.readings:
        assert abs(reading.clock_offset_ns - truth[reading.node]) <= reading.clock_error_ns
        half_ns = round(round_trips[reading.node] * NS_PER_S / 2)
        # what clocks drift apart in ten seconds
        assert half_ns <= reading.clock_error_ns < half_ns + 5 * NS_PER_MS


def test_clock_error_grows_with_the_age_of_its_measurement() -> None:
    measured = ClockOffset(offset_ns=7, error_ns=1_000, at_ns=10 * NS_PER_S)
    assert measured.error_at(10 * NS_PER_S) == 1_000
    assert measured.error_at(12 * NS_PER_S) == measured.error_at(8 * NS_PER_S) == 1_000 + NS_PER_MS


def test_latencies_are_differences_of_one_clock() -> None:
    """The time of a whole request is the same to the nanosecond, however wrong the difference of
    the clocks."""
    bench = Bench(*far_nodes())
    bench.run(PlannedLoad(concurrency=3), 12)
    for o in bench.measured():
        ttft_s = 0.1 + 0.03 * (sum(map(ord, o.call)) % 7)
        assert o.ttft_ns == pytest.approx(ttft_s * NS_PER_S, abs=10)
        assert len({at - o.token_at[0] for at in o.token_at}) == 10
    first, last = (
        min(o.start_ns for o in bench.observations),
        max(o.end_ns for o in bench.observations),
    )
    assert last - first < 30 * NS_PER_S  # all on one time line, although the clocks are hours apart


def test_nodes_keep_their_load_until_the_last_request_of_all() -> None:
    def slow(call: Call) -> Script:
        return replace(answers(call), ttft=0.35)

    bench = Bench(FakeNode("a", answers, there_s=0.004), FakeNode("b", slow))
    bench.run(PlannedLoad(concurrency=4), 8, blocks=1)
    last_ns = max(o.end_ns for o in bench.measured())
    ended = {node: max(o.end_ns for o in bench.measured() if o.node == node) for node in "ab"}
    assert ended["a"] < ended["b"] == last_ns
    load = in_flight(
        [o for o in bench.observations if o.node == "a" and o.role != "calibration"],
        open_loop=False,
    )
    begin = np.array([ended["a"]]), np.array([last_ns])
    kept = mean_in_flight(load, TimeWindows(*begin))
    assert kept is not None
    assert kept > 1.8


def test_lost_node_keeps_its_results_and_others_continue() -> None:
    nodes = far_nodes()
    nodes[1].dies_after = 40
    bench = Bench(*nodes)
    outcome = bench.run(PlannedLoad(concurrency=6), 60, blocks=3)
    assert "worker on node b: lost the node" in outcome.interrupted[f"{TARGET}@c6"]
    (lost,) = [reading for reading in bench.readings if reading.lost]
    assert (lost.node, lost.condition) == ("b", f"{TARGET}@c6")
    of_b = Counter(o.round for o in bench.measured() if o.node == "b")
    assert of_b[1] == 7  # a third of the first round, in which it still worked
    assert 0 < of_b[2] < 7
    assert {o.node for o in bench.measured() if o.round == 3} == {"a", "c"}
    assert sum(o.round == 3 for o in bench.measured()) == 20  # the whole round, split over the two


def test_node_that_cannot_start_is_left_out_and_named() -> None:
    nodes = far_nodes()
    nodes[2].dies_after = 0
    bench = Bench(*nodes)
    outcome = bench.run(PlannedLoad(concurrency=6), 20)
    assert not outcome.interrupted
    assert len(bench.measured()) == 20
    assert [note.text.partition(":")[0] for note in bench.notes] == ["sent without node c"]


@pytest.mark.parametrize("dies_after", [0, 3, 11])
def test_next_node_calibrates_if_one_is_lost_in_calibration(dies_after: int) -> None:
    nodes = far_nodes()
    nodes[0].dies_after = dies_after  # before its clock is read, meanwhile, and in the calibration
    bench = Bench(*nodes)
    outcome = bench.run(PlannedLoad(concurrency=6), 20)
    assert not outcome.interrupted
    assert {o.node for o in bench.measured()} == {"b", "c"}
    assert len(bench.measured()) == 20
    assert [note.text.partition(":")[0] for note in bench.notes] == [
        "calibrated again, without node a"
    ]


def test_run_ends_if_calibration_loses_all_nodes() -> None:
    with pytest.raises(WorkerLost, match="on node b"):
        Bench(FakeNode("a", answers, dies_after=11), FakeNode("b", answers, dies_after=3)).run(
            PlannedLoad(concurrency=2), 20
        )


def test_blocks_are_not_sent_after_all_nodes_are_lost() -> None:
    bench = Bench(FakeNode("a", answers, dies_after=20))
    outcome = bench.run(PlannedLoad(concurrency=2), 40, blocks=4)
    assert outcome.interrupted == {f"{TARGET}@c2": "not sent: all nodes are lost"}


def test_node_without_the_key_abandons_the_condition() -> None:
    bench = Bench(FakeNode("a", answers), FakeNode("b", answers, has_key=False))
    outcome = bench.run(PlannedLoad(concurrency=4), 40, blocks=2)
    assert list(outcome.abandoned) == [f"{TARGET}@c4"]
    assert [note.text for note in bench.notes] == [
        "given up on node b: no key: KEY is not set. Set it."
    ]
    assert {o.round for o in bench.measured()} == {1}


def test_an_open_loop_keeps_its_schedule() -> None:
    bench = Bench(*far_nodes())
    bench.run(PlannedLoad(rate=20), 60, blocks=1, warmups=5)
    assert len(bench.measured()) == 60
    assert len({o.call for o in bench.observations}) == len(bench.observations)
    planned = make_plan(
        {TARGET: "http://fake.example"},
        [PlannedLoad(rate=20)],
        PlanSettings(requests=60, blocks=1, warmups=5),
    )
    (block,) = planned.lanes[0]
    due = sorted(o.due_ns for o in bench.observations if o.round)
    sent = np.array(due) - due[0]
    asked = np.array(block.due[: len(due)]) - block.due[0]
    assert np.abs(sent - asked).max() <= 2 * max(
        reading.clock_error_ns for reading in bench.readings
    )


@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(0, 20),
    st.integers(0, 20),
    st.one_of(st.none(), st.integers(1, 30)),
)
def test_shares_of_nodes_add_up_to_the_block(
    nodes: int, requests: int, warmups: int, cooldowns: int, concurrency: int | None
) -> None:
    total = requests + warmups + cooldowns
    block = RequestBlock(
        condition="c",
        target="t",
        requests=requests,
        warmups=warmups,
        cooldowns=cooldowns,
        concurrency=concurrency,
        due=[] if concurrency else [number * 10 for number in range(total)],
        first=100,
    )
    parts = shares(block, nodes)
    assert 1 <= len(parts) <= nodes
    for name in ("requests", "warmups", "cooldowns"):
        assert sum(getattr(part, name) for part in parts) == getattr(block, name)
    if concurrency is None:
        assert sorted(at for part in parts for at in part.due) == block.due
        assert all(part.due == sorted(part.due) for part in parts)
        pairs = {
            number: at for part in parts for number, at in zip(part.numbers, part.due, strict=True)
        }
        assert pairs == {100 + place: at for place, at in enumerate(block.due)}
    else:
        assert sum(part.concurrency or 0 for part in parts) == concurrency
        assert all(part.concurrency and part.requests for part in parts)


def test_each_node_gets_an_independent_poisson_process() -> None:
    """Gaps of each share are exponential with mean N/λ, and the counts of two shares are not
    correlated."""
    due = schedule("poisson", rate=90, requests=30_000, seed=3)
    parts = shares(RequestBlock(condition="c", target="t", requests=len(due), due=due), 3)
    for part in parts:
        gaps = np.sort([(after - before) / NS_PER_S for before, after in pairwise(part.due)])
        shares_below = 1 - np.exp(-gaps / (3 / 90))
        farthest = np.abs(
            shares_below - (np.arange(len(gaps)) + 0.5) / len(gaps)
        ).max() + 0.5 / len(gaps)
        assert farthest < 1.628 / math.sqrt(len(gaps)), "Kolmogorov-Smirnov test: p < 0.01"
    seconds = range(0, due[-1], NS_PER_S)
    counts = [np.histogram(part.due, bins=list(seconds))[0] for part in parts]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(counts[one], counts[other])[0, 1]) < 0.2
