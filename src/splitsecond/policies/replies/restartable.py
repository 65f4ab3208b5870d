"""Replies of calls that are not streamed: an answer that breaks off is requested again at another target.

The client has seen nothing of it, so nothing has to be continued or compared. The answer is held back until it is
complete; one that is longer than `MOST_BYTES` is passed on from there as it arrives.
"""

from collections import deque
from collections.abc import Awaitable, Callable

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.events import Broken, Event
from splitsecond.policies.replies.shared_reply import MOST_BYTES
from splitsecond.service import ForwardingReply, Reply

Restart = Callable[[Reply, Fault], Awaitable[Reply]]
"""Returns the reply of another target, for a reply that was closed and the fault that broke it. Raises a `Fault`."""


class RestartableReply(ForwardingReply):
    """The first complete answer: that of `reply`, or of those that `restart` returns. `watched`: see `Call`."""

    def __init__(self, reply: Reply, restart: Restart, *, watched: bool) -> None:
        super().__init__(reply)
        self._restart = restart
        self._watched = watched
        self._held: list[bytes] = []
        self._events: deque[Event] = deque()
        self._ready = False
        self._complete = False  # everything was read
        self._fault: Fault | None = None
        self._break_reported = False

    async def read(self) -> bytes:
        if not self._ready:
            await self._hold()
        if self._held:
            data = b"".join(self._held)
            self._held.clear()
            return data
        if self._complete:
            return b""
        if self._fault is not None:
            raise self._fault
        data = await self._reply.read()
        self._take_events()
        return data

    async def __anext__(self) -> Event:
        await self._hold()
        if not self._events:
            self._report_break()
        while not self._events:
            if self._fault is not None:
                raise StopAsyncIteration
            self._events.append(await self._reply.__anext__())
        return self._events.popleft()

    def arrived(self) -> list[Event]:
        if not self._ready:
            return []
        self._take_events()
        self._report_break()
        events = list(self._events)
        self._events.clear()
        return events

    async def finished(self) -> None:
        await self._hold()
        self._held.clear()
        self._events.clear()
        if self._fault is None:
            await self._reply.finished()

    async def _hold(self) -> None:
        """Read until an answer is complete or too long to be held, or until the last one has broken."""
        size = 0
        while not self._ready:
            try:
                while size <= MOST_BYTES:
                    data = await self._reply.read()
                    if self._watched:
                        self._events.extend(self._reply.arrived())
                    if not data:
                        self._complete = True
                        break
                    self._held.append(data)
                    size += len(data)
                self._ready = True
            except Fault as fault:
                self._held.clear()
                self._events.clear()
                size = 0
                await self._reply.aclose()
                try:
                    self._reply = await self._restart(self._reply, fault.without_traceback())
                except Fault as last:
                    self._fault = last.without_traceback()
                    self._ready = True

    def _take_events(self) -> None:
        if self._watched:
            self._events.extend(self._reply.arrived())

    def _report_break(self) -> None:
        if self._fault is not None and not self._break_reported:
            self._break_reported = True
            self._events.append(Broken(clock.now_ns(), self._fault))
