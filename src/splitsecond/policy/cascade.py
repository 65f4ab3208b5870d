"""`cascade(small, large, accept="finished", judge=c, hold="10s")`: the small model answers where its answer will do.

What it does. The small model is asked, and its answer is held back until it is whole. If it is accepted it goes to the
client, else it is thrown away and the large model is asked. `accept` is the rule (`acceptance`): "finished" (ended by
itself, says something, refuses nothing), "json" (and parses), "re:PATTERN" (and holds it), "logprob>-0.5" (and its
tokens had that mean log-probability at least; it asks the small model for them where the client did not). A `judge`
is a third model that is shown the question and the answer, and must say yes. `hold` is how long all of that may take,
the judge included; then, and where the answer is longer than 8 MiB or fails, the large model is asked. A request that
is wrong in itself goes back at once.

What it costs. A call that escalates pays for both models, and waits for both: the small one's whole time comes before
the large one's first token. With costs c and C and the share p that escalates it saves money while c + p·C < C. The
share is counted, and said with each answer (`Notes.chosen`). A judge adds its own prompt to every call.

When it helps. Where a rule tells good from bad: JSON that must parse, a label out of a list, code that compiles in a
judge's eyes. With a small model that is many times as fast, an accepted answer is whole before the large one would have
said much.

When it hurts. An accepted answer comes all at once when it is whole, not as it is written: the first token is as late
as the small model's last. Where a quarter or more escalates, `by_complexity` or the large model alone is faster.

Where it stands. Inside `cache`, which keeps what was accepted; inside `deadline`, so that both fit into the time.
Around `fallback`, `race` or `limit` of each model. What is neither chat nor completion goes to the large model.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.policy.answers.acceptance import Answer, acceptance, wants_logprobs
from splitsecond.policy.answers.judge import approves
from splitsecond.policy.answers.recording import Recording
from splitsecond.policy.prompt import plain
from splitsecond.policy.remedy import all_failed, answered, check_time, remedy
from splitsecond.policy.settings import duration, written
from splitsecond.service import Call, Reply, Service

HOLD = "10s"
REMEMBERED = 1000
"""Calls over which the share that escalates is counted."""
_HELD = ("chat", "completions")

Trim = Callable[[bytes], bytes]


def cascade(
    small: Service,
    large: Service,
    *,
    accept: str | None = None,
    judge: Service | None = None,
    hold: str | None = None,
    without_logprobs: Trim | None = None,
) -> Service:
    """The service that asks `large` where the answer of `small` is not accepted.

    `without_logprobs` takes log-probabilities that only we asked for out of an answer's bytes; else they stay in it.
    """
    return Cascade(small, large, accept, judge, hold, without_logprobs)


class Cascade:
    """See `cascade`."""

    def __init__(
        self,
        small: Service,
        large: Service,
        accept: str | None,
        judge: Service | None,
        hold: str | None,
        without_logprobs: Trim | None,
    ) -> None:
        self._small = small
        self._large = large
        self._accept, self._rule = accept, acceptance("accept", accept or "finished")
        self._logprobs = wants_logprobs(accept or "")
        self._without_logprobs = without_logprobs
        self._judge = judge
        self._hold, self._hold_ns = hold, duration("hold", hold or HOLD)
        self._escalated: deque[bool] = deque(maxlen=REMEMBERED)

    def __repr__(self) -> str:
        named = {} if self._judge is None else {"judge": self._judge}
        return written("cascade", (self._small, self._large), named, accept=self._accept, hold=self._hold)

    async def __call__(self, call: Call) -> Reply:
        if call.operation not in _HELD:
            return await self._large(call)
        failed: Fault | None = None
        why = ""
        try:
            found = await self._accepted(call)
            if not isinstance(found, str):
                self._count(call, escalated=False, why="the small model's answer was accepted")
                return found
            why = found
        except Fault as fault:
            if remedy(fault) == "change" and not self._adds(call):
                raise
            failed, why = fault.kept(), f"it failed: {fault.kind}"
        self._count(call, escalated=True, why=f"the small model's answer was not accepted, {why}")
        try:
            check_time(call, clock.now_ns(), self._large)
            return await self._large(call)
        except Fault as fault:
            if failed is None:
                raise
            raise all_failed([failed, fault.kept()]) from None

    async def _accepted(self, call: Call) -> Reply | str:
        """The small model's answer; or why it is not accepted. Raises the `Fault` by which it failed."""
        scope = asyncio.timeout(self._hold_ns / clock.NS_PER_S)
        try:
            async with scope:
                recording = Recording(await answered(self._small, self._asking(call)))
                try:
                    why = await self._judged(call, recording)
                except BaseException:
                    await recording.close()
                    raise
        except TimeoutError:
            if not scope.expired():
                raise
            return f"it took more than {self._hold or HOLD}"
        if why:
            await recording.close()
            return why
        if self._without_logprobs is not None and self._adds(call):
            recording.rewrite(self._without_logprobs)
        return recording.play(watched=call.watched)

    async def _judged(self, call: Call, recording: Recording) -> str:
        """Reads all of it. Why it is not accepted, "" where it is."""
        answer, number = Answer(), 0
        while (piece := await recording.piece(number)) is not None:
            answer.take(piece.events)
            number += 1
            if not recording.from_the_first:
                return "it is too long to be held"
        if recording.broken is not None:
            raise recording.broken.fault
        why = self._rule(answer)
        if why or self._judge is None:
            return why
        return await approves(self._judge, call, answer.text or answer.calls)

    def _adds(self, call: Call) -> bool:
        """Whether the small model is asked for log-probabilities that the client does not want."""
        return self._logprobs and not plain(call, "logprobs")

    def _asking(self, call: Call) -> Call:
        if self._adds(call):
            wanted = True if call.operation == "chat" else 0  # of a completion the number of other tokens to tell
            return msgspec.structs.replace(call, watched=True, body={**call.body, "logprobs": wanted})
        return msgspec.structs.replace(call, watched=True)

    def _count(self, call: Call, *, escalated: bool, why: str) -> None:
        self._escalated.append(escalated)
        share = f"{sum(self._escalated)} of the last {len(self._escalated)} calls went to the large model"
        call.notes.chosen = f"cascade: {why}; {share}"
