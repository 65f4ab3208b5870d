"""One engine, loaded by one process and from three nodes of a Ray cluster: the figures must agree
within the intervals.

`python -m benchmarks.ray_bench` starts a simulated engine and a cluster of three nodes on this
machine, measures the same loads both ways, and prints the changes. The exit code is 1 if one of
them is real. It also prints what the observations of such a run cost the machine that leads it: the
figures of docs/many-machines.md. Needs the extra `splitsecond[ray]`, and about three minutes on two
idle cores.
"""

import asyncio
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from splitsecond.api.benchmarks import bench
from splitsecond.api.results import compare
from splitsecond.benchmark.load.messages import ObservationReport
from splitsecond.benchmark.load.nodes import on_our_clock
from splitsecond.benchmark.runs.ray_nodes import FASTEST
from splitsecond.benchmark.runs.settings import Server
from splitsecond.core.observation import Observation
from splitsecond.core.wording import level, number
from splitsecond.log.store.folder import read_observations
from splitsecond.simulator.process import run_simulator

ENGINE = "runpod-h100-mistral-7b"
CONCURRENCY, RATE = 12, 8.0
REQUESTS, TOKENS = 150, 64
BATCH = 64
"""Observations in one answer of a relay, as with some hundred streams a node."""
SHOWN = ("p50", "p95", "")
LONG = 512
"""Tokens of a response for which the cost of an observation is given."""

CLUSTER = """
import sys
from ray.cluster_utils import Cluster

small = {"num_cpus": 1, "object_store_memory": 80 << 20}
unused = {"include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
head = small | unused | {"ray_client_server_port": int(sys.argv[1])}
cluster = Cluster(initialize_head=True, head_node_args=head)
try:
    cluster.add_node(**small)
    cluster.add_node(**small)
    print("ready", flush=True)
    sys.stdin.read()
finally:
    cluster.shutdown()
"""


@contextmanager
def ray_cluster() -> Iterator[str]:
    """Start a cluster of three nodes on this machine, and yield its address. It ends with its
    standard input."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # the nodes import the same splitsecond
    paths = os.pathsep.join(filter(None, (os.getcwd(), *sys.path)))
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": paths}
    command = [sys.executable, "-c", CLUSTER, str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"ready\n":
                raise RuntimeError("the Ray cluster did not start")
            yield f"ray://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            process.wait(60)


def agree(folder: Path) -> bool:
    """Measure both ways, print the changes, and return whether none of them is real."""
    folders = folder / "one", folder / "three"
    with run_simulator(ENGINE) as (engine,), ray_cluster() as on:
        server = Server(base_url=engine.base_url, model=engine.model, name="engine")
        for out, where in zip(folders, ("", on), strict=True):
            running = bench(
                server,
                concurrency=CONCURRENCY,
                rate=RATE,
                requests=REQUESTS,
                output_tokens=TOKENS,
                progress=False,
                out=out,
                on=where,
            )
            for row in asyncio.run(running).findings.conditions:
                if row.invalid:
                    print(f"{row.condition}: {' '.join(row.invalid)}")
                for part in row.nodes:
                    lag = number(part.instrument.lag_p99_ms)
                    print(
                        f"{row.condition}, node {part.node}: {part.requests} requests, read lag "
                        f"p99 {lag} ms, ",
                        end="",
                    )
                    print(f"clock ±{number(part.clock_error_ms)} ms")
    print(
        "\n| load | figure | one process | three nodes | change | 95% interval "
        "|\n|---|---|---|---|---|---|"
    )
    real = 0
    for condition in compare(*folders).conditions:
        for each in (*condition.figures, *condition.totals):
            if each.change is None or each.before is None or each.after is None:
                continue
            real += each.real
            if each.percentile not in SHOWN:
                continue
            interval = f"{each.ci95[0]:+.1%} to {each.ci95[1]:+.1%}" if each.ci95 else "–"
            name = f"{each.figure} {each.percentile}".strip()
            before, after = number(each.before), number(each.after)
            print(
                f"| {level(condition)} | {name} | {before} | {after} | {each.change:+.1%} | "
                f"{interval} |"
            )
    print(f"\n{real} of these changes are real.")
    return not real


def cost(observations: list[Observation]) -> None:
    """Print what an observation of `LONG` tokens costs on the way to the machine that leads the
    run, and there."""
    long = [_lengthened(o, LONG) for o in observations if len(o.token_at) > 1] * 4
    encoder, decoder = msgspec.json.Encoder(), msgspec.json.Decoder(ObservationReport)
    began_ns = time.process_time_ns()
    lines = [encoder.encode(ObservationReport(o)) for o in long]
    packed = [
        zlib.compress(b"\n".join(lines[i : i + BATCH]), FASTEST)
        for i in range(0, len(lines), BATCH)
    ]
    sending_us = (time.process_time_ns() - began_ns) / 1000 / len(lines)
    before_kb, kept, stored = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        list[Observation](),
        0,
    )
    times_ns = [0, 0]
    for batch in packed:
        began_ns = time.process_time_ns()
        unpacked = zlib.decompress(batch).split(b"\n")
        times_ns[0] += time.process_time_ns() - began_ns
        for line in unpacked:
            each = on_our_clock(decoder.decode(line).observation, "n", 1)
            stored += len(encoder.encode(each))
            kept.append(each.compact())
        times_ns[1] += time.process_time_ns() - began_ns
    unpacking_us, took_us = (spent / 1000 / len(lines) for spent in times_ns)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb
    print(
        f"\nAn observation of {LONG} tokens: {sum(map(len, lines)) / len(lines):,.0f} bytes from "
        f"the worker, "
        f"{sum(map(len, packed)) / len(lines):,.0f} on the network, "
        f"{stored / len(lines):,.0f} on disk, "
        f"{1024 * grown_kb / len(lines):,.0f} in memory. Processor time: {sending_us:,.0f} µs on "
        f"the node, "
        f"{took_us:,.0f} µs on the machine that leads the run, {unpacking_us:,.0f} of them in "
        f"threads to unpack it."
    )


def _lengthened(o: Observation, tokens: int) -> Observation:
    """Return `o` with so many tokens, whose gaps are its own, again and again."""
    gaps, at = o.gaps_ns, [o.token_at[0]]
    for number_ in range(tokens - 1):
        at.append(at[-1] + gaps[number_ % len(gaps)])
    return msgspec.structs.replace(
        o, token_at=at, token_lengths=[4] * tokens, last_token_ns=at[-1], end_ns=at[-1]
    )


def main() -> None:
    """Measure and print. Exit with 1 if a change is real."""
    with tempfile.TemporaryDirectory() as folder:
        agreed = agree(Path(folder))
        cost(read_observations(Path(folder) / "three"))
    sys.exit(not agreed)


if __name__ == "__main__":
    main()
