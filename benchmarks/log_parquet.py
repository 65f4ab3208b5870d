"""The log in Parquet files at scale: `python -m benchmarks.log_parquet FOLDER [MILLIONS]` (default:
10).

It writes a log of 400,000 attempts in SQLite, exports it, and multiplies the rows of each day to
the asked size, with other times, in files like those of an export. Then it runs `speed` over all of
it in a process of its own. It prints the rate of the export, the size of the files, and the wall
time, CPU time and largest memory of the question. A folder that exists is read again.
"""

import resource
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from benchmarks.log import make_log
from splitsecond.core import clock
from splitsecond.log.store.log import Past
from splitsecond.log.store.parquet import connect
from splitsecond.log.store.parquet_export import FORMAT, ROWS

BASE = 400_000
CALLS = """
INSERT INTO calls (came_us, call, route, client, operation, stream, status, cache, target,
  outcome, fault,
                   first_token_ns, end_ns, attempts, input_tokens, output_tokens, token_source)
SELECT came_us, call, 'fast', client, 'chat', 1, 200, '', target, outcome, '', first_token_ns,
  end_ns, 1,
       input_tokens, output_tokens, token_source FROM attempts
"""
ADDED = {
    "calls": {"came_us": "copy"},
    "attempts": {
        "came_us": "copy",
        **dict.fromkeys(("end_ns", "wait_ns", "decode_ns"), "(hash(n, copy) % 1000000)::BIGINT"),
    },
}
"""What is added to the times of a copy, so that its figures are others."""


def make(folder: Path, copies: int) -> None:
    """Write a log of `copies` times `BASE` attempts, and print how fast it was exported."""
    folder.mkdir(parents=True)
    file = folder / "base.db"
    make_log(file, BASE)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE attempts SET call = 'req-' || lower(hex(randomblob(16)))")
        connection.execute("UPDATE attempts SET id = call || '.1'")
        connection.execute(CALLS)
    connection.close()
    begin = time.perf_counter()
    now = clock.wall_time()
    found = Past.open(f"sqlite:///{file}").export(folder / "log", now - timedelta(days=30), now)
    took = time.perf_counter() - begin
    print(
        f"export: {found.calls / took:,.0f} calls/s, {found.bytes / found.calls:,.0f} bytes a call"
    )
    duckdb = connect(folder)
    for table, order in (("calls", "came_us"), ("attempts", "target, came_us")):
        for day in (folder / "log" / table).iterdir():
            changed = ", ".join(
                f"{time} + {added} AS {time}" for time, added in ADDED[table].items()
            )
            rows = (
                f"SELECT * REPLACE ({changed}) FROM '{day}/*.parquet', range({copies}) AS "
                f"copies(copy)"
            )
            duckdb.execute(f"CREATE TEMP TABLE many AS {rows} ORDER BY {order}")
            ((count,),) = duckdb.execute("SELECT count(*) FROM many").fetchall()
            for source in day.iterdir():
                source.unlink()
            for number, start in enumerate(range(0, count, ROWS)):
                part = f"FROM many WHERE rowid >= {start} AND rowid < {start + ROWS} ORDER BY rowid"
                duckdb.execute(f"COPY ({part}) TO '{day}/{number:05}.parquet' ({FORMAT})")
            duckdb.execute("DROP TABLE many")


def main() -> None:
    """Measure, and print the result."""
    folder = Path(sys.argv[1])
    millions = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    if not folder.exists():
        make(folder, max(1, round(millions * 1e6 / BASE)))
    size = sum(file.stat().st_size for file in (folder / "log").rglob("*.parquet"))
    for command in (["speed"], ["speed", "provider-0"]):
        begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "splitsecond.cli", *command, "--log", str(folder / "log")],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        wall = time.perf_counter() - begin
        print(
            f"{' '.join(command)}: {wall:.1f} s, {cpu:.1f} s of CPU, "
            f"{after.ru_maxrss / 1024:,.0f} MB at most"
        )
    print(f"files: {size / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
