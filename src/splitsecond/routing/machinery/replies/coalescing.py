"""One request to a target for all identical calls that are in flight at the same time.

The first call leads: its request is sent. Calls that arrive while it is in flight follow: they wait
for its first token and read the same reply from its beginning, each at its own pace. After the
first token no call depends on the leader: it may leave, and the provider's connection is closed
when the last call has left. If the leader leaves before the first token, the request is cancelled,
because the leader was awaiting it, and one of the followers sends its own.

A follower keeps its own deadline, and joins only a request that may take at least as long.
"""

import asyncio

from splitsecond.core import clock
from splitsecond.core.errors import Fault, TimedOut
from splitsecond.core.service import Call, Reply
from splitsecond.routing.machinery.replies.shared_reply import SharedReply


class CoalescedRequest:
    """A request in flight. `readers` counts the calls that wait for its reply or read it."""

    def __init__(self, leader: Call) -> None:
        self.readers = 1
        self._stream = leader.stream
        self._deadline_ns = leader.deadline_ns
        self._decided = asyncio.Event()
        self._reply: SharedReply | None = None
        self._fault: Fault | None = None

    def accepts(self, call: Call) -> bool:
        if call.stream and not self._stream:
            return False
        if self._reply is not None and not (self._reply.from_start and self.readers):
            return False
        return self._deadline_ns is None or (
            call.deadline_ns is not None and call.deadline_ns <= self._deadline_ns
        )

    def set_reply(self, reply: SharedReply) -> None:
        self._reply = reply
        self._decided.set()

    def set_fault(self, fault: Fault | None) -> None:
        self._fault = fault
        self._decided.set()

    async def follow(self, call: Call) -> Reply | None:
        """Return the reply for a follower; None: it must send its own request.

        Raises the leader's `Fault`, or `TimedOut`.
        """
        self.readers += 1
        due_ns = call.deadline_ns
        try:
            async with asyncio.timeout_at(None if due_ns is None else due_ns / clock.NS_PER_S):
                await self._decided.wait()
        except TimeoutError:
            await self.leave()
            words = (
                "no token of an identical request in flight when the deadline for the whole "
                "call passed"
            )
            raise TimedOut(words, phase="total") from None
        except BaseException:
            await self.leave()
            raise
        if self._reply is None or not self._reply.from_start:
            await self.leave()
            if self._fault is not None:
                raise self._fault
            return None
        return self._reply.reader(watched=call.watched, deadline_ns=due_ns, leave=self.leave)

    async def leave(self) -> None:
        self.readers -= 1
        if not self.readers and self._reply is not None:
            reply, self._reply = self._reply, None  # it refers to this object
            await reply.close()
