"""Work on large bodies, in threads, so that it delays no other request.

A step of the event loop holds all requests of the process, and reading, estimating or translating 30 MB takes hundreds
of milliseconds. In a thread only single calls of C code hold them, for some tens of milliseconds at most. There are two
threads, and each client uses one at a time, so that one client's bodies do not delay those of others.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

LARGE_BYTES = 1 << 20
"""A body with more bytes than this is large. Work on a smaller one takes some milliseconds at most."""

P = ParamSpec("P")
T = TypeVar("T")

_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


async def off_loop(client: str, work: Callable[P, T], *arguments: P.args, **settings: P.kwargs) -> T:
    """Return what `work` returns for these arguments, called in a thread. It must not change what the loop uses."""
    turn = _turns.get(client)
    if turn is None:
        turn = _turns[client] = asyncio.Lock()
    loop = asyncio.get_running_loop()
    async with turn:
        return await loop.run_in_executor(_threads(), lambda: work(*arguments, **settings))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=2, thread_name_prefix="large bodies")
