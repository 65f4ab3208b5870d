"""The log at full load: `python -m benchmarks.full_load --workers 8`, for docs/performance.md.

A gateway serves whole answers of nginx as fast as it can, while it writes each call to its log.
With `--blocked`, another program locks the database for so many seconds of this time. Afterwards
the log gets time to catch up. The exit code is 1 unless each call that the gateway counted is in
the log once, and none is counted as lost.

Needs `nginx` and `wrk` (Debian's packages with these names). Half of the cores are for the workers
by default, the others for the load, the upstream and the log process.
"""

import argparse
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.gateway import (
    CASES,
    CONNECTIONS,
    GATEWAY,
    KEY,
    UPSTREAM,
    Proxy,
    free_ports,
    run_nginx,
    run_process,
    send_load,
)
from benchmarks.gateway_upstream import whole_answer
from benchmarks.soak_accounts import GatewayCounts, gateway_counts
from splitsecond.core import clock

WORKERS = "listen: {{host: 127.0.0.1, port: {port}, workers: {workers}}}"
BLOCK_AFTER_S = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was served, counted and logged. Return 1 if a call is missing or counted as
    lost."""
    cores = os.cpu_count() or 2
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workers", type=int, default=max(cores // 2, 1), help="workers of the gateway"
    )
    parser.add_argument("--seconds", type=int, default=10, help="seconds of load (default 10)")
    parser.add_argument(
        "--blocked", type=float, default=0.0, help="seconds with a locked database (default 0)"
    )
    parser.add_argument(
        "--catch-up", type=float, default=300.0, help="seconds for the log afterwards (default 300)"
    )
    options = parser.parse_args(arguments)
    if missing := [tool for tool in ("nginx", "wrk") if shutil.which(tool) is None]:
        print(
            f"{' and '.join(missing)} must be installed. Run apt-get install {' '.join(missing)}.",
            file=sys.stderr,
        )
        return 2
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)  # nginx's workers run as another user
        (folder / "whole.json").write_bytes(whole_answer())
        upstream, port = free_ports(2)
        configuration = UPSTREAM.replace(
            "worker_processes 1", f"worker_processes {max(cores // 8, 1)}"
        )
        stack.enter_context(
            run_nginx("direct", configuration, {"folder": folder, "port": upstream})
        )
        gateway = stack.enter_context(_gateway(folder, options.workers, upstream, port))
        return _measure(folder, gateway, options, threads=max(cores // 4, 1))


@contextmanager
def _gateway(folder: Path, workers: int, upstream: int, port: int) -> Iterator[Proxy]:
    _, rest = GATEWAY.strip().split("\n", 1)
    file = folder / "splitsecond.yaml"
    values = {"folder": folder, "upstream": upstream, "events": upstream, "paced": upstream}
    file.write_text(f"{WORKERS}\n{rest}\n".format(**values, port=port, workers=workers))
    command = [sys.executable, "-m", "splitsecond.cli", "serve", str(file)]
    with run_process("gateway", command, port, os.environ | {"BENCH_KEY": KEY}, folder) as proxy:
        yield proxy


def _measure(folder: Path, gateway: Proxy, options: argparse.Namespace, threads: int) -> int:
    database = folder / "log.db"
    case = CASES[-2]
    send_load(folder, gateway, case, CONNECTIONS, 1)
    blocker = threading.Thread(target=_block, args=(database, options.blocked))
    blocker.start()
    before = gateway.cpu_s()
    load = send_load(
        folder, gateway, case, CONNECTIONS * options.workers, options.seconds, threads=threads
    )
    cpu_us = (gateway.cpu_s() - before) / load.requests * 1e6
    blocker.join()
    print(
        f"{options.workers} workers: {load.requests / options.seconds:,.0f} calls/s, p50 "
        f"{load.p50_ms:.2f} ms, "
        f"p99 {load.p99_ms:.2f} ms, {cpu_us:.0f} µs of CPU each."
    )
    began_ns = clock.now_ns()
    counts, logged, apart = _settled(gateway, database, options.catch_up)
    calls = counts.calls.total()
    print(
        f"{calls:,} calls counted, {logged:,} in the log, {counts.dropped:,} counted as lost; "
        f"written "
        f"{(clock.now_ns() - began_ns) / clock.NS_PER_S:.0f} s after the load."
    )
    print((folder / "gateway.out").read_text("utf-8", "replace"), end="", file=sys.stderr)
    return int(not (calls == logged == apart and not counts.dropped))


def _block(database: Path, seconds: float) -> None:
    """Lock the database against writers for so many seconds."""
    if not seconds:
        return
    time.sleep(BLOCK_AFTER_S)
    connection = sqlite3.connect(database, timeout=30, isolation_level=None)
    connection.execute("begin immediate")
    time.sleep(seconds)
    connection.execute("rollback")
    connection.close()


def _settled(gateway: Proxy, database: Path, wait_s: float) -> tuple[GatewayCounts, int, int]:
    """Wait until the log has each counted call; return the counts, the calls in the log, and the
    different ones."""
    give_up_ns = clock.now_ns() + round(wait_s * clock.NS_PER_S)
    while True:
        counts = _counts(gateway)
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        logged, apart = connection.execute(
            "select count(*), count(distinct call) from calls"
        ).fetchone()
        connection.close()
        if logged + counts.dropped >= counts.calls.total() or clock.now_ns() > give_up_ns:
            return counts, logged, apart
        time.sleep(1)


def _counts(gateway: Proxy) -> GatewayCounts:
    request = urllib.request.Request(
        f"{gateway.url}/metrics", headers={"Authorization": f"Bearer {KEY}"}
    )
    with urllib.request.urlopen(request) as response:
        return gateway_counts(response.read().decode())


if __name__ == "__main__":
    sys.exit(main())
