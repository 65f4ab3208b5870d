"""Several workers write one file; one of them may be killed at any moment."""

import contextlib
import os
import sqlite3
import sys
from datetime import UTC, datetime
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.processes import Process
from tests.waiting import WITHIN_S

from splitsecond.log.store.log import Log

pytestmark = pytest.mark.system
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ROOT = Path(__file__).parents[2]
WORKER = """
import sys
from splitsecond.log.store import database, writer
from splitsecond.log.store.log import Log
from tests.store.records import answered

database.BUSY_S = writer.CLOSE_S = 60  # however busy the machine is
url, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
log = Log.open(url)
for i in range(first, last):
    log.put(answered(i))
    if i % 50 == 49:
        log._writer._thread.join(0.01)  # traffic comes over time, so that the workers' batches meet
log.close()
print(log.written, log.dropped, log.errors)
"""
ENDLESS = """
import itertools, sys
from splitsecond.log.store.log import Log
from tests.store.records import answered


log = Log.open(sys.argv[1])
for i in itertools.count():
    log.put(answered(i))
    if i % 100 == 99:
        log._writer._thread.join(0.01)
        print(log.written, flush=True)
"""


def worker(program: str, *arguments: str) -> Process[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    return Process(
        [sys.executable, "-c", program, *arguments],
        stdout=PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )


def test_several_processes_write_without_loss(tmp_path: Path) -> None:
    # there is none yet: each of them makes it, or finds it made
    url = f"sqlite:///{tmp_path}/log.db"
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(worker(WORKER, url, str(600 * i), str(600 * (i + 1))))
            for i in range(3)
        ]
        for process in running:
            out, _ = process.communicate(timeout=WITHIN_S)
            assert out.split() == ["600", "0", "0"]
    with Log.open(url) as log:
        found = {served.call: [o.id for o in served.attempts] for _, served in log.calls(LONG_AGO)}
    assert found == {f"req-{n}": [f"req-{n}.1"] for n in range(3 * 600)}


def test_log_of_a_killed_writer_is_intact(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    with worker(ENDLESS, url) as process:
        written = 0
        while written < 500:
            written = int(process.read_line())
        process.kill()
    with Log.open(url) as log:
        found = [served.call for _, served in log.calls(LONG_AGO)]
    assert len(found) >= written
    assert found == [f"req-{n}" for n in range(len(found))]
    connection = sqlite3.connect(tmp_path / "log.db")
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()
