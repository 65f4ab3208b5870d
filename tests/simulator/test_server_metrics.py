"""`/metrics` of a simulated provider with an engine, compared with its truth log, in virtual
time."""

import asyncio

from tests.simulator.in_virtual_time import Client

from splitsecond.benchmark.server_view.engines import engines, engines_of, values_of
from splitsecond.core.clock import NS_PER_S
from splitsecond.simulator.profile import EngineSpec, GpuSpec, Profile, PromptCacheSpec, load
from splitsecond.simulator.truth import TruthRecord
from splitsecond.testing.virtual_time import run_virtual

ENGINE = EngineSpec(
    slots=4,
    prefill_tokens_per_s=1000,
    prefill_chunk_tokens=100,
    step_base_ms=10,
    step_per_sequence_ms=1,
    kv_cache_tokens=100,
    gpu=GpuSpec(idle_w=100, full_w=500, limit_w=400),
)
PROFILE = Profile(
    name="p",
    title="t",
    model="m",
    engine=ENGINE,
    prompt_cache=PromptCacheSpec(from_tokens=8, block_tokens=8),
    output_tokens=30,
)


async def values(client: Client) -> dict[str, float]:
    page = (await client.send(method="GET", path="/metrics")).body.decode()
    found: dict[str, float] = {}
    for name in engines_of(page):
        found |= values_of(page, engines()[name])
    return found


def test_metrics_agree_with_the_truth_log() -> None:
    async def play() -> tuple[dict[str, float], dict[str, float], list[TruthRecord]]:
        client = Client(PROFILE)
        sending = [asyncio.create_task(client.send(stream=True)) for _ in range(6)]
        await asyncio.sleep(0.2)
        during = await values(client)
        await asyncio.gather(*sending)
        return during, await values(client), client.truth()

    during, after, truth = run_virtual(play())
    assert during["running"] + during["waiting"] == 6
    assert 0 < during["kv_use"] <= 1
    assert (during["power_w"], after["power_w"]) == (min(100 + 100 * during["running"], 400), 100)
    assert (after["running"], after["waiting"], after["kv_use"]) == (0, 0, 0)
    assert after["preemptions"] == sum(record.preemptions for record in truth) > 0
    assert (
        after["prompt_tokens"]
        == after["looked_up_tokens"]
        == sum(record.prompt_tokens for record in truth)
    )
    assert after["cached_tokens"] == sum(record.cached_tokens for record in truth)
    assert after["output_tokens"] == sum(len(record.actual_ns) for record in truth) == 6 * 30
    for name, sum_ns in {
        "ttft_s": sum(record.actual_ns[0] - record.arrived_ns for record in truth),
        "queue_s": sum(record.began_ns - record.arrived_ns for record in truth),
        "e2e_s": sum(record.actual_ns[-1] - record.arrived_ns for record in truth),
    }.items():
        assert after[f"{name}_count"] == 6
        assert after[f"{name}_sum"] * NS_PER_S == sum_ns, name


def test_provider_with_a_table_has_no_metrics() -> None:
    async def play() -> tuple[int, bytes]:
        client = Client(load("steady-100"))
        status = (await client.send(method="GET", path="/metrics")).status
        return status, (await client.send(method="GET", path="/_splitsecond/requests")).body

    assert run_virtual(play()) == (404, b"[]")
