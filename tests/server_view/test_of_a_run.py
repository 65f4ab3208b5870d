"""What a run says about its server, compared with the truth: the simulator's log, and llama.cpp
with few slots."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import WITHIN_S

from splitsecond import sync
from splitsecond.api.results import BenchRun, load
from splitsecond.benchmark.findings.causes import cause_of_row
from splitsecond.benchmark.rows.row_fields import ServerView
from splitsecond.benchmark.runs.settings import Server
from splitsecond.simulator.llama_cpp import EngineProcess
from splitsecond.simulator.llama_cpp.process import unavailable_reason
from splitsecond.simulator.process import RunningProvider, run_simulator

pytestmark = pytest.mark.system

SMALL = """
title = "A small server: a KV cache that fills up, and a GPU at its power limit"
model = "small"

[engine]
slots = 8
prefill_tokens_per_s = 8000
prefill_chunk_tokens = 512
step_base_ms = 5
step_per_sequence_ms = 0.5
kv_cache_tokens = 1800

[engine.gpu]
idle_w = 70
full_w = 700
limit_w = 500
"""
SERVER = "server.jsonl"


@pytest.fixture(scope="module")
def small(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningProvider]:
    profile = tmp_path_factory.mktemp("profile") / "small.toml"
    profile.write_text(SMALL)
    with run_simulator(str(profile)) as (provider,):
        yield provider


@pytest.fixture(scope="module")
def crowded(small: RunningProvider, tmp_path_factory: pytest.TempPathFactory) -> BenchRun:
    """Sixteen requests at a time for a server with room for about eight."""
    return sync.bench(
        Server(base_url=small.base_url, model=small.model),
        concurrency=[1, 16],
        requests=24,
        rounds=2,
        input_tokens=200,
        output_tokens=64,
        usd_per_kwh=0.2,
        out=tmp_path_factory.mktemp("run") / "small",
        progress=False,
    )


def view(run: BenchRun, concurrency: int) -> ServerView:
    found = next(c.server for c in run.findings.conditions if c.concurrency == concurrency)
    assert found is not None
    return found


def test_queue_and_preemptions_are_those_of_the_truth(
    small: RunningProvider, crowded: BenchRun
) -> None:
    with urllib.request.urlopen(f"{small.origin}/truth", timeout=WITHIN_S) as response:
        truth = {record["request_id"]: record for record in json.load(response)}
    own = {o.id for o in crowded.observations if o.condition.endswith("@c16")}
    records = [record for request_id, record in truth.items() if request_id in own]
    found = view(crowded, 16)
    assert found.preemptions == sum(record["preemptions"] for record in records) > 0
    begun = [record for record in records if record["actual_ns"]]
    assert found.check is not None
    assert (found.check.server_requests, found.check.others) == (len(begun), False)
    true_ms = (
        sum(record["actual_ns"][0] - record["arrived_ns"] for record in begun) / len(begun) / 1e6
    )
    assert found.check.server_ms == pytest.approx(true_ms, rel=0.02)
    assert found.check.rest_ms > -1, "a client never sees a token before the server has it"
    complete = [record for record in begun if len(record["actual_ns"]) == record["output_tokens"]]
    queue_ms = (
        sum(record["began_ns"] - record["arrived_ns"] for record in complete) / len(complete) / 1e6
    )
    assert found.queue_ms == pytest.approx(queue_ms, rel=0.05)
    assert found.waiting_max is not None
    assert 1 <= found.waiting_max <= 16
    assert found.running_max is not None
    assert found.running_max <= 8


def test_throttling_and_energy_are_those_of_the_profile(crowded: BenchRun) -> None:
    alone, many = view(crowded, 1), view(crowded, 16)
    assert alone.power_capped == 0
    assert many.power_capped is not None
    assert many.power_capped > 0, "eight sequences want 700 W of 500"
    assert alone.power_w is not None
    assert many.power_w is not None
    assert 70 < alone.power_w < 300 < many.power_w <= 501
    assert alone.idle_power_w == many.idle_power_w == 70
    row = next(c for c in crowded.findings.conditions if c.concurrency == 16)
    assert many.joules_per_token == pytest.approx(
        many.power_w / (row.output_tokens_per_s_whole or 0), rel=0.01
    )
    assert many.electricity_usd_per_million == pytest.approx(
        (many.joules_per_token or 0) / 3.6 * 0.2
    )


def test_cause_is_the_full_cache(crowded: BenchRun) -> None:
    rows = {c.concurrency: cause_of_row(c) for c in crowded.findings.conditions}
    assert rows == {1: "computing", 16: "memory"}


def test_run_read_from_its_folder_says_the_same(crowded: BenchRun) -> None:
    again = load(crowded.path)
    assert [c.server for c in again.findings.conditions] == [
        c.server for c in crowded.findings.conditions
    ]
    assert again.findings.statements == crowded.findings.statements


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
    found = view(run, 6)
    assert found.title == "llama.cpp"
    assert found.running_max == 2
    assert found.waiting_max is not None
    assert found.waiting_max >= 3
    assert found.check is None, "it has no histograms"
