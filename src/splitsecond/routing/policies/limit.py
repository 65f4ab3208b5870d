"""`limit(x, concurrency=8, queue=0)`: at most so many answers in flight at once."""

import asyncio
from collections import deque
from collections.abc import Callable

from splitsecond.core import clock
from splitsecond.core.errors import Overloaded, TimedOut
from splitsecond.core.service import Call, ForwardingReply, Reply, Service
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import Count, QueueLength

NO_QUEUE = QueueLength.parse("queue", 0)
FIRST_GUESS_NS = clock.NS_PER_S
"""The assumed time for which a place is held, before one has been released."""
_SMOOTHING = 8
"""Each answer changes the assumed time by one part in eight of the difference."""


class Limit(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        service: Service,
        *,
        concurrency: Count,
        queue: QueueLength = NO_QUEUE,
    ) -> None:
        super().__init__(context)
        self._service = service
        self._concurrency = concurrency.value
        self._queue = queue.value
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._held_ns = FIRST_GUESS_NS

    async def __call__(self, call: Call) -> Reply:
        await self._take_place(call)
        taken_ns = clock.now_ns()
        try:
            reply = await self._service(call)
        except BaseException:
            self._release()
            raise
        return LimitedReply(reply, lambda: self._released_after(taken_ns))

    async def _take_place(self, call: Call) -> None:
        if self._taken < self._concurrency:
            self._taken += 1
        elif len(self._waiting) < self._queue:
            await self._wait(call)
        else:
            raise Overloaded(
                f"no place at {self._service!r}: in flight {self._taken:,} of "
                f"{self._concurrency:,}, waiting "
                f"{len(self._waiting):,} of {self._queue:,}",
                retry_after_ns=self._held_ns * (len(self._waiting) + 1) // self._concurrency,
            )

    async def _wait(self, call: Call) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        due_ns = call.deadline_ns
        scope = asyncio.timeout_at(None if due_ns is None else due_ns / clock.NS_PER_S)
        try:
            async with scope:
                await turn
        except BaseException as interruption:
            if turn.done() and not turn.cancelled():
                self._release()  # the place was handed over in the same turn of the loop
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(interruption, TimeoutError):
                message = f"no place at {self._service!r} before the deadline of the whole call"
                raise TimedOut(
                    f"{message}; still waiting: {len(self._waiting):,}", phase="queue"
                ) from None
            raise

    def _released_after(self, taken_ns: int) -> None:
        self._held_ns += (clock.now_ns() - taken_ns - self._held_ns) // _SMOOTHING
        self._release()

    def _release(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1


class LimitedReply(ForwardingReply):
    def __init__(self, reply: Reply, release: Callable[[], None]) -> None:
        super().__init__(reply)
        self._release: Callable[[], None] | None = release

    async def aclose(self) -> None:
        release, self._release = self._release, None
        try:
            await super().aclose()
        finally:
            if release is not None:
                release()


limit = Policy(Limit, example='limit("a/x", concurrency=8, queue=0)', needs_stream=())
