"""The supervisor of several workers: it binds the port, reads the settings, starts the workers and
replaces dead ones.

Only the supervisor reads the configuration. It sends the settings to each worker through the
worker's standard input, so secrets appear in no command line or environment, all workers run on the
same settings, and an error in a file is reported once. A worker ends when that pipe closes, so none
survives the supervisor, however the supervisor ends.

Signals go to the supervisor, which forwards them; workers run in sessions of their own, so signals
of the terminal do not reach them.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from splitsecond.core.child_process import ChildProcess, how_it_ended, passes
from splitsecond.core.errors import CallerFault, Fault, say
from splitsecond.core.internal_errors import contained, first_fault, handling
from splitsecond.core.loading import module_command
from splitsecond.core.serving.listening import base_url, bind
from splitsecond.gateway.process.hub_process import gateway_folder, hub, hub_socket
from splitsecond.gateway.process.keeping import keep_running
from splitsecond.gateway.process.reload import ConfigSource, ConfigWatcher, on_hangup
from splitsecond.gateway.process.service_manager import ServiceManager
from splitsecond.gateway.process.session_table import session_table
from splitsecond.gateway.process.simulation import simulator
from splitsecond.gateway.process.slot import SharedTables, WorkerSlot
from splitsecond.gateway.records.journal import Journal
from splitsecond.gateway.records.orphans import (
    journal_stem,
    log_orphans,
    open_journal,
    recover,
    remove_journals,
    settle,
)
from splitsecond.gateway.records.shared_counters import SharedCounters
from splitsecond.routing.configuration.settings import GatewaySettings, decode, encode
from splitsecond.routing.router.router import check_settings

START_S = 120.0
"""Timeout of a worker's start. It takes a second or two, but half a minute or more on a machine
that is overloaded."""
APPLY_S = 10.0
"""Timeout after which a worker is reported that has not applied new settings."""
STOP_S = 10.0
"""Time that a worker has to end after `listen.drain_s` before it is killed."""
MAX_FAILED_STARTS = 5
"""Workers of a slot that may die in a row before they are ready, as long as none of that slot has
ever been ready. The cause is then the configuration or the program, so the service ends. Once a
worker of the slot has been ready, dead ones are replaced without a limit: the cause is outside and
may pass, and the other workers keep serving."""
_ANSWERS = ("READY", "REFUSED")


class WorkersFailed(Fault):
    """Workers that die repeatedly. The cause is this machine or this program, not a request."""


def serve(
    source: ConfigSource, settings: GatewaySettings, simulated: socket.socket | None = None
) -> None:
    """Serve with several workers until SIGINT or SIGTERM. Prints ``READY url dashboard=url`` when
    all of them are ready.

    Raises `CallerFault`: the address is not available, or a policy cannot be built;
    `WorkersFailed`.
    """
    check_settings(settings)
    sockets = bind(settings.listen.host, settings.listen.port, settings.listen.workers)
    with contextlib.ExitStack() as stack:
        for each in sockets:
            stack.enter_context(each)
        scratch = gateway_folder(stack)
        recover(settings.log, say)
        journals, hub_at = journal_stem(settings.log), hub_socket(scratch.path)
        shared = SharedTables.create(len(sockets))
        fleet = "" if settings.shared is None else settings.shared.url
        sessions = stack.enter_context(session_table(settings.log, say, shared=fleet))
        slots = [
            WorkerSlot(
                number=number,
                workers=len(sockets),
                folder=str(scratch.path),
                shared=shared,
                sessions=sessions,
                journal=open_journal(journals, number, say),
                hub=str(hub_at),
            )
            for number in range(len(sockets))
        ]
        supervisor = Supervisor(source, settings, sockets, slots, (scratch.lock,))
        try:
            asyncio.run(supervisor.run(hub_at, simulated))
            if supervisor.settle():
                remove_journals(journals)
        except BaseExceptionGroup as failures:
            raise first_fault(failures) from None


class Supervisor:
    def __init__(
        self,
        source: ConfigSource,
        settings: GatewaySettings,
        sockets: Sequence[socket.socket],
        slots: Sequence[WorkerSlot],
        inherited: Sequence[int] = (),
    ) -> None:
        self._source = source
        self._settings = settings
        self._sockets = sockets
        self._slots = slots
        self._inherited = inherited
        self._workers: dict[int, WorkerProcess] = {}
        self._been_ready: set[int] = set()
        self._ending = asyncio.Event()
        self._signalled = False
        self._failure: WorkersFailed | None = None
        self._address = base_url(sockets[0])
        self._manager = ServiceManager(say)
        self._telling: asyncio.Future[None] | None = None
        self._tell_hub: Callable[[GatewaySettings], Awaitable[None]] | None = None

    async def run(self, hub_at: Path, simulated: socket.socket | None = None) -> None:
        """Run the workers until a signal has ended them.

        Raises `WorkersFailed`.
        """
        loop = asyncio.get_running_loop()
        watcher = ConfigWatcher(self._source, self._settings, self._apply, self._manager)
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._on_signal)
        on_hangup(watcher.now, self._on_signal)
        with handling(self._on_error):
            async with (
                hub(
                    self._settings, hub_at, self._slots[0], self._sockets[0].getsockname()[1]
                ) as self._tell_hub,
                simulator(simulated, self._settings),
                asyncio.TaskGroup() as group,
            ):
                watching = group.create_task(watcher.run())
                living = group.create_task(self._manager.keep_alive())
                pairs = zip(self._slots, self._sockets, strict=True)
                await asyncio.wait([group.create_task(self._run_slot(*pair)) for pair in pairs])
                watching.cancel()
                living.cancel()
        if self._failure is not None:
            raise self._failure

    def settle(self) -> bool:
        """Charge and log the calls of workers that died while the gateway was ending, and so were
        not replaced.

        If the log cannot be written, they are saved for the next start: the gateway ends in any
        case. Return False if they could not be saved either, so that the journals must be kept.
        """
        settled = [
            settle(
                SharedCounters(slot.shared.counters, workers=slot.workers, number=slot.number),
                Journal(slot.journal, say),
                worker=slot.number,
                keys=self._settings.keys,
                keep=lambda orphans: log_orphans(self._settings.log, orphans, say),
                say=say,
            )
            for slot in self._slots
            if slot.shared is not None and slot.journal is not None
        ]
        return all(settled)

    def _on_signal(self) -> None:
        first, self._signalled = not self._signalled, True
        if not (first and self._ending.is_set()):
            self._end()

    def _end(self) -> None:
        """Send a signal to the workers: the first makes them drain, the second makes them end at
        once.

        The ports are closed here as well, so that no connection waits in the queue of a socket that
        nobody reads.
        """
        self._manager.stopping()
        self._ending.set()
        for each in self._sockets:
            each.close()
        for worker in self._workers.values():
            worker.terminate()

    def _on_error(self) -> None:
        """Tell the hub how many internal errors there were: it counts them in the metrics."""
        if self._tell_hub is not None:
            self._telling = asyncio.ensure_future(self._tell_hub(self._settings))

    async def _apply(self, settings: GatewaySettings) -> None:
        check_settings(decode(encode(settings)))  # as a worker will read them
        if self._tell_hub is not None:
            await self._tell_hub(settings)
        self._settings = settings
        async with asyncio.TaskGroup() as group:
            for number, worker in self._workers.items():
                group.create_task(_update(number, worker, settings))

    async def _run_slot(self, slot: WorkerSlot, listening: socket.socket) -> None:
        failed_starts = 0

        async def run() -> str:
            nonlocal failed_starts
            end, was_ready = await self._run_worker(slot, listening)
            failed_starts = 0 if was_ready else failed_starts + 1
            return end

        def gives_up(end: str, error: Exception | None) -> bool:
            nonlocal failed_starts
            failed_starts += error is not None and not (
                isinstance(error, OSError) and passes(error)
            )
            if failed_starts < MAX_FAILED_STARTS or slot.number in self._been_ready:
                return False
            self._give_up(
                f"worker {slot.number} {end}; {failed_starts} in a row died before they were ready"
            )
            return True

        await keep_running(f"worker {slot.number}", run, self._ending, gives_up=gives_up)

    def _give_up(self, message: str) -> None:
        hint = "See the output of the workers above."
        self._failure = WorkersFailed(message, kind="workers_fail", phase="queue", hint=hint)
        self._end()

    async def _run_worker(self, slot: WorkerSlot, listening: socket.socket) -> tuple[str, bool]:
        """Return how it ended, in words, and whether it was ever ready.

        Raises `CallerFault` if the first worker of a slot rejects the settings.
        """
        worker = await WorkerProcess.start(slot, listening, self._inherited)
        self._workers[slot.number] = worker
        try:
            if self._ending.is_set():
                worker.terminate()
            settings = self._settings
            try:
                async with asyncio.timeout(START_S):
                    ready = await worker.apply(settings)
            except TimeoutError:
                return f"was not ready within {START_S:g} s", False
            except CallerFault as fault:
                if slot.number not in self._been_ready:
                    raise
                return f"could not start: {fault}", False
            if ready:
                if settings is not self._settings:  # they changed while it started
                    await _update(slot.number, worker, self._settings)
                self._mark_ready(slot.number)
            return await worker.ended(self._ending, self._settings.listen.drain_s + STOP_S), ready
        finally:
            del self._workers[slot.number]
            await worker.stop()

    def _mark_ready(self, number: int) -> None:
        waiting = len(self._been_ready) < len(self._slots)
        self._been_ready.add(number)
        if waiting and len(self._been_ready) == len(self._slots):
            has_page = self._settings.listen.metrics != "off"
            self._manager.announce(self._address, dashboard=has_page)


class WorkerProcess:
    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._lock = asyncio.Lock()

    @classmethod
    async def start(
        cls, slot: WorkerSlot, listening: socket.socket, inherited: Sequence[int]
    ) -> "WorkerProcess":
        number = listening.fileno()
        command: tuple[str | bytes, ...] = (
            *module_command("splitsecond.gateway"),
            str(number),
            msgspec.json.encode(slot),
        )
        return cls(
            await ChildProcess.start(*command, inherited=(number, *slot.descriptors, *inherited))
        )

    async def apply(self, settings: GatewaySettings) -> bool:
        """Send settings and wait until the worker serves by them. Return False if it has died.

        Raises `CallerFault` if the worker rejects them.
        """
        async with self._lock:
            await self._process.write(encode(settings))
            word = why = ""
            while word not in _ANSWERS and (line := await self._process.read_line()) is not None:
                word, _, why = line.decode("utf-8", "replace").partition(" ")
        if word == "REFUSED":
            raise CallerFault(why, kind="bad_config")
        return word == "READY"

    def terminate(self) -> None:
        self._process.terminate()

    async def ended(self, ending: asyncio.Event, patience_s: float) -> str:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(self._process.wait())
            limit = group.create_task(self._kill_after(ending, patience_s))
            waiting.add_done_callback(lambda _: limit.cancel())
        return how_it_ended(waiting.result())

    async def stop(self) -> None:
        await self._process.stop()

    async def _kill_after(self, ending: asyncio.Event, patience_s: float) -> None:
        await ending.wait()
        await asyncio.sleep(patience_s)
        self._process.kill()


async def _update(number: int, worker: WorkerProcess, settings: GatewaySettings) -> None:
    with contained("reload"):
        try:
            async with asyncio.timeout(APPLY_S):
                await worker.apply(settings)
        except TimeoutError:
            say(f"worker {number} has not applied the new settings within {APPLY_S:g} s.")
        except CallerFault as fault:
            say(f"worker {number} keeps its old settings: {fault}")
