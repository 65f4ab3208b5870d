"""The cost of `what-if` over a large log: `python -m benchmarks.what_if_log 2000000` (some
minutes, and 2 GB for the log, which is kept in the folder for temporary files).

It prints wall time, CPU time and the largest memory of one policy, in a process of its own.
"""

import argparse
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
from sqlalchemy import Table
from tests.replay.logs import record

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS
from splitsecond.log.store.database import Database
from splitsecond.log.store.rows import rows
from splitsecond.log.store.tables import ATTEMPTS, CALLS

TODAY = 'weighted("a/m", "b/m")'
OTHER = 'hedge("a/m", "b/m")'
FORTNIGHT_S = 14 * 24 * 3600
PART = 20_000
CLIENTS = 50


def make_log(file: Path, calls: int) -> None:
    """Write so many calls of `TODAY`, over 14 days up to now. A hundredth of them failed."""
    Database.open(f"sqlite:///{file}")
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    now_us = round(clock.wall_time().timestamp() * 1e6)
    random = np.random.default_rng(1)
    for begin in range(0, calls, PART):
        numbers = np.arange(begin, min(begin + PART, calls))
        came = now_us - ((calls - numbers) * (FORTNIGHT_S * 0.999e6 / calls)).astype(np.int64)
        first = (random.lognormal(0, 0.4, len(numbers)) * 300 * NS_PER_MS).astype(np.int64)
        tokens = random.integers(20, 400, len(numbers))
        end = first + tokens * 10 * NS_PER_MS
        failed = random.random(len(numbers)) < 0.01
        prompt = random.integers(100, 4000, len(numbers))
        columns = (each.tolist() for each in (numbers, came, first, end, tokens, prompt, failed))
        made = [_row(*values) for values in zip(*columns, strict=True)]
        connection.execute("BEGIN")
        for table, place in ((CALLS, 0), (ATTEMPTS, 1)):
            connection.executemany(_insert(table), [each[place] for each in made])
        connection.execute("COMMIT")
    connection.close()


def _names(table: Table) -> list[str]:
    return [column.name for column in table.columns if not column.primary_key]


def _insert(table: Table) -> str:
    names = _names(table)
    marks = ", ".join("?" * len(names))
    return f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({marks})"


def _templates() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the columns of a call and of its attempt, at both targets, without and with a
    failure."""
    found = []
    for failed in (False, True):
        for target in ("a/m", "b/m"):
            call, (attempt,) = rows(record(0, target, 0.0, failed=failed))
            both = (
                dict(zip(_names(CALLS), call, strict=True)),
                dict(zip(_names(ATTEMPTS), attempt, strict=True)),
            )
            found.append(both)
    return found


_KINDS = _templates()


def _row(
    number: int, came_us: int, first: int, end: int, tokens: int, prompt: int, failed: bool
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    call, attempt = _KINDS[2 * failed + number % 2]
    name, client = f"call-{number}", f"key-{number % CLIENTS}"
    same = {"came_us": came_us, "call": name, "client": client, "end_ns": end}
    if not failed:
        same |= {"first_token_ns": first, "input_tokens": prompt, "output_tokens": tokens}
    choice = {"choice": number % 2, "choice_available": 3, "choice_ppm": 500_000}
    own = {"id": f"{name}.1", "last_token_ns": None if failed else end, "packed": None}
    return tuple((call | same | choice).values()), tuple((attempt | same | own).values())


def measure(file: Path, more: Sequence[str]) -> None:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = ("what-if", OTHER, "--log", str(file), "--today", TODAY, "--any-load", "--json", "-")
    ended = subprocess.run(
        [sys.executable, "-m", "splitsecond.cli", *command, "--since", "15d", *more],
        check=True,
        capture_output=True,
    )
    wall, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    found = msgspec.json.decode(ended.stdout)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    print(
        f"{found['replayed_calls']:,} of {found['logged_calls']:,} calls: {wall:.1f} s, "
        f"{user:.1f} s of user CPU, {system:.1f} s of the system, {after.ru_maxrss / 1024:,.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("calls", type=int, nargs="?", default=2_000_000)
    options, more = parser.parse_known_args()
    file = Path(tempfile.gettempdir()) / f"splitsecond-what-if-{options.calls}.db"
    if not file.exists():
        make_log(file, options.calls)
    measure(file, more)


if __name__ == "__main__":
    main()
