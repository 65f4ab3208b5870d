"""`resume(a, b, ..., stall="10s")`: an answer that breaks off is continued at another target."""

from collections.abc import Sequence

import msgspec

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, RateFloor, Reply, Service
from splitsecond.routing.machinery.choosing.branch import Branch
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.replies.resumable import ResumePlan, resumable
from splitsecond.routing.machinery.settings import Duration, TokenRate

OVER_NS = 20 * NS_PER_S
MIN_TOKENS = 4
"""In the time of a rate. An answer with fewer is mostly silent, and the limit on silence holds for
it."""


class ResumedService:
    def __init__(self, service: Service, others: Sequence[Branch], context: PolicyContext) -> None:
        self._service = service
        encoder = context.make_encoder
        self._plan = None if encoder is None else ResumePlan(others, context.states, encoder)

    async def __call__(self, call: Call) -> Reply:
        reply = await self._service(call)
        encoder = None if self._plan is None else self._plan.make_encoder(call)
        if self._plan is None or encoder is None or reply.empty:
            return reply
        return resumable(reply, call, self._plan, encoder)


class Resume(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        /,
        *others: Service,
        stall: Duration | None = None,
        floor: TokenRate | None = None,
        over: Duration | None = None,
    ) -> None:
        super().__init__(context)
        branches = context.branches((first, *others))
        self._service = ResumedService(first, branches[1:] or branches, context)
        self._stall = stall
        self._floor = rate_floor(floor, over)

    async def __call__(self, call: Call) -> Reply:
        return await self._service(with_limits(call, self._stall, self._floor))


def rate_floor(floor: TokenRate | None, over: Duration | None) -> RateFloor | None:
    if floor is None:
        if over is not None:
            raise CallerFault(
                "over has no effect without floor", kind="bad_policy", hint='Add floor="8tok/s".'
            )
        return None
    over_ns = OVER_NS if over is None else over.ns
    if floor.tokens_per_s * over_ns < MIN_TOKENS * NS_PER_S:
        words = f"floor is {floor!r}, fewer than {MIN_TOKENS} tokens in {over_ns / NS_PER_S:g} s"
        raise CallerFault(
            words, kind="bad_policy", hint="Give a longer time: over=…, or use stall."
        )
    return RateFloor(floor.tokens_per_s, over_ns)


def with_limits(call: Call, stall: Duration | None, floor: RateFloor | None) -> Call:
    """Return `call`, whose answer may be silent for at most `stall`, and has at least the rate
    `floor`."""
    if floor is not None:
        call = msgspec.structs.replace(call, floor=floor)
    return call if stall is None else with_stall(call, stall.ns)


def with_stall(call: Call, stall_ns: int) -> Call:
    if call.stall_ns is not None and call.stall_ns <= stall_ns:
        return call
    return msgspec.structs.replace(call, stall_ns=stall_ns)


resume = Policy(Resume, example='resume("a/x", "b/x", stall="10s")', branches="takes over")
