"""Replies of calls that are not streamed: an answer that breaks off is requested again at another
target.

The client has seen nothing of it, so nothing has to be continued or compared. The answer is held
back until it is complete; one that is longer than `MAX_BYTES` is passed on from there as it
arrives.
"""

from collections.abc import Awaitable, Callable

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.events import Broken
from splitsecond.core.service import Reply
from splitsecond.routing.machinery.replies.shared_reply import (
    MAX_BYTES,
    RecordedChunk,
    SharedReply,
    joined,
)

Restart = Callable[[Reply, Fault], Awaitable[Reply]]
"""Returns the reply of another target, for a reply that was closed and the fault that broke it.
Raises a `Fault`."""


class RestartableReply(SharedReply):
    def __init__(self, reply: Reply, restart: Restart) -> None:
        super().__init__(reply)
        self._restart = restart
        self._held: list[RecordedChunk] = []
        self._held_size = 0
        self._released = False

    async def receive(self) -> tuple[RecordedChunk, bool]:
        while not self._released:
            chunk, over = await super().receive()
            self._held.append(chunk)
            self._held_size += len(chunk.data)
            if self.broken is not None:
                self._held.clear()
                self._held_size = 0
                over = not await self._restarted(self.broken.fault)
            if over or self._held_size > MAX_BYTES:
                self._released = True
                held, self._held = self._held, []
                return joined(held), over
        return await super().receive()

    async def _restarted(self, fault: Fault) -> bool:
        await self._reply.aclose()
        try:
            self._reply = await self._restart(self._reply, fault)
        except Fault as last:
            self.broken = Broken(clock.now_ns(), last.without_traceback())
            return False
        self.target, self.broken, self._announced = self._reply.target, None, None
        return True
