"""What the log costs a request: `python -m benchmarks.log` (half a minute).

The CPU time of the whole process, its thread included, for a call with one attempt. Beside it in turn, a bare
`executemany` of the same rows into the same tables: what SQLite itself asks. Ours divided by that is a figure that
machines can be compared by.
"""

import sqlite3
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from splitsecond import clock
from splitsecond.store.database import Database
from splitsecond.store.log import Log
from splitsecond.store.rows import Rows, rows
from splitsecond.store.served import Served
from splitsecond.store.tables import ATTEMPTS, CALLS
from splitsecond.store.writer import BATCH
from splitsecond.timing.observation import Observation

REQUESTS = 20_000
REPEATS = 5
TOKENS = 64
BURST = 250
"""Requests that come in before the thread is given a moment: some thousand in a second."""
REACH_US = 15.0


def a_call(number: int) -> Served:
    """A streamed answer of `TOKENS` tokens, one event for each."""
    start_ns = clock.now_ns() - 700 * clock.NS_PER_MS
    call = f"req-{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}"
    arrivals = [start_ns + (200 + 8 * i) * clock.NS_PER_MS for i in range(TOKENS)]
    attempt = Observation(
        id=f"{call}.1", call=call, target="groq/llama-3.3-70b-versatile", role="winner",
        start_ns=start_ns, reused=True, rtt_ns=8_123_456, sent_ns=start_ns + 150_000, head_ns=arrivals[0] - 300_000,
        first_event_ns=arrivals[0], first_token_ns=arrivals[0], first_answer_ns=arrivals[0], last_token_ns=arrivals[-1],
        end_ns=arrivals[-1] + 400_000, token_at=arrivals, token_lengths=[4] * TOKENS, status=200, finish_reason="stop",
        input_tokens=512, output_tokens=TOKENS, cached_tokens=128, token_source="usage", lag_max_ns=90_000,
        kernel_time=True,
    )  # fmt: skip
    return Served(
        call=call, start_ns=start_ns, first_token_ns=arrivals[0] + 100_000, end_ns=arrivals[-1] + 500_000,
        route="fast", client="team-a", stream=True, status=200, target=attempt.target, attempts=(attempt,),
    )  # fmt: skip


def log_us(folder: Path, records: Sequence[Served]) -> float:
    """CPU time for one request through `Log`, microseconds."""
    with Log.open(f"sqlite:///{folder}/log.db") as log:
        begin = time.process_time()
        for i in range(0, len(records), BURST):
            for record in records[i : i + BURST]:
                log.put(record)
            time.sleep(0.05)
        log.close()
        used = time.process_time() - begin
        if log.written != len(records):
            raise SystemExit(f"{log.written} of {len(records)} were written, {log.errors} errors")
    return used / len(records) * 1e6


def bare_us(folder: Path, made: Sequence[Rows]) -> float:
    """CPU time for the same rows, made before, by `executemany` into the same tables, microseconds."""
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


def main() -> None:
    """Measures in turn, and prints the least of each: all else is other work on the machine."""
    records = [a_call(number) for number in range(REQUESTS)]
    made = [rows(record, 1_790_000_000_000_000) for record in records]
    ours, bare = [], []
    for _ in range(REPEATS):
        with tempfile.TemporaryDirectory() as folder:
            bare.append(bare_us(Path(folder), made))
            ours.append(log_us(Path(folder), records))
            print(f"log {ours[-1]:6.2f} us a request   bare executemany {bare[-1]:6.2f} us", flush=True)
    best, least = min(ours), min(bare)
    print(f"least: {best:.2f} us (to reach: {REACH_US:g}), {best / least:.2f} times the bare {least:.2f} us")


if __name__ == "__main__":
    main()
