"""`pipeline(fast, slow, early="300ms")`: the fast model answers, or says that the slow one should.

What it does. The fast model gets the request with one more instruction in its system message: if it is not sure that it
can answer well, to reply with a marker and nothing else. Its answer is held until the first characters tell which it
is; mostly the first token does. An answer goes on as it is written. The marker is never shown: the fast model is
closed, and the slow one, asked with the client's own request, answers. So does it where the fast one fails.

With `early` the slow one is asked before that is known: at once (``early=True``), or when the fast one has not begun
after some time. Then whoever first has something to show answers, and the other is closed.

What it costs. The instruction, some fifty tokens of each prompt. Where the fast model is not sure, the time that it
took to say so; `early` takes that time away, and pays for the slow model's prompt in each call not decided by then.

When it helps. Where most requests are easy and the fast model knows which: the median is the fast model's, and the
hard ones still get the slow model's answer. It holds back some characters, where `cascade` holds back the whole answer.

When it hurts. Models are often sure and wrong; a small one more so. Nothing here checks the answer. A fast model that
reasons before it answers is not fast: its reasoning is held back too.

Where it stands. Around `fallback`, `race` or `limit` of each model; inside `cache` and `deadline`. A draft is never
shown and replaced afterwards: a fast model that brings the marker in the middle of its answer breaks the answer off.
What the fast model could not answer with the marker (no chat, several choices, a form of the answer, a tool that must
be called) goes to the slow one at once.
"""

import asyncio

import msgspec

from splitsecond import clock
from splitsecond.errors import Fault, Phase, ProviderFault
from splitsecond.events import Token
from splitsecond.policy.answers.recording import Piece, Recording
from splitsecond.policy.contest import Contest
from splitsecond.policy.prompt import must_call, plain, told, wanted_form
from splitsecond.policy.remedy import answered, check_time
from splitsecond.policy.settings import Setting, duration, written
from splitsecond.service import Call, Reply, Service

MARKER = "[[ESCALATE]]"
INSTRUCTION = (
    "If you are not sure that you can answer this well, because it needs long reasoning, rare knowledge or great care, "
    f"reply with {MARKER} and nothing else. Otherwise answer as usual, and never mention this."
)
_WORD = MARKER.strip("[]")
_AROUND = "[]()*_`\"'“#>:. \t\r\n"
"""What models put around a word on its own."""


def early_start(name: str, value: object) -> int:
    """Nanoseconds after which the slow model is asked too: True is at once, else a duration."""
    return 0 if value is True else duration(name, value)


def pipeline(fast: Service, slow: Service, *, early: Setting | None = None) -> Service:
    """The service that asks `fast`, and `slow` where that is not sure; `early`: or where it has not begun by then."""
    return Pipeline(fast, slow, early)


class Pipeline:
    """See `pipeline`."""

    def __init__(self, fast: Service, slow: Service, early: Setting | None) -> None:
        self._fast = fast
        self._slow = slow
        self._early, self._early_ns = early, None if early is None else early_start("early", early)

    def __repr__(self) -> str:
        return written("pipeline", (self._fast, self._slow), early=self._early)

    async def __call__(self, call: Call) -> Reply:
        asking = _told(call)
        if asking is None:
            call.notes.chosen = "pipeline: slow, as fast could not say that it is not sure"
            return await self._slow(call)
        why, sure = "was late", None

        async def fast(call: Call) -> Reply:
            nonlocal why, sure
            try:
                sure = await self._if_sure(asking, call.watched)
            except Fault as fault:
                why = "was not sure" if fault.kind == "unsure" else f"failed: {fault.kind}"
                raise
            return sure

        async with Contest(call) as contest:
            asked = contest.enter(fast)
            if self._early_ns != 0:
                await asyncio.wait([asked], timeout=None if self._early_ns is None else self._early_ns / clock.NS_PER_S)
            if not contest.won:
                contest.enter(self._in_time)
        reply = contest.reply()
        call.notes.chosen = "pipeline: fast, which was sure" if reply is sure else f"pipeline: slow, as fast {why}"
        return reply

    async def _in_time(self, call: Call) -> Reply:
        check_time(call, clock.now_ns(), self._slow)
        return await self._slow(call)

    async def _if_sure(self, call: Call, watched: bool) -> Reply:
        """The fast model's answer, once it has begun as one. Raises a `Fault` where it will not be one."""
        recording = _Guarded(await answered(self._fast, call))
        try:
            await _begun(recording)
        except BaseException:
            await recording.close()
            raise
        return recording.play(watched=watched)


async def _begun(recording: "_Guarded") -> None:
    """Returns when it is clear that this is an answer."""
    number, text = 0, ""
    while (piece := await recording.piece(number)) is not None:
        number += 1
        if not recording.from_the_first:
            raise ProviderFault("too much came before the answer", kind="too_long", phase="first token", status=200)
        for event in piece.events:
            if isinstance(event, Token) and event.kind == "text":
                text += event.text
            elif isinstance(event, Token) and event.kind != "reasoning":
                return
        word = text.lstrip(_AROUND)
        if word.startswith(_WORD):
            raise _unsure()
        if not _WORD.startswith(word):
            return
    if recording.broken is not None:
        raise recording.broken.fault
    if not text.strip():
        raise _unsure()


class _Guarded(Recording):
    """A recording that the marker does not get through, wherever it stands: pieces wait until it is clear."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply)
        self._tail = ""
        self._waiting: list[Piece] = []

    def take(self, piece: Piece) -> None:
        text = "".join(event.text for event in piece.events if isinstance(event, Token) and event.kind == "text")
        if text:
            self._tail += text
            if MARKER in self._tail:
                self._waiting.clear()
                self.break_off(_unsure(began=True))
                return
            self._tail = self._tail[-_held_back(self._tail) :] if _held_back(self._tail) else ""
        self._waiting.append(piece)
        if not self._tail or self.over:
            for waiting in self._waiting:
                super().take(waiting)
            self._waiting.clear()


def _held_back(text: str) -> int:
    """How many characters at the end of `text` may be the beginning of the marker."""
    longest = min(len(text), len(MARKER) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(MARKER[:size])), 0)


def _told(call: Call) -> Call | None:
    """What the fast model is asked. None: it could not answer with the marker."""
    if call.operation != "chat" or plain(call, "n") not in (None, 1):
        return None
    if wanted_form(call) is not None or must_call(call):
        return None
    asking = told(call, INSTRUCTION)
    return None if asking is None else msgspec.structs.replace(asking, watched=True)


def _unsure(*, began: bool = False) -> Fault:
    where = " in the middle of its answer" if began else ""
    phase: Phase = "between tokens" if began else "first token"
    return ProviderFault(f"the fast model said that it is not sure{where}", kind="unsure", phase=phase, status=200)
