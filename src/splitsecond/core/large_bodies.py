"""Large bodies: work on them, in threads, so that it delays no other request, and a bound on those
that are held.

A step of the event loop holds all requests of the process, and reading, estimating or translating
30 MB takes hundreds of milliseconds. In a thread only single calls of C code hold them, for some
tens of milliseconds at most. There are two threads, and each client uses one at a time, so that one
client's bodies do not delay those of others.

Large answers are held until they are complete, or for several readers. The size of one is limited,
but many calls at once, for embeddings for instance, can have large ones.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Overloaded

LARGE_BYTES = 1 << 20
"""A body with more bytes than this is large. Work on a smaller one takes some milliseconds at most,
and it need not be counted."""
MAX_BYTES = 512 << 20
"""Bytes of all answers that are held."""

P = ParamSpec("P")
T = TypeVar("T")

_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


async def off_loop(
    client: str, work: Callable[P, T], *arguments: P.args, **settings: P.kwargs
) -> T:
    """Return what `work` returns for these arguments, called in a thread. It must not change what
    the loop uses."""
    turn = _turns.get(client)
    if turn is None:
        turn = _turns[client] = asyncio.Lock()
    loop = asyncio.get_running_loop()
    async with turn:
        return await loop.run_in_executor(_threads(), lambda: work(*arguments, **settings))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="large bodies")


class HeldAnswer:
    """The bytes of an answer that one object holds. They are released with the object."""

    __slots__ = ("_size",)
    _total = 0  # of all

    def __init__(self) -> None:
        self._size = 0

    def hold(self, size: int) -> None:
        """Hold `size` bytes in all. Raises `Overloaded` if all answers together take too much; then
        it holds none."""
        HeldAnswer._total += size - self._size
        self._size = size
        if HeldAnswer._total > MAX_BYTES:
            self.release()
            message = f"the answers that are held take more than {MAX_BYTES:,} bytes"
            raise Overloaded(
                message, hint="Request fewer large answers at once.", retry_after_ns=NS_PER_S
            )

    def release(self) -> None:
        HeldAnswer._total -= self._size
        self._size = 0

    def __del__(self) -> None:
        self.release()
