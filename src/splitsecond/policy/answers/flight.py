"""One request to a target on behalf of all calls that ask the same at the same time.

The call that came first leads: it is the one that asks. Those who come while it is under way follow: they wait for its
first token, and read the same recording as it comes, from its beginning, each at its own pace. Nobody depends on the
leader once there is a token: it may leave, and the provider's connection is closed when the last of them has. A leader
who leaves before that takes the request with it, since it was the one who waited for it, and one of the followers asks
anew. A failure before the first token is everybody's.

Who follows keeps its own deadline, and joins only a request that may take as long as that.
"""

import asyncio

from splitsecond import clock
from splitsecond.errors import Fault, TimedOut
from splitsecond.policy.answers.recording import Recording
from splitsecond.service import Call, Reply


class Flight:
    """A request under way. `aboard` counts the calls that wait for it or read it."""

    def __init__(self, leader: Call) -> None:
        self.aboard = 1
        self._stream = leader.stream
        self._deadline_ns = leader.deadline_ns
        self._decided = asyncio.Event()
        self._recording: Recording | None = None
        self._fault: Fault | None = None

    def takes(self, call: Call) -> bool:
        """Whether `call` may follow: it is there in time, and it comes as a stream to those who want one."""
        if call.stream and not self._stream:
            return False
        if self._recording is not None and not (self._recording.from_the_first and self.aboard):
            return False
        return self._deadline_ns is None or (call.deadline_ns is not None and call.deadline_ns <= self._deadline_ns)

    def answers(self, recording: Recording) -> None:
        """The leader has a reply."""
        self._recording = recording
        self._decided.set()

    def fails(self, fault: Fault | None) -> None:
        """The leader has none: because of `fault`, or because it left (None)."""
        self._fault = fault
        self._decided.set()

    async def follow(self, call: Call) -> Reply | None:
        """The answer for `call` too. None: it has to ask anew. Raises the leader's `Fault`, or `TimedOut`."""
        self.aboard += 1
        due_ns = call.deadline_ns
        try:
            async with asyncio.timeout_at(None if due_ns is None else due_ns / clock.NS_PER_S):
                await self._decided.wait()
        except TimeoutError:
            await self.leave()
            words = "no token of an identical request under way when the deadline for the whole call passed"
            raise TimedOut(words, phase="total") from None
        except BaseException:
            await self.leave()
            raise
        if self._recording is None or not self._recording.from_the_first:
            await self.leave()
            if self._fault is not None:
                raise self._fault
            return None
        return self._recording.play(watched=call.watched, deadline_ns=due_ns, leave=self.leave)

    async def leave(self) -> None:
        """One of those aboard is done."""
        self.aboard -= 1
        if not self.aboard and self._recording is not None:
            recording, self._recording = self._recording, None  # which holds us
            await recording.close()
