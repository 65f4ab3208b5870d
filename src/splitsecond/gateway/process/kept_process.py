"""Child processes that are replaced when they die, and end after the workers: that of the log, and of the fleet."""

import asyncio
import contextlib
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from splitsecond.core import clock
from splitsecond.core.child_process import ChildProcess, how_it_ended
from splitsecond.core.errors import CallerFault, file_faults, say
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.scratch import Scratch, scratch_folder
from splitsecond.gateway.fleet.settings import MODULE, FleetProcessSettings, LimitedKey
from splitsecond.gateway.process.worker import WorkerSlot
from splitsecond.log.store.log_process import LogProcessSettings
from splitsecond.log.store.record_counts import settle_all
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.router.settings import LogSettings

LOG_STOP_S = 10.0
"""Time that the log process has to write the last records before it is killed."""
FLEET_STOP_S = 40.0
"""Time that the fleet process has to leave the fleet before it is killed."""
FLEET_START_S = 8.0
"""How long the workers wait for the first answer of the fleet's database."""
STEADY_S = 30.0
"""A process that lived for longer than this is replaced after the first pause."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
LONGEST_PATH = 107
"""Longest path of a Unix socket in bytes (Linux, unix(7))."""


def pause_after_death_s(start_ns: int, before_s: float) -> float:
    """Return the pause before the replacement of a process that started at `start_ns` and has died.

    It doubles with each death in a row, from `FIRST_PAUSE_S` to `LONGEST_PAUSE_S`.
    """
    steady = clock.now_ns() - start_ns > STEADY_S * clock.NS_PER_S
    return FIRST_PAUSE_S if steady else min(max(FIRST_PAUSE_S, 2 * before_s), LONGEST_PAUSE_S)


def gateway_folder(stack: contextlib.ExitStack) -> Scratch:
    """Create the gateway's temporary folder, until `stack` is closed. Raises `CallerFault` if none can be created."""
    hint = "Free some space, or set TMPDIR to another folder."
    with file_faults("the gateway needs a temporary folder", kind="bad_config", hint=hint):
        return stack.enter_context(scratch_folder())


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
    line when it is `ready`. `inherited`: file descriptors that it gets.
    """

    def __init__(
        self,
        module: str,
        settings: bytes,
        *,
        name: str,
        consequence: str,
        stop_s: float,
        announces: bool = False,
        inherited: Sequence[int] = (),
    ) -> None:
        self._module = module
        self._settings = settings
        self._name = name
        self._consequence = consequence
        self._stop_s = stop_s
        self._announces = announces
        self._inherited = inherited
        self._process: ChildProcess | None = None
        self._ending = asyncio.Event()
        self.ready = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_running())
            try:
                yield
            finally:
                self._ending.set()

    async def send(self, settings: bytes) -> None:
        self._settings = settings
        if self._process is not None:
            await self._process.write(settings + b"\n")

    async def _keep_running(self) -> None:
        pause_s = 0.0
        while True:
            start_ns = clock.now_ns()
            try:
                code = await self._run()
            except OSError as error:
                code, what = 0, f"cannot start: {error}. It is tried again"
            except Exception as error:
                report_internal_error("task", error)
                code, what = 0, "cannot start: internal error. It is tried again"
            else:
                what = f"{how_it_ended(code)}. A new one replaces it"
            if self._ending.is_set():
                if code:
                    say(f"The {self._name} {how_it_ended(code)}; its last records may be lost.")
                return
            pause_s = pause_after_death_s(start_ns, pause_s)
            say(f"The {self._name} {what}; {self._consequence}.")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), pause_s)
                return

    async def _run(self) -> int:
        process = await ChildProcess.start(
            sys.executable, "-m", self._module, answers=self._announces, inherited=self._inherited
        )
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
async def log_process(settings: LogSettings | None, socket_path: Path) -> AsyncIterator[None]:
    """Run the log process, if there is a log, while the context is open. Leave it after the workers have ended."""
    if settings is None:
        yield
        return
    wanted = LogProcessSettings(url=settings.url, keep_days=settings.keep_days, socket=str(socket_path))
    kept = KeptProcess(
        "splitsecond.log.store.log_process",
        msgspec.json.encode(wanted),
        name="log process",
        consequence="records wait for it",
        stop_s=LOG_STOP_S,
    )
    async with kept.running():
        yield
    settle_all(socket_path)


@contextlib.asynccontextmanager
async def fleet_process(
    settings: GatewaySettings, slot: WorkerSlot, port: int
) -> AsyncIterator[Callable[[GatewaySettings], Awaitable[None]]]:
    """Run the fleet process while the context is open, if the gateway is in a fleet.

    `slot`: that of any worker, for what the workers share. `port`: that of the gateway, a part of its name.
    """
    tables, folder = slot.shared, slot.folder
    if settings.shared is None or tables is None or folder is None:
        yield _nothing
        return
    gateway, instance = f"{socket.gethostname()}:{port}", secrets.token_hex(8)
    workers, url = settings.listen.workers, settings.shared.url

    def line(wanted: GatewaySettings) -> bytes:
        keys = tuple(
            LimitedKey(each.name, each.requests_per_minute, each.usd_per_day)
            for each in wanted.keys
            if each.requests_per_minute is not None or each.usd_per_day is not None
        )
        return msgspec.json.encode(
            FleetProcessSettings(
                url=url,
                gateway=gateway,
                instance=instance,
                folder=folder,
                counters=tables.counters,
                ceilings=tables.ceilings,
                workers=workers,
                keys=keys,
            )
        )

    kept = KeptProcess(
        MODULE,
        line(settings),
        name="fleet process",
        consequence="the gateway keeps its part of each limit",
        stop_s=FLEET_STOP_S,
        announces=True,
        inherited=(tables.counters, tables.ceilings),
    )
    async with kept.running():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(kept.ready.wait(), FLEET_START_S)
        yield lambda wanted: kept.send(line(wanted))


async def _nothing(settings: GatewaySettings) -> None:
    pass
