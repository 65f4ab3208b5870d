"""`fallback(a, b, ..., ttft="2s")`: the next branch is asked when one fails before the client has
seen anything."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Literal

from splitsecond.core import clock
from splitsecond.core.catalog.model_names import identify
from splitsecond.core.errors import CONTEXT_EXCEEDED, Fault
from splitsecond.core.service import Call, RateFloor, Reply, Service
from splitsecond.core.session import CallSession
from splitsecond.routing.machinery.budget import MAX_SAVED, ExtraRequestBudget
from splitsecond.routing.machinery.choosing.branch import Branch
from splitsecond.routing.machinery.choosing.session_choice import CacheUse, SessionChoice
from splitsecond.routing.machinery.definition import ExtraLoad, Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.fault_handling import (
    TOO_LONG_ANSWER,
    all_failed,
    answered,
    causes,
    check_time,
    empty_answer,
    remedy,
)
from splitsecond.routing.machinery.replies.restartable import RestartableReply
from splitsecond.routing.machinery.settings import Duration, Share, TokenRate
from splitsecond.routing.machinery.token_deadline import TokenDeadline
from splitsecond.routing.machinery.usual_wait import UsualWait
from splitsecond.routing.policies.resume import ResumedService, rate_floor, with_limits
from splitsecond.routing.targets.conversations import MIN_CACHED

HowOrOff = Literal["replay", "off"]
SECOND_TRIES = Share.parse("extra_load", 0.1)
"""The share of a branch's calls that may get a second attempt."""


def make_fallback(
    context: PolicyContext,
    first: Service,
    second: Service,
    /,
    *others: Service,
    ttft: Duration | None = None,
    stall: Duration | None = None,
    floor: TokenRate | None = None,
    over: Duration | None = None,
    resume: HowOrOff | None = None,
    cache: CacheUse | None = None,
) -> Service:
    branches = context.branches((first, second, *others))
    in_turn = _InTurn(branches, ttft, context, cache)
    streamed: Service = in_turn
    how = resume or ("off" if context.continued else "replay")
    if how != "off" and context.make_encoder is not None:
        names = [name for branch in branches for name in branch.names]
        streamed = ResumedService(in_turn, [Branch(in_turn, names)], context)
    return _Limited(context, in_turn, streamed, stall, rate_floor(floor, over))


class _Limited(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        whole: Service,
        streamed: Service,
        stall: Duration | None,
        floor: RateFloor | None,
    ) -> None:
        super().__init__(context)
        self._whole = whole
        self._streamed = streamed
        self._stall = stall
        self._floor = floor

    def __call__(self, call: Call) -> Coroutine[Any, Any, Reply]:  # saves each call a coroutine
        service = self._streamed if call.stream else self._whole
        return service(with_limits(call, self._stall, self._floor))


