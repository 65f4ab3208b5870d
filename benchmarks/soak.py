"""Soak test of the gateway: `python -m benchmarks.soak` (ten minutes, and one more for idle
connections to close).

Clients stream, and some disconnect in the middle. Providers fail in every way that the simulator
supports. Every policy and the log are in use, with two workers. At the end, the records of three
sides are compared: the clients' requests, the log, and the providers' requests. A hostile client
and a hostile provider (`soak_hostile`) are active in every second quarter of a minute. Another
provider reports absurd token counts, and a client tries to spend more than its limit
(`soak_money`). The configuration is edited every second, the disk of the log and of temporary files
is full for a quarter of each minute, and the wall clock steps over midnight and back
(`soak_world`). The exit code is 1 unless all of this is true:

  - each call has one record or is counted as lost, each request that a provider received is one
    attempt, and none is recorded twice
  - no truncated response looked complete, no client lost its connection, no worker died, and there
    was no traceback
  - each valid edit of the configuration is applied
  - what was charged is what the log has, absurd counts are charged by the estimate, and limits hold
  - at the end nothing is in flight, and every connection to a provider closes after its idle time
  - honest probes wait at most twice as long at p99 while the hostile clients are active
  - memory does not grow in the last two thirds of the time, not counting the first three minutes,
    and is bounded
"""

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import msgspec

from benchmarks.soak_accounts import (
    account_faults,
    connections,
    family,
    gateway_counts,
    growth_mb,
    is_worker,
    received_by,
    resident_mb,
)
from benchmarks.soak_clients import Client, ClientTotals
from benchmarks.soak_hostile import KEY as HOSTILE_KEY
from benchmarks.soak_hostile import Hostile, Probes, hostile, is_hostile, probe
from benchmarks.soak_money import (
    DAILY_USD,
    SPENDER_KEY,
    USD_PER_M,
    CountingProvider,
    MoneyClients,
    money_faults,
)
from benchmarks.soak_money import KEY as METERED_KEY
from benchmarks.soak_world import EditedFile, WallClock, fill_and_free, small_disk
from splitsecond.core.transport.client import IDLE_S
from splitsecond.simulator.process import RunningProvider, run_simulator

