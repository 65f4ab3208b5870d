"""Whole runs, from the command line to the files: what JSON holds, what survives an interruption or a full disk."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.cli.conftest import Split
from tests.cli.peer import Asked, Peer, stream

from splitsecond.load.crew import Crew, Member
from splitsecond.simulator.process import Running
from splitsecond.store.folder import RunFolder, read_observations
from splitsecond.timing.observation import Observation

FEW = ("--input-tokens", 64, "--output-tokens", 20, "--no-html")
SPREADS = ("ttft_ms", "tps", "e2e_ms", "itl_ms")
STATISTICS = ("p50", "p95", "p99", "mean", "ci95")


def test_the_findings_as_json(kept_run: Path, simulated: Running) -> None:
    found = json.loads(kept_run.with_name("out.json").read_text())
    assert found == json.loads((kept_run / "run.json").read_text())
    assert found["schema"] == "splitsecond.run/1"
    assert found["finished"] is True
    assert found["asked"]["settings"]["concurrency"] == "1,4"
    assert found["asked"]["targets"][0]["base_url"] == simulated.base_url
    assert [row["concurrency"] for row in found["conditions"]] == [1, 4]
    for row in found["conditions"]:
        assert (row["target"], row["requests"], row["errors"]) == ("quick", 8, 0)
        for name in SPREADS:
            assert all(statistic in row[name] for statistic in STATISTICS)
            assert row[name]["mean"] > 0
        low, high = row["ttft_ms"]["ci95"]["p50"]
        assert low <= row["ttft_ms"]["p50"] <= high
        assert row["ttft_ms"]["p50"] <= row["ttft_ms"]["p95"] <= row["e2e_ms"]["p95"]
        assert row["tps"]["p50"] >= row["tps"]["p95"]
        assert row["output_tokens_per_s"] > 0
        assert row["requests_per_s"] > 0
        assert row["cost_usd"] is None
        assert (row["token_source"], row["output_tokens"]) == ("usage", 20)
        assert row["input_tokens"] == pytest.approx(64, abs=4)  # by the run's id, seven words of a prompt differ
        assert row["goodput"]["limits"] == {"ttft": 1000.0}
        assert row["instrument"]["lag_p50_ms"] is not None


def test_the_folder_of_a_run(kept_run: Path) -> None:
    assert {path.name for path in kept_run.iterdir()} == {
        "run.json", "observations.jsonl", "readings.jsonl", "report.html"
    }  # fmt: skip
    roles = {o.role for o in read_observations(kept_run)}
    assert roles == {"calibration", "warmup", "measured"}


@pytest.mark.parametrize(("dialect", "path"), [("anthropic", "/v1"), ("responses", "/v1"), ("gemini", "/v1beta")])
def test_a_target_of_another_dialect_is_measured_by_the_same_counts(
    split: Split, simulated: Running, dialect: str, path: str
) -> None:
    at = ("--base-url", simulated.origin + path, "--model", simulated.model, "--dialect", dialect)
    ended = split("bench", *at, "-c", "1,4", "-n", 4, *FEW, "--out", "run", "--json", "-")
    assert ended.code == 0
    assert ended.json["asked"]["targets"][0]["dialect"] == dialect
    for row in ended.json["conditions"]:
        assert (row["errors"], row["token_source"], row["output_tokens"]) == (0, "usage", 20)
        assert row["input_tokens"] == pytest.approx(64, abs=4)  # of 8 prompts, each within a few words


def test_without_counts_a_provider_of_the_catalogue_is_said_to_send_them(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer(lambda asked: stream(asked, tokens=20, usage=False)) as peer:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", peer.base_url.removesuffix("/v1"))
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
        ended = split("bench", "azure/gpt-4o", "-c", 1, "-n", 2, *FEW, "--json", "-")
    (row,) = ended.json["conditions"]
    assert (row["errors"], row["token_source"]) == (0, "events")
    assert "The provider is known to send them in a chunk of their own at the end" in " ".join(row["notes"])


def test_simulated_targets_are_started_and_their_folder_is_named_after_the_run(
    split: Split, quick_profile: Path, tmp_path: Path
) -> None:
    ended = split(
        "bench", f"sim/{quick_profile}", "sim/steady", "-c", 2, "-n", 2, *FEW, "--json", "-", "--side-by-side"
    )
    assert ended.code == 0
    found = ended.json
    assert [row["errors"] for row in found["conditions"]] == [0, 0]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [found["id"]]


def test_an_open_loop(split: Split, endpoint: list[str]) -> None:
    ended = split("bench", *endpoint, "--rate", 40, "-n", 10, "--warmup", 2, *FEW, "--json", "-", "--slo", "ttft=1s")
    assert ended.code == 0
    (row,) = ended.json["conditions"]
    assert (row["concurrency"], row["rate"], row["requests"]) == (None, 40.0, 10)
    assert row["ttft_due_ms"]["p50"] >= row["ttft_ms"]["p50"]
    assert "40 requests/s" in ended.words


def test_arrivals_from_a_trace(split: Split, endpoint: list[str], tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("0\n0.05\n0.1\n")
    ended = split("bench", *endpoint, "--trace", "trace", *FEW, "--json", "-")
    assert ended.code == 0
    assert ended.json["conditions"][0]["requests"] == 3


def test_prompts_from_a_file_with_the_body_that_was_asked_for(split: Split, tmp_path: Path) -> None:
    lines = [{"messages": [{"role": "user", "content": text}], "top_p": 0.5} for text in ("one", "two")]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    more = ("--prompts", "prompts.jsonl", "--ignore-eos", "--body", '{"temperature": 0}')
    with Peer(stream) as peer:
        ended = split("bench", "--base-url", peer.base_url, "--model", "m", "-c", 1, "-n", 6, *FEW, *more)
    assert ended.code == 0
    measured = [asked.body for asked in peer.asked[1:]]
    assert [body["messages"][0]["content"].split(".\n")[1] for body in measured[1:]] == ["two", "one"] * 3
    for body in measured:
        fields = {name: body[name] for name in ("model", "temperature", "ignore_eos", "top_p", "max_tokens")}
        assert fields == {"model": "m", "temperature": 0, "ignore_eos": True, "top_p": 0.5, "max_tokens": 20}


def test_ctrl_c_keeps_every_finished_observation_and_leaves_no_process(tmp_path: Path) -> None:
    answered, enough = 20, threading.Event()

    def say(asked: Asked) -> bytes:
        if asked.number < answered:
            return stream(asked)
        enough.set()
        return b""

    command = [sys.executable, "-m", "splitsecond.cli", "bench", "--model", "m", "-c", "1", "-n", "50"]
    with Peer(say) as peer:
        process = subprocess.Popen(
            [*command, *map(str, FEW), "--base-url", peer.base_url, "--out", "run"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert enough.wait(20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)  # a worker that stayed would hold standard error open
    assert (process.returncode, err) == (130, "")
    assert "Concurrency 1" in out
    assert "This run was stopped before its end" in " ".join(out.split())
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    observations = read_observations(tmp_path / "run")
    assert run["finished"] is False
    assert [o.outcome for o in observations] == ["ok"] * answered + ["cancelled"]
    assert run["conditions"][0]["requests"] == sum(o.role == "measured" and o.ok for o in observations) > 0


def test_ctrl_c_before_any_load_leaves_nothing(tmp_path: Path) -> None:
    began = threading.Event()

    def say(asked: Asked) -> bytes:
        began.set()
        return b""

    with Peer(say) as peer:
        process = subprocess.Popen(
            [sys.executable, "-m", "splitsecond.cli", "bench", "--base-url", peer.base_url, "--model", "m"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert began.wait(20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "splitsecond: interrupted\n")
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_when_the_bench_is_killed_its_workers_leave(tmp_path: Path) -> None:
    began = threading.Event()

    def say(asked: Asked) -> bytes:
        began.set()
        return b""

    with Peer(say) as peer:
        process = subprocess.Popen(
            [sys.executable, "-m", "splitsecond.cli", "bench", "--base-url", peer.base_url, "--model", "m"],
            cwd=tmp_path, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert began.wait(20)
        process.kill()
        process.communicate(timeout=20)


def test_a_worker_that_is_killed_costs_what_it_had_not_said(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    hire = Crew.hire

    async def hired(crew: Crew) -> Member:
        member = await hire(crew)
        pids.append(member._process.pid)
        return member

    def say(asked: Asked) -> bytes:
        if asked.number < 20:
            return stream(asked)
        os.kill(pids[0], signal.SIGKILL)
        return b""

    monkeypatch.setattr(Crew, "hire", hired)
    with Peer(say) as peer:
        ended = split(
            "bench", "--base-url", peer.base_url, "--model", "m", "-c", 1, "-n", 50, *FEW, "--out", "run", "--json", "-"
        )
    assert ended.code == 1
    assert "ended by signal 9" in ended.words
    assert ended.json["finished"] is False
    assert len(read_observations(tmp_path / "run")) == 20


def test_a_disk_that_fills_up_stops_the_run_and_what_was_measured_is_shown(
    split: Split, endpoint: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = 15

    def add(folder: RunFolder, observation: Observation) -> None:
        nonlocal room
        room -= 1
        if room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunFolder, "add", add)
    ended = split("bench", *endpoint, "-c", 2, "-n", 60, *FEW, "--out", "run", "--json", "-")
    assert ended.code == 1
    assert ended.json["finished"] is False
    assert 0 < ended.json["conditions"][0]["requests"] < 60
    assert "splitsecond: cannot write to run: No space left on device; the run was stopped" in ended.words


@pytest.mark.parametrize("failing", ["run.json", "report.html"])
def test_a_result_that_cannot_be_written_is_said_and_costs_nothing_else(
    split: Split, endpoint: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    write = RunFolder.write
    written: list[str] = []

    def full(folder: RunFolder, name: str, data: bytes) -> Path:
        written.append(name)
        if name == failing and (name != "run.json" or written.count(name) > 1):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(folder, name, data)

    monkeypatch.setattr(RunFolder, "write", full)
    ended = split("bench", *endpoint, "-c", 1, "-n", 2, *FEW[:-1], "--out", "run", "--json", "out.json")
    assert ended.code == 1
    assert f"cannot write to run/{failing}: No space left on device" in ended.out
    assert "Concurrency 1" in ended.out
    assert json.loads((tmp_path / "out.json").read_text())["conditions"][0]["requests"] == 2


def test_a_disk_that_is_full_from_the_start(split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: RunFolder, name: str, data: bytes) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunFolder, "write", full)
    ended = split("bench", "--base-url", "http://127.0.0.1:1", "--model", "m", "--out", "run")
    assert (ended.code, ended.out) == (1, "")
    assert "cannot write to run: No space left on device" in ended.complaint
    assert list(tmp_path.iterdir()) == []
