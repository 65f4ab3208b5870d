"""`cascade(small, large, accept="finished", judge=c, hold="10s")`: the small model answers where its answer will do.

What it does. The small model is asked, and its answer is held back until it is whole. If it is accepted it goes to the
client, else it is thrown away and the large model is asked. `accept` is the rule (`acceptance`): "finished" (ended by
itself, says something, refuses nothing), "json" (and parses), "re:PATTERN" (and holds it), "logprob>-0.5" (and its
tokens had that mean log-probability at least; it asks the small model for them where the client did not). A `judge`
is a third model that is shown the question and the answer, and must say yes. `hold` is how long all of that may take,
the judge included; then, and where the answer is longer than 8 MiB or fails, the large model is asked. A request that
is wrong in itself goes back at once.

What it costs. A call that escalates pays for both models, and waits for both: the small one's whole time comes before
the large one's first token. A judge adds its own prompt to every call. With costs c (the judge's too) and C and the
share p that escalates it saves money while c + p·C < C. The share is counted (`escalations`), and said with each answer
(`Notes.chosen`). Where by that share and the prices of the targets the cascade is dearer, the large model is asked
alone; one call in fifty still goes to the small one, so that it is seen when its answers do again. Where a price is not
known, or the large model is down, the small one is asked as ever.

When it helps. Where a rule tells good from bad: JSON that must parse, a label out of a list, code that compiles in a
judge's eyes. With a small model that is many times as fast, an accepted answer is whole before the large one would have
said much.

When it hurts. An accepted answer comes all at once when it is whole, not as it is written: the first token is as late
as the small model's last. Where a quarter or more escalates, `by_complexity` or the large model alone is faster.

Where it stands. Inside `cache`, which keeps what was accepted; inside `deadline`, so that both fit into the time.
Around `fallback`, `race` or `limit` of each model. What is neither chat nor completion goes to the large model.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from splitsecond import clock
from splitsecond.errors import Fault
from splitsecond.policy.answers.acceptance import Answer, acceptance, wants_logprobs
from splitsecond.policy.answers.judge import approves, asked_tokens
from splitsecond.policy.answers.recording import Recording
from splitsecond.policy.budget import Budget
from splitsecond.policy.choosing.branch import Branch, branches
from splitsecond.policy.choosing.glance import Glance, about
from splitsecond.policy.choosing.prompt_size import input_tokens, most_output_tokens, output_tokens
from splitsecond.policy.prompt import plain
from splitsecond.policy.race import Race
from splitsecond.policy.remedy import all_failed, answered, check_time, remedy
from splitsecond.policy.settings import duration, written
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service

HOLD = "10s"
MEASURED = 0.02
"""Of the calls, where the large model is asked alone: so many are asked of the small one all the same."""
PRICED_EVERY_NS = clock.NS_PER_S
"""How often it is looked up what calls cost: prices hardly change, and how long answers are does so slowly."""
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
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
) -> Service:
    """The service that asks `large` where the answer of `small` is not accepted.

    `without_logprobs` takes log-probabilities that only we asked for out of an answer's bytes; else they stay in it.
    `names`: of the targets in each of the models, the judge last.
    """
    among = branches([small, large, *([] if judge is None else [judge])], names, best=(Race,))
    return Cascade(among, accept, hold, without_logprobs, standing or Standing())


class Cascade:
    """See `cascade`."""

    def __init__(
        self,
        among: Sequence[Branch],
        accept: str | None,
        hold: str | None,
        without_logprobs: Trim | None,
        standing: Standing,
    ) -> None:
        """`among`: the small model, the large one, and the judge if there is one."""
        self._branches = among
        self._small, self._large = among[0].service, among[1].service
        self._judge = among[2].service if len(among) > 2 else None
        self._accept, self._rule = accept, acceptance("accept", accept or "finished")
        self._logprobs = wants_logprobs(accept or "")
        self._without_logprobs = without_logprobs
        self._hold, self._hold_ns = hold, duration("hold", hold or HOLD)
        self._standing = standing
        self._escalations = standing.escalations(repr(self))
        self._measuring = Budget(MEASURED)
        self._costs: Glance[tuple[float, float]] = Glance(PRICED_EVERY_NS)

    def __repr__(self) -> str:
        named = {} if self._judge is None else {"judge": self._judge}
        return written("cascade", (self._small, self._large), named, accept=self._accept, hold=self._hold)

    async def __call__(self, call: Call) -> Reply:
        if call.operation not in _HELD:
            return await self._large(call)
        if self._is_dearer(call):
            call.notes.chosen = f"cascade: the large model alone is cheaper; {self._share()}"
            return await self._large(call)
        failed: Fault | None = None
        why = ""
        try:
            found = await self._accepted(call)
            if not isinstance(found, str):
                self._count(call, escalated=False)
                return found
            why = found
        except Fault as fault:
            if remedy(fault) == "change" and not self._adds(call):
                raise
            failed, why = fault.kept(), f"it failed: {fault.kind}"
        self._count(call, escalated=True, why=why, counts=failed is None)
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

    def _is_dearer(self, call: Call) -> bool:
        """Whether to leave the small model out of it, as the cascade costs more than the large model alone."""
        lately, now_ns = self._escalations, clock.now_ns()
        if not lately.known(now_ns):
            lately.dearer = False
            return False
        small, large = self._usd(call, now_ns)
        lately.dearer = small + lately.share * large > large
        if not lately.dearer or not self._branches[1].available(self._standing):
            return False
        self._measuring.deposit()
        return not self._measuring.withdraw()

    def _usd(self, call: Call, now_ns: int) -> tuple[float, float]:
        """What such a call costs at the small model, with the judge, and at the large one; 0 each where a price is not
        known, as then neither is dearer."""
        tokens_in = about(input_tokens(call))
        key = call.stream, tokens_in, most_output_tokens(call)
        found = self._costs.get(key, now_ns)
        if found is None:
            found = self._priced(call, tokens_in)
            self._costs.put(key, found)
        return found

    def _priced(self, call: Call, tokens_in: int) -> tuple[float, float]:
        said = [self._said(call, branch) for branch in self._branches[:2]]
        asked = [(tokens_in, tokens_out) for tokens_out in said]
        asked.append((asked_tokens(tokens_in, said[0]), 1))
        costs = [branch.cost_usd(self._standing, *each) for branch, each in zip(self._branches, asked, strict=False)]
        known = [cost for cost in costs if cost is not None]
        if len(known) < len(costs):
            return 0.0, 0.0
        small, large, *judge = known
        return small + sum(judge), large

    def _said(self, call: Call, branch: Branch) -> int:
        """How many tokens an answer has there."""
        lately = [each.output_tokens() for each in branch.estimates(self._standing, stream=call.stream)]
        return output_tokens(call, [tokens for tokens in lately if tokens is not None])

    def _count(self, call: Call, *, escalated: bool, why: str = "", counts: bool = True) -> None:
        """`counts`: the small model has answered, or was waited for. A failure is for its health to count."""
        if counts:
            self._escalations.add(clock.now_ns(), escalated=escalated)
        outcome = f"not accepted, {why}" if escalated else "accepted"
        call.notes.chosen = f"cascade: the small model's answer was {outcome}; {self._share()}"

    def _share(self) -> str:
        return f"{self._escalations.share:.0%} of the small one's answers were not accepted lately"
