"""The real worker, over real sockets, against a simulated provider whose times are known."""

import asyncio
from pathlib import Path
from statistics import median

from splitsecond.clock import NS_PER_MS
from splitsecond.load.conductor import Note, Outcome, conduct
from splitsecond.load.plan import Load, make_plan
from splitsecond.load.workload import Workload
from splitsecond.simulator.process import Running, running
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation
from splitsecond.upstream.spec import TargetSpec

PROFILE = """
title = "Quick"
model = "quick"
source = "a test"
measured = "2025-06"
output_tokens = 20

[[table]]
concurrency = 1
ttft_ms = { p50 = 40, p95 = 44 }
tps = { p50 = 500, p95 = 480 }
"""


def test_a_run_over_real_sockets(tmp_path: Path) -> None:
    profile = tmp_path / "quick.toml"
    profile.write_text(PROFILE)
    observations: list[Observation] = []
    readings: list[InstrumentReading] = []
    notes: list[Note] = []

    async def main(simulated: Running) -> Outcome:
        name = simulated.name
        spec = TargetSpec(name=name, base_url=simulated.base_url, model=simulated.model)
        loads = [Load(concurrency=1), Load(concurrency=4), Load(rate=20)]
        async with asyncio.timeout(30):
            return await conduct(
                make_plan({name: spec.base_url}, loads, requests=10),
                {name: spec},
                Workload(run="r", output_tokens=20),
                input_tokens=512,
                on_observation=observations.append,
                on_reading=readings.append,
                on_note=notes.append,
            )

    with running(str(profile)) as [simulated]:
        outcome = asyncio.run(main(simulated))
    assert notes == []
    assert abs((outcome.calibrated[simulated.name].input_tokens or 0) - 512) <= 0.02 * 512
    for label in ("c1", "c4", "r20"):
        mine = [o for o in observations if o.condition == f"{simulated.name}@{label}" and o.role == "measured"]
        assert len(mine) == 10
        assert all(o.ok and o.output_tokens == 20 for o in mine)
        assert all(abs((o.input_tokens or 0) - 512) <= 0.02 * 512 for o in mine)
        assert all(o.due_ns <= o.start_ns <= (o.sent_ns or 0) for o in mine)
        assert median(o.ttft_ns or 0 for o in mine) >= 30 * NS_PER_MS
    assert [reading.collections for reading in readings] == [0, 0, 0]
