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


@pytest.mark.parametrize("text", ["", "[]", "{}", "[1]", "nonsense", "[{}]", '{"benchmarks": []}'])
def test_other_files_are_refused_with_the_known_tools(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CallerFault):
        recompute(path)
