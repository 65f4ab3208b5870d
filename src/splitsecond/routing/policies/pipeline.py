"""`pipeline(fast, slow, early="300ms")`: the fast model answers, or says that the slow one
should."""

import asyncio
from typing import Self

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import Fault, Phase, ProviderFault
from splitsecond.core.events import Token
from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.contest import Contest
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.fault_handling import answered, check_time
from splitsecond.routing.machinery.prompt import (
    examined,
    field_value,
    must_call,
    wanted_form,
    with_instruction,
)
from splitsecond.routing.machinery.replies.shared_reply import RecordedChunk, SharedReply
from splitsecond.routing.machinery.settings import Duration, Setting

MARKER = "[[ESCALATE]]"
INSTRUCTION = (
    "If you are not sure that you can answer this well, because it needs long reasoning, rare "
    "knowledge or great care, "
    f"reply with {MARKER} and nothing else. Otherwise answer as usual, and never mention this."
)
_MARKER_WORD = MARKER.strip("[]")
_AROUND = "[]()*_`\"'“#>:. \t\r\n"
"""Characters that models put around a single word."""


class EarlyStart(Setting, frozen=True):
    """The time after which the slow model is asked too: True is at once, else a duration."""

    ns: int

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        return cls(True, 0) if value is True else cls(str(value), Duration.parse(name, value).ns)


class Pipeline(PolicyService):
    """Asks `fast`, and `slow` if that is not sure. `early`: or if `fast` has not begun by then."""

    def __init__(
        self,
        context: PolicyContext,
        fast: Service,
        slow: Service,
        *,
        early: EarlyStart | None = None,
    ) -> None:
        super().__init__(context)
        self._fast = fast
        self._slow = slow
        self._early_ns = None if early is None else early.ns

    async def __call__(self, call: Call) -> Reply:
        request = await examined(call, _with_marker)
        if request is None:
            call.notes.chosen = "pipeline: slow, as fast could not say that it is not sure"
            return await self._slow(call)
        why, sure = "was late", None

        async def fast(call: Call) -> Reply:
            nonlocal why, sure
            try:
                sure = await self._answer_if_sure(request, call.watched)
            except Fault as fault:
                why = "was not sure" if fault.kind == "unsure" else f"failed: {fault.kind}"
                raise
            return sure

        async with Contest(call) as contest:
            fast_task = contest.enter(fast)
            if self._early_ns != 0:
                await asyncio.wait(
                    [fast_task],
                    timeout=None if self._early_ns is None else self._early_ns / clock.NS_PER_S,
                )
            if not contest.won:
                contest.enter(self._in_time)
        reply = contest.reply()
        call.notes.chosen = (
            "pipeline: fast, which was sure" if reply is sure else f"pipeline: slow, as fast {why}"
        )
        return reply

    async def _in_time(self, call: Call) -> Reply:
        check_time(call, clock.now_ns(), self._slow)
        return await answered(self._slow, call)

    async def _answer_if_sure(self, call: Call, watched: bool) -> Reply:
        draft = _Guarded(await answered(self._fast, call))
        try:
            await _begun(draft)
        except BaseException:
            await draft.close()
            raise
        return draft.reader(watched=watched)


async def _begun(draft: "_Guarded") -> None:
    number, text = 0, ""
    while (chunk := await draft.chunk(number)) is not None:
        number += 1
        if not draft.from_start:
            raise ProviderFault(
                "too much came before the answer", kind="too_long", phase="first token", status=200
            )
        for event in chunk.events:
            if isinstance(event, Token) and event.kind == "text":
                text += event.text
            elif isinstance(event, Token) and event.kind != "reasoning":
                return
        word = text.lstrip(_AROUND)
        if word.startswith(_MARKER_WORD):
            raise _unsure()
        if not _MARKER_WORD.startswith(word):
            return
    if draft.broken is not None:
        raise draft.broken.fault
    if not text.strip():
        raise _unsure()


class _Guarded(SharedReply):
    """A reply that never passes the marker on, wherever it is: chunks wait until they cannot be
    part of it."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self._tail = ""
        self._waiting: list[RecordedChunk] = []

    def add(self, chunk: RecordedChunk) -> None:
        text = "".join(
            event.text
            for event in chunk.events
            if isinstance(event, Token) and event.kind == "text"
        )
        if text:
            self._tail += text
            if MARKER in self._tail:
                self._waiting.clear()
                self.break_off(_unsure(began=True))
                return
            self._tail = self._tail[-_held_back(self._tail) :] if _held_back(self._tail) else ""
        self._waiting.append(chunk)
        if not self._tail or self.over:
            for waiting in self._waiting:
                super().add(waiting)
            self._waiting.clear()


def _held_back(text: str) -> int:
    longest = min(len(text), len(MARKER) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(MARKER[:size])), 0)


def _with_marker(call: Call) -> Call | None:
    if call.operation != "chat" or field_value(call, "n") not in (None, 1):
        return None
    if wanted_form(call) is not None or must_call(call):
        return None
    request = with_instruction(call, INSTRUCTION)
    return None if request is None else msgspec.structs.replace(request, watched=True)


def _unsure(*, began: bool = False) -> Fault:
    where = " in the middle of its answer" if began else ""
    phase: Phase = "between tokens" if began else "first token"
    return ProviderFault(
        f"the fast model is not sure{where}", kind="unsure", phase=phase, status=200
    )


pipeline = Policy(
    Pipeline, example='pipeline("a/fast", "a/slow", early="300ms")', branches="backed"
)
