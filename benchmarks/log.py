"""The log's cost per request: `python -m benchmarks.log` (half a minute), `… read 2000000` and `…
size 200000`.

With `size`, so many calls are written into a new SQLite file and into a database of a PostgreSQL
server of its own, as a gateway writes them: half of today, half of tomorrow. It prints the bytes of
each table, and in PostgreSQL of each partition, with their indexes.

With `read`, a log of that many attempts is made (some 15 s and 350 MB for each million), or read
again if it is there, and `speed` over all of it is measured: wall time, CPU time, the largest
memory.

The cost of writing is the CPU time of the whole process, the log's thread included, for a call with
one attempt. In turns with it, a bare `executemany` writes the same rows into the same tables, which
is the cost of SQLite alone. Our cost divided by that is comparable between machines.
"""

import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from tests.store.server import Server

from splitsecond.core import clock
from splitsecond.core.observation import Observation
from splitsecond.core.timing.packed_attempt import PACKED, attempt_numbers, label_hash
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.database import Database
from splitsecond.log.store.log import Log
from splitsecond.log.store.rows import Rows, rows
from splitsecond.log.store.tables import ATTEMPTS, CALLS
from splitsecond.log.store.writer import BATCH

REQUESTS = 20_000
REPEATS = 5
TOKENS = 64
BURST = 250
"""Requests that are logged before the thread gets a pause: a few thousand per second."""
GOAL_US = 15.0
PART = 20_000
US_PER_DAY = 86_400_000_000
FORTNIGHT_US = 14 * US_PER_DAY
MAX_WAITING = 2000
"""Calls that wait for the thread, as in a busy gateway."""
PARTITIONS = """
SELECT relname, pg_total_relation_size(oid), pg_indexes_size(oid)
  FROM pg_class WHERE relispartition AND relkind = 'r'
ORDER BY relname
"""


def a_call(number: int, later_us: int = 0) -> CallRecord:
    """Return the record of a streamed response of `TOKENS` tokens, one event each, that ends now or
    later."""
    start_ns = clock.now_ns() - 700 * clock.NS_PER_MS
    call = f"req-{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}"
    arrivals = [start_ns + (200 + 8 * i) * clock.NS_PER_MS for i in range(TOKENS)]
    attempt = Observation(
        id=f"{call}.1", call=call, target="groq/llama-3.3-70b-versatile", role="winner",
        start_ns=start_ns, reused=True, rtt_ns=8_123_456, sent_ns=start_ns + 150_000,
        head_ns=arrivals[0] - 300_000,
        first_event_ns=arrivals[0], first_token_ns=arrivals[0], first_answer_ns=arrivals[0],
        last_token_ns=arrivals[-1],
        end_ns=arrivals[-1] + 400_000, token_at=arrivals, token_lengths=[4] * TOKENS, status=200,
        finish_reason="stop",
        input_tokens=512, output_tokens=TOKENS, cached_tokens=128, token_source="usage",
        lag_max_ns=90_000,
        kernel_time=True,
    )  # fmt: skip
    return CallRecord(
        call=call, start_ns=start_ns, first_token_ns=arrivals[0] + 100_000,
        end_ns=arrivals[-1] + 500_000,
        route="fast", client="team-a", stream=True, status=200, target=attempt.target,
        wall_us=clock.wall_offset_us() + later_us, attempts=(attempt,),
    )  # fmt: skip


def log_us(folder: Path, records: Sequence[CallRecord]) -> float:
    """Return the CPU time per request with `Log`, in microseconds."""
    with Log.open(f"sqlite:///{folder}/log.db") as log:
        begin = time.process_time()
        for i in range(0, len(records), BURST):
            for record in records[i : i + BURST]:
                log.put(record)
            time.sleep(0.05)
        log.close()
        used = time.process_time() - begin
        if log.written != len(records):
            raise SystemExit(
                f"{log.written} of {len(records)} were written, with {log.errors} errors"
            )
    return used / len(records) * 1e6


