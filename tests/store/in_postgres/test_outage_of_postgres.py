"""A hub and its worker that are killed while PostgreSQL is away: no record is missing, none is
twice."""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.processes import Process
from tests.store.server import Server
from tests.store.test_outage import in_memory, send
from tests.waiting import eventually, until

from splitsecond.core import clock
from splitsecond.core.loading import module_command
from splitsecond.gateway.hub.settings import MODULE, HubSettings
from splitsecond.log.store.hub_connection import HubConnection
from splitsecond.log.store.log import Log, Past
from splitsecond.log.store.log_receiver import MAX_UNSETTLED
from splitsecond.log.store.remote_writer import RemoteLogWriter
from splitsecond.log.store.settings import LogSettings

pytestmark = pytest.mark.system
FIRST = 10
ALL = FIRST + 2 * MAX_UNSETTLED


@contextmanager
def hub(url: str, folder: Path) -> Iterator["Process[bytes]"]:
    """Run a hub that keeps its files in `folder`. At the end it is killed."""
    settings = HubSettings(socket=str(folder / "log"), log=LogSettings(url))
    command = module_command(MODULE)
    with Process[bytes](
        command, stdin=subprocess.PIPE, env=os.environ | {"TMPDIR": str(folder)}
    ) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(settings) + b"\n")
        process.stdin.flush()
        yield process
        process.kill()


@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_records_of_killed_processes_are_logged_once(
    server: Server, url: str, tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # of the worker, which is this process

    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        await send(log, range(FIRST))
        await eventually(lambda: log.written == FIRST and not log.waiting, "the log is not written")
        if fault == "killed":
            server.stop()
        else:
            server.signal(signal.SIGSTOP)
        await send(log, range(FIRST, ALL))
        await eventually(lambda: not in_memory(log), "the worker keeps its records")
        assert (log.waiting, log.dropped) == (ALL - FIRST, 0)
        writer = log._writer  # it ends like that of a worker that is killed
        assert isinstance(writer, RemoteLogWriter)
        writer._hub.close()

    with hub(url, tmp_path) as process:
        asyncio.run(work())
        process.kill()
        process.wait()
    server.ensure_running()
    with hub(url, tmp_path):
        until(lambda: not [*tmp_path.glob("splitsecond-log-*")], "what was saved is not written")
    logged = Counter(
        record.call for _, record in Past.open(url).calls(clock.wall_time() - timedelta(hours=1))
    )
    assert logged == Counter(f"req-{number}" for number in range(ALL))
