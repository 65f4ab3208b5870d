"""`/metrics` of a simulated provider with an engine, in the names of vLLM, and of DCGM exporter for
its GPU.

Its truth is the truth log: the sums of its histograms are those of the log's times. A provider with
a table has no engine to tell about, so it has no such page.
"""

from collections.abc import Iterable, Iterator, Sequence

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.prometheus_text import MetricFamily, exposition
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import Profile
from splitsecond.simulator.server_counts import ServerCounts, Times

MJ_PER_J = 1000
POWER_CAP = 0x04
"""The bit of NVML's reasons for a lower clock that stands for a power cap."""


def exposed(
    profile: Profile, engines: Sequence[Engine[int]], counts: ServerCounts, now_ns: int
) -> bytes:
    return exposition(_families(profile, engines, counts, now_ns))


def _families(
    profile: Profile, engines: Sequence[Engine[int]], counts: ServerCounts, now_ns: int
) -> Iterator[MetricFamily]:
    spec = profile.engine
    yield _gauge("vllm:num_requests_running", "engine", [each.running for each in engines])
    yield _gauge("vllm:num_requests_waiting", "engine", [each.waiting for each in engines])
    if spec is not None and spec.kv_cache_tokens is not None:
        yield _gauge("vllm:kv_cache_usage_perc", "engine", [each.kv_use for each in engines])
    yield _counter("vllm:num_preemptions", sum(engine.counts.preemptions for engine in engines))
    yield _counter("vllm:prompt_tokens", counts.prompt_tokens)
    yield _counter("vllm:generation_tokens", sum(engine.counts.output_tokens for engine in engines))
    if profile.prompt_cache is not None:
        yield _counter("vllm:prefix_cache_queries", counts.prompt_tokens)
        yield _counter("vllm:prefix_cache_hits", counts.cached_tokens)
    yield _histogram("vllm:time_to_first_token_seconds", counts.ttft)
    yield _histogram("vllm:request_queue_time_seconds", counts.queue)
    yield _histogram("vllm:request_prefill_time_seconds", counts.prefill)
    yield _histogram("vllm:request_decode_time_seconds", counts.decode)
    yield _histogram("vllm:e2e_request_latency_seconds", counts.e2e)
    if spec is not None and spec.gpu is not None:
        yield from _gpu_families(engines, now_ns)


def _gpu_families(engines: Sequence[Engine[int]], now_ns: int) -> Iterator[MetricFamily]:
    yield _gauge("DCGM_FI_DEV_POWER_USAGE", "gpu", [each.power_w for each in engines])
    busy = [100.0 * bool(each.running) for each in engines]
    yield _gauge("DCGM_FI_DEV_GPU_UTIL", "gpu", busy)
    reasons = [POWER_CAP * each.capped for each in engines]
    yield _gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gpu", reasons)
    millijoules = [MJ_PER_J * each.energy_j(now_ns) for each in engines]
    yield _gauge("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "gpu", millijoules)


def _gauge(name: str, label: str, values: Iterable[float]) -> MetricFamily:
    """Return a gauge with the value of each engine, which are numbered in its `label`."""
    family = MetricFamily(name, name, "gauge", [label])
    for number, value in enumerate(values):
        family.add([str(number)], value)
    return family


def _counter(name: str, value: float) -> MetricFamily:
    family = MetricFamily(name, name, "counter")
    family.add([], value)
    return family


def _histogram(name: str, times: Times) -> MetricFamily:
    family = MetricFamily(name, name, "histogram")
    family.add_histogram([], [("+Inf", times.count)], times.sum_ns / NS_PER_S)
    return family
