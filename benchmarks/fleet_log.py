"""The log of 20 gateways in one PostgreSQL server: `python -m benchmarks.fleet --show log` (three
minutes).

Each gateway is its hub and the worker's side of it (`RemoteLogWriter`); the calls are made here, so
no CPU time goes into clients and requests. First each gateway logs 500 calls/s for a minute. Then
each logs as fast as the others leave it, which shows the limit of the machine. The server syncs its
files, as a real one does. In the end each call must be in the log, and none may have been dropped.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import msgspec
from tests.processes import Process
from tests.store.server import Server

from benchmarks.fleet_cpu import own_s, seconds, tree_s
from benchmarks.log import a_call
from splitsecond.core import clock
from splitsecond.core.loading import module_command
from splitsecond.gateway.hub.settings import MODULE, HubSettings
from splitsecond.log.store.hub_connection import HubConnection
from splitsecond.log.store.log import Log
from splitsecond.log.store.settings import LogSettings

GATEWAYS, RATE = 20, 500
STEADY_S, FULL_S = 60.0, 20.0
TICK_S = 0.05
MAX_WAITING = 1000
"""Calls of each gateway that wait for its hub while the limit is measured."""
START_S, END_S = 120.0, 30.0


async def log(folder: Path, server: Server) -> list[str]:
    """Measure both loads. Return what was wrong."""
    url, numbers = server.database(), count()
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(hub(url, folder / f"log{each}")) for each in range(GATEWAYS)
        ]
        pids = [process.pid for process in processes]
        logs = [
            Log.open(url, hub=HubConnection(folder / f"log{each}" / "log"))
            for each in range(GATEWAYS)
        ]
        await _until_written(logs, numbers, START_S)
        print(f"{GATEWAYS} gateways × {RATE} calls/s for {STEADY_S:g} s:")
        longest = await _measure(logs, numbers, pids, server, STEADY_S, RATE)
        print(f"  a call is in the log after {longest:.2f} s at most")
        print(
            f"as fast as possible for {FULL_S:g} s, {MAX_WAITING:,} calls of each gateway waiting:"
        )
        await _measure(logs, numbers, pids, server, FULL_S, None)
        await _until_written(logs, numbers, END_S)
        dropped = sum(each.dropped for each in logs)
        for each in logs:
            each.close()
    put = next(numbers)
    ((calls,),) = server.execute(url, "SELECT count(DISTINCT call) FROM calls")
    ((attempts,),) = server.execute(url, "SELECT count(*) FROM attempts")
    print(f"{put:,} calls; in the log: {calls:,} calls, {attempts:,} attempts; {dropped:,} dropped")
    wrong = (
        []
        if calls == attempts == put and not dropped
        else ["calls are missing in the log, or in it twice"]
    )
    return [*wrong, *([] if longest < 1 else [f"a call waited for {longest:.1f} s"])]


@contextlib.contextmanager
def hub(url: str, folder: Path) -> Iterator["Process[bytes]"]:
    """Run a hub that keeps its socket and files in `folder`."""
    folder.mkdir()
    settings = HubSettings(socket=str(folder / "log"), log=LogSettings(url))
    command = module_command(MODULE)
    with Process[bytes](
        command, stdin=subprocess.PIPE, env=os.environ | {"TMPDIR": str(folder)}
    ) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        process.stdin.flush()
        yield process
        process.stdin.close()
        process.wait()


async def _measure(
    logs: list[Log],
    numbers: Iterator[int],
    pids: list[int],
    server: Server,
    duration_s: float,
    rate: int | None,
) -> float:
    """Log `rate` calls/s at each gateway; None: as many as are written. Return the longest wait in
    seconds."""
    before, written = _cpu_s(pids, server), sum(each.written for each in logs)
    begin_ns, put, longest_s, most_late_s = clock.now_ns(), 0, 0.0, 0.0
    while (now_s := (clock.now_ns() - begin_ns) / clock.NS_PER_S) < duration_s:
        for each in logs:
            wanted = MAX_WAITING - each.waiting if rate is None else round(now_s * rate) - put
            for _ in range(wanted):
                each.put(a_call(next(numbers)))
            await asyncio.sleep(0)
        if rate is not None:
            put = round(now_s * rate)
            longest_s = max(longest_s, max(each.waiting for each in logs) / rate)
        await asyncio.sleep(
            max(0.0, TICK_S - ((clock.now_ns() - begin_ns) / clock.NS_PER_S - now_s))
        )
        most_late_s = max(
            most_late_s, (clock.now_ns() - begin_ns) / clock.NS_PER_S - now_s - TICK_S
        )
    took_s = (clock.now_ns() - begin_ns) / clock.NS_PER_S
    calls = sum(each.written for each in logs) - written
    print(f"  {calls / took_s:,.0f} calls/s were written; cores used: ", end="")
    used = {
        role: (after_s - before[role]) / took_s for role, after_s in _cpu_s(pids, server).items()
    }
    print(
        ", ".join(f"{cores:.2f} {role}" for role, cores in used.items()), f"(of {os.cpu_count()})"
    )
    for role, cores in used.items():
        print(f"    {role}: {cores * took_s / calls * 1e6:.0f} µs of CPU time for each call")
    if rate is not None:
        print(f"  they were made {most_late_s:.2f} s late at most")
    return longest_s


def _cpu_s(pids: list[int], server: Server) -> dict[str, float]:
    return {
        "hubes": sum(map(seconds, pids)),
        "database": tree_s(server.pid),
        "this program": own_s(),
    }


async def _until_written(logs: list[Log], numbers: Iterator[int], within_s: float) -> None:
    """Log one call at each gateway, and wait until nothing waits."""
    for each in logs:
        each.put(a_call(next(numbers)))
    give_up_ns = clock.now_ns() + round(within_s * clock.NS_PER_S)
    while any(each.waiting for each in logs):
        if clock.now_ns() > give_up_ns:
            raise TimeoutError(f"the log is not written within {within_s:g} s")
        await asyncio.sleep(0.1)
