"""`deadline(x, total="10s", ttft="2s")`: an end to waiting."""

from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import Duration
from splitsecond.routing.machinery.token_deadline import TokenDeadline


class Deadline(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        service: Service,
        *,
        total: Duration | None = None,
        ttft: Duration | None = None,
    ) -> None:
        super().__init__(context)
        self._service = service if ttft is None else TokenDeadline(service, ttft)
        self._total = total

    async def __call__(self, call: Call) -> Reply:
        if self._total is not None:
            due_ns = clock.now_ns() + self._total.ns
            call = replace(
                call,
                deadline_ns=due_ns if call.deadline_ns is None else min(due_ns, call.deadline_ns),
            )
        return await self._service(call)


deadline = Policy(
    Deadline,
    example='deadline("a/x", total="10s", ttft="2s")',
    one_of=("total", "ttft"),
    needs_stream=("ttft",),
)
