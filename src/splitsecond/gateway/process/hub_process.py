"""The hub, a child process that is replaced when it dies, and ends after the workers."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from splitsecond.core import internal_errors
from splitsecond.core.child_process import ChildProcess, how_it_ended
from splitsecond.core.errors import CallerFault, file_faults, say
from splitsecond.core.loading import module_command
from splitsecond.core.scratch import Scratch, scratch_folder
from splitsecond.gateway.fleet.settings import FleetSettings, LimitedKey
from splitsecond.gateway.hub.settings import MODULE, HubSettings
from splitsecond.gateway.process.keeping import keep_running
from splitsecond.gateway.process.slot import WorkerSlot
from splitsecond.log.store.record_counts import settle_all
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.router.settings import ClientKey, Team

STOP_S = 10.0
"""Time that the hub has to write the last records before it is killed."""
FLEET_STOP_S = 40.0
"""The same, if it also has to leave a fleet."""
FLEET_START_S = 8.0
"""How long the workers wait for the first answer of the fleet's database."""
LONGEST_PATH = 107
"""Longest path of a Unix socket in bytes (Linux, unix(7))."""


def gateway_folder(stack: contextlib.ExitStack) -> Scratch:
    """Create the gateway's temporary folder, until `stack` is closed. Raises `CallerFault` if none
    can be created."""
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


class HubProcess:
    """The hub as a child process that is replaced when it dies. Its settings are a line on its
    standard input.

    `ready`: it has asked the database of the fleet for the first time.
    """

    def __init__(self, settings: HubSettings) -> None:
        self._settings = settings
        self._process: ChildProcess | None = None
        self._ending = asyncio.Event()
        self.ready = asyncio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:
            so = ", and records wait for it" if self._settings.log is not None else ""
            group.create_task(keep_running("The hub", self._run, self._ending, so=so))
            try:
                yield
            finally:
                self._ending.set()

    async def send(self, settings: HubSettings) -> None:
        self._settings = settings
        if self._process is not None:
            await self._process.write(msgspec.json.encode(settings) + b"\n")

    async def _run(self) -> str:
        fleet = self._settings.fleet
        tables = () if fleet is None else (fleet.counters, fleet.ceilings, fleet.budgets)
        process = await ChildProcess.start(*module_command(MODULE), inherited=tables)
        waiting: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(process.wait()),
            asyncio.ensure_future(self._ending.wait()),
            asyncio.ensure_future(self._wait_until_ready(process)),
        ]
        patience_s = 0.0
        try:
            self._process = process
            await self.send(self._settings)
            await asyncio.wait(waiting[:2], return_when=asyncio.FIRST_COMPLETED)
            patience_s = STOP_S if fleet is None else FLEET_STOP_S
        finally:
            self._process = None
            for each in waiting:
                each.cancel()
            code = await process.stop(patience_s)
        if code and self._ending.is_set():
            say(f"The hub {how_it_ended(code)}; its last records may be lost.")
        return how_it_ended(code)

    async def _wait_until_ready(self, process: ChildProcess) -> None:
        if await process.read_line() is not None:
            self.ready.set()


def limited_keys(keys: Iterable[ClientKey]) -> tuple[LimitedKey, ...]:
    bearers = {bearer.counter: bearer for key in keys for bearer in key.bearers}
    return tuple(
        LimitedKey(
            each.name,
            each.requests_per_minute,
            each.usd_per_day,
            each.usd_per_month,
            is_team=isinstance(each, Team),
        )
        for each in bearers.values()
    )


@contextlib.asynccontextmanager
async def hub(
    settings: GatewaySettings, socket_path: Path, slot: WorkerSlot | None = None, port: int = 0
) -> AsyncIterator[Callable[[GatewaySettings], Awaitable[None]]]:
    """Run the hub while the context is open. Leave it after the workers have ended.

    `slot`: that of any worker, for what the workers share; None: there is only one worker, which
    needs a hub only for the log. `port`: that of the gateway, a part of its name. Yields what sends
    new settings to the hub.
    """
    tables = None if slot is None else slot.shared
    name, instance = f"{socket.gethostname()}:{port}", secrets.token_hex(8)

    def hub_settings(new_settings: GatewaySettings) -> HubSettings:
        fleet = None
        if settings.shared is not None and tables is not None:
            fleet = FleetSettings(
                url=settings.shared.url,
                gateway=name,
                instance=instance,
                counters=tables.counters,
                ceilings=tables.ceilings,
                budgets=tables.budgets,
                workers=settings.listen.workers,
                keys=limited_keys(new_settings.keys),
            )
        errors = dict(internal_errors.counts)
        return HubSettings(
            socket=str(socket_path), log=settings.log, fleet=fleet, internal_errors=errors
        )

    begin = hub_settings(settings)
    process = HubProcess(begin)
    if settings.log is None and tables is None:
        yield lambda new_settings: process.send(hub_settings(new_settings))
        return
    async with process.running():
        if begin.fleet is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.ready.wait(), FLEET_START_S)
        yield lambda new_settings: process.send(hub_settings(new_settings))
    settle_all(socket_path)