CLIENTS = 32
PROBES = 4
METERED = 4
WORKERS = 2
MINUTES = 10.0
START_S = 20.0
SAMPLE_S = 1.0
SETTLE_S = 5.0
WARM_S = 180.0
"""Memory grows until then: deadlines stay on their lists until they expire after two minutes."""
MAX_GROWTH_MB = 2.0
"""Allowed in two thirds of the time, for the allocator and a database's cache."""
MAX_MEMORY_MB = 1200.0
"""Of all processes: the 16 unfinished bodies of 31 MiB that the hostile clients send at a time, and
as much again."""
KEY = "a-key-for-the-soak-test"
ENVIRONMENT = {
    "SOAK_KEY": KEY,
    "HOSTILE_KEY": HOSTILE_KEY,
    "METERED_KEY": METERED_KEY,
    "SPENDER_KEY": SPENDER_KEY,
}
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
    "moody": ["http status=503 every=13", "http status=429 retry_after=1 "
    "every=37", "cut after=3 every=41"],
    "flaky": [
        "http status=500 every=23", "cut after=4 every=29", "error_event after=2 every=31",
        "stall after=3 seconds=3 every=37", "slow_first_token seconds=2 "
        "every=41", "malformed after=4 every=43",
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help=f"minutes of load (default {MINUTES:g})"
    )
    parser.add_argument(
        "--clients", type=int, default=CLIENTS, help=f"clients at a time (default {CLIENTS})"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the clients' choices")
    parser.add_argument(
        "--routes", default=",".join(ROUTES), help="routes to use, to isolate a fault"
    )
    options = parser.parse_args(arguments)
    routes = options.routes.split(",")
    with tempfile.TemporaryDirectory() as name, small_disk(Path(name) / "disk") as disk:
        folder = Path(name)
        truth, totals, chance = folder / "truth.jsonl", ClientTotals(), Random(options.seed)
        wall, counting = WallClock(folder / "wall"), CountingProvider()
        if disk is None:
            print("This user may not mount a disk, so none is full.")
        with (
            socket.create_server(("127.0.0.1", 0)) as counter,
            hostile() as enemy,
            run_simulator(*_profiles(folder), log=truth) as simulated,
            _gateway(folder, simulated, enemy.port, counter.getsockname()[1], wall, disk) as (
                process,
                port,
            ),
        ):
            workers = {each for each in family(process.pid) if is_worker(each)}
            load = Load(process.pid, port, options.minutes * 60, totals, enemy)
            edited = EditedFile(folder / "splitsecond.yaml", ENVIRONMENT, chance)
            asyncio.run(
                load.run(options.clients, routes, chance, edited, wall, disk, counting, counter)
            )
            wrong = [*totals.wrong, *edited.wrong, *_at_rest(process, port, simulated, load)]
            print(f"Hostile acts: {enemy.acts()}.")
            wrong += filter(None, [load.probes.judged()])
            counts = gateway_counts(_get(f"http://127.0.0.1:{port}/metrics"))
            if workers != {each for each in family(process.pid) if is_worker(each)}:
                wrong.append("a worker died")
            process.send_signal(signal.SIGTERM)
            if process.wait(START_S) != 0:
                wrong.append(f"the gateway exited with {process.returncode}")
        errors = (folder / "gateway.err").read_text("utf-8", "replace")
        print(f"The last lines of the gateway: {errors[-600:]}")
        wrong += [f"the gateway printed: {errors[-2000:]}"] if "Traceback" in errors else []
        wrong += [f"{counts.errors} internal errors"] if counts.errors else []
        with contextlib.closing(sqlite3.connect(_log(folder, disk))) as database:
            wrong += account_faults(
                database, [*received_by(truth), *counting.received], totals, counts
            )
            wrong += money_faults(database, counts.charged, counts.dropped, WORKERS)
    print(
        f"{totals.calls:,} calls: "
        f"{', '.join(f'{count} {how}' for how, count in totals.ended.most_common())}."
    )
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
            lines += [
                "[[faults]]",
                f'kind = "{kind}"',
                *(setting.replace("=", " = ") for setting in settings),
            ]
        (folder / f"{name}.toml").write_text("\n".join(lines))
    return [str(folder / f"{name}.toml") for name in FAULTS]


@contextlib.contextmanager
def _gateway(
    folder: Path,
    simulated: Sequence[RunningProvider],
    hostile_port: int,
    counting_port: int,
    wall: WallClock,
    disk: Path | None,
) -> "Iterator[tuple[subprocess.Popen[bytes], int]]":
    """Start the gateway; yield its process and port when it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
    keys = [
        "{name: soak, key: env:SOAK_KEY}",
        "{name: hostile, key: env:HOSTILE_KEY, usd_per_day: 1000000}",
        "{name: metered, key: env:METERED_KEY, usd_per_day: 1000}",
        f"{{name: spender, key: env:SPENDER_KEY, usd_per_day: {DAILY_USD}}}",
    ]
    lines = [f"keys: [{', '.join(keys)}]", f"log: sqlite:///{_log(folder, disk)}", "providers:"]
    for number, each in enumerate(simulated):
        price = f"{{input_usd: {3 - number}, output_usd: {3 - number}}}"
        lines.append(
            f"  {each.name}: {{base_url: '{each.base_url}', timeouts: {{stall: 2s}}, price: "
            f"{price}}}"
        )
    enemy = "{stall: 2s}, price: {input_usd: 1, output_usd: 1}"
    lines += [f"  hostile: {{base_url: 'http://127.0.0.1:{hostile_port}/v1', timeouts: {enemy}}}"]
    price = f"{{input_usd: {USD_PER_M}, output_usd: {USD_PER_M}}}"
    lines += [f"  counting: {{base_url: 'http://127.0.0.1:{counting_port}/v1', price: {price}}}"]
    lines += [
        "routes:",
        f"  {PROBED}: {{policy: '\"steady/m\"'}}",
        *(f"  {name}: {{policy: '{policy}'}}" for name, policy in ROUTES.items()),
    ]
    (folder / "splitsecond.yaml").write_text("\n".join(lines))
    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "serve",
        str(folder / "splitsecond.yaml"),
        "--port",
        str(port),
    ]
    command += ["--workers", str(WORKERS)]
    environment = (
        os.environ | ENVIRONMENT | wall.environment | ({"TMPDIR": str(disk)} if disk else {})
    )
    with (
        open(folder / "gateway.err", "wb") as errors,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        try:
            if process.stdout is None or not process.stdout.readline().startswith(b"READY"):
                raise RuntimeError(
                    f"the gateway does not respond: {(folder / 'gateway.err').read_text()}"
                )
            yield process, port
        finally:
            if process.poll() is None:
                process.kill()


class Load:
    """The load on the gateway of process `pid`, for `seconds`. `memory_mb`: of all its processes,
    each `SAMPLE_S`, and whether the hostile clients were active."""

    def __init__(
        self, pid: int, port: int, seconds: float, totals: ClientTotals, enemy: Hostile
    ) -> None:
        self.probes = Probes()
        self.memory_mb: list[tuple[float, bool]] = []
        self._pid = pid
        self._port = port
        self._seconds = seconds
        self._totals = totals
        self._enemy = enemy

    async def run(
        self,
        clients: int,
        routes: list[str],
        chance: Random,
        edited: EditedFile,
        wall: WallClock,
        disk: Path | None,
        counting: CountingProvider,
        counter: socket.socket,
    ) -> None:
        """Run all clients and all changes around the gateway."""
        loop = asyncio.get_running_loop()
        began_s, port, totals = loop.time(), self._port, self._totals
        until_s = began_s + self._seconds
        self._enemy.begin(port, began_s, until_s)
        money = MoneyClients(port, totals, chance)
        async with counting.serving(counter), asyncio.TaskGroup() as group:
            for _ in range(clients):
                client = Client(port, KEY, routes, totals, Random(chance.random()))
                group.create_task(client.run(until_s))
            for _ in range(PROBES):
                group.create_task(probe(port, KEY, PROBED, self.probes, totals, began_s, until_s))
            for _ in range(METERED):
                group.create_task(money.metered(until_s))
            group.create_task(money.overspend(until_s))
            group.create_task(edited.run(port, KEY, until_s))
            group.create_task(wall.run(until_s))
            full = group.create_task(fill_and_free(disk, began_s, until_s)) if disk else None
            while loop.time() < until_s:
                await asyncio.sleep(SAMPLE_S)
                mb = sum(map(resident_mb, family(self._pid)))
                self.memory_mb.append((mb, is_hostile(loop.time(), began_s)))
        spent = ", ".join(
            f"{count} times {status}" for status, count in money.spender.most_common()
        )
        print(
            f"The configuration: {edited.edits} invalid edits, {edited.applied} valid ones. The "
            f"wall clock: "
            f"{wall.steps} steps. The disk was full {full.result() if full else 0} times. The "
            f"spender: "
            f"{spent}."
        )


def _at_rest(
    process: "subprocess.Popen[bytes]", port: int, simulated: Sequence[RunningProvider], load: Load
) -> Iterator[str]:
    """Return the failed checks after the load has ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(SETTLE_S)
    if gateway_counts(_get(f"http://127.0.0.1:{port}/metrics")).in_flight:
        yield "the gateway reports requests in flight"
    for each in simulated:
        if (in_flight := msgspec.json.decode(_get(f"{each.origin}/health"))["in_flight"]) != 0:
            yield f"requests in flight at {each.name}: {in_flight}"
    ports = {int(each.origin.rpartition(":")[2]) for each in simulated}
    idle = sum(connections(pid, ports) for pid in family(process.pid))
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(IDLE_S + SETTLE_S)
    left = sum(connections(pid, ports) for pid in family(process.pid))
    print(
        f"Connections to providers: {idle} idle when the load ended, {left} after "
        f"{IDLE_S + SETTLE_S:g} s."
    )
    print(
        f"Memory at rest, MB: "
        f"{', '.join(f'{resident_mb(pid):.1f}' for pid in family(process.pid))}."
    )
    if left:
        yield f"{left} connections to providers are still open"
    yield from _memory_faults(load.memory_mb)


def _memory_faults(samples: list[tuple[float, bool]]) -> Iterator[str]:
    """Check whether memory grew in the calm windows of the last two thirds, or after `WARM_S`, and
    its peak."""
    late = [
        mb
        for mb, active in samples[max(len(samples) // 3, round(WARM_S / SAMPLE_S)) :]
        if not active
    ]
    growth, peak = growth_mb(late), max(mb for mb, _ in samples)
    tenths = [samples[len(samples) * part // 10][0] for part in range(10)]
    print(
        f"Memory of all processes, MB: "
        f"{' '.join(f'{mb:.1f}' for mb in [*tenths, samples[-1][0]])}; growth of "
        f"{growth:+.2f} by a regression line through the last {len(late)} samples of calm windows"
        f"{'' if late else ' (too short to judge)'}; at most {peak:.0f}."
    )
    if growth > MAX_GROWTH_MB:
        yield f"memory grew by {growth:.1f} MB"
    if peak > MAX_MEMORY_MB:
        yield f"memory reached {peak:.0f} MB"


def _log(folder: Path, disk: Path | None) -> Path:
    return (disk or folder) / "log.db"


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=START_S) as response:
        return str(response.read().decode())


if __name__ == "__main__":
    sys.exit(main())
