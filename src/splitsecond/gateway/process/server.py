"""A gateway with one worker, in this process, on uvloop."""

import asyncio
import contextlib
import socket
from functools import partial
from pathlib import Path

import uvloop

from splitsecond.core.errors import say
from splitsecond.core.internal_errors import first_fault
from splitsecond.core.serving.listening import base_url, bind
from splitsecond.gateway.process.hub_process import gateway_folder, hub, hub_socket
from splitsecond.gateway.process.reload import ConfigSource, ConfigWatcher, on_hangup
from splitsecond.gateway.process.service_manager import ServiceManager
from splitsecond.gateway.process.session_table import session_table
from splitsecond.gateway.process.simulation import simulator
from splitsecond.gateway.process.slot import WorkerSlot
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.gateway.process.worker_server import run_worker, worker_server
from splitsecond.gateway.records.orphans import journal_stem, open_journal, recover, remove_journals
from splitsecond.routing.configuration.settings import GatewaySettings


def serve(
    source: ConfigSource, settings: GatewaySettings, simulated: socket.socket | None = None
) -> None:
    """Serve in this process until SIGINT or SIGTERM. Prints ``READY url dashboard=url`` when it
    accepts requests.

    Raises `CallerFault`: the address is not available, or a policy cannot be built.
    """
    (listening,) = bind(settings.listen.host, settings.listen.port)
    with listening, contextlib.ExitStack() as stack:
        hub_at = hub_socket(gateway_folder(stack).path)
        sessions = stack.enter_context(session_table(settings.log, say))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(_serve(source, settings, listening, hub_at, sessions, simulated))
            except BaseExceptionGroup as failures:
                raise first_fault(failures) from None


async def _serve(
    source: ConfigSource,
    settings: GatewaySettings,
    listening: socket.socket,
    hub_at: Path,
    sessions: int,
    simulated: socket.socket | None,
) -> None:
    recover(settings.log, say)
    stem = journal_stem(settings.log)
    slot = WorkerSlot(
        sessions=sessions,
        journal=None if stem is None else open_journal(stem, 0, say),
        hub=str(hub_at),
    )
    address = base_url(listening)
    async with hub(settings, hub_at), simulator(simulated, settings):
        worker = GatewayWorker(settings, slot)

        async def apply(new_settings: GatewaySettings) -> None:
            worker.renew(new_settings)

        manager = ServiceManager(say)
        watcher = ConfigWatcher(source, settings, apply, manager)
        server = worker_server(worker, listening, settings.listen.drain_s, manager.stopping)
        on_hangup(watcher.now, server.end)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watcher.run())
            living = group.create_task(manager.keep_alive())
            has_page = settings.listen.metrics != "off"
            announce = partial(manager.announce, address, dashboard=has_page)
            await run_worker(worker, server, announce)
            watching.cancel()
            living.cancel()
    remove_journals(stem)
