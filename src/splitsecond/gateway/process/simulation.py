"""The simulator behind `sim/PROFILE` targets: one process for the whole gateway, started when it is
needed.

The gateway binds the simulator's socket at its start, so its address is known before any process
exists. The process starts at once if a route names a simulated target, otherwise at the first
connection; one that dies is replaced at the next connection.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

from splitsecond.core.child_process import ChildProcess, how_it_ended
from splitsecond.core.loading import module_command
from splitsecond.core.serving.listening import base_url, bind
from splitsecond.gateway.process.keeping import keep_running
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.router.settings import simulated_profiles

START_S = 120.0
"""Timeout of the start, after which the gateway serves anyway."""
STOP_S = 5.0


def bind_simulator() -> socket.socket:
    (listening,) = bind("127.0.0.1", 0)
    return listening


def simulator_url(listening: socket.socket) -> str:
    return base_url(listening).removesuffix("/v1")


@contextlib.asynccontextmanager
async def simulator(
    listening: socket.socket | None, settings: GatewaySettings
) -> AsyncIterator[None]:
    if listening is None:
        yield
        return
    ready = asyncio.Event()
    needed = bool(simulated_profiles(settings))
    running = asyncio.create_task(_keep_running(listening, ready, at_once=needed))
    try:
        if needed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ready.wait(), START_S)
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _keep_running(listening: socket.socket, ready: asyncio.Event, *, at_once: bool) -> None:
    async def run() -> str:
        nonlocal at_once
        if not at_once:
            await _connected(listening)
        at_once = False
        try:
            return how_it_ended(await _run(listening, ready))
        finally:
            ready.set()  # or not: the gateway does not wait for it any longer

    await keep_running(
        "The simulator", run, asyncio.Event(), so=", at the next request to a sim/ target"
    )


async def _connected(listening: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    connected = asyncio.Event()
    loop.add_reader(listening.fileno(), connected.set)
    try:
        await connected.wait()
    finally:
        loop.remove_reader(listening.fileno())


async def _run(listening: socket.socket, ready: asyncio.Event) -> int:
    number = listening.fileno()
    command = (*module_command("splitsecond.simulator"), "--descriptor", str(number))
    process = await ChildProcess.start(*command, inherited=(number,))
    try:
        await process.read_line()  # READY, or the end of a process that has failed
        ready.set()
        return await process.wait()
    finally:
        await process.stop(STOP_S)
