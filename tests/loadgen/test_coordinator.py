"""The coordinator with real worker processes: no measurement is lost when a process dies."""

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from splitsecond.benchmark.load import worker_pool
from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.coordinator import (
    Calibration,
    PlanListener,
    PlanResult,
    RunNote,
    WorkerSettings,
    run_plan,
)
from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, RunPlan, make_plan
from splitsecond.benchmark.load.worker_pool import WorkerLost, WorkerPool
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault, Fault, NetworkFault, ProviderFault
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec

pytestmark = pytest.mark.system

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))
WAIT_S = 60
DEAF = 8


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Give workers time to report on a busy machine, but for those that a test ends by force."""
    if "ignore_sigterm" not in request.node.name:
        monkeypatch.setattr(worker_pool, "PATIENCE_S", WAIT_S)


class Bench:
    """One run with all of its reports."""

    def __init__(self, *models: str) -> None:
        self.specs = {
            f"{model}/m": TargetSpec(
                name=f"{model}/m", base_url=f"http://{model}.example/v1", model=model
            )
            for model in models
        }
        self.observations: list[Observation] = []
        self.on_observation: Callable[[Observation], None] = self.observations.append
        self.readings: list[InstrumentReading] = []
        self.notes: list[RunNote] = []

    def plan(
        self, *concurrencies: int, requests: int = 10, blocks: int = 2, side_by_side: bool = False
    ) -> RunPlan:
        return make_plan(
            {name: spec.base_url for name, spec in self.specs.items()},
            [PlannedLoad(concurrency=c) for c in concurrencies],
            PlanSettings(
                requests=requests,
                blocks=blocks,
                side_by_side=side_by_side,
            ),
        )

    async def run(
        self, plan: RunPlan, *, most_processes: int = 2, later: Iterable[RequestBlock] | None = None
    ) -> PlanResult:
        async with asyncio.timeout(WAIT_S):
            return await run_plan(
                plan,
                self.specs,
                Calibration(workload=Workload(run="r", output_tokens=3), input_tokens=512),
                PlanListener(
                    on_observation=self.on_observation,
                    on_reading=self.readings.append,
                    on_note=self.notes.append,
                ),
                WorkerSettings(command=FAKE_WORKER, most_processes=most_processes),
                blocks=None if later is None else lambda calibrated: [later],
            )

    def measured(self) -> Counter[str]:
        return Counter(o.condition for o in self.observations if o.role == "measured")


def test_coordinator_sends_every_request_of_the_plan() -> None:
    bench = Bench("quick", "prints")
    outcome = asyncio.run(bench.run(bench.plan(1, 4)))
    assert bench.measured() == {
        "quick/m@c1": 10,
        "prints/m@c1": 10,
        "quick/m@c4": 10,
        "prints/m@c4": 10,
    }
    assert Counter(o.role for o in bench.observations)["warmup"] >= 2 * 2 * (1 + 4)
    assert {o.condition for o in bench.observations if o.role == "calibration"} == {
        "quick/m@calibration",
        "prints/m@calibration",
    }
    assert {(o.condition.partition("@")[2], o.role) for o in bench.observations} == {
        ("calibration", "calibration"),
        *((load, role) for load in ("c1", "c4") for role in ("warmup", "measured")),
        ("c4", "cooldown"),
    }  # fmt: skip
    assert all(o.ok for o in bench.observations if o.role != "cooldown")
    assert {o.round for o in bench.observations if o.role == "measured"} == {1, 2}
    assert len({o.call for o in bench.observations}) == len(bench.observations)
    assert outcome.calibrated.keys() == bench.specs.keys()
    assert not outcome.abandoned
    assert not outcome.interrupted
    assert len(bench.readings) == 8
    assert {reading.peak_in_flight for reading in bench.readings} <= {1, 2, 3, 4}
    assert {reading.pid for reading in bench.readings} != {os.getpid()}


def test_later_blocks_start_after_the_last_report() -> None:
    bench = Bench("quick")
    blocks = sorted(bench.plan(1, 2, 4, blocks=1).lanes[0], key=lambda block: block.condition)
    seen: list[Counter[str]] = []

    def later() -> Iterator[RequestBlock]:
        for block in blocks:
            seen.append(bench.measured())
            yield block

    beginning = RunPlan(conditions=bench.plan(1).conditions, lanes=[])
    asyncio.run(bench.run(beginning, later=later()))
    assert seen == [{}, {"quick/m@c1": 10}, {"quick/m@c1": 10, "quick/m@c2": 10}]
    assert bench.measured() == {"quick/m@c1": 10, "quick/m@c2": 10, "quick/m@c4": 10}
    assert len({reading.pid for reading in bench.readings}) == 1


def test_lanes_side_by_side_have_separate_processes() -> None:
    bench = Bench("quick", "prints")
    asyncio.run(bench.run(bench.plan(2, side_by_side=True)))
    assert bench.measured() == {"quick/m@c2": 10, "prints/m@c2": 10}
    by_target = {reading.condition: reading.pid for reading in bench.readings}
    assert len(set(by_target.values())) == 2


def test_many_streams_are_split_over_processes() -> None:
    bench = Bench("quick")
    asyncio.run(bench.run(bench.plan(300, requests=300, blocks=1)))
    assert bench.measured() == {"quick/m@c300": 300}
    assert len({reading.pid for reading in bench.readings}) == 2
    assert sorted(reading.worker for reading in bench.readings) == [0, 1]


@pytest.mark.parametrize(
    ("model", "kind", "fault"),
    [("wrong_key", "http_401", ProviderFault), ("no_key", "missing_key", CallerFault)],
)
def test_unmeasurable_target_ends_the_run_in_calibration(
    model: str, kind: str, fault: type[Fault]
) -> None:
    bench = Bench("quick", model)
    with pytest.raises(fault) as raised:
        asyncio.run(bench.run(bench.plan(1, side_by_side=True)))
    assert (raised.value.kind, raised.value.target) == (kind, f"{model}/m")
    assert {o.role for o in bench.observations} <= {"calibration"}


def test_run_ends_in_calibration_if_no_target_answers() -> None:
    bench = Bench("absent", "away")
    with pytest.raises(NetworkFault) as raised:
        asyncio.run(bench.run(bench.plan(1, side_by_side=True)))
    assert (raised.value.kind, raised.value.target) == ("refused", "absent/m")
    assert [(note.target, note.text) for note in bench.notes] == [("away/m", "nobody listens.")]
    assert {o.role for o in bench.observations} == {"calibration"}


def test_unanswering_target_keeps_its_row_beside_another() -> None:
    bench = Bench("absent", "quick")
    asyncio.run(bench.run(bench.plan(1)))
    assert bench.measured().keys() == {"absent/m@c1", "quick/m@c1"}
    assert "input length not verified" in bench.notes[0].text


def test_target_without_answers_is_abandoned_once() -> None:
    bench = Bench("refused", "quick")
    outcome = asyncio.run(bench.run(bench.plan(1, requests=30, blocks=2)))
    assert list(outcome.abandoned) == ["refused/m@c1"]
    assert bench.measured()["quick/m@c1"] == 30
    assert (
        len([o for o in bench.observations if o.target == "refused/m" and o.role != "calibration"])
        == 10
    )
    assert [note.condition for note in bench.notes] == ["refused/m@c1"]


def test_killed_worker_loses_no_finished_observation() -> None:
    """Call 5 is in the first of two blocks; the second is sent by a new worker."""
    bench = Bench("dies", "quick")
    outcome = asyncio.run(bench.run(bench.plan(1, requests=20, blocks=2, side_by_side=True)))
    assert bench.measured()["quick/m@c1"] == 20
    finished = [o.call for o in bench.observations if o.condition == "dies/m@c1"]
    assert finished == [f"dies/m@c1-{number}" for number in (*range(5), *range(11, 22))]
    assert "was ended by SIGKILL" in outcome.interrupted["dies/m@c1"]
    assert [note.text.split(":")[0] for note in bench.notes] == ["interrupted"]


def test_run_ends_if_a_lane_keeps_losing_workers() -> None:
    bench = Bench("broken")
    with pytest.raises(WorkerLost, match="with exit code 1"):
        asyncio.run(bench.run(bench.plan(1)))


def test_cancelled_run_keeps_finished_observations() -> None:
    bench = Bench("hangs")

    async def main() -> None:
        enough = asyncio.Event()

        def observed(observation: Observation) -> None:
            bench.observations.append(observation)
            if sum(o.condition == "hangs/m@c2" for o in bench.observations) == 5:
                enough.set()

        bench.on_observation = observed
        running = asyncio.create_task(bench.run(bench.plan(2, requests=50, blocks=1)))
        async with asyncio.timeout(WAIT_S):
            await enough.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    loads = [o for o in bench.observations if o.role != "calibration"]
    assert Counter(o.outcome for o in loads) == {"ok": 5, "cancelled": 2}
    assert {o.condition for o in loads} == {"hangs/m@c2"}
    assert len(bench.readings) == 1


def test_workers_that_ignore_sigterm_are_killed_together() -> None:
    async def main() -> int:
        deaf = (
            sys.executable,
            "-c",
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()",
        )
        async with WorkerPool(deaf, lambda report: None) as pool:
            for _ in range(DEAF):
                await pool.start()
            asked_ns = clock.now_ns()
        return clock.now_ns() - asked_ns

    assert asyncio.run(main()) < DEAF * worker_pool.PATIENCE_S * NS_PER_S, "one after the other"


def test_full_disk_stops_the_run_with_its_error() -> None:
    bench = Bench("quick")

    def full(observation: Observation) -> None:
        raise OSError(28, "No space left on device")

    bench.on_observation = full
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(bench.run(bench.plan(1)))
