"""What stands before each target in a policy, and does not ask it while it is down. `standing` says when that is."""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from splitsecond import clock
from splitsecond.errors import Fault, Overloaded, TimedOut
from splitsecond.policy.choosing.prompt_size import input_tokens
from splitsecond.policy.contest import LOST
from splitsecond.policy.targets.stand import NEVER_NS, Stand
from splitsecond.service import Call, Notes, Reply, Service


class Guard:
    """`service`, which is the target `name`, beside `others` that may answer the same calls."""

    def __init__(
        self, service: Service, name: str, others: Sequence[str], stand: Callable[[str], Stand], chance: Random
    ) -> None:
        self._service = service
        self._name = name
        self._others = others
        self._stand = stand
        self._chance = chance

    def __repr__(self) -> str:
        return repr(self._service)

    async def __call__(self, call: Call) -> Reply:
        now_ns = clock.now_ns()
        stand = self._stand(self._name)
        on_trial = False
        if stand.is_troubled() or call.notes.barred:
            self._check(call, stand, now_ns)
            on_trial = stand.on_trial
            if on_trial:
                call.notes.tried = self._name
        call.notes.asked.append(self._name)
        stand.begun(call.id, call.stream, now_ns)
        try:
            reply = await (self._tried(call, stand, now_ns) if on_trial else self._service(call))
        except BaseException as left:
            stand.left(call.id, call.stream)
            if isinstance(left, asyncio.CancelledError):
                if _too_late(call):
                    stand.overdue(clock.now_ns(), now_ns)
                elif left.args == (LOST,):
                    stand.lost(call.stream, input_tokens(call), clock.now_ns(), now_ns)
            elif isinstance(left, Fault):
                left.on_trial = on_trial
            raise
        stand.replied(call.id, call.stream, reply, clock.now_ns())
        return reply

    async def _tried(self, call: Call, stand: Stand, now_ns: int) -> Reply:
        """The reply of a target that may still be ill. Where another could answer, it is not waited for as long as its
        settings allow."""
        relieved = self._is_relieved(call, now_ns)
        patience_ns = stand.patience_ns(call.stream, input_tokens(call)) if relieved else None
        if patience_ns is None:
            return await self._service(call)
        scope = asyncio.timeout(patience_ns / clock.NS_PER_S)
        try:
            async with scope:
                return await self._service(call)
        except TimeoutError:
            if not scope.expired():
                raise
        finally:
            del scope  # it knows the task, a task that is cancelled this frame, and this frame it: a cycle
        stand.left(call.id, call.stream)
        stand.overdue(clock.now_ns(), now_ns)
        words = f"no token in {patience_ns / clock.NS_PER_S:.0f} s from a target that was down"
        raise TimedOut(words, phase="first token", target=self._name, after_ns=patience_ns)

    def _check(self, call: Call, stand: Stand, now_ns: int) -> None:
        """Raises `Overloaded` where the target should not be asked for this call."""
        why = self._why_not(call, stand, now_ns)
        if why:
            call.notes.refused.append(self._name)
            until_ns = stand.until_ns(now_ns)
            raise Overloaded(
                f"not asked: {why}",
                kind="ejected",
                target=self._name,
                retry_after_ns=None if until_ns in (0, NEVER_NS) else max(until_ns - now_ns, 0),
                status=502 if stand.locked(now_ns) else 429 if stand.rate_limited(now_ns) else 503,
                hint="Change the key in the configuration." if until_ns == NEVER_NS else "",
            )
        stand.taken(call.id, now_ns)

    def _why_not(self, call: Call, stand: Stand, now_ns: int) -> str:
        """Why it is not asked; "": it is."""
        if self._name in call.notes.barred:
            return "it could not answer this call to its end"
        until_ns = stand.until_ns(now_ns)
        if not until_ns:
            return self._still_returning(call, stand, now_ns)
        if stand.barred(now_ns):
            return stand.why(now_ns)
        if self._name in call.notes.asked and stand.health.down(now_ns):
            return f"it was asked for this call, and is {stand.why(now_ns)}"
        others = [self._stand(name) for name in self._others]
        standing = [other for other in others if not other.until_ns(now_ns)]
        if any(_may_serve(call, other) for other in standing):
            return stand.why(now_ns)
        if standing:
            return "" if stand.last_resort(now_ns) else stand.why(now_ns)
        down = [other for other in others if not other.barred(now_ns) and other.name not in call.notes.refused]
        mine = (until_ns, self._name)
        return stand.why(now_ns) if any((other.until_ns(now_ns), other.name) < mine for other in down) else ""

    def _still_returning(self, call: Call, stand: Stand, now_ns: int) -> str:
        """A target that comes back gets a part of its traffic, where there is one that takes the rest."""
        share = stand.health.share(now_ns)
        if share >= 1 or self._chance.random() < share:
            return ""
        return "it was down and is coming back" if self._is_relieved(call, now_ns) else ""

    def _is_relieved(self, call: Call, now_ns: int) -> bool:
        """Whether another target, which is well, may answer the call."""
        for name in self._others:
            other = self._stand(name)
            if other.health.state == "closed" and not other.until_ns(now_ns) and _may_serve(call, other):
                return True
        return False


def _may_serve(call: Call, other: Stand) -> bool:
    """Whether `other` is at work for this call, or may yet be asked."""
    notes: Notes = call.notes
    if other.name in notes.refused or other.name in notes.barred:
        return False
    return other.name not in notes.asked or call.id in other.under_way


def _too_late(call: Call) -> bool:
    """Whether the time that a policy gave to the first token is over."""
    return call.token_due_ns is not None and clock.now_ns() >= call.token_due_ns
