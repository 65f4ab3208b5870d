"""Wait for what happens in another thread or process, on a machine of any speed."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from splitsecond.core import clock

Found = TypeVar("Found")
WITHIN_S = 180
"""A limit that no test reaches: how long a process may take that needs a second on an idle
machine."""
START_S = 300
"""The same for the start of a process, when others start beside it and each compiles its
modules."""
_PAUSE_S = 0.01


def until(found: Callable[[], Found], complaint: str) -> Found:
    """Call `found` until it returns something true, and return that. Fail after `WITHIN_S`."""
    give_up_ns = clock.now_ns() + WITHIN_S * clock.NS_PER_S
    while not (result := found()):
        assert clock.now_ns() < give_up_ns, complaint
        time.sleep(_PAUSE_S)
    return result


async def eventually(found: Callable[[], object], complaint: str) -> None:
    """Let the loop run until `found` returns something true."""
    give_up_ns = clock.now_ns() + WITHIN_S * clock.NS_PER_S
    while not found():
        assert clock.now_ns() < give_up_ns, complaint
        await asyncio.sleep(0.005)
