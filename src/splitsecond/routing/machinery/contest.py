"""Attempts in flight at once for one call: the first with a token wins, and all others are closed
at once.

The obvious way is ``asyncio.wait(..., FIRST_COMPLETED)`` over loose tasks, and then to cancel the
rest. It leaks: when the caller is cancelled while it waits, the tasks continue; when two replies
arrive in the same turn of the loop, the second is never closed; when the caller is cancelled in the
turn in which the winner arrived, the winner is lost.

Our way: the caller does not wait for the winner. All attempts are tasks of one `TaskGroup`, and the
caller waits for the group to end. An attempt that gets a reply stores it as the winner and cancels
the others, which close their connections; so the group ends, and only the winner is open when the
caller continues. An attempt that fails stores its fault and ends; when all have failed, so does the
group. An attempt never raises into the group, unless it is a bug.

A reply always has one owner: the attempt until it is stored, then the contest, which closes it if
the caller is cancelled before it could take it. An attempt that gets its reply after another has
won (it delayed its own cancellation) closes it itself.
"""

import asyncio
from types import TracebackType
from typing import Self

from splitsecond.core.errors import Fault
from splitsecond.core.service import LOST, Call, Reply, Service
from splitsecond.routing.machinery.fault_handling import all_failed, answered


class Contest:
    """Attempts for one call: inside ``async with``, `enter` starts them; after it, `reply` is the
    winner's."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._group = asyncio.TaskGroup()
        self._attempts: list[asyncio.Task[None]] = []
        self._faults: dict[int, Fault] = {}
        self._winner: Reply | None = None

    def enter(self, service: Service) -> "asyncio.Task[None]":
        attempt = self._group.create_task(self._run(service, len(self._attempts)))
        self._attempts.append(attempt)
        return attempt

    @property
    def won(self) -> bool:
        return self._winner is not None

    def reply(self) -> Reply:
        """Return the winner's reply. Raises the fault of the only attempt, or `AllFailed` with all,
        in order."""
        if self._winner is not None:
            return self._winner
        faults = [self._faults[place] for place in sorted(self._faults)]
        raise faults[0] if len(faults) == 1 else all_failed(faults)

    async def _run(self, service: Service, place: int) -> None:
        try:
            reply = await answered(service, self._call)
        except Fault as fault:
            self._faults[place] = fault.without_traceback()
            return
        if self._winner is not None:
            await reply.aclose()
            return
        self._winner = reply
        for number, attempt in enumerate(self._attempts):
            if number != place:
                attempt.cancel(LOST)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseException as failure:
            if self._winner is not None:
                await self._winner.aclose()
            if isinstance(failure, BaseExceptionGroup):  # a bug in a service: raise it unchanged
                raise failure.exceptions[0] from None
            failure.__traceback__ = None  # the group's frame keeps it: a reference cycle
            raise
        finally:
            self._attempts.clear()  # a cancelled task holds its frame, and that holds us
