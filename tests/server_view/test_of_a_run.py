"""What a run says about its server, compared with the truth: the simulator's log, and llama.cpp
with few slots."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.server_view_truth import compared, measured, servers, truth_of

from splitsecond import sync
from splitsecond.api.results import BenchRun, load
from splitsecond.benchmark.findings.causes import cause_of_row
from splitsecond.benchmark.rows.row_fields import ServerView
from splitsecond.benchmark.runs.settings import Server
from splitsecond.simulator.llama_cpp import EngineProcess
from splitsecond.simulator.llama_cpp.process import unavailable_reason
from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system

SERVER = "server.jsonl"


@pytest.fixture(scope="module")
def running(
    system: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[RunningProvider]]:
    with servers(tmp_path_factory.mktemp("profiles")) as providers:
        yield providers


@pytest.fixture(scope="module")
def small(running: list[RunningProvider]) -> RunningProvider:
    return running[-1]


@pytest.fixture(scope="module")
def run(running: list[RunningProvider], tmp_path_factory: pytest.TempPathFactory) -> BenchRun:
    return measured(running, tmp_path_factory.mktemp("run") / "four")


def view(run: BenchRun, concurrency: int, target: str = "small") -> ServerView:
    found = next(
        c.server
        for c in run.findings.conditions
        if (c.concurrency, c.target) == (concurrency, target)
    )
    assert found is not None
    return found


def test_causes_are_stated_where_they_happened_and_nowhere_else(
    running: list[RunningProvider], run: BenchRun
) -> None:
    rows = compared(running, run)
    assert {(row.server, row.concurrency): row.causes for row in rows if row.causes} == {
        ("four-slots", 16): {"queue"},
        ("300-watts", 16): {"throttling"},
        ("small", 16): {"queue", "eviction", "throttling"},
    }
    for row in rows:
        if row.concurrency == 16:
            assert row.stated == row.causes, row.server
        assert row.report.queue_ms == pytest.approx(row.truth.queue_ms, rel=0.05, abs=0.1)
        assert row.report.preemptions == row.truth.preemptions
        assert row.report.throttled == pytest.approx(row.truth.throttled, abs=0.2)
    words = " ".join(each for each in run.findings.statements if "throttled" in each)
    assert "at concurrency 1:" not in words


def test_times_to_first_token_are_those_of_the_truth(small: RunningProvider, run: BenchRun) -> None:
    truth = truth_of(small)
    own = {o.id for o in run.observations if o.condition == "small@c16"}
    records = [record for request_id, record in truth.items() if request_id in own]
    found = view(run, 16)
    begun = [record for record in records if record["actual_ns"]]
    assert found.check is not None
    assert (found.check.server_requests, found.check.others) == (len(begun), False)
    true_ms = (
        sum(record["actual_ns"][0] - record["arrived_ns"] for record in begun) / len(begun) / 1e6
    )
    assert found.check.server_ms == pytest.approx(true_ms, rel=0.02)
    assert found.check.rest_ms > -1, "a client never sees a token before the server has it"
    assert found.waiting_max is not None
    assert 1 <= found.waiting_max <= 16
    assert found.running_max is not None
    assert found.running_max <= 8


def test_throttling_and_energy_are_those_of_the_profile(run: BenchRun) -> None:
    alone, many = view(run, 1), view(run, 16)
    assert alone.power_capped == 0
    assert many.power_capped is not None
    assert many.power_capped > 0, "eight sequences want 700 W of 500"
    assert alone.power_w is not None
    assert many.power_w is not None
    assert 70 < alone.power_w < 300 < many.power_w <= 501
    assert alone.idle_power_w == many.idle_power_w == 70
    row = next(c for c in run.findings.conditions if c.condition == "small@c16")
    assert many.joules_per_token == pytest.approx(
        many.power_w / (row.output_tokens_per_s_whole or 0), rel=0.01
    )
    assert many.electricity_usd_per_million == pytest.approx(
        (many.joules_per_token or 0) / 3.6 * 0.2
    )


def test_cause_is_the_full_cache(run: BenchRun) -> None:
    rows = {c.concurrency: cause_of_row(c) for c in run.findings.conditions if c.target == "small"}
    assert rows == {1: "computing", 16: "memory"}


def test_run_read_from_its_folder_says_the_same(run: BenchRun) -> None:
    again = load(run.path)
    assert [c.server for c in again.findings.conditions] == [
        c.server for c in run.findings.conditions
    ]
    assert again.findings.statements == run.findings.statements


def test_run_without_metrics_has_no_file_of_them(small: RunningProvider, tmp_path: Path) -> None:
    run = sync.bench(
        Server(base_url=small.base_url, model=small.model),
        concurrency=1,
        requests=4,
        output_tokens=4,
        no_metrics=True,
        out=tmp_path / "run",
        progress=False,
    )
    assert [c.server for c in run.findings.conditions] == [None]
    assert not (tmp_path / "run" / SERVER).exists()


@pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason())
def test_llama_cpp_with_two_slots_has_a_queue(system: None, tmp_path: Path) -> None:
    with EngineProcess(slots=2, context=2048) as engine:
        run = sync.bench(
            Server(base_url=engine.base_url, model=engine.model),
            concurrency=6,
            requests=48,
            rounds=2,
            input_tokens=100,
            output_tokens=256,
            ignore_eos=True,
            out=tmp_path / "run",
            progress=False,
        )
    found = view(run, 6, run.findings.conditions[0].target)
    assert found.title == "llama.cpp"
    assert found.running_max == 2
    assert found.waiting_max is not None
    assert found.waiting_max >= 3
    assert found.check is None, "it has no histograms"
