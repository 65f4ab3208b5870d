"""What a report says about servers, beside what really happened there: figures of
docs/server-view.md.

Four simulated servers, each with an engine, are measured in one run. At concurrency 16 one has too
few slots, one a GPU at its power limit, one both and a KV cache that fills up, and with one nothing
is wrong. The simulator's log knows how long each request waited, how often it lost its place, and
for how long the GPU was slowed down. `python -m benchmarks.server_view_truth` prints both sides in
Markdown; tests/server_view/test_of_a_run.py compares them.
"""

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct
from tests.waiting import WITHIN_S

from splitsecond import sync
from splitsecond.api.results import BenchRun
from splitsecond.benchmark.runs.settings import Server
from splitsecond.core.clock import NS_PER_MS
from splitsecond.simulator.process import RunningProvider, run_simulator

PROFILE = """
title = "{0}"
model = "{0}"

[engine]
slots = {1}
prefill_tokens_per_s = {2}
prefill_chunk_tokens = {3}
step_base_ms = 5
step_per_sequence_ms = 0.5
{4}

[engine.gpu]
idle_w = 70
full_w = 700
{5}
"""
SERVERS = {
    "ample": (32, 40_000, 4096, "", ""),
    "four-slots": (4, 40_000, 4096, "", ""),
    "300-watts": (32, 40_000, 4096, "", "limit_w = 300"),
    "small": (8, 8000, 512, "kv_cache_tokens = 1800", "limit_w = 500"),
}
"""The servers by name. `small` is the example of docs/server-view.md."""
LOADS = [1, 16]
CAUSES = {
    "queue": re.compile(r"requests (to \S+ )?wait\b"),
    "eviction": re.compile("preempt"),
    "throttling": re.compile("throttled"),
}
"""The words of each cause in a finding."""
SHARE = 0.5
"""Requests wait in truth if half of them wait for at least this share of their TTFT."""
THROTTLED = 0.05
"""Share of the time from which a GPU is throttled in truth."""

Record = Mapping[str, Any]
"""A record of the simulator's log."""


class Happened(Struct, frozen=True):
    """What happened to the requests of a row: their mean time in the queue, how often they lost
    their places, and the share of the time in which a power limit slowed the GPU down."""

    queue_ms: float
    preemptions: float
    throttled: float


class ComparedRow(Struct, frozen=True):
    """A server at one load. `causes` are those that held there, by the truth, and `stated` those
    that the run's findings state for this server, at any load."""

    server: str
    concurrency: int
    truth: Happened
    causes: set[str]
    report: Happened
    stated: set[str]


def profile(name: str) -> str:
    """Return the profile of one of `SERVERS`."""
    return PROFILE.format(name, *SERVERS[name])


@contextmanager
def servers(folder: Path) -> Iterator[list[RunningProvider]]:
    """Serve all of `SERVERS` while the context is open. `folder` gets their profiles."""
    for name in SERVERS:
        (folder / f"{name}.toml").write_text(profile(name))
    with run_simulator(*(str(folder / f"{name}.toml") for name in SERVERS)) as providers:
        yield providers


def measured(providers: Sequence[RunningProvider], out: Path) -> BenchRun:
    """Measure all servers at `LOADS`, in turns."""
    return sync.bench(
        *(Server(base_url=p.base_url, model=p.model, name=p.name) for p in providers),
        concurrency=LOADS,
        requests=24,
        rounds=2,
        input_tokens=200,
        output_tokens=64,
        usd_per_kwh=0.2,
        out=out,
        progress=False,
    )


def truth_of(provider: RunningProvider) -> dict[str, Record]:
    """Return the records of a server's log by request."""
    with urllib.request.urlopen(f"{provider.origin}/truth", timeout=WITHIN_S) as response:
        return {record["request_id"]: record for record in json.load(response)}


def compared(providers: Sequence[RunningProvider], run: BenchRun) -> list[ComparedRow]:
    """Return what happened at each server under each load, and what the run says about it."""
    found = []
    for provider in providers:
        log = truth_of(provider)
        stated = stated_causes(provider.name, run.findings.statements)
        for row in run.findings.conditions:
            view = row.server
            if row.target == provider.name and view is not None:
                own = [log[o.id] for o in run.observations if o.condition == row.condition]
                complete = [r for r in own if len(r["actual_ns"]) == r["output_tokens"]]
                truth = happened(own, complete)
                report = Happened(
                    view.queue_ms or 0.0, view.preemptions or 0.0, view.power_capped or 0.0
                )
                causes = true_causes(truth, complete)
                found.append(
                    ComparedRow(provider.name, row.concurrency or 0, truth, causes, report, stated)
                )
    return found


def happened(records: Sequence[Record], complete: Sequence[Record]) -> Happened:
    """Return what the log says about requests. `complete`: those with a whole response; only their
    times in the queue count, as in the server's metrics."""
    lived_ns = sum(record["ended_ns"] - record["arrived_ns"] for record in records)
    return Happened(
        queue_ms=sum(map(queue_ns, complete)) / len(complete) / NS_PER_MS,
        preemptions=sum(record["preemptions"] for record in records),
        throttled=sum(record["throttled_ns"] for record in records) / lived_ns,
    )


def queue_ns(record: Record) -> int:
    """Return how long a request waited before the server began with it."""
    waited: int = record["began_ns"] - record["arrived_ns"]
    return waited


def true_causes(truth: Happened, complete: Sequence[Record]) -> set[str]:
    """Return the causes that held for these requests."""
    waited = [
        queue_ns(record) >= SHARE * (record["actual_ns"][0] - record["arrived_ns"])
        for record in complete
    ]
    held = {
        "queue": sum(waited) >= len(waited) / 2,
        "eviction": truth.preemptions > 0,
        "throttling": truth.throttled >= THROTTLED,
    }
    return {cause for cause, holds in held.items() if holds}


def stated_causes(server: str, statements: Sequence[str]) -> set[str]:
    """Return the causes that findings state for a server."""
    own = [each for each in statements if re.search(rf"\b{server}\b", each)]
    return {cause for cause, words in CAUSES.items() if any(map(words.search, own))}


def main() -> None:
    with TemporaryDirectory(prefix="server-view-") as name, servers(Path(name)) as providers:
        run = measured(providers, Path(name) / "run")
        print("| server | load | in the queue, mean | preemptions | throttled | causes |")
        print("|---|---|---|---|---|---|")
        for row in compared(providers, run):
            sides = (row.report, row.truth)
            print(
                f"| {row.server} | c={row.concurrency}",
                " / ".join(f"{side.queue_ms:,.0f}" for side in sides) + " ms",
                " / ".join(f"{side.preemptions:,.0f}" for side in sides),
                " / ".join(f"{side.throttled:.0%}" for side in sides),
                f"{', '.join(sorted(row.causes)) or 'none'} |",
                sep=" | ",
            )
        print("\nstated:", *run.findings.statements, sep="\n- ")


if __name__ == "__main__":
    main()
