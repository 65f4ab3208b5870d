"""Nothing is lost while the log's database is away under load: `python -m benchmarks.log_outage`
(two minutes).

Two workers log 500 calls a second, through the hub of a gateway, into a PostgreSQL server of its
own. After five seconds the server is stopped (SIGSTOP) for a minute, while calls go on. In the end
each call must be in the log once, none dropped. It prints how many waited in files at most, how
large the hub was, and how long it took to write what had waited.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from tests.store.server import Server

from benchmarks.fleet_log import hub
from benchmarks.log import a_call
from splitsecond.core import clock
from splitsecond.log.store.hub_connection import HubConnection
from splitsecond.log.store.log import Log

WORKERS = 2
BEFORE_S = 5.0
TICK_S = 0.02
END_S = 300.0


async def outage(folder: Path, server: Server, seconds: float, rate: int) -> list[str]:
    """Log calls before and during an outage. Return what was wrong."""
    url, numbers = server.database(), count()
    with hub(url, folder / "hub") as process:
        logs = [
            Log.open(url, hub=HubConnection(folder / "hub" / "log", number))
            for number in range(WORKERS)
        ]
        await _log(logs, numbers, rate, BEFORE_S)
        server.signal(signal.SIGSTOP)
        await _log(logs, numbers, rate, seconds)
        waiting, memory = sum(each.waiting for each in logs), _resident_mib(process.pid)
        size = _saved_bytes(folder)
        server.signal(signal.SIGCONT)
        begin_ns = clock.now_ns()
        give_up_ns = begin_ns + END_S * clock.NS_PER_S
        while any(each.waiting for each in logs) and clock.now_ns() < give_up_ns:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        took_s = (clock.now_ns() - begin_ns) / clock.NS_PER_S
        dropped = sum(each.dropped for each in logs)
        for each in logs:
            each.close()
    put = next(numbers)
    ((rows, calls),) = server.execute(url, "SELECT count(*), count(DISTINCT call) FROM calls")
    print(f"{put:,} calls, {rate:,} a second, {seconds:g} s without the database")
    print(f"  {waiting:,} waited, {size / 1e6:,.1f} MB in files, with {memory:,.0f} MiB in the hub")
    print(
        f"  written after {took_s:.1f} s; dropped: {dropped:,}; in the log: {calls:,}, rows: "
        f"{rows:,}"
    )
    return (
        []
        if rows == calls == put and not dropped
        else ["calls are missing in the log, or in it twice"]
    )


async def _log(logs: Sequence[Log], numbers: "count[int]", rate: int, seconds: float) -> None:
    begin_ns, put = clock.now_ns(), 0
    while (now_s := (clock.now_ns() - begin_ns) / clock.NS_PER_S) < seconds:
        for _ in range(round(now_s * rate) - put):
            number = next(numbers)
            logs[number % len(logs)].put(a_call(number))
        put = round(now_s * rate)
        await asyncio.sleep(TICK_S)


def _saved_bytes(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*unwritten-*"))


def _resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) / 256


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="how long the database is away (default 60)"
    )
    parser.add_argument(
        "--rate", type=int, default=500, help="calls a second of all workers (default 500)"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        tempfile.tempdir = f"{folder}/hub"  # where the workers save records, as the hub does
        Path(folder).chmod(0o755)
        (Path(folder) / "server").mkdir()
        server = Server(Path(folder) / "server")
        server.start()
        try:
            wrong = asyncio.run(outage(Path(folder), server, options.seconds, options.rate))
        finally:
            server.signal(signal.SIGCONT)
            server.stop()
    print("\n".join(f"WRONG: {each}" for each in wrong) or "nothing was wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
