"""The text that a client already has of an answer, and what a second answer to the same request
adds to it.

Answers are compared by their text, not by their events: tokens may be split elsewhere, and an event
may hold several. Each choice is a sequence of runs (reasoning, text, arguments of a tool call); a
run lasts until another one begins. The second answer must have the same runs with the same
characters as far as the client has them. What goes beyond that is new; a token that is only partly
new is cut.

Nothing new is passed on before all of the delivered text has been repeated: until then the answers
can still differ.
"""

from collections.abc import Iterable

import msgspec

from splitsecond.core.errors import ProviderFault
from splitsecond.core.events import Done, Event, Finish, Quiet, Token, TokenKind, ToolPart, Usage

_COMPARED = frozenset({"text", "reasoning", "refusal", "tool"})
MAX_WAITING = 4 << 20
"""Characters of one choice that may wait until another choice has been repeated."""


class _Run:
    __slots__ = ("kind", "name", "number", "parts")

    def __init__(self, token: Token) -> None:
        self.kind: TokenKind = token.kind
        self.number = _number(token)
        self.name = token.tool.name if token.tool is not None else ""
        self.parts: list[str] = []

    def continues_with(self, token: Token) -> bool:
        return token.kind == self.kind and (token.kind != "tool" or _number(token) == self.number)


class DeliveredText:
    def __init__(self) -> None:
        self.runs: dict[int, list[_Run]] = {}
        self.finished: set[int] = set()
        self.is_empty = True
        self.signed = False
        """The last part is a signature, or hidden reasoning."""
        self.usage = False
        """The final token counts were delivered."""
        self.ended = False
        self._compared = True

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, Token):
                self._add(event)
            elif isinstance(event, Finish):
                self.finished.add(event.index)
            elif isinstance(event, Usage):
                self.usage = bool(self.finished)  # earlier counts are intermediate
            elif isinstance(event, Done):
                self.ended = True
            elif isinstance(event, Quiet) and event.data:
                self.signed = True

    def _add(self, token: Token) -> None:
        self.is_empty = False
        if not token.text:
            return
        self.signed = False
        if (
            token.kind not in _COMPARED
            or (token.kind == "tool" and token.tool is None)
            or token.logprobs is not None
        ):
            self._compared = False
        runs = self.runs.setdefault(token.index, [])
        if not runs or not runs[-1].continues_with(token):
            runs.append(_Run(token))
        runs[-1].parts.append(token.text)

    @property
    def comparable(self) -> bool:
        return self._compared


class ReplayMismatch(ProviderFault):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"the second answer differs from the first: {what}",
            kind="differs",
            phase="between tokens",
            status=200,
        )


class ReplayDiff:
    def __init__(self, delivered: DeliveredText) -> None:
        self._choices = {index: _Choice(runs) for index, runs in delivered.runs.items()}
        self._behind = {index for index, choice in self._choices.items() if not choice.caught_up}
        self._finished = set(delivered.finished)
        self._counted = delivered.usage
        self._signed = delivered.signed
        self._usage: Usage | None = None
        self._waiting: list[Event] = []
        self._size = 0

    @property
    def caught_up(self) -> bool:
        return not self._behind

    def take(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, Token):
                self._take_token(event)
            elif isinstance(event, Finish):
                self._take_finish(event)
            elif isinstance(event, Usage):
                self._usage = event
            elif isinstance(event, Done):
                self._take_end(event)
            elif isinstance(event, Quiet) and event.data:
                self._take_signature(event)
        if not self.caught_up:
            return []
        new, self._waiting = self._waiting, []
        return new

    def finish(self) -> None:
        if not self.caught_up:
            raise ReplayMismatch("it ends earlier")

    def _take_token(self, token: Token) -> None:
        choice = self._choices.setdefault(token.index, _Choice([]))
        new = choice.beyond(token)
        if choice.caught_up:
            self._behind.discard(token.index)
        if new is None:
            return
        if token.index in self._finished:
            raise ReplayMismatch("it continues after the end of the first answer")
        if self._signed and token.kind == "reasoning":
            raise ReplayMismatch("it continues reasoning that was already signed")
        self._signed = False
        self._size += len(new.text)
        if self._size > MAX_WAITING and not self.caught_up:
            raise ReplayMismatch("one of its choices is far behind another")
        self._waiting.append(new)

    def _take_finish(self, finish: Finish) -> None:
        choice = self._choices.get(finish.index)
        if choice is not None and not choice.caught_up:
            raise ReplayMismatch("it ends earlier")
        if finish.index not in self._finished:
            self._finished.add(finish.index)
            self._waiting.append(finish)

    def _take_signature(self, signature: Quiet) -> None:
        if self.caught_up and not self._signed:
            self._waiting.append(signature)

    def _take_end(self, done: Done) -> None:
        self.finish()
        if self._usage is not None and not self._counted:
            self._waiting.append(self._usage)
        self._waiting.append(done)


class _Choice:
    def __init__(self, runs: list[_Run]) -> None:
        self._known = [(run, "".join(run.parts)) for run in runs]
        self._run = 0
        self._at = 0

    @property
    def caught_up(self) -> bool:
        return not self._known or (
            self._run == len(self._known) - 1 and self._at == len(self._known[-1][1])
        )

    def beyond(self, token: Token) -> Token | None:
        if self.caught_up:
            return token
        run, text = self._known[self._run]
        if self._at == len(text) and not run.continues_with(token):
            self._run, self._at = self._run + 1, 0
            run, text = self._known[self._run]
        if not run.continues_with(token):
            raise ReplayMismatch(f"{token.kind} instead of {run.kind}")
        if self._at == 0 and token.tool is not None and token.tool.name != run.name:
            raise ReplayMismatch("it calls another tool")
        expected = text[self._at : self._at + len(token.text)]
        if not token.text.startswith(expected) or (
            expected != token.text and self._run < len(self._known) - 1
        ):
            raise ReplayMismatch(f"after {self._at:,} characters of {run.kind}")
        self._at += len(expected)
        rest = token.text[len(expected) :]
        return _cut(token, rest) if rest else None


def _cut(token: Token, rest: str) -> Token:
    tool = token.tool
    if tool is not None and tool.name:
        if len(rest) > len(token.arguments):
            raise ReplayMismatch("the name of a tool is longer")
        tool = ToolPart(tool.number)
    return msgspec.structs.replace(token, text=rest, tool=tool)


def _number(token: Token) -> int:
    return -1 if token.tool is None else token.tool.number
