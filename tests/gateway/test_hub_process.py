"""A child process that cannot start for a while: it is tried again, and the gateway goes on."""

import asyncio
import contextlib
import errno
import tempfile
from itertools import pairwise
from pathlib import Path

import pytest

from splitsecond.core import scratch
from splitsecond.core.child_process import ChildProcess
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.hub.settings import HubSettings
from splitsecond.gateway.process.hub_process import HubProcess, gateway_folder
from splitsecond.routing.router.settings import LogSettings
from splitsecond.testing.virtual_time import run_virtual


def test_failed_start_is_retried_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried_s: list[float] = []

    async def start(*command: str, **options: object) -> ChildProcess:
        tried_s.append(asyncio.get_running_loop().time())
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    async def serve() -> None:
        kept = HubProcess(HubSettings(socket="hub", log=LogSettings("sqlite:///log.db")))
        async with kept.running():
            await asyncio.sleep(30)

    monkeypatch.setattr(ChildProcess, "start", start)
    run_virtual(serve())
    pauses_s = [round(after - before, 3) for before, after in pairwise(tried_s)]
    assert pauses_s == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith(
        "The hub cannot start: [Errno 11] Resource temporarily unavailable. It is tried again; records wait for it."
    )


def test_missing_temporary_folder_gets_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    monkeypatch.setattr(scratch, "_MEMORY", Path("/nonexistent"))
    with (
        contextlib.ExitStack() as stack,
        pytest.raises(CallerFault, match="needs a temporary folder: No usable") as caught,
    ):
        gateway_folder(stack)
    assert "TMPDIR" in caught.value.hint