def bare_us(folder: Path, made: Sequence[Rows]) -> float:
    """Return the CPU time per request with `executemany` of prepared rows into the same tables, in
    microseconds."""
    file = folder / "bare.db"
    Database.open(f"sqlite:///{file}")
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous=NORMAL")
    statements = [
        f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
        for table in (CALLS, ATTEMPTS)
        for names in [[column.name for column in table.columns if not column.primary_key]]
    ]
    begin = time.process_time()
    for i in range(0, len(made), BATCH):
        part = made[i : i + BATCH]
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(statements[0], [record.call for record in part])
        connection.executemany(statements[1], [row for record in part for row in record.attempts])
        connection.execute("COMMIT")
    used = time.process_time() - begin
    connection.close()
    return used / len(made) * 1e6


ROW_TIMES = (
    "sent_ns", "head_ns", "first_token_ns", "first_answer_ns", "last_token_ns", "end_ns",
    "first_event_tokens",
)  # fmt: skip
ROW_TOKENS = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "cache_write_1h_tokens",
    "output_tokens", "reasoning_tokens",
    "token_source",
)  # fmt: skip
"""What `attempt_numbers` takes, by the columns of the log."""
TARGETS = [f"provider-{number}/model-{number % 5}" for number in range(14)]


def make_log(file: Path, attempts: int) -> None:
    """Write a log of so many attempts over 14 days, most of them successful, with figures that
    scatter."""
    random, now_us = np.random.default_rng(1), round(clock.wall_time().timestamp() * 1e6)
    Database.open(f"sqlite:///{file}")
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    names = [column.name for column in ATTEMPTS.columns if not column.primary_key]
    insert = (
        f"INSERT INTO {ATTEMPTS.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    )
    (made,) = rows(a_call(1)).attempts
    usual = dict(zip(names, made, strict=True))
    changed = (
        "came_us",
        "target",
        "outcome",
        "fault",
        "first_token_ns",
        "last_token_ns",
        "end_ns",
        "output_tokens",
    )

    def row(*values: Any) -> tuple[Any, ...]:
        each = usual | dict(zip(changed, values, strict=True))
        label = label_hash(each["target"], each["client"], "", "", each["fault"])
        each["packed"] = attempt_numbers(
            PACKED.pack,
            (each["came_us"], label, 0, 1),
            (each["outcome"], each["role"], each["streamed"], "", each["status"], None),
            tuple(each[name] for name in ROW_TIMES),
            tuple(each[name] for name in ROW_TOKENS),
        )
        return tuple(each.values())

    for begin in range(0, attempts, PART):
        number = np.arange(begin, min(begin + PART, attempts))
        n = len(number)
        tokens = np.maximum(random.lognormal(5.3, 0.7, n), 2).astype(np.int64)
        place = (random.random(n) ** 2 * len(TARGETS)).astype(np.int64)
        end = (tokens / (400 / (place + 1) * random.lognormal(0, 0.25, n)) * 1e9).astype(np.int64)
        fate = random.choice(3, n, p=[0.94, 0.02, 0.04])
        came = (
            now_us
            - round(FORTNIGHT_US * (1 - 0.001))
            + (number * (FORTNIGHT_US * 0.998 / attempts)).astype(np.int64)
        )
        columns = zip(
            came.tolist(),
            [TARGETS[at] for at in place],
            [("ok", "failed", "cancelled")[at] for at in fate],
            ["http_429" if at == 1 else "" for at in fate],
            [None if at else value for at, value in zip(fate, (end // 3).tolist(), strict=True)],
            [
                None if at else value
                for at, value in zip(fate, (end - 500_000).tolist(), strict=True)
            ],
            end.tolist(),
            [None if at else value for at, value in zip(fate, tokens.tolist(), strict=True)],
            strict=True,
        )
        connection.execute("BEGIN")
        connection.executemany(insert, (row(*each) for each in columns))
        connection.execute("COMMIT")
    connection.close()


def read(attempts: int, file: Path) -> None:
    """Measure `splitsecond speed` over a log of so many attempts."""
    if not file.exists():
        make_log(file, attempts)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "speed",
        "--log",
        str(file),
        "--json",
        "-",
        "--days",
        "3650",
    ]
    ended = subprocess.run(command, check=True, capture_output=True)
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    counted = sum(each["requests"] for each in msgspec.json.decode(ended.stdout)["speeds"])
    print(
        f"{counted:,} attempts: {wall:.1f} s, {cpu:.1f} s of CPU, {after.ru_maxrss / 1024:,.0f} MB"
    )


def size(calls: int) -> None:
    """Print the bytes of so many calls in both databases."""
    with tempfile.TemporaryDirectory(prefix="pg") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server runs as another user
        (folder / "server").mkdir()
        write_days(f"sqlite:///{folder}/log.db", calls)
        print(f"SQLite: {(folder / 'log.db').stat().st_size / calls:,.0f} bytes a call")
        server = Server(folder / "server")
        server.start()
        try:
            url = server.database()
            ((begin,),) = server.execute(url, "SELECT pg_current_wal_lsn()")
            write_days(url, calls)
            print("\n| table | rows | bytes a row | of these indexes |\n|---|---|---|---|")
            total = 0.0
            for table, *sizes in server.execute(url, PARTITIONS):
                ((rows_,),) = server.execute(url, f"SELECT count(*) FROM {table}")
                count, (whole, indexes) = int(str(rows_)), (int(str(each)) for each in sizes)
                if count:
                    print(
                        f"| {table} | {count:,} | {whole / count:,.0f} | {indexes / count:,.0f} |"
                    )
                    total += whole
            ((written,),) = server.execute(
                url, f"SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '{begin}')"
            )
            print(
                f"\nPostgreSQL: {total / calls:,.0f} bytes a call, and "
                f"{float(str(written)) / calls:,.0f} of its WAL"
            )
        finally:
            server.stop()


def write_days(url: str, calls: int) -> None:
    """Write so many calls with one attempt each, the second half of them dated a day later."""
    with Log.open(url) as log:
        for number in range(calls):
            log.put_rows(rows(a_call(number, US_PER_DAY if number >= calls // 2 else 0)))
            while log.waiting > MAX_WAITING:
                time.sleep(0.01)
        while log.waiting:
            time.sleep(0.01)
        if log.written != calls:
            raise SystemExit(f"{log.written} of {calls} were written, with {log.errors} errors")


def main() -> None:
    """Measure reading with the argument `read`, the size with `size`, otherwise writing."""
    if sys.argv[1:2] == ["size"]:
        size(int(sys.argv[2]) if len(sys.argv) > 2 else 200_000)
    elif sys.argv[1:2] == ["read"]:
        attempts = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000
        read(
            attempts,
            Path(
                sys.argv[3]
                if len(sys.argv) > 3
                else f"{tempfile.gettempdir()}/splitsecond-{attempts}.db"
            ),
        )
    else:
        write()


def write() -> None:
    """Measure both in turns and print the minimum of each: the rest is other work on the
    machine."""
    records = [a_call(number) for number in range(REQUESTS)]
    made = [rows(record) for record in records]
    ours, bare = [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            bare.append(bare_us(Path(folder), made))
            ours.append(log_us(Path(folder), records))
            print(
                f"log {ours[-1]:6.2f} us per request   bare executemany {bare[-1]:6.2f} us",
                flush=True,
            )
    best, least = min(ours), min(bare)
    print(
        f"minimum: {best:.2f} us (goal: {GOAL_US:g}), {best / least:.2f} times the bare "
        f"{least:.2f} us"
    )


if __name__ == "__main__":
    main()
