"""A server: accepts connections on several sockets until SIGTERM or SIGINT, and then shuts down
gracefully."""

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from splitsecond.core.serving.accepting import Accepting
from splitsecond.core.serving.connection import HEAD_S, ServerConnection
from splitsecond.core.serving.listening import BACKLOG
from splitsecond.core.serving.request_cycle import Application, ServerState

TICK_S = 0.5
"""How often the Date header is updated, and how soon accepting resumes when descriptors have become
free."""
POLL_S = 0.02
"""How often the server checks during its shutdown whether all connections have closed."""
UNWIND_S = 2.0
"""How long cancelled requests may take to close their connections and report their observations."""


class Listener(Struct, frozen=True):
    """A listening TCP socket with its application.

    `on_connect` is called with each new connection, in place of the check of file descriptors.
    """

    socket: socket.socket
    application: Application
    on_connect: Callable[[ServerConnection], None] | None = None


class HttpServer:
    """Serves `listeners` in the running event loop.

    `drain_s` limits how long responses in progress may take after the first signal. `on_end` is
    called at each signal. With `accepting`, connections wait in the kernel's queue while too few
    file descriptors are free. `first_request_s` limits how long a new connection may take to send
    its first headers.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        drain_s: float,
        on_end: Callable[[], None],
        accepting: Accepting | None = None,
        first_request_s: float = HEAD_S,
    ) -> None:
        self._listeners = listeners
        self._drain_s = drain_s
        self._on_end = on_end
        self._accepting = accepting
        self._state = ServerState(first_request_s=first_request_s)
        self._servers: list[asyncio.AbstractServer] = []
        self._ended = asyncio.Event()
        self._forced = False

    async def serve(self, ready: Callable[[], None]) -> None:
        with self._signals():
            await self._listen()
            gc.freeze()  # the garbage collector need not scan the objects of the start-up
            ready()
            await self._run()
            await self._shut_down()

    def end(self) -> None:
        self._forced = self._ended.is_set()
        self._ended.set()
        self._on_end()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = (signal.SIGTERM, signal.SIGINT)
        for each in handled:
            loop.add_signal_handler(each, self.end)
        try:
            yield
        finally:
            for each in handled:
                loop.remove_signal_handler(each)

    async def _listen(self) -> None:
        """Accept connections. The original sockets stay open while accepting pauses, and keep the
        kernel's queue."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            # Accepted sockets inherit it. asyncio sets it only if the listening socket has an
            # explicit protocol number; without it, bytes after the headers wait up to 40 ms until
            # the client acknowledges the headers.
            listener.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = partial(self._connection, listener)
            self._servers.append(
                await loop.create_server(connection, sock=listener.socket.dup(), backlog=BACKLOG)
            )

    def _connection(self, listener: Listener) -> ServerConnection:
        return ServerConnection(
            listener.application, self._state, listener.on_connect or self._admit
        )

    def _admit(self, connection: ServerConnection) -> None:
        if self._accepting is None:
            return
        if not self._accepting.admit(connection.transport.get_extra_info("socket").fileno()):
            self._stop_listening()
            connection.refuse_connection(b"The server has too many open connections.")

    def _stop_listening(self) -> None:
        for each in self._servers:
            each.close()
        self._servers = []

    async def _run(self) -> None:
        accepting = self._accepting
        while not self._ended.is_set():
            self._state.update_date()
            if accepting is not None and accepting.paused and accepting.may_resume():
                accepting.paused = False
                try:
                    await self._listen()
                except OSError:  # others have taken the descriptors
                    self._stop_listening()
                    accepting.paused = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._ended.wait()

    async def _shut_down(self) -> None:
        state = self._state
        state.ending = True
        self._stop_listening()
        for listener in self._listeners:
            listener.socket.close()  # or new clients would wait in its queue
        for each in list(state.connections):
            each.shut_down()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_s):
                while (state.connections or state.tasks) and not self._forced:  # noqa: ASYNC110 # events cost more
                    await asyncio.sleep(POLL_S)
        if remaining := list(state.tasks):
            for task in remaining:
                task.cancel()
            await asyncio.wait(remaining, timeout=UNWIND_S)