class _InTurn(PolicyService):
    def __init__(
        self,
        branches: Sequence[Branch],
        ttft: Duration | None,
        context: PolicyContext,
        cache: CacheUse | None,
    ) -> None:
        super().__init__(context)
        twice: list[Service] = [_Twice(branch.service, context.budget) for branch in branches]
        limits: list[Duration | Callable[[Call], int | None]] = [
            ttft or UsualWait(branch, branches[place:], context.states)
            for place, branch in enumerate(branches, 1)
        ]
        steps = [TokenDeadline(step, limit) for step, limit in zip(twice, limits, strict=True)]
        self._steps = tuple(zip(branches, steps, strict=True))
        self._first, self._last = branches[0].names[0], branches[-1]
        self._restarts = context.make_encoder is not None
        self._homes: dict[Branch, Service] = {}
        """Branches of one model, where a session may stay, each as the first of its call."""
        same = [branch for branch in branches if _models(branch) == _models(branches[0])]
        if cache != "off" and context.names and len(same) > 1:
            self._sessions = SessionChoice(context.states, "fallback")
            for branch, step in zip(branches, twice, strict=True):
                if branch in same:
                    others = [other for other in branches if other is not branch]
                    self._homes[branch] = TokenDeadline(
                        step, ttft or UsualWait(branch, others, context.states)
                    )

    async def __call__(self, call: Call) -> Reply:
        if (
            self._homes
            and (session := call.notes.session) is not None
            and session.reusable_tokens >= MIN_CACHED
            and not self._states.conversations.is_only_at(session, self._first)
        ):
            steps = self._from_home(call, session)
        else:
            steps = iter(self._steps)
        causes: list[Fault] = []
        reply = await self._next(call, steps, causes)
        if call.stream or not self._restarts or reply.complete:
            return reply

        async def restart(broken: Reply, fault: Fault) -> Reply:
            causes.append(fault)
            if remedy(fault) == "change" or fault.kind == TOO_LONG_ANSWER:
                raise fault
            call.notes.excluded.append(broken.target)
            reply = await self._next(call, steps, causes)
            call.notes.chosen += f"{'; ' if call.notes.chosen else ''}asked again at {reply.target}"
            return reply

        return RestartableReply(reply, restart).reader(watched=call.watched)

    def _from_home(self, call: Call, session: CallSession) -> Iterator[tuple[Branch, Service]]:
        available = [branch for branch in self._homes if branch.available(self._states, call)]
        home = (
            self._sessions.instead(call, session, available, available[0])
            if len(available) > 1
            else None
        )
        if home is None:
            return iter(self._steps)
        branch, call.notes.chosen, *_ = home
        if branch is available[0]:
            return iter(self._steps)
        return iter(
            [
                (branch, self._homes[branch]),
                *(step for step in self._steps if step[0] is not branch),
            ]
        )

    async def _next(
        self, call: Call, steps: Iterator[tuple[Branch, Service]], causes: list[Fault]
    ) -> Reply:
        longer_than, notes = -1, call.notes
        for branch, step in steps:
            if longer_than >= 0 and not self._takes_more(branch, longer_than):
                continue
            if (
                causes
                and branch is not self._last
                and len(branch.names) == 1
                and branch.names[0] in notes.attempted
            ):
                continue  # as "a/x" in fallback(fastest("a/x", "b/x"), "a/x", "b/x")
            try:
                if call.deadline_ns is not None:
                    check_time(call, clock.now_ns(), branch.service)
                return await step(call)
            except Fault as fault:
                causes.append(fault.without_traceback())
                if remedy(fault) == "change":
                    raise
                longer_than = max(longer_than, self._context_exceeded(fault, branch))
        raise all_failed(causes) if len(causes) > 1 else causes[0]

    def _context_exceeded(self, fault: Fault, branch: Branch) -> int:
        """Return the context length, in tokens, that the prompt exceeds; -1: none, or not known."""
        refusals = [each for each in causes(fault) if each.kind == CONTEXT_EXCEEDED]
        names = [each.target or branch.names[0] for each in refusals]
        return max((self._states.info(name).context_tokens or -1 for name in names), default=-1)

    def _takes_more(self, branch: Branch, tokens: int) -> bool:
        contexts = [self._states.info(name).context_tokens for name in branch.names]
        return any(context is None or context > tokens for context in contexts)


def _models(branch: Branch) -> set[str]:
    return {identify(name).model for name in branch.names}


class _Twice:
    def __init__(self, branch: Service, budget: ExtraRequestBudget | None) -> None:
        self._branch = branch
        self._budget = ExtraRequestBudget(SECOND_TRIES.value, reserve=MAX_SAVED, within=budget)

    def __repr__(self) -> str:
        return repr(self._branch)

    async def __call__(self, call: Call) -> Reply:
        self._budget.deposit()
        try:
            # as in `answered`, without another coroutine for each call
            reply = await self._branch(call)
            if reply.empty:
                raise await empty_answer(self._branch, reply)
            return reply
        except Fault as fault:
            if remedy(fault) != "again" or not self._budget.withdraw():
                raise
            first = fault.without_traceback()
        try:
            check_time(call, clock.now_ns(), self._branch)
            return await answered(self._branch, call)
        except Fault as fault:
            if remedy(fault) == "change":
                raise
            raise all_failed([first, fault.without_traceback()]) from None


fallback = Policy(
    make_fallback,
    example='fallback("a/x", "b/x", ttft="2s")',
    branches="alternatives",
    extra=ExtraLoad(SECOND_TRIES, MAX_SAVED),
    needs_stream=("ttft", "stall", "floor"),
)
