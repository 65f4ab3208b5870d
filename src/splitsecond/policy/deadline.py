"""`deadline(x, total="10s", ttft="2s")`: an end to waiting.

What it does. `total` is written into the call: whoever serves it keeps that deadline, in waiting and while the stream
is read, so a broken-off answer ends in `Broken`. `ttft` bounds the wait for the first token: when it passes the attempt
is closed and `TimedOut` raised. Both count from the moment at which the call gets here. A deadline that the call
already has stays, if it is earlier.

What it costs. One timer. An attempt that is closed has used input tokens, and may be billed to its end.

When it helps. Always somewhere: targets that hang are common, and without a deadline they hang their callers.

When it hurts. Where it is close to what the target usually takes: every request that it ends was paid for, and the
retry that follows adds to the load that made it slow.

Where it stands. Around everything whose time it should bound: around `fallback` or `retry` it is one deadline for all
attempts, inside it is one for each. Around `limit` waiting in the queue counts, inside it does not.
"""

import asyncio

from msgspec.structs import replace

from splitsecond import clock
from splitsecond.alarms import Alarm, Alarms
from splitsecond.errors import CallerFault, TimedOut
from splitsecond.policy.settings import duration, written
from splitsecond.service import Call, Reply, Service


def deadline(service: Service, *, total: str | None = None, ttft: str | None = None) -> Service:
    """`service` with an end to waiting for the whole answer, for the first token, or for both."""
    if total is None and ttft is None:
        raise CallerFault("deadline has no time", kind="bad_policy", hint='Give it total="10s", ttft="2s", or both.')
    return Deadline(service, total=total, ttft=ttft)


class Deadline:
    """See `deadline`."""

    def __init__(self, service: Service, *, total: str | None = None, ttft: str | None = None) -> None:
        self._service = service
        self._total, self._total_ns = total, None if total is None else duration("total", total)
        self._ttft, self._ttft_ns = ttft, None if ttft is None else duration("ttft", ttft)
        self._alarms = Alarms()

    def __repr__(self) -> str:
        return written("deadline", [self._service], total=self._total, ttft=self._ttft)

    async def __call__(self, call: Call) -> Reply:
        now_ns = clock.now_ns()
        if self._total_ns is not None:
            due_ns = now_ns + self._total_ns
            earliest_ns = due_ns if call.deadline_ns is None else min(due_ns, call.deadline_ns)
            call = replace(call, deadline_ns=earliest_ns)
        if self._ttft_ns is None:
            return await self._service(call)
        due_ns = now_ns + self._ttft_ns
        if call.token_due_ns is None or due_ns < call.token_due_ns:
            call = replace(call, token_due_ns=due_ns)
        limit = _Limit()
        self._alarms.set(limit, due_ns, now_ns)
        try:
            return await self._service(call)
        except asyncio.CancelledError:
            if not limit.is_why:
                raise
        finally:
            limit.lift()
        words = f"no token from {self._service!r} in {self._ttft}"
        late = TimedOut(words, phase="first token", after_ns=self._ttft_ns)
        late.on_trial = call.notes.asked[-1:] == [call.notes.tried]
        raise late


class _Limit(Alarm):
    """Cancels the task that made it. As `asyncio.timeout`, whose timer of its own costs each call more than a policy
    does otherwise."""

    __slots__ = ("_cancelling", "_rung", "_task")

    def __init__(self) -> None:
        Alarm.__init__(self)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task that it can cancel")
        self._task = task
        self._cancelling = task.cancelling()
        self._rung = False

    def ring(self) -> None:
        self._rung = True
        self._task.cancel()

    @property
    def is_why(self) -> bool:
        """Whether the task was cancelled by this alone."""
        return self._rung and self._task.cancelling() <= self._cancelling + 1

    def lift(self) -> None:
        """The wait is over. What it did to the task is taken back."""
        self.silence()
        if self._rung:
            self._task.uncancel()
