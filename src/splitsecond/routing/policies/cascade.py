"""`cascade(small, large, accept="finished", judge=c, hold="10s")`: the small model answers if that
is accepted."""

import asyncio
from collections.abc import Callable
from typing import Self

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.upstream.prompt_size import input_tokens, output_tokens
from splitsecond.core.wire.output_limit import output_limit
from splitsecond.routing.machinery.budget import ExtraRequestBudget
from splitsecond.routing.machinery.choosing.branch import usual_output_tokens
from splitsecond.routing.machinery.choosing.ttl_cache import TtlCache, about
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.fault_handling import all_failed, answered, check_time, remedy
from splitsecond.routing.machinery.prompt import field_value
from splitsecond.routing.machinery.replies.acceptance import DraftAnswer, acceptance, wants_logprobs
from splitsecond.routing.machinery.replies.judge import approves, judge_input_tokens
from splitsecond.routing.machinery.replies.shared_reply import SharedReply
from splitsecond.routing.machinery.settings import Duration, Setting
from splitsecond.routing.policies.race import Race

MEASURED = 0.02
"""While the large model is asked alone, the share of calls that still goes to the small one."""
PRICED_EVERY_NS = clock.NS_PER_S
"""How often the costs of calls are updated: prices rarely change, and the length of answers changes
slowly."""
_HELD = ("chat", "completions")


class AcceptanceRule(Setting, frozen=True):
    accepts: Callable[[DraftAnswer], str]

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        return cls(str(value), acceptance(name, value))


ACCEPT = AcceptanceRule.parse("accept", "finished")
HOLD = Duration.parse("hold", "10s")


class Cascade(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        small: Service,
        large: Service,
        *,
        judge: Service | None = None,
        accept: AcceptanceRule | None = None,
        hold: Duration | None = None,
    ) -> None:
        super().__init__(context)
        self._branches = context.branches(
            [small, large, *([] if judge is None else [judge])], best=(Race,)
        )
        self._small, self._large, self._judge = small, large, judge
        self._accepts = (accept or ACCEPT).accepts
        self._logprobs = accept is not None and wants_logprobs(str(accept.literal))
        self._trim_logprobs = context.trim_logprobs
        self._hold = hold or HOLD
        self._escalations = context.states.escalations(context.text)
        self._exploring = ExtraRequestBudget(MEASURED)
        self._costs: TtlCache[tuple[float, float]] = TtlCache(PRICED_EVERY_NS)

    async def __call__(self, call: Call) -> Reply:
        if call.operation not in _HELD:
            return await self._large(call)
        if self._costs_more(call):
            call.notes.chosen = f"cascade: the large model alone is cheaper; {self._share()}"
            return await self._large(call)
        failed: Fault | None = None
        why = ""
        try:
            answer = await self._accepted(call)
            if not isinstance(answer, str):
                self._count(call, escalated=False)
                return answer
            why = answer
        except Fault as fault:
            if remedy(fault) == "change" and not self._adds_logprobs(call):
                raise
            failed, why = fault.without_traceback(), f"it failed: {fault.kind}"
        self._count(call, escalated=True, why=why, counts=failed is None)
        try:
            check_time(call, clock.now_ns(), self._large)
            return await self._large(call)
        except Fault as fault:
            if failed is None:
                raise
            raise all_failed([failed, fault.without_traceback()]) from None

    async def _accepted(self, call: Call) -> Reply | str:
        scope = asyncio.timeout(self._hold.ns / clock.NS_PER_S)
        try:
            async with scope:
                draft = SharedReply(await answered(self._small, self._request(call)))
                try:
                    why = await self._judged(call, draft)
                except BaseException:
                    await draft.close()
                    raise
        except TimeoutError:
            if not scope.expired():
                raise
            return f"it took more than {self._hold.literal}"
        if why:
            await draft.close()
            return why
        if self._trim_logprobs is not None and self._adds_logprobs(call):
            draft.rewrite(self._trim_logprobs)
        return draft.reader(watched=call.watched)

    async def _judged(self, call: Call, draft: SharedReply) -> str:
        answer, number = DraftAnswer(), 0
        while (chunk := await draft.chunk(number)) is not None:
            answer.take(chunk.events)
            number += 1
            if not draft.from_start:
                return "it is too long to be held"
        if draft.broken is not None:
            raise draft.broken.fault
        why = self._accepts(answer)
        if why or self._judge is None:
            return why
        return await approves(self._judge, call, answer.text or answer.calls)

    def _adds_logprobs(self, call: Call) -> bool:
        return self._logprobs and not field_value(call, "logprobs")

    def _request(self, call: Call) -> Call:
        if self._adds_logprobs(call):
            # for completions: the number of alternative tokens
            logprobs = True if call.operation == "chat" else 0
            return msgspec.structs.replace(
                call, watched=True, body={**call.body, "logprobs": logprobs}
            )
        return msgspec.structs.replace(call, watched=True)

    def _costs_more(self, call: Call) -> bool:
        rate, now_ns = self._escalations, clock.now_ns()
        if not rate.is_known(now_ns):
            rate.dearer = False
            return False
        small, large = self._usd(call, now_ns)
        rate.dearer = small + rate.share * large > large
        if not rate.dearer or not self._branches[1].available(self._states, call):
            return False
        self._exploring.deposit()
        return not self._exploring.withdraw()

    def _usd(self, call: Call, now_ns: int) -> tuple[float, float]:
        tokens_in = about(input_tokens(call))
        key = call.stream, tokens_in, output_limit(call.body)
        costs = self._costs.get(key, now_ns)
        if costs is None:
            costs = self._priced(call, tokens_in)
            self._costs.put(key, costs)
        return costs

    def _priced(self, call: Call, tokens_in: int) -> tuple[float, float]:
        tokens_out = [
            output_tokens(call, usual_output_tokens(call, [branch], self._states))
            for branch in self._branches[:2]
        ]
        tokens = [(tokens_in, each) for each in tokens_out]
        tokens.append((judge_input_tokens(tokens_in, tokens_out[0]), 1))
        costs = [
            branch.cost_usd(self._states, *each)
            for branch, each in zip(self._branches, tokens, strict=False)
        ]
        known_costs = [cost for cost in costs if cost is not None]
        if len(known_costs) < len(costs):
            return 0.0, 0.0
        small, large, *judge = known_costs
        return small + sum(judge), large

    def _count(self, call: Call, *, escalated: bool, why: str = "", counts: bool = True) -> None:
        if counts:
            self._escalations.add(clock.now_ns(), escalated=escalated)
        outcome = f"not accepted, {why}" if escalated else "accepted"
        call.notes.chosen = f"cascade: the small model's answer was {outcome}; {self._share()}"

    def _share(self) -> str:
        return (
            f"{self._escalations.share:.0%} of the small model's recent answers were not accepted"
        )


cascade = Policy(
    Cascade, example='cascade("a/small", "a/large", accept="json", hold="5s")', branches="backed"
)
