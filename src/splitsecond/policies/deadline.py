"""`deadline(x, total="10s", ttft="2s")`: an end to waiting.

What it does. `total` is a deadline for the whole answer. It is written into the call, and every service keeps it while
it waits and while the stream is read, so an answer that is cut off ends with `Broken`. `ttft` limits the wait for the
first token: when it has passed, the attempt is closed and `TimedOut` is raised. Both begin when the call arrives here.
If the call already has an earlier deadline, that one stays.

What it costs. One timer. A closed attempt has used its input tokens, and may be billed in full.

When it helps. Every route needs one somewhere: targets that hang are common, and without a deadline their callers hang
too.

When it hurts. When it is close to the usual time of the target: every request that it ends was paid for, and the retry
that follows adds to the load that made the target slow.

Where it goes. Around everything whose time it limits: around `fallback` or `retry` it is one deadline for all attempts,
inside them it is one for each. Around `limit` the time in the queue counts; inside it does not.
"""

from msgspec.structs import replace

from splitsecond import clock
from splitsecond.policies.definition import Policy, PolicyContext, PolicyService
from splitsecond.policies.settings import Duration
from splitsecond.policies.token_deadline import TokenDeadline
from splitsecond.service import Call, Reply, Service


class Deadline(PolicyService):
    """`service` with a deadline for the whole answer, for the first token, or for both."""

    def __init__(
        self, context: PolicyContext, service: Service, *, total: Duration | None = None, ttft: Duration | None = None
    ) -> None:
        super().__init__(context)
        self._service = service if ttft is None else TokenDeadline(service, ttft)
        self._total = total

    async def __call__(self, call: Call) -> Reply:
        if self._total is not None:
            due_ns = clock.now_ns() + self._total.ns
            call = replace(call, deadline_ns=due_ns if call.deadline_ns is None else min(due_ns, call.deadline_ns))
        return await self._service(call)


deadline = Policy(
    Deadline, example='deadline("a/x", total="10s", ttft="2s")', one_of=("total", "ttft"), needs_stream=("ttft",)
)
