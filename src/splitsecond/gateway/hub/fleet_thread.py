"""The thread of the hub that keeps the gateway in its fleet, so that no disk and no log delays
that."""

import asyncio
import logging
import os
import socket
from collections.abc import Iterable
from contextlib import suppress
from threading import Thread

from splitsecond.core.errors import say
from splitsecond.core.internal_errors import contained, handling
from splitsecond.gateway.fleet.member import FleetMember
from splitsecond.gateway.fleet.settings import FleetSettings, LimitedKey
from splitsecond.gateway.fleet.view import FleetView, WorkerReport
from splitsecond.gateway.records.metric_fields import ProcessMetrics


class FleetThread:
    """Runs a `FleetMember`. It writes a line to standard output when the database has been asked
    for the first time.

    `changed` becomes readable when there are `views` for workers, by number.
    """

    def __init__(self, settings: FleetSettings) -> None:
        self.changed, self._change = socket.socketpair()
        self._change.setblocking(False)
        self._views: dict[int, FleetView] = {}
        self._member = FleetMember(settings, say, self._publish)
        self._loop = asyncio.new_event_loop()
        self._ending = asyncio.Event()
        run = self._loop.run_until_complete
        self._thread = Thread(
            target=run, args=(self._run(),), name="splitsecond-fleet", daemon=True
        )
        self._thread.start()

    @property
    def lives(self) -> bool:
        return self._thread.is_alive()

    def report(self, worker: int, report: WorkerReport) -> None:
        self._member.learning.reports[worker] = report

    def views(self) -> dict[int, FleetView]:
        """Return the views since the last call, by the number of their workers."""
        self.changed.recv(1 << 16)
        views, self._views = self._views, {}
        return views

    def metrics(self) -> ProcessMetrics:
        return self._member.metrics()

    def use(self, keys: Iterable[LimitedKey]) -> None:
        self._loop.call_soon_threadsafe(self._member.use, keys)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)

    def join(self) -> None:
        self._thread.join()

    async def _run(self) -> None:
        # it warns about connections that are cut here
        logging.getLogger("psycopg").setLevel(logging.ERROR)
        with handling():
            with contained("task"):
                await self._member.step()
            with suppress(BrokenPipeError):  # the supervisor has died, so the input has ended too
                os.write(1, b"READY\n")
            await self._member.run(self._ending)

    def _publish(self, worker: int, view: FleetView) -> None:
        self._views[worker] = view
        with suppress(BlockingIOError):  # the hub has not read the last bytes
            self._change.send(b"\0")
