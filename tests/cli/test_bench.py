"""Whole runs, from the command line to the files: what JSON holds, what survives an interruption or
a full disk."""

import errno
import json
import os
import signal
import sys
import threading
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
from tests.cli.conftest import Split
from tests.cli.peer import Peer, ReceivedRequest, stream
from tests.processes import Process
from tests.waiting import WITHIN_S

from splitsecond.core.child_process import ChildProcess
from splitsecond.core.observation import Observation
from splitsecond.core.transport.packets import packet_clock_refusal
from splitsecond.log.store.folder import RunFolder, read_observations
from splitsecond.simulator.process import RunningProvider

FEW = ("--input-tokens", 64, "--output-tokens", 20, "--no-html")
SPREADS = ("ttft_ms", "tps", "e2e_ms", "itl_ms")
STATISTICS = ("p50", "p95", "p99", "mean", "ci95")


def test_the_findings_as_json(kept_run: Path, simulated: RunningProvider) -> None:
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
        low, high = row["ttft_ms"]["ci95"]["mean"]
        assert low <= row["ttft_ms"]["mean"] <= high
        assert row["ttft_ms"]["needs"]["p50"] > 8
        assert row["ttft_ms"]["p50"] <= row["ttft_ms"]["p95"] <= row["e2e_ms"]["p95"]
        assert row["tps"]["p50"] >= row["tps"]["p95"]
        assert row["output_tokens_per_s"] > 0
        assert row["requests_per_s"] > 0
        assert row["cost_usd"] is None
        assert (row["token_source"], row["output_tokens"]) == ("usage", 20)
        # by the run's id, seven words of a prompt differ
        assert row["input_tokens"] == pytest.approx(64, abs=4)
        assert row["goodput"]["limits"] == {"ttft": 1000.0}
        assert row["instrument"]["lag_p50_ms"] is not None
        assert row["instrument"]["packet_time"] is (packet_clock_refusal() == "")
        assert row["instrument"]["priority"]


def test_a_clock_can_be_forced(split: Split, endpoint: list[str]) -> None:
    ended = split("bench", *endpoint, "-c", 1, "-n", 2, *FEW, "--clock", "process", "--json", "-")
    (row,) = ended.json["conditions"]
    assert (row["instrument"]["packet_time"], row["instrument"]["kernel_time"]) == (False, False)


def test_several_servers_in_one_run(
    split: Split, simulated: RunningProvider, tmp_path: Path
) -> None:
    """Two settings of a server: their blocks alternate, and they are compared by name like any
    targets."""
    (tmp_path / "splitsecond.yaml").write_text(
        f'providers:\n  c: {{base_url: "{simulated.base_url}"}}\n'
    )
    servers = ("--base-url", f"a={simulated.base_url}", f"b={simulated.base_url}", "c/quick")
    config = ("--config", "splitsecond.yaml")
    ended = split(
        "bench",
        *servers,
        *config,
        "-c",
        1,
        "-n",
        10,
        "--quick",
        *FEW,
        "--out",
        "run",
        "--json",
        "out.json",
    )
    assert ended.code == 0
    found = json.loads(Path("out.json").read_text())
    assert [row["target"] for row in found["conditions"]] == ["c/quick", "a", "b"]
    assert {each["name"]: each["model"] for each in found["asked"]["targets"]} == dict.fromkeys(
        ("a", "b", "c/quick"), "quick"
    )
    rounds = {
        name: {o.round for o in read_observations(Path("run")) if o.target == name}
        for name in ("a", "b")
    }
    assert rounds["a"] == rounds["b"] >= {1, 2, 3, 4, 5, 6}
    assert all(f" {name} " in ended.out for name in ("a", "b", "c/quick"))
    compared = split("compare", "run", "run", "--match", "a=b", "--json", "-")
    assert ("a", "b") in [
        (each["before_target"], each["target"]) for each in compared.json["conditions"]
    ]


def test_the_folder_of_a_run(kept_run: Path) -> None:
    assert {path.name for path in kept_run.iterdir()} == {
        "run.json", "observations.jsonl", "readings.jsonl", "report.html", "plan.toml"
    }  # fmt: skip
    roles = {o.role for o in read_observations(kept_run)}
    assert roles == {"calibration", "warmup", "measured", "cooldown"}


