"""Pages of every engine and exporter, in our terms."""

from pathlib import Path

import pytest
from tests.cases import each_case

from splitsecond.benchmark.server_view.engines import engines, engines_of, values_of
from splitsecond.benchmark.server_view.terms import TERMS

PAGES = Path(__file__).parent / "pages"
VALUES: dict[str, dict[str, float]] = {
    "vllm": {
        "running": 0,
        "waiting": 0,
        "kv_use": 0,
        "preemptions": 0,
        "prompt_tokens": 4096,
        "looked_up_tokens": 4096,
        "cached_tokens": 0,
        "output_tokens": 7132,
        "ttft_s_sum": 9.083219528198242,
        "ttft_s_count": 121,
        "queue_s_sum": 0.003992005996678927,
        "queue_s_count": 113,
        "prefill_s_sum": 5.09682532800025,
        "prefill_s_count": 113,
        "decode_s_sum": 49.746832083001664,
        "decode_s_count": 113,
        "e2e_s_sum": 58.502620458602905,
        "e2e_s_count": 113,
    },
    "llamacpp": {
        "running": 0,
        "waiting": 0,
        "computed_tokens": 17509,
        "cached_tokens": 0,
        "output_tokens": 31953,
        "drafted_tokens": 0,
        "accepted_tokens": 0,
    },
    "sglang": {
        "running": 162,
        "waiting": 2826,
        "kv_use": 0.28,
        "prompt_tokens": 8128902,
        "cached_tokens": 61406,
        "output_tokens": 7557572,
        "ttft_s_sum": 2351897.9474117756,
        "ttft_s_count": 11008,
    },
    "tgi": {
        "running": 16,
        "waiting": 3,
        "prompt_tokens": 51200,
        "output_tokens": 12800,
        "queue_s_sum": 1.2,
        "queue_s_count": 100,
        "e2e_s_sum": 250,
        "e2e_s_count": 100,
    },
    "trtllm": {
        "running": 8,
        "waiting": 2,
        "kv_use": 0.75,
        "prompt_tokens": 4096,
        "cached_tokens": 1024,
        "output_tokens": 2048,
        "ttft_s_sum": 0.5,
        "ttft_s_count": 10,
        "queue_s_sum": 0.1,
        "queue_s_count": 10,
    },
    "triton": {"running": 1, "kv_use": 1 / 6239},
    "dynamo": {
        "running": 12,
        "prompt_tokens": 10240,
        "output_tokens": 9000,
        "ttft_s_sum": 1.5,
        "ttft_s_count": 20,
    },
    "dcgm": {
        "gpu_use": 0.8,
        "gpu_memory_bytes": 140000 * 1048576,
        "power_w": 800,
        "energy_j": 3,
        "clock_mhz": 1410,
        "power_capped": 1,
        "heat_capped": 0,
    },
    "amd": {"gpu_use": 0.96, "gpu_memory_bytes": 183265 * 1048576, "power_w": 1499, "energy_j": 3},
}


@each_case("name", sorted(VALUES))
def test_page_of_each_engine_is_read_in_our_terms(name: str) -> None:
    page = (PAGES / f"{name}.txt").read_text("utf-8")
    assert engines_of(page) == (name,)
    assert values_of(page, engines()[name]) == pytest.approx(VALUES[name])


def test_every_engine_has_a_page_among_the_tests() -> None:
    assert engines().keys() == VALUES.keys()


def test_histograms_of_engines_are_histograms_of_terms() -> None:
    for engine in engines().values():
        for metric in engine.metrics:
            is_histogram = TERMS[metric.term].kind == "histogram"
            assert not (is_histogram and metric.name.endswith(("_sum", "_total"))), metric.name


def test_older_name_counts_where_the_newer_is_missing() -> None:
    page = 'vllm:gpu_cache_usage_perc{engine="0"} 0.5\n'
    assert values_of(page, engines()["vllm"]) == {"kv_use": 0.5}
    both = page + 'vllm:kv_cache_usage_perc{engine="0"} 0.25\n'
    assert values_of(both, engines()["vllm"]) == {"kv_use": 0.25}


def test_series_of_several_engines_become_one_value() -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{number}"}} {number + 1}\n'
        f'vllm:kv_cache_usage_perc{{engine="{number}"}} {0.5 * number}\n'
        for number in (0, 1)
    )
    assert values_of(page, engines()["vllm"]) == {"running": 3, "kv_use": 0.25}


def test_value_that_is_not_a_number_is_left_out() -> None:
    assert values_of("vllm:kv_cache_usage_perc NaN\n", engines()["vllm"]) == {}


def test_page_with_a_broken_line_is_an_error() -> None:
    with pytest.raises(ValueError, match="float"):
        values_of("vllm:num_requests_running {oops\n", engines()["vllm"])


def test_page_of_a_gateway_or_a_web_page_is_of_no_engine() -> None:
    assert engines_of("splitsecond_requests_in_flight 1\n") == ()
    assert engines_of("<html>vllm:num_requests_running</html>") == ()


def test_engine_comes_before_the_gpus_of_the_same_page() -> None:
    assert engines_of("DCGM_FI_DEV_POWER_USAGE 1\nvllm:num_requests_running 1\n") == (
        "vllm",
        "dcgm",
    )
