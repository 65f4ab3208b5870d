"""Whether the gateway holds: `python -m benchmarks.soak` (ten minutes, and one more for connections to run out).

Clients stream and some leave in the middle, providers fail in every way the simulator knows, every policy is on, and so
is the log. At the end the books of three sides are compared: what the clients asked, what stands in the log, what the
providers saw. It returns 1 where any of this does not hold:

  - each call has one record, each request that a provider saw is one attempt, and none stands there twice
  - no part of an answer looked like a whole one, no connection of a client was lost, nothing printed a traceback
  - nothing is under way, and every connection to a provider has ended once it was idle for long enough
  - memory does not grow in the last two thirds of the time, the first three minutes left aside
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

from benchmarks.soak_clients import Asked, Client
from splitsecond.simulator.process import Running, running
from splitsecond.transport.client import IDLE_S

CLIENTS = 32
MINUTES = 10.0
START_S = 20.0
SAMPLE_S = 1.0
SETTLE_S = 5.0
WARM_S = 180.0
"""Until then memory grows: deadlines stay on their lists until they have passed, after two minutes."""
MOST_GROWTH_MB = 2.0
"""In two thirds of the time: what an allocator and a database's cache may still take."""
SENT = "select id, outcome, resent from attempts where sent_ns is not null"
"""A request that was lost on a kept connection before a byte was answered is sent once more, as the same attempt."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints what was found; returns 1 where something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"of load (default {MINUTES:g})")
    parser.add_argument("--clients", type=int, default=CLIENTS, help=f"at a time (default {CLIENTS})")
    parser.add_argument("--seed", type=int, default=0, help="of the clients' choices")
    parser.add_argument("--routes", default=",".join(ROUTES), help="that are asked, to find the one which is at fault")
    given = parser.parse_args(arguments)
    routes = given.routes.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        truth = folder / "truth.jsonl"
        with running(*_profiles(folder), log=truth) as simulated, _gateway(folder, simulated) as (process, port):
            asked, memory_mb = asyncio.run(_load(port, process.pid, routes, given.minutes, given.clients, given.seed))
            wrong = [*asked.wrong, *_at_rest(process, port, simulated, memory_mb)]
            process.send_signal(signal.SIGTERM)
            if process.wait(START_S) != 0:
                wrong.append(f"the gateway ended with {process.returncode}")
        said = (folder / "gateway.err").read_text("utf-8", "replace")
        wrong += [f"the gateway printed: {said[-2000:]}"] if "Traceback" in said else []
        wrong += _books(folder / "log.db", truth, asked)
    print(f"{asked.calls} calls: {', '.join(f'{count} {how}' for how, count in asked.ended.most_common())}.")
    for words, count in Counter(wrong).items():
        print(f"WRONG ({count}): {words}")
    print("Something does not hold." if wrong else "All holds.")
    return 1 if wrong else 0


def _profiles(folder: Path) -> list[str]:
    """The files of the simulated providers."""
    for name, faults in FAULTS.items():
        lines = [PROFILE]
        for fault in faults:
            kind, *settings = fault.split()
            lines += ["[[faults]]", f'kind = "{kind}"', *(setting.replace("=", " = ") for setting in settings)]
        (folder / f"{name}.toml").write_text("\n".join(lines))
    return [str(folder / f"{name}.toml") for name in FAULTS]


@contextlib.contextmanager
def _gateway(folder: Path, simulated: Sequence[Running]) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
    """The gateway's process and its port, when it answers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    lines = ["keys: [{name: soak, key: env:SOAK_KEY}]", f"log: sqlite:///{folder}/log.db", "providers:"]
    for number, each in enumerate(simulated):
        price = f"{{input: {3 - number}, output: {3 - number}}}"
        lines.append(f"  {each.name}: {{base_url: '{each.base_url}', timeouts: {{stall: 2s}}, price: {price}}}")
    lines += ["routes:", *(f"  {name}: {{policy: '{policy}'}}" for name, policy in ROUTES.items())]
    (folder / "splitsecond.yaml").write_text("\n".join(lines))
    command = [sys.executable, "-m", "splitsecond.cli", "serve", str(folder / "splitsecond.yaml"), "--port", str(port)]
    with (
        open(folder / "gateway.err", "wb") as errors,
        subprocess.Popen(command, env=os.environ | {"SOAK_KEY": KEY}, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        try:
            if process.stdout is None or not process.stdout.readline().startswith(b"READY"):
                raise RuntimeError(f"the gateway does not answer: {(folder / 'gateway.err').read_text()}")
            yield process, port
        finally:
            if process.poll() is None:
                process.kill()


async def _load(
    port: int, pid: int, routes: list[str], minutes: float, clients: int, seed: int
) -> tuple[Asked, list[float]]:
    """The load; what became of it, and the gateway's memory at every `SAMPLE_S`."""
    asked = Asked()
    memory_mb: list[float] = []
    loop = asyncio.get_running_loop()
    until_s = loop.time() + minutes * 60
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            client = Client(port, KEY, routes, asked, Random(f"{seed} {number}"))
            group.create_task(client.run(until_s))
        while loop.time() < until_s:
            await asyncio.sleep(SAMPLE_S)
            memory_mb.append(_resident_mb(pid))
    return asked, memory_mb


def _at_rest(
    process: "subprocess.Popen[bytes]", port: int, simulated: Sequence[Running], memory_mb: list[float]
) -> Iterator[str]:
    """What does not hold once nobody asks any more."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(SETTLE_S)
    metrics = _get(f"http://127.0.0.1:{port}/metrics")
    if "requests_in_flight 0.0\n" not in metrics:
        yield "the gateway says that requests are under way"
    for each in simulated:
        if (in_flight := msgspec.json.decode(_get(f"{each.origin}/health"))["in_flight"]) != 0:
            yield f"under way at {each.name}: {in_flight}"
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
    """Whether memory grew, by a line through the samples of the last two thirds, or those after `WARM_S`."""
    late = memory_mb[max(len(memory_mb) // 3, round(WARM_S / SAMPLE_S)) :]
    growth_mb = 0.0
    if len(late) > 1:
        growth_mb = statistics.linear_regression(range(len(late)), late).slope * len(late)
    tenths = [memory_mb[len(memory_mb) * part // 10] for part in range(10)]
    print(
        f"Memory, MB: {' '.join(f'{mb:.1f}' for mb in [*tenths, memory_mb[-1]])}; in the last {len(late)} samples "
        f"{growth_mb:+.2f} by a line through them{'' if late else ' (too short a time to judge)'}."
    )
    if growth_mb > MOST_GROWTH_MB:
        yield f"memory grew by {growth_mb:.1f} MB"


def _books(log: Path, truth: Path, asked: Asked) -> Iterator[str]:
    """What does not fit between the clients, the log and the providers."""
    with contextlib.closing(sqlite3.connect(log)) as database:
        calls = [call for (call,) in database.execute("select call from calls")]
        sent = {identity: (outcome, resent) for identity, outcome, resent in database.execute(SENT)}
        rows, of_calls = database.execute("select count(*), (select sum(attempts) from calls) from attempts").fetchone()
        apart = database.execute("select count(distinct id) from attempts").fetchone()[0]
    seen = Counter(msgspec.json.decode(line)["request_id"] for line in truth.read_bytes().splitlines())
    times = {identity: 1 + resent for identity, (_, resent) in sent.items()}
    unseen = Counter(outcome for identity, (outcome, _) in sent.items() if identity not in seen)
    print(
        f"Calls: {asked.calls} asked, {len(calls)} in the log, {asked.left_unanswered} of them left before an answer. "
        f"Attempts: {rows} in the log, {len(sent)} of them sent, {sum(times.values()) - len(sent)} once more; "
        f"providers saw {seen.total()}. Sent and not seen: {dict(unseen)}."
    )
    if len(set(calls)) != len(calls):
        yield "calls stand in the log twice"
    if len(calls) != asked.calls:
        yield f"{asked.calls} calls were asked, {len(calls)} stand in the log"
    if missing := set(asked.ids) - set(calls):
        yield f"{len(missing)} calls that were answered are not in the log"
    if apart != rows or of_calls != rows:
        yield f"{rows} attempts in the log, {apart} different ones, {of_calls} by their calls"
    if strange := [identity for identity, count in seen.items() if count > times.get(identity, 0)]:
        yield f"of {len(strange)} attempts the providers saw more requests than the log has"
    if set(unseen) - {"cancelled"}:
        yield f"attempts that were not cancelled and no provider saw: {dict(unseen)}"


def _connections(pid: int, ports: set[int]) -> int:
    """How many sockets of a process lead to one of these ports, in whatever state."""
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held.add(os.readlink(entry))
    lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(int(line[2].partition(":")[2], 16) in ports and f"socket:[{line[9]}]" in held for line in lines)


def _resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=START_S) as answer:
        return str(answer.read().decode())


if __name__ == "__main__":
    sys.exit(main())