@pytest.mark.parametrize(
    ("api_format", "path"), [("anthropic", "/v1"), ("responses", "/v1"), ("gemini", "/v1beta")]
)
def test_targets_of_all_api_formats_get_the_same_token_counts(
    split: Split, simulated: RunningProvider, api_format: str, path: str
) -> None:
    at = (
        "--base-url",
        simulated.origin + path,
        "--model",
        simulated.model,
        "--api-format",
        api_format,
    )
    ended = split("bench", *at, "-c", "1,4", "-n", 4, *FEW, "--out", "run", "--json", "-")
    assert ended.code == 0
    assert ended.json["asked"]["targets"][0]["api_format"] == api_format
    for row in ended.json["conditions"]:
        assert (row["errors"], row["token_source"], row["output_tokens"]) == (0, "usage", 20)
        # of 8 prompts, each within a few words
        assert row["input_tokens"] == pytest.approx(64, abs=4)


@pytest.mark.system
def test_missing_usage_note_says_where_the_provider_sends_it(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Peer(lambda asked: stream(asked, tokens=20, usage=False)) as peer:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", peer.base_url.removesuffix("/v1"))
        monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
        ended = split("bench", "azure/gpt-4o", "-c", 1, "-n", 2, *FEW, "--json", "-")
    (row,) = ended.json["conditions"]
    assert (row["errors"], row["token_source"]) == (0, "events")
    assert "The provider is known to send them in a chunk of their own at the end" in " ".join(
        row["notes"]
    )


@pytest.mark.system
def test_simulated_targets_run_in_a_folder_with_the_run_id(
    split: Split, quick_profile: Path, tmp_path: Path
) -> None:
    ended = split(
        "bench",
        f"sim/{quick_profile}",
        "sim/steady",
        "-c",
        2,
        "-n",
        2,
        *FEW,
        "--json",
        "-",
        "--side-by-side",
    )
    assert ended.code == 0
    found = ended.json
    assert [row["errors"] for row in found["conditions"]] == [0, 0]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [found["id"]]


def test_an_open_loop(split: Split, endpoint: list[str]) -> None:
    ended = split(
        "bench",
        *endpoint,
        "--rate",
        40,
        "-n",
        10,
        "--warmup",
        2,
        *FEW,
        "--json",
        "-",
        "--slo",
        "ttft=1s",
    )
    assert ended.code == 0
    (row,) = ended.json["conditions"]
    assert (row["concurrency"], row["rate"]) == (None, 40.0)
    assert row["requests"] > 10  # at least 20 response times
    assert row["ttft_due_ms"]["p50"] >= row["ttft_ms"]["p50"]
    assert "40 requests/s" in ended.words


def test_prompt_lengths_are_compared_in_one_run(split: Split, endpoint: list[str]) -> None:
    load = ("-c", 1, "-n", 4, "--output-tokens", 20, "--no-html", "--json", "-")
    ended = split("bench", *endpoint, *load, "--input-tokens", "64,256")
    assert ended.code == 0
    short, long = ended.json["conditions"]
    assert [(row["target"], row["workload"], row["errors"]) for row in (short, long)] == [
        ("quick", "64", 0),
        ("quick", "256", 0),
    ]
    assert (short["input_tokens"], long["input_tokens"]) == (
        pytest.approx(64, abs=8),
        pytest.approx(256, abs=16),
    )
    assert [target["name"] for target in ended.json["asked"]["targets"]] == ["quick"]
    assert [short["condition"], long["condition"]] == ["quick#64@c1", "quick#256@c1"]
    assert "Concurrency 1, workload 256" in ended.words


def test_named_workloads_have_lengths_and_rates(
    split: Split, endpoint: list[str], tmp_path: Path
) -> None:
    (tmp_path / "w.toml").write_text("[search]\ninput_tokens = 64\noutput_tokens = 10\nrate = 20\n")
    named = ("--workload", "search", "--workload", "chat", "--workloads", "w.toml")
    ended = split("bench", *endpoint, *named, "-n", 4, "--warmup", 1, "--no-html", "--json", "-")
    assert ended.code == 0
    rows = {(row["workload"], row["concurrency"], row["rate"]) for row in ended.json["conditions"]}
    assert rows == {
        ("search", None, 20.0),
        ("chat", 1, None),
        ("chat", 8, None),
        ("chat", 32, None),
    }
    (search,) = [row for row in ended.json["conditions"] if row["workload"] == "search"]
    assert search["output_tokens"] == 10
    again = split(
        "bench", *endpoint, *named[:2], *named[4:], "-c", 2, "-n", 2, "--no-html", "--json", "-"
    )
    assert [row["concurrency"] for row in again.json["conditions"]] == [2]


@pytest.mark.parametrize(
    ("gate", "code", "words"),
    [
        ("tps.p50 < 1", 0, "Passed: none of tps.p50 < 1, errors > 0."),
        ("tps.p50 < 1000000", 1, "FAILED: quick at concurrency 1: tps.p50 is"),
    ],
)
def test_a_gate_of_one_run(
    split: Split, endpoint: list[str], gate: str, code: int, words: str
) -> None:
    load = ("-c", 1, "-n", 60, *FEW, "--no-html")
    ended = split("bench", *endpoint, *load, "--fail-if", gate, "--fail-if", "errors > 0")
    assert (ended.code, words in ended.words) == (code, True)


def test_arrivals_and_lengths_from_a_trace(split: Split, endpoint: list[str]) -> None:
    """Excerpt of a coding service: its prompts and answers have the recorded lengths, at a
    hundredth of its times."""
    trace = Path(__file__).parents[2] / "docs/traces/azure-code.csv"
    load = ("--trace", trace, "--time-scale", 0.01, "-n", 14, "--no-html")
    ended = split("bench", *endpoint, *load, "--out", "run", "--json", "-")
    assert ended.code == 0
    assert "azure-code.csv (Azure): 14 requests within 0.3 s" in ended.err
    sent = [line.split(",") for line in trace.read_text().splitlines()[1:15]]
    found = {o.call: o for o in read_observations(Path("run")) if o.role == "measured"}
    assert len(found) == 14
    for number, (_, prompt, answer) in enumerate(sent):
        o = found[f"quick@trace-{number}"]
        assert o.output_tokens == int(answer)
        # by the words that make it unique
        assert o.input_tokens == pytest.approx(int(prompt), rel=0.02, abs=8)


def test_arrivals_from_a_trace(split: Split, endpoint: list[str], tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("0\n0.05\n0.1\n")
    ended = split("bench", *endpoint, "--trace", "trace", *FEW, "--json", "-")
    assert ended.code == 0
    assert ended.json["conditions"][0]["requests"] == 3


@pytest.mark.system
def test_prompts_from_a_file_get_the_fields_of_body(split: Split, tmp_path: Path) -> None:
    lines = [
        {"messages": [{"role": "user", "content": text}], "top_p": 0.5} for text in ("one", "two")
    ]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    more = ("--prompts", "prompts.jsonl", "--ignore-eos", "--body", '{"temperature": 0}')
    with Peer(stream) as peer:
        ended = split(
            "bench",
            "--base-url",
            peer.base_url,
            "--model",
            "m",
            "-c",
            1,
            "-n",
            6,
            *FEW,
            "--rounds",
            1,
            *more,
        )
    assert ended.code == 0
    measured = [asked.body for asked in peer.asked[-6:]]
    assert [body["messages"][0]["content"].split(".\n")[1] for body in measured] == [
        "two",
        "one",
    ] * 3
    for body in measured:
        fields = {
            name: body[name]
            for name in ("model", "temperature", "ignore_eos", "top_p", "max_tokens")
        }
        assert fields == {
            "model": "m",
            "temperature": 0,
            "ignore_eos": True,
            "top_p": 0.5,
            "max_tokens": 20,
        }


@pytest.mark.parametrize(
    ("how", "ignored"),
    [(signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGTERM, [signal.SIGINT])],
    ids=["SIGINT", "SIGTERM", "SIGTERM in the background"],
)
@pytest.mark.system
def test_signal_keeps_observations_and_ends_all_processes(
    tmp_path: Path, how: signal.Signals, ignored: list[signal.Signals]
) -> None:
    answered, enough = 20, threading.Event()

    def say(asked: ReceivedRequest) -> bytes:
        if asked.number < answered:
            return stream(asked)
        enough.set()
        return b""

    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "bench",
        "--model",
        "m",
        "-c",
        "1",
        "-n",
        "50",
    ]
    with Peer(say) as peer:
        options = [*map(str, FEW), "--base-url", peer.base_url, "--out", "run"]
        with Process(
            [*command, *options], ignored=ignored, cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True
        ) as process:
            assert enough.wait(WITHIN_S)
            for each in ignored:
                process.send_signal(each)
            process.send_signal(how)
            # a worker that stayed would hold standard error open
            out, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 128 + how
    assert len(err.splitlines()) == 1
    assert err.startswith("This run takes about ")
    assert "Concurrency 1" in out
    assert "This run was stopped before its end" in " ".join(out.split())
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    observations = read_observations(tmp_path / "run")
    assert run["finished"] is False
    assert [o.outcome for o in observations] == ["ok"] * answered + ["cancelled"]
    assert (
        run["conditions"][0]["requests"]
        == sum(o.role == "measured" and o.ok for o in observations)
        > 0
    )


@pytest.mark.system
def test_ctrl_c_before_any_load_writes_no_file(tmp_path: Path) -> None:
    began = threading.Event()

    def say(asked: ReceivedRequest) -> bytes:
        began.set()
        return b""

    with Peer(say) as peer:
        command = [
            sys.executable,
            "-m",
            "splitsecond.cli",
            "bench",
            "--base-url",
            peer.base_url,
            "--model",
            "m",
        ]
        with Process(command, cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True) as process:
            assert began.wait(WITHIN_S)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=WITHIN_S)
    assert (process.returncode, out, err) == (130, "", "splitsecond: interrupted\n")
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.system
def test_workers_end_when_the_bench_is_killed(tmp_path: Path) -> None:
    began = threading.Event()

    def say(asked: ReceivedRequest) -> bytes:
        began.set()
        return b""

    with Peer(say) as peer:
        command = [
            sys.executable,
            "-m",
            "splitsecond.cli",
            "bench",
            "--base-url",
            peer.base_url,
            "--model",
            "m",
        ]
        with Process(command, cwd=tmp_path, stderr=PIPE) as process:
            assert began.wait(WITHIN_S)
            process.kill()
            process.communicate(timeout=WITHIN_S)


