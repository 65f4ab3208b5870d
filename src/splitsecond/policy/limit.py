"""`limit(x, concurrency=8, queue=0)`: no more than so many answers under way at once.

What it does. A call takes a place until its reply is closed, not until it is returned: a stream loads the target to
its end. When all places are taken, up to `queue` calls wait, first come first served; the next one is refused with
`Overloaded` at once, and told when a place will probably be free. A call that waits keeps its deadline.

What it costs. Nothing below the limit. At the limit, latency (the queue) or refusals: that is what it is for.

When it helps. With hardware of one's own, whose speed falls with the load for everybody; and under a provider's
limit on parallel requests, where our refusal is cheaper than theirs. A queue evens out bursts.

When it hurts. As a long queue before a slow target: everybody waits, nobody is told. Keep it to what is answered within
the time that callers wait, and put a `fallback` around it.

Where it stands. Right around the target whose load it limits, inside all else: around a `race` it would count one
place for several requests. Inside `fallback`, so that what is refused goes to the next target.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from splitsecond import clock
from splitsecond.errors import Overloaded, TimedOut
from splitsecond.events import Event
from splitsecond.policy.settings import count, length, written
from splitsecond.service import Call, Reply, Service

FIRST_GUESS_NS = clock.NS_PER_S
"""How long a place is thought to be held, before one has been given back."""
_SMOOTHING = 8
"""One answer counts for so much (one part in eight) of the time that a place is thought to be held."""


def limit(service: Service, *, concurrency: int, queue: int = 0) -> Service:
    """`service` with at most `concurrency` replies open at once, and `queue` calls waiting."""
    return Limit(service, count("concurrency", concurrency), length("queue", queue))


class Limit:
    """See `limit`."""

    def __init__(self, service: Service, concurrency: int, queue: int) -> None:
        self._service = service
        self._concurrency = concurrency
        self._queue = queue
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._held_ns = FIRST_GUESS_NS

    def __repr__(self) -> str:
        return written("limit", [self._service], concurrency=self._concurrency, queue=self._queue)

    async def __call__(self, call: Call) -> Reply:
        await self._take_place(call)
        taken_ns = clock.now_ns()
        try:
            reply = await self._service(call)
        except BaseException:
            self._give_back()
            raise
        return Held(reply, lambda: self._held_since(taken_ns))

    async def _take_place(self, call: Call) -> None:
        if self._taken < self._concurrency:
            self._taken += 1
        elif len(self._waiting) < self._queue:
            await self._wait(call)
        else:
            raise Overloaded(
                f"{self._taken} requests to {self._service!r} are under way and {len(self._waiting)} wait, "
                f"at most {self._concurrency} and {self._queue} may",
                retry_after_ns=self._held_ns * (len(self._waiting) + 1) // self._concurrency,
            )

    async def _wait(self, call: Call) -> None:
        """Returns when a place has been handed over."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        due_ns = call.deadline_ns
        scope = asyncio.timeout_at(None if due_ns is None else due_ns / clock.NS_PER_S)
        try:
            async with scope:
                await turn
        except BaseException as left:
            if turn.done() and not turn.cancelled():
                self._give_back()  # it was handed over in the very turn of the loop in which we left
            elif turn in self._waiting:
                self._waiting.remove(turn)
            if isinstance(left, TimeoutError):
                waiting = f"no place at {self._service!r} when the deadline for the whole call passed"
                raise TimedOut(f"{waiting}; {len(self._waiting)} others wait", phase="queue") from None
            raise

    def _held_since(self, taken_ns: int) -> None:
        self._held_ns += (clock.now_ns() - taken_ns - self._held_ns) // _SMOOTHING
        self._give_back()

    def _give_back(self) -> None:
        """Hand the place to who has waited longest; it stays taken. Else it is free."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken -= 1


class Held:
    """A reply that gives something back when it is closed. All else is the reply's own."""

    def __init__(self, reply: Reply, give_back: Callable[[], None]) -> None:
        self._reply = reply
        self._give_back: Callable[[], None] | None = give_back

    @property
    def target(self) -> str:
        return self._reply.target

    @property
    def empty(self) -> bool:
        return self._reply.empty

    @property
    def token_ns(self) -> int:
        return self._reply.token_ns

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._reply.__anext__()

    async def finished(self) -> None:
        await self._reply.finished()

    async def read(self) -> bytes:
        return await self._reply.read()

    def arrived(self) -> list[Event]:
        return self._reply.arrived()

    async def aclose(self) -> None:
        give_back, self._give_back = self._give_back, None
        try:
            await self._reply.aclose()
        finally:
            if give_back is not None:
                give_back()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
