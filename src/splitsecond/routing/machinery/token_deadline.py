"""Deadlines for the first token of a service: what `deadline`, `fallback` and `resume` have in
common."""

import asyncio
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.errors import TimedOut
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.timers import TimerEntry, TimerWheel
from splitsecond.routing.machinery.settings import Duration


class TokenDeadline:
    """`service`, whose attempt is closed where it has no token after `ttft`; then `TimedOut` is
    raised.

    `ttft`: the limit, or what returns it (ns) for a call; None: no limit.
    """

    def __init__(self, service: Service, ttft: Duration | Callable[[Call], int | None]) -> None:
        self._service = service
        self._ttft = ttft
        self._timers = TimerWheel()

    def __repr__(self) -> str:
        return repr(self._service)

    async def __call__(self, call: Call) -> Reply:
        limit_ns = self._ttft.ns if isinstance(self._ttft, Duration) else self._ttft(call)
        if limit_ns is None:
            return await self._service(call)
        now_ns = clock.now_ns()
        due_ns = now_ns + limit_ns
        if call.token_due_ns is None or due_ns < call.token_due_ns:
            call = replace(call, token_due_ns=due_ns)
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task that it can cancel")
        cancellation = _Cancellation(task, task.cancelling())
        self._timers.set(cancellation, due_ns, now_ns)
        try:
            return await self._service(call)
        except asyncio.CancelledError:
            if not cancellation.is_cause:
                raise
        finally:
            cancellation.cancel_timer()
            if cancellation.fired:
                task.uncancel()
        words = (
            self._ttft.literal
            if isinstance(self._ttft, Duration)
            else f"{limit_ns / clock.NS_PER_S:.3g} s"
        )
        late = TimedOut(
            f"no token from {self._service!r} in {words}", phase="first token", after_ns=limit_ns
        )
        late.on_trial = call.notes.attempted[-1:] == [call.notes.probed]
        raise late


class _Cancellation(TimerEntry, eq=False):
    """Cancels `task` when its time comes. `cancelling`: how often the task was cancelled before.

    This is `asyncio.timeout` without a timer of its own for each call, which costs more than the
    rest of a policy.
    """

    task: asyncio.Task[Any]
    cancelling: int
    fired: bool = False

    def timer_fired(self) -> None:
        self.fired = True
        self.task.cancel()

    @property
    def is_cause(self) -> bool:
        """Whether nothing else cancelled the task."""
        return self.fired and self.task.cancelling() <= self.cancelling + 1
