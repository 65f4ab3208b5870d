"""The branches of one call of `race(..., by="total")`: each holds its reply while another branch
may end sooner."""

import asyncio
from collections.abc import Iterable
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.errors import Fault
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.upstream.prompt_size import input_tokens
from splitsecond.routing.machinery.choosing.branch import Branch
from splitsecond.routing.machinery.fault_handling import answered
from splitsecond.routing.machinery.replies.shared_reply import MAX_BYTES, SharedReply
from splitsecond.routing.targets.target_states import TargetStates

MAX_HELD = MAX_BYTES // 2
"""Bytes. A reply that is longer is not held any longer."""


class _Hold(Struct, eq=False):
    end_ns: float
    scope: asyncio.Timeout


class CompletionRace:
    """One call, raced by the time of the whole answer.

    If `whole`, a branch returns its reply when the answer is complete. Otherwise it returns its
    reply when no other branch can be expected to end sooner; meanwhile its answer is read ahead, so
    its end is not delayed. `tokens`: the expected length of the answer. A branch of unknown speed
    is not waited for.
    """

    def __init__(
        self,
        call: Call,
        branches: Iterable[Branch],
        states: TargetStates,
        tokens: int,
        *,
        whole: bool,
    ) -> None:
        self._call = call
        self._whole = whole
        self._states = states
        self._tokens = tokens
        self._began_ns = clock.now_ns()
        self._running = list(branches)
        self._holds: dict[Branch, _Hold] = {}

    def candidates(self) -> list[Service]:
        return [partial(self._ask, branch) for branch in self._running]

    async def _ask(self, branch: Branch, call: Call) -> Reply:
        try:
            reply = SharedReply(await answered(branch.service, replace(call, watched=True)))
            try:
                await self._hold(branch, reply)
            except BaseException:
                await reply.close()
                raise
        except Fault:
            self._remove(branch)
            raise
        return reply.reader(watched=call.watched)

    async def _hold(self, branch: Branch, reply: SharedReply) -> None:
        now_ns = clock.now_ns()
        own = self._states.estimate(reply.target, stream=self._call.stream)
        end_ns = now_ns + self._tokens * ((own and own.tpot_ns()) or 0.0)
        due_ns = self._due_ns(branch, end_ns, now_ns)
        if due_ns is not None and due_ns <= now_ns:
            return
        scope = asyncio.timeout_at(None if due_ns is None else due_ns / clock.NS_PER_S)
        self._holds[branch] = _Hold(end_ns, scope)
        try:
            async with scope:
                number = 0
                while reply.size <= MAX_HELD and await reply.chunk(number) is not None:
                    number += 1
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            # the scope refers to the task, and the task to this frame: a cycle
            del self._holds[branch], scope
        if reply.broken is not None:
            raise reply.broken.fault

    def _due_ns(self, branch: Branch, end_ns: float, now_ns: int) -> float | None:
        """Return until when a reply that should end at `end_ns` is held; None: until it is
        complete.

        That is the latest time at which the first token of another branch would still make that
        branch end sooner.
        """
        if self._whole:
            return None
        due_ns = 0.0
        for rival in self._running:
            if rival is branch:
                continue
            if (held := self._holds.get(rival)) is not None:
                due_ns = max(due_ns, end_ns if held.end_ns < end_ns else 0.0)
                continue
            for estimate in rival.estimates(self._states, stream=True):
                ttft_ns, tpot_ns = (
                    estimate.ttft_ns(input_tokens=input_tokens(self._call)),
                    estimate.tpot_ns(),
                )
                if ttft_ns is None or tpot_ns is None:
                    continue
                latest_ns = end_ns - self._tokens * tpot_ns
                if max(self._began_ns + ttft_ns, now_ns) < latest_ns:
                    due_ns = max(due_ns, latest_ns)
        return due_ns

    def _remove(self, branch: Branch) -> None:
        self._running.remove(branch)
        now_ns = clock.now_ns()
        for other, hold in self._holds.items():
            due_ns = self._due_ns(other, hold.end_ns, now_ns)
            if due_ns is not None and not hold.scope.expired():
                hold.scope.reschedule(max(due_ns, now_ns) / clock.NS_PER_S)
