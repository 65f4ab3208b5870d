"""The benchmark tools: how each is asked to send the same requests, and the times that it reports
for each of them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.log.store.folder import read_observations

OURS = "splitsecond"
VERSIONS = {"aiperf": "0.13.0", "guidellm": "0.8.1"}
"""The versions that the commands and records here are known to fit."""


class Asked(Struct, frozen=True):
    """What every tool is asked for."""

    url: str
    """The server's address, without /v1."""
    model: str
    tokenizer: Path
    prompts: Sequence[str]
    output_tokens: int
    concurrency: int
    requests: int
    ignore_eos: bool = True
    """Whether the server knows this field, which makes each response as long as asked for."""


class Reported(Struct, frozen=True):
    """What a tool reports for one request. `start_ns` is wall-clock time."""

    start_ns: int
    ttft_ms: float
    e2e_ms: float
    tpot_ms: float | None


class Report(Struct):
    """What a tool reports: its measured requests and the number of those that failed."""

    requests: list[Reported]
    errors: int = 0


class ToolFailed(Exception):
    """A tool ended with an error, or its records are not those that are known here."""


def executable(tool: str, path: str) -> str:
    """Return the command of a tool. Raises `SystemExit` with what to do if there is none."""
    found = shutil.which(path or tool)
    if found is None:
        where = f"{path} does not exist" if path else "it is not on the PATH"
        raise SystemExit(
            f"{tool} is missing: {where}. Install it into an environment of its own:\n"
            f"  python3 -m venv {tool}-env && {tool}-env/bin/pip install {tool}=={VERSIONS[tool]}\n"
            f"and name it with --{tool} {tool}-env/bin/{tool}, or leave "
            f"it out with --without {tool}."
        )
    return found


def version(command: str) -> str:
    """Return what a tool says about its version."""
    ended = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    return (
        (ended.stdout or ended.stderr).strip().splitlines()[-1]
        if ended.stdout or ended.stderr
        else "?"
    )


def splitsecond(asked: Asked, folder: Path, command: str) -> Report:
    """Measure with `splitsecond bench`."""
    lines = (json.dumps({"prompt": prompt}) for prompt in asked.prompts)
    prompts = _written(folder / "prompts.jsonl", lines)
    _run(
        [
            *command.split("\0"),
            "bench",
            f"--base-url=oracle={asked.url}/v1",
            f"--model={asked.model}",
            f"--prompts={prompts}",
            f"--output-tokens={asked.output_tokens}",
            *(["--ignore-eos"] if asked.ignore_eos else []),
            f"--concurrency={asked.concurrency}",
            f"--requests={asked.requests}",
            f"--out={folder / 'run'}",
            "--no-html",
        ],
        folder,
    )
    offset_ns = clock.wall_offset_ns()
    measured = [o for o in read_observations(folder / "run") if o.role == "measured"]
    complete = [o for o in measured if o.ok]
    return Report(
        [
            Reported(
                start_ns=o.sent_ns + offset_ns,
                ttft_ms=o.ttft_ms,
                e2e_ms=o.e2e_ms,
                tpot_ms=None if o.tpot_ns is None else o.tpot_ns / 1e6,
            )
            for o in complete
            if o.sent_ns is not None and o.ttft_ms is not None and o.e2e_ms is not None
        ],
        errors=len(measured) - len(complete),
    )


def aiperf(asked: Asked, folder: Path, command: str) -> Report:
    """Measure with AIPerf. TPOT is its "inter token latency"."""
    prompts = _written(
        folder / "prompts.jsonl", (json.dumps({"text": prompt}) for prompt in asked.prompts)
    )
    _run(
        [
            command,
            "profile",
            f"--model={asked.model}",
            f"--url={asked.url}",
            "--endpoint-type=chat",
            "--streaming",
            f"--concurrency={asked.concurrency}",
            f"--request-count={asked.requests}",
            f"--warmup-request-count={asked.concurrency}",
            f"--tokenizer={asked.tokenizer}",
            f"--input-file={prompts}",
            "--custom-dataset-type=single_turn",
            "--use-server-token-count",
            f"--extra-inputs=max_tokens:{asked.output_tokens}",
            *(["--extra-inputs=ignore_eos:true"] if asked.ignore_eos else []),
            f"--artifact-dir={folder / 'artifacts'}",
            "--ui=none",
            "--no-gpu-telemetry",
            "--no-server-metrics",
        ],
        folder,
    )
    records = [
        json.loads(line)
        for file in (folder / "artifacts").rglob("profile_export.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    measured = [
        record for record in records if record["metadata"]["benchmark_phase"] == "profiling"
    ]
    complete = [record for record in measured if not record.get("error")]
    return Report(
        [
            Reported(
                start_ns=int(record["metadata"]["request_start_ns"]),
                ttft_ms=_metric(record, "time_to_first_token"),
                e2e_ms=_metric(record, "request_latency"),
                tpot_ms=_metric(record, "inter_token_latency"),
            )
            for record in complete
        ],
        errors=len(measured) - len(complete),
    )


def _metric(record: dict[str, Any], name: str) -> float:
    """Return one of AIPerf's figures in ms."""
    metric = record["metrics"][name]
    return float(metric["value"]) * {"ms": 1.0, "ns": 1e-6, "us": 1e-3, "sec": 1e3}[metric["unit"]]


def guidellm(asked: Asked, folder: Path, command: str) -> Report:
    """Measure with GuideLLM. TPOT is its "inter token latency"; its "time per output token"
    contains the TTFT."""
    # With a length in the data, GuideLLM sends `ignore_eos`.
    length = {"output_tokens_count": asked.output_tokens} if asked.ignore_eos else {}
    limit = "" if asked.ignore_eos else f",max_tokens={asked.output_tokens}"
    lines = (json.dumps({"prompt": prompt, **length}) for prompt in asked.prompts)
    prompts = _written(folder / "prompts.jsonl", lines)
    results = folder / "results.json"
    _run(
        [
            command,
            "run",
            f"--backend=kind=openai_http,target={asked.url},model={asked.model}{limit}",
            f"--profile=kind=concurrent,streams={asked.concurrency}",
            f"--constraint=kind=max_requests,count={asked.requests}",
            f"--data=kind=json_file,path={prompts}",
            f"--tokenizer=kind=huggingface_auto,model={asked.tokenizer}",
            f"--output=kind=json,path={results}",
            "--disable-console",
        ],
        folder,
    )
    (benchmark,) = json.loads(results.read_text(encoding="utf-8"))["benchmarks"]
    requests = benchmark["requests"]
    return Report(
        [
            Reported(
                start_ns=int(request["request_start_time"] * NS_PER_S),
                ttft_ms=request["time_to_first_token_ms"],
                e2e_ms=request["request_latency"] * 1000,
                tpot_ms=request["inter_token_latency_ms"],
            )
            for request in requests["successful"]
        ],
        errors=len(requests["errored"]),
    )


TOOLS = {OURS: splitsecond, "aiperf": aiperf, "guidellm": guidellm}


def our_command() -> str:
    """Return the command of this checkout's `splitsecond`, with NUL between its words."""
    return "\0".join((sys.executable, "-m", "splitsecond.cli"))


def _written(path: Path, lines: "Sequence[str] | Any") -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a tool, with its output in `folder`/log. Raises `ToolFailed` if it fails."""
    log = folder / "log"
    environment = {**os.environ, "COLUMNS": "160"}
    with log.open("wb") as file:
        code = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            check=False,
        ).returncode
    if code:
        end = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise ToolFailed(f"{Path(command[0]).name} ended with exit code {code}:\n{end}")
