"""The Python API in a synchronous form: ``import splitsecond.sync as ss``.

Every function and method of the asynchronous API that awaits something has a counterpart here that
returns when it is done. All of them run in one event loop in a background thread, so they also work
where a loop runs already (Jupyter). Ctrl-C cancels what runs and waits until it has ended, so that
what was measured is kept.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import cache, wraps
from typing import Any, ParamSpec, Self, TypeVar

from splitsecond.api import batch as batches
from splitsecond.api import benchmarks, commands, replays
from splitsecond.api.batch import BatchRun
from splitsecond.api.commands import CommandResult
from splitsecond.api.connection import ChatReply, Connection, Messages
from splitsecond.api.results import BenchRun, compare, load
from splitsecond.benchmark.runs.settings import Server

__all__ = [
    "BatchRun",
    "BenchRun",
    "ChatReply",
    "CommandResult",
    "Server",
    "SyncConnection",
    "batch",
    "bench",
    "capacity",
    "compare",
    "connect",
    "cost",
    "import_log",
    "load",
    "recommend",
    "speed",
    "watch",
    "what_if",
]

P = ParamSpec("P")
T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the background thread, which ends with the process."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="splitsecond", daemon=True).start()
    return loop


def _run(work: Coroutine[Any, Any, T]) -> T:
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except KeyboardInterrupt:
        if not future.done():
            ended = threading.Event()
            future.add_done_callback(lambda _: ended.set())
            future.cancel()
            ended.wait()
        raise


def _waiting(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return the synchronous form of a coroutine function."""

    @wraps(function)
    def waiting(*args: P.args, **keywords: P.kwargs) -> T:
        return _run(function(*args, **keywords))

    return waiting


def _iterating(function: Callable[P, AsyncIterator[T]]) -> Callable[P, Iterator[T]]:
    """Return the synchronous form of an asynchronous generator function."""

    @wraps(function)
    def iterating(*args: P.args, **keywords: P.kwargs) -> Iterator[T]:
        return _each(function(*args, **keywords))

    return iterating


def _each(items: AsyncIterator[T]) -> Iterator[T]:
    async def following() -> T:
        return await anext(items)

    try:
        while True:
            try:
                item = _run(following())
            except StopAsyncIteration:
                return
            yield item
    finally:
        _run(_closed(items))


async def _closed(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


batch = _waiting(batches.batch)
bench = _waiting(benchmarks.bench)
capacity = _waiting(benchmarks.capacity)
cost = _waiting(commands.cost)
import_log = _waiting(commands.import_log)
recommend = _waiting(commands.recommend)
speed = _waiting(commands.speed)
watch = _iterating(benchmarks.watch)
what_if = _waiting(replays.what_if)


class SyncConnection:
    """A `Connection` whose methods return when they are done. Use it as a context manager."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return repr(self._connection)

    def __enter__(self) -> Self:
        _run(self._connection.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        _run(self._connection.__aexit__())

    def chat(self, messages: Messages, *, timeout: float | None = None, **body: Any) -> ChatReply:
        """Send a chat request and return the complete response; see `Connection.chat`."""
        return _run(self._connection.chat(messages, timeout=timeout, **body))

    def stream(
        self, messages: Messages, *, timeout: float | None = None, **body: Any
    ) -> Iterator[str]:
        """Yield the pieces of text of a response as they arrive; see `Connection.stream`."""
        return _each(aiter(self._connection.stream(messages, timeout=timeout, **body)))


def connect(
    policy: str | Server,
    servers: Sequence[Server] = (),
    *,
    headers: Mapping[str, str] | None = None,
) -> SyncConnection:
    """Return a connection to be used with ``with``; see `splitsecond.connect`."""
    return SyncConnection(Connection(policy, servers, headers=headers))
