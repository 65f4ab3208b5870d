"""A child process that is replaced when it dies, and ends after the workers: that of the log, or of the fleet."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from splitsecond import clock
from splitsecond.child_process import ChildProcess, how_it_ended
from splitsecond.errors import CallerFault
from splitsecond.gateway.process.reload import say
from splitsecond.router.settings import LogSettings
from splitsecond.store.log_process import LogProcessSettings

STOP_S = 10.0
"""Time that the log process has to write the last records before it is killed."""
STEADY_S = 30.0
"""A process that lived for longer than this is replaced at once."""
LONGEST_PAUSE_S = 5.0
LONGEST_PATH = 107
"""Longest path of a Unix socket in bytes (Linux, unix(7))."""


def log_socket(folder: Path) -> Path:
    """Return the path of the log process's socket in the gateway's temporary folder.

    Raises `CallerFault` if a socket cannot have that path.
    """
    path = folder / "log"
    if len(bytes(path)) > LONGEST_PATH:
        raise CallerFault(
            f"the temporary folder {folder.parent} has a path that is too long for a socket",
            kind="bad_config",
            hint="Set TMPDIR to a folder with a shorter path.",
        )
    return path


class KeptProcess:
    """A child process that is replaced when it dies. Its settings are a line on its standard input.

    `name` and `consequence` are for messages: "log process", and what its absence means. With `announces`, it writes a
    line when it is `ready`.
    """

    def __init__(
        self, module: str, settings: bytes, *, name: str, consequence: str, stop_s: float, announces: bool = False
    ) -> None:
        self._module = module
        self._settings = settings
        self._name = name
        self._consequence = consequence
        self._stop_s = stop_s
        self._announces = announces
        self._process: ChildProcess | None = None
        self._ending = asyncio.Event()
        self.ready = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the process while the context is open."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_running())
            try:
                yield
            finally:
                self._ending.set()

    async def send(self, settings: bytes) -> None:
        """Replace the settings."""
        self._settings = settings
        if self._process is not None:
            await self._process.write(settings + b"\n")

    async def _keep_running(self) -> None:
        """Run one process after another until the end is asked for."""
        pause_s = 0.0
        while True:
            start_ns = clock.now_ns()
            try:
                code = await self._run()
            except OSError as error:
                code, what = 0, f"cannot start: {error}. It is tried again"
            else:
                what = f"{how_it_ended(code)}. A new one replaces it"
            if self._ending.is_set():
                if code:
                    say(f"The {self._name} {how_it_ended(code)}; its last records may be lost.")
                return
            lived_s = (clock.now_ns() - start_ns) / clock.NS_PER_S
            pause_s = 0.0 if lived_s > STEADY_S else min(max(0.1, 2 * pause_s), LONGEST_PAUSE_S)
            say(f"The {self._name} {what}; {self._consequence}.")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)
                return

    async def _run(self) -> int:
        """Run one process until it ends, of itself or when asked to. Return its exit code."""
        process = await ChildProcess.start(sys.executable, "-m", self._module, answers=self._announces)
        waiting: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(process.wait()),
            asyncio.ensure_future(self._ending.wait()),
        ]
        if self._announces:
            waiting.append(asyncio.ensure_future(self._wait_until_ready(process)))
        patience_s = 0.0
        try:
            await process.write(self._settings + b"\n")
            self._process = process
            await asyncio.wait(waiting[:2], return_when=asyncio.FIRST_COMPLETED)
            patience_s = self._stop_s
        finally:
            self._process = None
            for each in waiting:
                each.cancel()
            code = await process.stop(patience_s)
        return code

    async def _wait_until_ready(self, process: ChildProcess) -> None:
        if await process.read_line() is not None:
            self.ready.set()


@contextlib.asynccontextmanager
async def log_process(settings: LogSettings | None, socket: Path) -> AsyncIterator[None]:
    """Run the log process while the context is open, if there is a log. Leave the context after the workers have ended.

    Workers keep their records until the process has started, half a second later.
    """
    if settings is None:
        yield
        return
    wanted = LogProcessSettings(url=settings.url, keep_days=settings.keep_days, socket=str(socket))
    kept = KeptProcess(
        "splitsecond.store.log_process",
        msgspec.json.encode(wanted),
        name="log process",
        consequence="records wait for it",
        stop_s=STOP_S,
    )
    async with kept.running():
        yield
