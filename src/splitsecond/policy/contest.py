"""Attempts under way at once for one call: the first to bring a token wins, all others are closed at once.

This is what `race` and `hedge` have in common, and where concurrency is easy to get wrong.

The obvious way is ``asyncio.wait(..., FIRST_COMPLETED)`` over loose tasks, and then to cancel the rest. It leaks: when
the caller is cancelled while it waits, the tasks go on; when two replies arrive in the same turn of the loop, the
second is never closed; when the caller is cancelled in the turn in which the winner arrived, the winner is lost.

Our way: nobody waits for the winner. All attempts are tasks of one `TaskGroup`, and the caller waits for the group to
end. An attempt that gets a reply puts it down as the winner and cancels its siblings, which close their connections as
they go; so the group ends, and when the caller goes on nothing is under way but the winner. An attempt that fails puts
down its fault and leaves; when all have, so does the group. An attempt never raises into the group, unless it is a bug.

A reply always has one owner: the attempt until it is put down, then the contest, which closes it if the caller is
cancelled before it could take it. An attempt that gets its reply although another has won (it held off its own
cancellation) closes it itself.

What we do not do: take the better of two replies that arrive together, or wait a little for a better one. A caller who
wants the first token wants the first.
"""

import asyncio
from types import TracebackType
from typing import Self

from splitsecond.errors import Fault
from splitsecond.policy.remedy import all_failed, answered
from splitsecond.service import Call, Reply, Service

LOST = "another was faster"
"""Why an attempt is cancelled: not because nobody wants an answer any more."""


class Contest:
    """``async with Contest(call) as contest: contest.enter(service)``; afterwards `reply` is the winner's."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._group = asyncio.TaskGroup()
        self._entrants: list[asyncio.Task[None]] = []
        self._faults: dict[int, Fault] = {}
        self._winner: Reply | None = None

    def enter(self, service: Service) -> "asyncio.Task[None]":
        """Ask `service` too. The task ends when it has won, lost or failed."""
        entrant = self._group.create_task(self._attempt(service, len(self._entrants)))
        self._entrants.append(entrant)
        return entrant

    @property
    def won(self) -> bool:
        """Somebody has a reply."""
        return self._winner is not None

    def reply(self) -> Reply:
        """The winner's reply. Raises the fault of the only entrant, or `AllFailed` with those of all, in order."""
        if self._winner is not None:
            return self._winner
        faults = [self._faults[place] for place in sorted(self._faults)]
        raise faults[0] if len(faults) == 1 else all_failed(faults)

    async def _attempt(self, service: Service, place: int) -> None:
        try:
            reply = await answered(service, self._call)
        except Fault as fault:
            self._faults[place] = fault.kept()
            return
        if self._winner is not None:
            await reply.aclose()
            return
        self._winner = reply
        for number, entrant in enumerate(self._entrants):
            if number != place:
                entrant.cancel(LOST)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._group.__aexit__(kind, error, trace)
        except BaseException as failure:
            if self._winner is not None:
                await self._winner.aclose()
            if isinstance(failure, BaseExceptionGroup):  # a bug in a service: show it as it is
                raise failure.exceptions[0] from None
            failure.__traceback__ = None  # of the group's frame, which keeps it: a cycle
            raise
        finally:
            self._entrants.clear()  # a cancelled task holds the frame in which it was, and that holds us