@pytest.mark.system
def test_killed_worker_loses_only_unreported_observations(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    start = ChildProcess.start

    async def started(*command: str, **limits: Any) -> ChildProcess:
        process = await start(*command, **limits)
        pids.append(process.pid)
        return process

    def say(asked: ReceivedRequest) -> bytes:
        if asked.number < 20:
            return stream(asked)
        os.kill(pids[0], signal.SIGKILL)
        return b""

    monkeypatch.setattr(ChildProcess, "start", started)
    with Peer(say) as peer:
        ended = split(
            "bench", "--base-url", peer.base_url, "--model", "m", "-c", 1, "-n", 50, "--rounds", 1,
            *FEW,
            "--out", "run", "--json", "-",
        )  # fmt: skip
    assert ended.code == 1
    assert "was ended by SIGKILL" in ended.words
    assert ended.json["finished"] is False
    # a busy machine leaves the last ones unreported
    assert 0 < len(read_observations(tmp_path / "run")) <= 20


@pytest.mark.parametrize("failures", [1, 1000], ids=["for a moment", "for good"])
def test_full_disk_stops_the_run_and_shows_its_rows(
    split: Split,
    endpoint: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failures: int,
) -> None:
    calls, add, ids = 0, RunFolder.add, set[str]()

    def fill_up(folder: RunFolder, observation: Observation) -> None:
        nonlocal calls
        calls += 1
        ids.add(observation.id)
        if 15 < calls <= 15 + failures:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        add(folder, observation)

    monkeypatch.setattr(RunFolder, "add", fill_up)
    ended = split("bench", *endpoint, "-c", 2, "-n", 60, *FEW, "--out", "run", "--json", "-")
    assert ended.code == 1
    assert ended.json["finished"] is False
    assert 0 < ended.json["conditions"][0]["requests"] < 60
    assert (
        "splitsecond: cannot write to run: No space left on device; the run was stopped"
        in ended.words
    )
    kept = {each.id for each in read_observations(tmp_path / "run")}
    lacks = [
        note
        for note in ended.json["asked"]["notes"]
        if "could not be written and are only in its report" in note
    ]
    assert (kept == ids, len(lacks)) == ((True, 0) if failures == 1 else (False, 1))


@pytest.mark.parametrize("failing", ["run.json", "report.html"])
def test_unwritable_result_is_reported_and_the_rest_is_kept(
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
    ended = split(
        "bench", *endpoint, "-c", 1, "-n", 2, *FEW[:-1], "--out", "run", "--json", "out.json"
    )
    assert ended.code == 1
    assert f"cannot write to run/{failing}: No space left on device" in ended.out
    assert "Concurrency 1" in ended.out
    assert json.loads((tmp_path / "out.json").read_text())["conditions"][0]["requests"] == 2


def test_a_disk_that_is_full_from_the_start(
    split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: RunFolder, name: str, data: bytes) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(RunFolder, "write", full)
    ended = split("bench", "--base-url", "http://127.0.0.1:1", "--model", "m", "--out", "run")
    assert (ended.code, ended.out) == (1, "")
    assert "cannot write to run: No space left on device" in ended.complaint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.system
@pytest.mark.parametrize("operation", ["embeddings", "rerank"])
def test_batches_of_inputs_are_rows_with_latency(
    split: Split, endpoint: list[str], operation: str
) -> None:
    options = ["--operation", operation, "--batch", "1,4", "-c", 1, "-n", 6, "--quick"]
    ended = split(
        "bench", *endpoint, *options, "--input-tokens", 64, "--json", "out.json", "--out", "run"
    )
    assert ended.code == 0
    one, four = json.loads(Path("out.json").read_text())["conditions"]
    assert [row["workload"] for row in (one, four)] == ["batch-1", "batch-4"]
    assert [row["inputs"] for row in (one, four)] == [1, 4]
    assert four["input_tokens"] > 3 * one["input_tokens"]
    for row in (one, four):
        assert (row["latency_ms"]["n"], row["errors"]) == (6, 0)
        assert (row["ttft_ms"]["n"], row["output_tokens"]) == (0, 0)
        assert row["inputs_per_s"] == pytest.approx(row["inputs"] * row["requests_per_s"])
    assert "TTFT" not in ended.out
    assert not json.loads(Path("out.json").read_text())["uses"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--batch", "4"], "an operation with it"),
        (["--operation", "rerank", "--batch", "1000000"], "at most 19,531 inputs of 512 tokens"),
        (["--operation", "rerank", "--batch", "1,1000000"], "at most 19,531 inputs of 512 tokens"),
        (["--operation", "embeddings", "--cache", "reuse"], "--cache: got 'reuse'"),
        (["--operation", "embeddings", "--slo", "voice"], "no slo with the operation"),
        (["--operation", "embeddings", "--for", "voice"], "--for: got 'voice', expected no use"),
        (["--operation", "rerank", "--output-tokens", "9"], "--output-tokens: got 9, expected no"),
        (["--operation", "rerank", "--reasoning-effort", "low"], "--reasoning-effort: got 'low'"),
        (["--operation", "rerank", "--precision", "5%"], "latency_ms.p50=5%"),
        (["--operation", "sing"], "sing"),
        (["--reasoning-effort", "low,huge"], "--reasoning-effort"),
        (["--batch", "1,2", "--input-tokens", "9,99"], "--batch"),
    ],
)
def test_options_that_inputs_cannot_have_are_refused(
    split: Split, options: list[str], reason: str
) -> None:
    ended = split("bench", "sim/groq", *options)
    assert ended.code == 2
    assert reason in ended.complaint


@pytest.mark.system
def test_each_reasoning_effort_is_a_row_with_its_tokens(split: Split, tmp_path: Path) -> None:
    Path("thinks.toml").write_text(
        'title = "thinks"\nmodel = "thinks"\neffort_tokens = { low = 4, high = 12 }\n[[table]]\n'
        "concurrency = 1\nttft_ms = { p50 = 5, p95 = 6 }\ntps = { p50 = 2000, p95 = 1000 }\n"
    )
    options = ["--reasoning-effort", "low,high", "-c", 1, "-n", 6, "--quick", *FEW[2:]]
    ended = split("bench", "sim/thinks.toml", *options, "--json", "out.json", "--verbose")
    assert ended.code == 0
    low, high = json.loads(Path("out.json").read_text())["conditions"]
    assert [row["workload"] for row in (low, high)] == ["effort-low", "effort-high"]
    assert [row["reasoning_tokens"] for row in (low, high)] == [4, 12]
    for row in (low, high):
        assert row["first_answer_ms"]["p50"] > row["ttft_ms"]["p50"]
    assert "time to first answer" in ended.words


@pytest.mark.system
@pytest.mark.parametrize("what", ["schema", "tools"])
def test_share_of_valid_answers_is_that_of_the_simulator(
    split: Split, tmp_path: Path, what: str
) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    tools = [{"type": "function", "function": {"name": "save", "parameters": schema}}]
    Path("asked.json").write_text(json.dumps(schema if what == "schema" else tools))
    Path("half.toml").write_text(
        'title = "half"\nmodel = "half"\ninvalid_share = 0.5\n[[table]]\nconcurrency = 1\n'
        "ttft_ms = { p50 = 5, p95 = 6 }\ntps = { p50 = 2000, p95 = 1000 }\n"
    )
    options = ["-c", 1, "-n", 40, "--quick", "--warmup", 0, *FEW]
    ended = split(
        "bench", "sim/half.toml", *options, f"--{what}", "asked.json", "--json", "out.json"
    )
    assert ended.code == 0
    (row,) = json.loads(Path("out.json").read_text())["conditions"]
    assert row["checked"] == 40
    assert row["valid_share"] == pytest.approx(0.5, abs=0.15)
    assert "valid" in ended.out
