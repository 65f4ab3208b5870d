"""A gateway that starts from a run folder of the bench: its first requests already go to the
fastest target."""

import asyncio
from pathlib import Path
from random import Random

import pytest

import splitsecond as ss
from splitsecond.core.service import Call
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.router import Router, explained_by_history
from splitsecond.simulator.process import RunningProvider, run_simulator

pytestmark = pytest.mark.system

PROFILE = """
title = "A target"
model = "m"
source = "a test"
measured = "2025-06"
output_tokens = 20

[[table]]
concurrency = 1
ttft_ms = {{ p50 = {ttft_ms}, p95 = {p95_ms} }}
tps = {{ p50 = 400, p95 = 380 }}
"""
STARTS = 2
FIRST_CALLS = 40
"""One call in 50 may explore."""


@pytest.mark.usefixtures("system")
def test_the_first_calls_after_a_bench_go_to_the_fastest(tmp_path: Path) -> None:
    for name, ttft_ms in (("slow", 250), ("fast", 40)):
        (tmp_path / f"{name}.toml").write_text(PROFILE.format(ttft_ms=ttft_ms, p95_ms=ttft_ms + 20))
    with run_simulator(*(str(tmp_path / f"{name}.toml") for name in ("slow", "fast"))) as (
        slow,
        fast,
    ):
        asyncio.run(_bench_then_serve(tmp_path, slow, fast))


async def _bench_then_serve(folder: Path, slow: RunningProvider, fast: RunningProvider) -> None:
    servers = [
        ss.Server(base_url=at.base_url, model="m", name=f"{at.name}/m") for at in (slow, fast)
    ]
    out = folder / "runs" / "one"
    await ss.bench(
        *servers, concurrency=1, quick=True, requests=6, input_tokens=64, output_tokens=20, out=out
    )
    settings = read(
        f"""
providers: {{slow: {{base_url: "{slow.base_url}"}}, fast: {{base_url: "{fast.base_url}"}}}}
routes: {{best: {{policy: 'fastest("slow/m", "fast/m")'}}}}
seeds: [{folder}/runs/*]
""",
        {},
    )
    for start in range(STARTS):
        router = Router(settings, chance=Random(start))
        assert await router.warm_start() >= 12
        answered = [await _target_of(router, number) for number in range(FIRST_CALLS)]
        assert answered == ["fast/m"] * FIRST_CALLS
        router.close()
    explained = await explained_by_history(settings, "best", say=print)
    calls = {choice.targets: choice.calls for choice in explained.choices}
    assert calls["fast/m",] >= 98  # two explore once the estimates are older than 5 s


async def _target_of(router: Router, number: int) -> str:
    body = {"model": "best", "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}
    reply = await router.service("best")(Call(id=f"call-{number}", body=body))
    async with reply:
        await reply.finished()
    return reply.target
