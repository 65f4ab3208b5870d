"""The real worker, over real sockets, against a simulated provider whose times are known."""

import asyncio
from statistics import median

import pytest
from tests.waiting import WITHIN_S

from splitsecond.benchmark.load.coordinator import (
    Calibration,
    PlanListener,
    PlanResult,
    RunNote,
    run_plan,
)
from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system


def test_a_run_over_real_sockets(simulated: RunningProvider) -> None:
    observations: list[Observation] = []
    readings: list[InstrumentReading] = []
    notes: list[RunNote] = []

    async def main() -> PlanResult:
        name = simulated.name
        spec = TargetSpec(name=name, base_url=simulated.base_url, model=simulated.model)
        loads = [PlannedLoad(concurrency=1), PlannedLoad(concurrency=4), PlannedLoad(rate=20)]
        async with asyncio.timeout(WITHIN_S):
            return await run_plan(
                make_plan(
                    {name: spec.base_url},
                    loads,
                    PlanSettings(requests=10, blocks=2, response_s=0.05),
                ),
                {name: spec},
                Calibration(workload=Workload(run="r", output_tokens=20), input_tokens=512),
                PlanListener(
                    on_observation=observations.append,
                    on_reading=readings.append,
                    on_note=notes.append,
                ),
            )

    outcome = asyncio.run(main())
    assert notes == []
    assert abs((outcome.calibrated[simulated.name].input_tokens or 0) - 512) <= 0.02 * 512
    for label in ("c1", "c4", "r20"):
        mine = [
            o
            for o in observations
            if o.condition == f"{simulated.name}@{label}" and o.role == "measured"
        ]
        assert len(mine) == 10 or (
            label == "r20" and len(mine) >= 20
        )  # an open loop measures 20 response times or more
        assert {o.round for o in mine} == {1, 2}
        assert all(o.ok and o.output_tokens == 20 for o in mine)
        assert all(abs((o.input_tokens or 0) - 512) <= 0.02 * 512 for o in mine)
        assert all(o.due_ns <= o.start_ns <= (o.sent_ns or 0) for o in mine)
        assert median(o.ttft_ns or 0 for o in mine) >= 15 * NS_PER_MS
    assert [reading.collections for reading in readings] == [0] * 6
