"""One worker: all parts of the gateway put together, on uvloop, from the first answer to an end in good order.

A gateway of one worker is this and nothing more. Of several each is a process of its own, started by `supervisor`.

At SIGTERM or SIGINT it says that it is not ready, takes no new connections, gives answers under way `DRAIN_S` to end,
and breaks off the rest; a second signal breaks them off at once. What was served is written to the log either way.
"""

import asyncio
import contextlib
import gc
import signal
import socket
from collections import deque
from collections.abc import Callable, Iterator

import uvicorn
import uvloop
from msgspec import Struct

from splitsecond.gateway.app import Gateway
from splitsecond.gateway.connection import Connection
from splitsecond.gateway.ports import BACKLOG, bound, url
from splitsecond.gateway.reload import Source, Watch, on_hangup
from splitsecond.gateway.routes import Routes
from splitsecond.gateway.settings import Settings
from splitsecond.timing.observation import Observation
from splitsecond.transport.client import Client
from splitsecond.upstream.attempt import Observer

KEEP_ALIVE_S = 75
DRAIN_S = 30
UNWIND_S = 2.0
"""How long what was broken off may take to close its connections and leave its observations."""
REMEMBERED = 10_000
"""Observations that are kept where nobody else takes them."""


class Seat(Struct, frozen=True, kw_only=True):
    """Which of a gateway's workers this is. `folder`: one that all may write to, gone at the end; None: it is alone."""

    number: int = 0
    workers: int = 1
    folder: str | None = None


class Worker:
    """All parts of the gateway, put together. Use it within one event loop, and close it at the end."""

    def __init__(self, settings: Settings, seat: Seat | None = None, observer: Observer | None = None) -> None:
        """`observer`: gets each attempt's observation. Raises `CallerFault` for settings that cannot be built."""
        seen: deque[Observation] = deque(maxlen=REMEMBERED)
        self._seat = seat or Seat()
        self._observer = observer or seen.append
        self._client = Client()
        routes = built(settings, self._observer, self._client)
        self.gateway = Gateway(routes, settings.keys, max_body_bytes=_max_body_bytes(settings))

    def take(self, settings: Settings) -> None:
        """Serves by other settings from the next request on. Raises `CallerFault`, and nothing has changed.

        Requests under way end as they began. Connections are kept, and are used again where the provider is the same.
        """
        routes = built(settings, self._observer, self._client)
        self.gateway.use(routes, settings.keys, max_body_bytes=_max_body_bytes(settings))

    def close(self) -> None:
        """Closes every connection to a provider."""
        self._client.close()


def built(settings: Settings, observer: Observer, client: Client) -> Routes:
    """The routes of `settings`. Raises `CallerFault` where they cannot be built; sends nothing and opens nothing."""
    return Routes(settings, observer, client)


class Server(uvicorn.Server):
    """uvicorn's server, with signals of ours: `end` is called for each, `ready` when it answers."""

    def __init__(self, gateway: Gateway, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                gateway,
                http=Connection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                proxy_headers=False,
                server_header=False,
                access_log=False,
                log_level="warning",
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=DRAIN_S,
            )
        )
        self._gateway = gateway
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.freeze()  # what start-up left behind need not be looked through again and again
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """In the place of uvicorn's, which ends the process by the signal before it could close anything."""
        loop = asyncio.get_running_loop()
        handled = (signal.SIGTERM, signal.SIGINT)
        for each in handled:
            loop.add_signal_handler(each, self.end)
        try:
            yield
        finally:
            for each in handled:
                loop.remove_signal_handler(each)

    def end(self) -> None:
        """In good order; at once, where that was asked for already."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._gateway.draining = True

    async def unwound(self) -> None:
        """Breaks off what is still under way."""
        if left := list(self.server_state.tasks):
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=UNWIND_S)


async def served(worker: Worker, listening: socket.socket, server: Server) -> None:
    """Serves until it is told to end."""
    try:
        await server.serve([listening])
        await server.unwound()
    finally:
        worker.close()


def serve(source: Source, settings: Settings, observer: Observer | None = None) -> None:
    """Serve in this process until SIGINT or SIGTERM. Prints ``READY url`` when it answers.

    Raises `CallerFault`: an address that cannot be had, settings that cannot be built.
    """
    (listening,) = bound(settings.listen.host, settings.listen.port)
    with listening, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(source, settings, observer, listening))


async def _serve(source: Source, settings: Settings, observer: Observer | None, listening: socket.socket) -> None:
    worker = Worker(settings, observer=observer)
    address = url(listening)

    async def take(found: Settings) -> None:
        worker.take(found)

    watch = Watch(source, settings, take)
    server = Server(worker.gateway, lambda: print(f"READY {address}", flush=True))
    on_hangup(watch.now, server.end)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch.run())
        await served(worker, listening, server)
        watching.cancel()


def _max_body_bytes(settings: Settings) -> int:
    return settings.listen.max_body_mib << 20
