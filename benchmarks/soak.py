"""Soak test of the gateway: `python -m benchmarks.soak` (ten minutes, and one more for idle connections to close).

Clients stream, and some disconnect in the middle. Providers fail in every way that the simulator supports. Every policy
and the log are in use. At the end, the records of three sides are compared: the clients' requests, the log, and the
providers' requests. A hostile client and a hostile provider (`soak_hostile`) are active in every second quarter of a
minute. The exit code is 1 unless all of this is true:

  - each call has one record, each request that a provider received is one attempt, and none is recorded twice
  - no truncated response looked complete, no client lost its connection, and nothing printed a traceback
  - at the end nothing is in flight, and every connection to a provider closes after its idle time
  - honest probes wait at most twice as long at p99 while the hostile clients are active
  - memory does not grow in the last two thirds of the time, not counting the first three minutes
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec

from benchmarks.soak_clients import Client, ClientTotals
from benchmarks.soak_hostile import KEY as HOSTILE_KEY
from benchmarks.soak_hostile import Hostile, Probes, hostile, probe
from splitsecond.simulator.process import RunningProvider, run_simulator
from splitsecond.transport.client import IDLE_S

CLIENTS = 32
PROBES = 4
MINUTES = 10.0
START_S = 20.0
SAMPLE_S = 1.0
SETTLE_S = 5.0
WARM_S = 180.0
"""Memory grows until then: deadlines stay on their lists until they expire after two minutes."""
MOST_GROWTH_MB = 2.0
"""Allowed in two thirds of the time, for the allocator and a database's cache."""
HONEST = "client != 'hostile'"
SENT = f"select id, outcome, resent from attempts where sent_ns is not null and {HONEST}"
"""A request that is lost on an idle connection before any response is resent, as the same attempt."""
KEY = "a-key-for-the-soak-test"
PROFILE = """
title = "Soaked"
model = "m"
source = "a benchmark"
measured = "2026-11"
output_tokens = 60
[[table]]
concurrency = 1
ttft_ms = { p50 = 60, p95 = 150 }
tps = { p50 = 200, p95 = 150 }
"""
FAULTS = {
    "steady": [],
    "moody": ["http status=503 every=13", "http status=429 retry_after=1 every=37", "cut after=3 every=41"],
    "flaky": [
        "http status=500 every=23", "cut after=4 every=29", "error_event after=2 every=31",
        "stall after=3 seconds=3 every=37", "slow_first_token seconds=2 every=41", "malformed after=4 every=43",
        "no_done every=47", "buffered every=53", "reset every=59", "slow_head seconds=2 every=61",
        "wrong_usage every=67",
    ],
}  # fmt: skip
ROUTES = {
    "raced": 'race("steady/m", "flaky/m")',
    "hedged": 'hedge("flaky/m", "steady/m", extra_load=0.1)',
    "safe": 'fallback("flaky/m", "moody/m", "steady/m", ttft="1500ms")',
    "fastest": 'fallback(fastest("steady/m", "moody/m", "flaky/m"), "steady/m")',
    "cheapest": 'fallback(cheapest("flaky/m", "moody/m"), "steady/m")',
    "weighted": 'weighted("steady/m", "moody/m", weights="3,1")',
    "sticky": 'fallback(sticky("flaky/m", "steady/m"), "moody/m")',
    "cached": 'cache(fallback("moody/m", "steady/m"), ttl="5s", size="2MB", sampled=True)',
    "tried": 'retry("moody/m", times=2)',
    "limited": 'deadline(limit("steady/m", concurrency=4, queue=4), ttft="2s", total="20s")',
    "resumed": 'fallback("flaky/m", "steady/m", resume="replay")',
    "held": 'cascade("moody/m", "steady/m", hold="3s")',
    "piped": 'pipeline("flaky/m", "steady/m", early="500ms")',
    "sorted": 'by_complexity(simple="flaky/m", complex="steady/m")',
}
PROBED = "probed"
"""The route of the probes; no other client uses it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the findings; return 1 if a check fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"minutes of load (default {MINUTES:g})")
    parser.add_argument("--clients", type=int, default=CLIENTS, help=f"clients at a time (default {CLIENTS})")
    parser.add_argument("--seed", type=int, default=0, help="seed of the clients' choices")
    parser.add_argument("--routes", default=",".join(ROUTES), help="routes to use, to isolate a fault")
    options = parser.parse_args(arguments)
    routes = options.routes.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = folder / "truth.jsonl"
        with (
            hostile() as enemy,
            run_simulator(*_profiles(folder), log=truth) as simulated,
            _gateway(folder, simulated, enemy.port) as (process, port),
        ):
            clients, probes = options.clients, Probes()
            load = _load(port, process.pid, routes, options.minutes, clients, options.seed, enemy, probes)
            totals, memory_mb = asyncio.run(load)
            wrong = [*totals.wrong, *_at_rest(process, port, simulated, memory_mb)]
            print(f"Hostile acts: {enemy.acts()}.")
            wrong += filter(None, [probes.judged()])
            process.send_signal(signal.SIGTERM)
            if process.wait(START_S) != 0:
                wrong.append(f"the gateway exited with {process.returncode}")
        errors = (folder / "gateway.err").read_text("utf-8", "replace")
        wrong += [f"the gateway printed: {errors[-2000:]}"] if "Traceback" in errors else []
        wrong += _inconsistencies(folder / "log.db", truth, totals)
    print(f"{totals.calls:,} calls: {', '.join(f'{count} {how}' for how, count in totals.ended.most_common())}.")
    for words, count in Counter(wrong).items():
        print(f"WRONG ({count}): {words}")
    print("Some checks failed." if wrong else "All checks passed.")
    return 1 if wrong else 0


def _profiles(folder: Path) -> list[str]:
    """Write the profiles of the simulated providers; return their files."""
    for name, faults in FAULTS.items():
        lines = [PROFILE]
        for fault in faults:
            kind, *settings = fault.split()
            lines += ["[[faults]]", f'kind = "{kind}"', *(setting.replace("=", " = ") for setting in settings)]
        (folder / f"{name}.toml").write_text("\n".join(lines))
    return [str(folder / f"{name}.toml") for name in FAULTS]


@contextlib.contextmanager
def _gateway(
    folder: Path, simulated: Sequence[RunningProvider], hostile_port: int
) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
    """Start the gateway; yield its process and port when it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    keys = "keys: [{name: soak, key: env:SOAK_KEY}, {name: hostile, key: env:HOSTILE_KEY, usd_per_day: 1000000}]"
    lines = [keys, f"log: sqlite:///{folder}/log.db", "providers:"]
    for number, each in enumerate(simulated):
        price = f"{{input_usd: {3 - number}, output_usd: {3 - number}}}"
        lines.append(f"  {each.name}: {{base_url: '{each.base_url}', timeouts: {{stall: 2s}}, price: {price}}}")
    enemy = "{stall: 2s}, price: {input_usd: 1, output_usd: 1}"
    lines += [f"  hostile: {{base_url: 'http://127.0.0.1:{hostile_port}/v1', timeouts: {enemy}}}"]
    lines += [
        "routes:",
        f"  {PROBED}: {{policy: '\"steady/m\"'}}",
        *(f"  {name}: {{policy: '{policy}'}}" for name, policy in ROUTES.items()),
    ]
    (folder / "splitsecond.yaml").write_text("\n".join(lines))
    command = [sys.executable, "-m", "splitsecond.cli", "serve", str(folder / "splitsecond.yaml"), "--port", str(port)]
    environment = os.environ | {"SOAK_KEY": KEY, "HOSTILE_KEY": HOSTILE_KEY}
    with (
        open(folder / "gateway.err", "wb") as errors,
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            if process.stdout is None or not process.stdout.readline().startswith(b"READY"):
                raise RuntimeError(f"the gateway does not respond: {(folder / 'gateway.err').read_text()}")
            yield process, port
        finally:
            if process.poll() is None:
                process.kill()


async def _load(
    port: int,
    pid: int,
    routes: list[str],
    minutes: float,
    clients: int,
    seed: int,
    enemy: Hostile,
    probes: Probes,
) -> tuple[ClientTotals, list[float]]:
    """Run the load; return its totals, and the gateway's memory at every `SAMPLE_S`."""
    totals = ClientTotals()
    memory_mb: list[float] = []
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    until_s = began_s + minutes * 60
    enemy.begin(port, began_s, until_s)
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            client = Client(port, KEY, routes, totals, Random(f"{seed} {number}"))
            group.create_task(client.run(until_s))
        for _ in range(PROBES):
            group.create_task(probe(port, KEY, PROBED, probes, totals, began_s, until_s))
        while loop.time() < until_s:
            await asyncio.sleep(SAMPLE_S)
            memory_mb.append(_resident_mb(pid))
    return totals, memory_mb


def _at_rest(
    process: "subprocess.Popen[bytes]", port: int, simulated: Sequence[RunningProvider], memory_mb: list[float]
) -> Iterator[str]:
    """Return the failed checks after the load has ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(SETTLE_S)
    metrics = _get(f"http://127.0.0.1:{port}/metrics")
    if "requests_in_flight 0.0\n" not in metrics:
        yield "the gateway reports requests in flight"
    for each in simulated:
        if (in_flight := msgspec.json.decode(_get(f"{each.origin}/health"))["in_flight"]) != 0:
            yield f"requests in flight at {each.name}: {in_flight}"
    ports = {int(each.origin.rpartition(":")[2]) for each in simulated}
    idle = _connections(process.pid, ports)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(IDLE_S + SETTLE_S)
    left = _connections(process.pid, ports)
    print(f"Connections to providers: {idle} idle when the load ended, {left} after {IDLE_S + SETTLE_S:g} s.")
    if left:
        yield f"{left} connections to providers are still open"
    yield from _growth(memory_mb)


def _growth(memory_mb: list[float]) -> Iterator[str]:
    """Check whether memory grew, by a regression line through the last two thirds or the samples after `WARM_S`."""
    late = memory_mb[max(len(memory_mb) // 3, round(WARM_S / SAMPLE_S)) :]
    growth_mb = 0.0
    if len(late) > 1:
        growth_mb = statistics.linear_regression(range(len(late)), late).slope * len(late)
    tenths = [memory_mb[len(memory_mb) * part // 10] for part in range(10)]
    print(
        f"Memory, MB: {' '.join(f'{mb:.1f}' for mb in [*tenths, memory_mb[-1]])}; growth of "
        f"{growth_mb:+.2f} by a regression line through the last {len(late)} samples"
        f"{'' if late else ' (too short to judge)'}."
    )
    if growth_mb > MOST_GROWTH_MB:
        yield f"memory grew by {growth_mb:.1f} MB"


def _inconsistencies(log: Path, truth: Path, totals: ClientTotals) -> Iterator[str]:
    """Return the differences between the records of the clients, the log and the providers."""
    with contextlib.closing(sqlite3.connect(log)) as database:
        calls = [call for (call,) in database.execute(f"select call from calls where {HONEST}")]
        sent = {identity: (outcome, resent) for identity, outcome, resent in database.execute(SENT)}
        rows, apart = database.execute(f"select count(*), count(distinct id) from attempts where {HONEST}").fetchone()
        (of_calls,) = database.execute(f"select sum(attempts) from calls where {HONEST}").fetchone()
    seen = Counter(msgspec.json.decode(line)["request_id"] for line in truth.read_bytes().splitlines())
    times = {identity: 1 + resent for identity, (_, resent) in sent.items()}
    unseen = Counter(outcome for identity, (outcome, _) in sent.items() if identity not in seen)
    print(
        f"Calls: {totals.calls:,} sent, {len(calls):,} in the log; in {totals.left_early:,} the client left before the "
        f"response. Attempts: {rows:,} in the log, {len(sent):,} of them sent, "
        f"{sum(times.values()) - len(sent):,} resent; providers received {seen.total():,}. "
        f"Sent but not received: {dict(unseen)}."
    )
    if len(set(calls)) != len(calls):
        yield "calls are in the log twice"
    if len(calls) != totals.calls:
        yield f"{totals.calls} calls were sent, {len(calls)} are in the log"
    if missing := set(totals.ids) - set(calls):
        yield f"{len(missing)} calls with a response are not in the log"
    if apart != rows or of_calls != rows:
        yield f"{rows} attempts in the log, {apart} different ones, {of_calls} according to their calls"
    if strange := [identity for identity, count in seen.items() if count > times.get(identity, 0)]:
        yield f"for {len(strange)} attempts the providers received more requests than the log has"
    if set(unseen) - {"cancelled"}:
        yield f"attempts that were not cancelled, but no provider received: {dict(unseen)}"


def _connections(pid: int, ports: set[int]) -> int:
    """Return how many sockets of a process are connected to one of these ports, in any state."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(entry))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(int(line[2].partition(":")[2], 16) in ports and f"socket:[{line[9]}]" in sockets for line in lines)


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=START_S) as response:
        return str(response.read().decode())


if __name__ == "__main__":
    sys.exit(main())
