"""A child process that cannot start for a while: it is tried again, and the gateway goes on."""

import asyncio
import errno
from itertools import pairwise

import pytest

from splitsecond.child_process import ChildProcess
from splitsecond.gateway.process.kept_process import KeptProcess
from splitsecond.testing.virtual_time import run_virtual


def test_it_is_started_again_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried_s: list[float] = []

    async def start(*command: str, answers: bool) -> ChildProcess:
        tried_s.append(asyncio.get_running_loop().time())
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    async def serve() -> None:
        kept = KeptProcess("module", b"{}", name="log process", consequence="records wait for it", stop_s=1.0)
        async with kept.running():
            await asyncio.sleep(30)

    monkeypatch.setattr(ChildProcess, "start", start)
    run_virtual(serve())
    pauses_s = [round(after - before, 3) for before, after in pairwise(tried_s)]
    assert pauses_s == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.endswith(
        "The log process cannot start: [Errno 11] Resource temporarily unavailable. It is tried again; "
        "records wait for it."
    )
