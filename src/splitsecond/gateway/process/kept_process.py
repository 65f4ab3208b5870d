"""The hub, a child process that is replaced when it dies, and ends after the workers."""

import asyncio
import contextlib
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from splitsecond.core import clock, internal_errors
from splitsecond.core.child_process import ChildProcess, how_it_ended
from splitsecond.core.errors import CallerFault, file_faults, say
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.scratch import Scratch, scratch_folder
from splitsecond.gateway.fleet.settings import FleetSettings, LimitedKey
from splitsecond.gateway.hub.settings import MODULE, HubSettings
from splitsecond.gateway.process.worker import WorkerSlot
from splitsecond.log.store.record_counts import settle_all
from splitsecond.routing.configuration.settings import GatewaySettings

STOP_S = 10.0
"""Time that the hub has to write the last records before it is killed."""
FLEET_STOP_S = 40.0
"""The same, if it also has to leave a fleet."""
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


def hub_socket(folder: Path) -> Path:
    """Return the path of the hub's socket in the gateway's temporary folder.

    Raises `CallerFault` if a socket cannot have that path.
    """
    path = folder / "hub"
    if len(bytes(path)) > LONGEST_PATH:
        raise CallerFault(
            f"the temporary folder {folder.parent} has a path that is too long for a socket",
            kind="bad_config",
            hint="Set TMPDIR to a folder with a shorter path.",
        )
    return path


class KeptProcess:
    """A child process that is replaced when it dies. Its settings are a line on its standard input.

    `name` and `consequence` are for messages: "hub", and what its absence means. With `announces`, it writes a
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
async def hub(
    settings: GatewaySettings, socket_path: Path, slot: WorkerSlot | None = None, port: int = 0
) -> AsyncIterator[Callable[[GatewaySettings], Awaitable[None]]]:
    """Run the hub while the context is open. Leave it after the workers have ended.

    `slot`: that of any worker, for what the workers share; None: there is only one worker, which needs a hub only for
    the log. `port`: that of the gateway, a part of its name. Yields what sends new settings to the hub.
    """
    tables = None if slot is None else slot.shared
    if settings.log is None and tables is None:
        yield nothing
        return
    gateway, instance = f"{socket.gethostname()}:{port}", secrets.token_hex(8)

    def line(wanted: GatewaySettings) -> bytes:
        fleet = None
        if settings.shared is not None and tables is not None:
            keys = tuple(
                LimitedKey(each.name, each.requests_per_minute, each.usd_per_day)
                for each in wanted.keys
                if each.requests_per_minute is not None or each.usd_per_day is not None
            )
            fleet = FleetSettings(
                url=settings.shared.url,
                gateway=gateway,
                instance=instance,
                counters=tables.counters,
                ceilings=tables.ceilings,
                workers=settings.listen.workers,
                keys=keys,
            )
        errors = dict(internal_errors.counts)
        return msgspec.json.encode(
            HubSettings(socket=str(socket_path), log=settings.log, fleet=fleet, internal_errors=errors)
        )

    in_fleet = settings.shared is not None and tables is not None
    kept = KeptProcess(
        MODULE,
        line(settings),
        name="hub",
        consequence="records wait for it" if settings.log is not None else "each worker knows its own metrics only",
        stop_s=FLEET_STOP_S if in_fleet else STOP_S,
        announces=in_fleet,
        inherited=() if tables is None or not in_fleet else (tables.counters, tables.ceilings),
    )
    async with kept.running():
        if in_fleet:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kept.ready.wait(), FLEET_START_S)
        yield lambda wanted: kept.send(line(wanted))
    settle_all(socket_path)


async def nothing(settings: GatewaySettings) -> None:
    pass
