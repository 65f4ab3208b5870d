"""A policy that chooses by speed learns the speeds in the worker, from the requests of the run."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.messages import (
    Command,
    Configure,
    ObservationReport,
    Report,
    SendBlock,
    SetWorkload,
    TaskEnded,
)
from splitsecond.benchmark.load.worker import LoadWorker
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.observation import Observation
from splitsecond.core.pacing import Pacer
from splitsecond.core.service import Service
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

POLICY = 'fastest("slow/x", "quick/x")'


def connect(spec: TargetSpec, observer: Callable[[Observation], None], /) -> Service:
    ttft = 0.1 if spec.model == "quick" else 1.0
    return FakeService(
        script=lambda call: Script(ttft=ttft, tokens=3), target=spec.name, observer=observer
    )


def test_requests_go_to_the_quicker_target_once_that_is_known() -> None:
    reports: list[Report] = []
    ended = asyncio.Event()

    def put(report: Report) -> None:
        reports.append(report)
        if isinstance(report, TaskEnded):
            ended.set()

    async def commands() -> AsyncIterator[Command]:
        specs = [
            TargetSpec(name=f"{model}/x", base_url="http://t.example", model=model)
            for model in ("slow", "quick")
        ]
        yield Configure(specs, 0, [POLICY])
        yield SetWorkload(POLICY, Workload(run="r"))
        yield SendBlock(
            RequestBlock(condition=f"{POLICY}@c1", target=POLICY, requests=100, concurrency=1)
        )
        await ended.wait()

    async def main() -> None:
        with Pacer(asyncio.get_running_loop()) as pacer:
            await LoadWorker(connect, put, pacer).run(commands())

    run_virtual(main())
    seen = [report.observation for report in reports if isinstance(report, ObservationReport)]
    attempts = Counter(each.target for each in seen if each.role == "winner")
    assert attempts["slow/x"] + attempts["quick/x"] == 100
    assert 2 <= attempts["slow/x"] <= 15  # ten to begin with, and one in fifty
    assert sum(each.target == POLICY for each in seen) == 100
