"""The HTTP server of one worker, from its start to an orderly shutdown.

At SIGTERM or SIGINT the worker reports that it is not ready, accepts no new connections, waits up
to `listen.drain_s` for responses in flight, and cancels the rest; a second signal cancels them at
once.
"""

import asyncio
import gc
import socket
from collections.abc import Callable

from splitsecond.core.errors import say
from splitsecond.core.internal_errors import handling
from splitsecond.core.serving.accepting import MAX_FILES, Accepting
from splitsecond.core.serving.server import HttpServer, Listener
from splitsecond.core.transport.kernel import raise_file_limit
from splitsecond.gateway.process.worker import GatewayWorker

GARBAGE_OBJECTS = 20_000
"""New objects after which the garbage collector runs, a few megabytes. Reference cycles are
rare."""


def worker_server(
    worker: GatewayWorker,
    listening: socket.socket,
    drain_s: float,
    on_end: Callable[[], None] = lambda: None,
) -> HttpServer:
    def drain() -> None:
        worker.gateway.draining = True
        on_end()

    accepting = Accepting(raise_file_limit(MAX_FILES), say)
    return HttpServer(
        [Listener(listening, worker.gateway)], drain_s=drain_s, on_end=drain, accepting=accepting
    )


async def run_worker(worker: GatewayWorker, server: HttpServer, ready: Callable[[], None]) -> None:
    learning: list[asyncio.Task[None]] = []
    with handling(worker.metrics_changed):
        try:
            async with asyncio.TaskGroup() as group:

                def begin() -> None:
                    gc.set_threshold(GARBAGE_OBJECTS)
                    ready()
                    worker.metrics_changed()  # so that the hub knows this process
                    # after `ready`: it uses the CPU for a while
                    learning.append(group.create_task(worker.learn()))
                    learning.append(group.create_task(worker.exchange()))

                await server.serve(begin)
                for task in learning:
                    task.cancel()
        finally:
            await worker.router.drain()
            worker.close()
