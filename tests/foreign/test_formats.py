"""Result files of other tools: their figures are those that the tool itself computes from them."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.benchmark.findings.compare import RunData, compare
from splitsecond.benchmark.foreign.formats import read_result
from splitsecond.benchmark.report.llm_d import llm_d_reports
from splitsecond.benchmark.runs.concluding import recompute
from splitsecond.core.errors import CallerFault


def details(
    scale: float = 1.0, *, requests: int = 200, concurrency: int = 8, seed: int = 30, **fields: Any
) -> dict[str, Any]:
    """Return what `vllm bench serve --save-detailed` writes of a closed loop."""
    random = np.random.default_rng(seed)
    free, starts, ttfts, gaps = [0.0] * concurrency, [], [], []
    for _ in range(requests):
        slot = int(np.argmin(free))
        ttfts.append(float(scale * random.lognormal(-2.5, 0.3)))
        gaps.append([float(gap) for gap in random.lognormal(-4.3, 0.1, 31)])
        starts.append(5e5 + free[slot])
        free[slot] += ttfts[-1] + sum(gaps[-1])
    return {
        "date": "20261126-104500",
        "backend": "vllm",
        "model_id": "m/l",
        "request_rate": "inf",
        "max_concurrency": concurrency,
        "duration": max(free),
        "completed": requests,
        "mean_ttft_ms": 1.0,
        "input_lens": [128] * requests,
        "output_lens": [32] * requests,
        "ttfts": ttfts,
        "itls": gaps,
        "start_times": starts,
        "errors": [""] * requests,
        **fields,
    }


def written(path: Path, *documents: Any) -> Path:
    path.write_text("\n".join(json.dumps(each) for each in documents), encoding="utf-8")
    return path


def compared(tmp_path: Path, before: dict[str, Any], after: dict[str, Any]) -> str:
    sides = [written(tmp_path / f"{n}.json", each) for n, each in enumerate((before, after))]
    return "\n".join(compare(*([RunData(*recompute(side))] for side in sides)).statements)


def test_vllm_file_has_the_figures_that_vllm_computes(tmp_path: Path) -> None:
    document = details()
    run, observations = recompute(written(tmp_path / "a.json", document))
    (row,) = run.conditions
    assert (row.target, row.concurrency, row.requests, row.errors) == ("m/l", 8, 200, 0)
    assert row.ttft_ms.p50 == pytest.approx(1000 * np.median(document["ttfts"]), rel=0.01)
    lengths = [
        ttft + sum(gaps) for ttft, gaps in zip(document["ttfts"], document["itls"], strict=True)
    ]
    assert [o.e2e_ms for o in observations] == pytest.approx([1000 * s for s in lengths], rel=1e-6)
    whole = 32 * 200 / document["duration"]
    assert row.output_tokens_per_s == pytest.approx(whole, rel=0.05)
    assert run.began.startswith("2026-11-26T10:45")


def test_notes_say_what_the_file_lacks(tmp_path: Path) -> None:
    document = details()
    del document["start_times"]
    run, _ = recompute(written(tmp_path / "a.json", document))
    notes = " ".join(run.conditions[0].notes)
    assert "own delays are not known" in notes
    assert "does not say when requests began" in notes


def test_slower_server_is_worse_and_an_equal_one_is_not(tmp_path: Path) -> None:
    assert "TTFT p50 went from" in (worse := compared(tmp_path, details(), details(1.5, seed=31)))
    assert "worse in these minutes" in worse
    assert "Measured by vllm bench serve" in worse
    same = compared(tmp_path, details(), details(1.01, seed=32))
    assert "no change beyond chance in these minutes" in same
    assert "would have been seen" in same


def test_failed_requests_are_errors(tmp_path: Path) -> None:
    document = details(requests=20)
    document["errors"][3] = "Internal Server Error"
    run, _ = recompute(written(tmp_path / "a.json", document))
    assert run.conditions[0].errors == 1


def test_rate_makes_an_open_loop(tmp_path: Path) -> None:
    run, _ = recompute(
        written(tmp_path / "a.json", details(request_rate=4.0, max_concurrency=None))
    )
    assert (run.conditions[0].rate, run.conditions[0].concurrency) == (4.0, None)


def test_sglang_lines_are_the_loads_of_one_run(tmp_path: Path) -> None:
    lines = [details(concurrency=c, requests=50) for c in (1, 8)]
    for line in lines:
        for name in ("start_times", "model_id", "date"):
            del line[name]
        line["server_info"] = {"model_path": "Qwen/Qwen3-8B"}
    run, _ = recompute(written(tmp_path / "sglang.jsonl", *lines))
    assert [(row.target, row.concurrency) for row in run.conditions] == [
        ("Qwen/Qwen3-8B", 1),
        ("Qwen/Qwen3-8B", 8),
    ]


def test_inference_perf_times_are_those_of_its_tokens(tmp_path: Path) -> None:
    entries = [
        {
            "start_time": 100.0 + number,
            "end_time": 100.9 + number,
            "info": {
                "input_tokens": 7,
                "response_metrics": {
                    "output_tokens": 3,
                    "output_token_times": [100.25 + number, 100.5 + number, 100.75 + number],
                    "server_usage": {"prompt_tokens": 9, "completion_tokens": 3},
                },
            },
            "error": None,
        }
        for number in range(30)
    ]
    (tmp_path / "config.yaml").write_text("server: {model_name: m}", encoding="utf-8")
    run, observations = recompute(written(tmp_path / "per_request_lifecycle_metrics.json", entries))
    (row,) = run.conditions
    assert (row.target, row.concurrency, row.input_tokens) == ("m", 1, 9)
    assert row.ttft_ms.p50 == pytest.approx(250)
    assert observations[0].tps == pytest.approx(4)


def test_guidellm_file_has_the_figures_that_it_states() -> None:
    recorded = Path(__file__).parent / "recorded" / "guidellm.json"
    run, observations = recompute(recorded)
    (row,) = run.conditions
    assert (row.target, row.concurrency, row.requests) == ("mistral-7b-instruct", 4, 12)
    stated = json.loads(recorded.read_text("utf-8"))["benchmarks"][0]["requests"]["successful"]
    by_start = sorted(stated, key=lambda each: each["request_start_time"])
    assert [o.ttft_ms for o in observations] == pytest.approx(
        [each["time_to_first_token_ms"] for each in by_start], abs=0.01
    )
    assert [o.tpot_ns for o in observations] == pytest.approx(
        [each["inter_token_latency_ms"] * 1e6 for each in by_start], rel=0.001
    )


def test_aiperf_file_has_the_figures_that_it_states() -> None:
    recorded = Path(__file__).parent / "recorded" / "profile_export.jsonl"
    run, observations = recompute(recorded)
    (row,) = run.conditions
    lines = [json.loads(line) for line in recorded.read_text("utf-8").splitlines()]
    stated = [each for each in lines if each["metadata"]["benchmark_phase"] == "profiling"]
    assert (row.target, row.concurrency, row.requests) == ("mistral-7b-instruct", 4, len(stated))
    stated.sort(key=lambda each: each["metadata"]["request_start_ns"])
    for figure, ours in (
        ("time_to_first_token", [o.ttft_ms for o in observations]),
        ("request_latency", [o.e2e_ms for o in observations]),
        ("inter_token_latency", [o.tpot_ns / 1e6 for o in observations if o.tpot_ns]),
    ):
        assert ours == pytest.approx(
            [each["metrics"][figure]["value"] for each in stated], rel=0.01
        )


def guidellm_0_3(**fields: Any) -> dict[str, Any]:
    """Return a result in the format of GuideLLM 0.2 and 0.3: 12 requests; one failed."""
    requests = [
        {
            "scheduler_info": {"targeted_start_time": 1000.0 + number},
            "prompt_tokens": 128,
            "output_tokens": 11,
            "start_time": 1000.0 + number,
            "end_time": 1000.9 + number,
            "first_token_time": 1000.2 + number,
            "last_token_time": 1000.7 + number,
            "request_latency": 0.9,
            "time_to_first_token_ms": 200.0,
        }
        for number in range(12)
    ]
    failed = requests.pop() | {"error": "refused", "first_token_time": None}
    benchmark = {
        "args": {"strategy": {"type_": "constant", "rate": 1.0}},
        "start_time": 1000.0,
        "worker": {"backend_model": "m"},
        "request_totals": {"successful": 11, "errored": 1, "incomplete": 0, "total": 12},
        "requests": {"successful": requests, "errored": [failed], "incomplete": [], "total": None},
        **fields,
    }
    return {"benchmarks": [benchmark]}


def test_file_of_an_older_guidellm_has_its_requests(tmp_path: Path) -> None:
    run, observations = recompute(written(tmp_path / "a.json", guidellm_0_3()))
    (row,) = run.conditions
    assert (row.target, row.rate, row.requests, row.errors) == ("m", 1.0, 12, 1)
    assert row.ttft_ms.p50 == pytest.approx(200)
    assert observations[0].tps == pytest.approx(20)


def test_times_that_guidellm_does_not_know_are_none(tmp_path: Path) -> None:
    document = guidellm_0_3()
    for each in document["benchmarks"][0]["requests"]["successful"]:
        each |= {"first_token_time": -1.0, "last_token_time": -1.0, "time_to_first_token_ms": -1e6}
    run, observations = recompute(written(tmp_path / "a.json", document))
    assert run.conditions[0].e2e_ms.p50 == pytest.approx(900)
    assert not any(each.streamed for each in observations if each.ok)


@pytest.mark.parametrize(
    "fields",
    [
        {"request_totals": {"successful": 500, "errored": 1}},
        {"request_totals": None, "metrics": {"request_totals": {"successful": 500}}},
    ],
)
def test_sample_of_the_requests_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = written(tmp_path / "a.json", guidellm_0_3(**fields))
    with pytest.raises(CallerFault, match="sample of the requests, 11 of 500 that were successful"):
        recompute(path)


def aiperf(number: int, **metadata: Any) -> dict[str, Any]:
    start_ns = 10**18 + number * 10**9
    times = {"request_start_ns": start_ns, "request_end_ns": start_ns + 9 * 10**8}
    return {
        "metadata": {"benchmark_phase": "profiling", **times, **metadata},
        "metrics": {"time_to_first_token": {"value": 200.0, "unit": "ms"}},
    }


def test_older_aiperf_names_its_model_and_load_elsewhere(tmp_path: Path) -> None:
    path = written(tmp_path / "profile_export.jsonl", *map(aiperf, range(20)))
    settings = {"endpoint": {"model_names": ["m"]}, "loadgen": {"request_rate": 1.0}}
    written(tmp_path / "profile_export_aiperf.json", {"input_config": settings})
    (row,) = recompute(path)[0].conditions
    assert (row.target, row.rate, row.concurrency) == ("m", 1.0, None)


def test_phases_of_aiperf_are_the_loads_of_one_run(tmp_path: Path) -> None:
    lines = [aiperf(n, phase_name="low" if n < 20 else "high") for n in range(50)]
    lines[3]["metadata"]["was_cancelled"] = True
    path = written(tmp_path / "profile_export.jsonl", *lines)
    phases = [
        {"name": "warmup", "exclude_from_results": True, "concurrency": 1},
        {"name": "low", "concurrency": 2},
        {"name": "high", "rate": 1.0, "concurrency": 64},
    ]
    written(tmp_path / "profile_export_aiperf.json", {"input_config": {"phases": phases}})
    low, high = recompute(path)[0].conditions
    assert (low.concurrency, low.requests, low.errors) == (2, 20, 1)
    assert (high.rate, high.requests, high.errors) == (1.0, 30, 0)


@pytest.mark.parametrize(
    ("requests", "loads"),
    [(30, [(1.0, None, 10), (2.0, None, 20)]), (29, [(None, 1, 29)])],
    ids=["stages by their number of requests", "an unknown number is one row"],
)
def test_stages_of_inference_perf_are_the_loads_of_one_run(
    tmp_path: Path, requests: int, loads: list[tuple[Any, ...]]
) -> None:
    entries = [
        {"start_time": 1.0 + n, "end_time": 1.5 + n, "info": None, "error": None}
        for n in range(requests)
    ]
    stages = "[{rate: 1, duration: 10}, {rate: 2.0, duration: 10}]"
    (tmp_path / "config.yaml").write_text(f"load: {{stages: {stages}}}", encoding="utf-8")
    run, _ = recompute(written(tmp_path / "per_request_lifecycle_metrics.json", entries))
    assert [(row.rate, row.concurrency, row.requests) for row in run.conditions] == loads
    assert ("does not name its load" in " ".join(run.conditions[0].notes)) == (len(loads) == 1)


def test_llm_d_report_has_each_row(tmp_path: Path) -> None:
    run, _ = recompute(written(tmp_path / "a.json", details()))
    (text,) = llm_d_reports(run).values()
    report = yaml.safe_load(text)
    aggregate = report["results"]["request_performance"]["aggregate"]
    assert report["version"] == "0.2"
    assert report["scenario"]["load"]["standardized"]["concurrency"] == 8
    assert aggregate["requests"]["total"] == 200
    ttft = aggregate["latency"]["time_to_first_token"]
    assert (ttft["units"], ttft["p95"]) == ("ms", run.conditions[0].ttft_ms.p95)


def test_summary_without_requests_says_what_to_do(tmp_path: Path) -> None:
    document = details()
    for name in ("ttfts", "itls", "input_lens"):
        del document[name]
    with pytest.raises(CallerFault, match="has a summary") as caught:
        recompute(written(tmp_path / "a.json", document))
    assert "--save-detailed" in caught.value.hint


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"input_config": {}, "request_latency": {"avg": 1}}, "profile_export.jsonl beside it"),
        ({"load_summary": {}, "successes": {}, "failures": {}}, "per_request: true"),
        ({"experiments": [], "service_kind": "openai"}, "no token counts"),
    ],
)
def test_file_without_the_requests_says_where_they_are(
    tmp_path: Path, document: dict[str, Any], words: str
) -> None:
    with pytest.raises(CallerFault) as caught:
        recompute(written(tmp_path / "a.json", document))
    assert words in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(
    name=st.sampled_from(sorted(details(requests=3))),
    value=JSON,
)
def test_any_value_of_a_field_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, value: Any
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(details(requests=3) | {name: value}), encoding="utf-8")
    with suppress(CallerFault):
        read_result(path).observations()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": {\n "b": [1,\n', "is not JSON: Expecting value: line 3"),  # the tool was killed
        ('{"a": 1}\n{"b":\n', "is not JSON: line 2: Expecting value"),
        ("a,b\n1,2\n", "is not JSON"),
    ],
)
def test_error_of_json_names_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CallerFault) as caught:
        recompute(path)
    assert words in str(caught.value)


def test_file_of_another_kind_is_no_run(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(CallerFault, match="is no run, and no JSON"):
        recompute(path)


def test_advice_for_other_minutes_is_no_option_of_ours(tmp_path: Path) -> None:
    path = written(tmp_path / "a.json", details())
    said = [*recompute(path)[0].conclusion, compared(tmp_path, details(), details(1.5, seed=31))]
    assert "files of several days" in " ".join(said)
    assert "--over" not in " ".join(said)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", "nonsense", "[{}]", '{"benchmarks": []}'])
def test_other_files_are_refused_with_the_known_tools(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CallerFault):
        recompute(path)
