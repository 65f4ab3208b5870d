"""What a client already has of an answer, and what another target's telling of the same answer adds to it.

An answer is compared as it reads, not as it came: tokens may be cut elsewhere, and events may hold more or less of
them. For each choice it is a row of runs (thoughts, text, the arguments of a tool call), each of which goes on until
another begins. The other telling must have the same runs with the same characters as far as the client has them; what
it says beyond that is new, and a token that is half known is cut.

Nothing new is given out before all that is known has been heard again: until then the answers may still differ.
"""

import msgspec

from splitsecond.errors import ProviderFault
from splitsecond.events import Done, Event, Finish, Quiet, Token, TokenKind, ToolPart, Usage

_COMPARED = frozenset({"text", "reasoning", "refusal", "tool"})
MOST_WAITING = 4 << 20
"""Characters of one choice that may wait until another has been heard again."""


class _Run:
    """Tokens of one kind after one another; `number` and `name` are those of a tool call."""

    __slots__ = ("kind", "name", "number", "parts")

    def __init__(self, token: Token) -> None:
        self.kind: TokenKind = token.kind
        self.number = _number(token)
        self.name = token.tool.name if token.tool is not None else ""
        self.parts: list[str] = []

    def goes_on(self, token: Token) -> bool:
        """Whether `token` belongs to it."""
        return token.kind == self.kind and (token.kind != "tool" or _number(token) == self.number)


class Told:
    """What a client has been told of one answer."""

    def __init__(self) -> None:
        self.runs: dict[int, list[_Run]] = {}
        self.finished: set[int] = set()
        self.tokens = 0
        """About how many: as the provider counts them, or one an event."""
        self.nothing = True
        self.signed = False
        """What came last of it is a signature, or a thought that is hidden."""
        self.usage = False
        """The last counts were."""
        self.over = False
        self._compared = True

    def add(self, events: list[Event]) -> None:
        """The client was told of these too."""
        for event in events:
            if isinstance(event, Token):
                self._add(event)
            elif isinstance(event, Finish):
                self.finished.add(event.index)
            elif isinstance(event, Usage):
                self.usage = bool(self.finished)  # before that they were only those so far
            elif isinstance(event, Done):
                self.over = True
            elif isinstance(event, Quiet) and event.data:
                self.signed = True

    def _add(self, token: Token) -> None:
        self.nothing = False
        if not token.text:
            return
        self.signed = False
        self.tokens = token.tokens_so_far or self.tokens + 1
        if token.kind not in _COMPARED or (token.kind == "tool" and token.tool is None) or token.logprobs is not None:
            self._compared = False
        runs = self.runs.setdefault(token.index, [])
        if not runs or not runs[-1].goes_on(token):
            runs.append(_Run(token))
        runs[-1].parts.append(token.text)

    @property
    def comparable(self) -> bool:
        """Whether it holds nothing but what can be compared, and told from the middle on."""
        return self._compared

    @property
    def text(self) -> str | None:
        """All of it, where it is the beginning of one plain text; else None."""
        runs = self.runs.get(0, [])
        if len(self.runs) != 1 or len(runs) != 1 or runs[0].kind != "text" or self.finished:
            return None
        return "".join(runs[0].parts)


class Differs(ProviderFault):
    """Another target says something else than the client already has."""

    def __init__(self, what: str) -> None:
        super().__init__(f"it does not say the same again: {what}", kind="differs", phase="between tokens", status=200)


class Retold:
    """The same answer once more, from its beginning: what of it a client who has `told` is still to be told."""

    def __init__(self, told: Told) -> None:
        self._choices = {index: _Choice(runs) for index, runs in told.runs.items()}
        self._finished = set(told.finished)
        self._counted = told.usage
        self._signed = told.signed
        self._usage: Usage | None = None
        self._waiting: list[Event] = []
        self._size = 0

    @property
    def caught_up(self) -> bool:
        """All that the client has was said again."""
        return all(choice.caught_up for choice in self._choices.values())

    def take(self, events: list[Event]) -> list[Event]:
        """What `events` say that the client has not. Raises `Differs`."""
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

    def ended(self) -> None:
        """It ended well. Raises `Differs` where that was too soon."""
        if not self.caught_up:
            raise Differs("it ended before")

    def _take_token(self, token: Token) -> None:
        choice = self._choices.setdefault(token.index, _Choice([]))
        new = choice.beyond(token)
        if new is None:
            return
        if token.index in self._finished:
            raise Differs("it goes on where the first had ended")
        if self._signed and token.kind == "reasoning":
            raise Differs("a thought goes on where the first was signed")
        self._signed = False
        self._size += len(new.text)
        if self._size > MOST_WAITING and not self.caught_up:
            raise Differs("one of its choices lags far behind another")
        self._waiting.append(new)

    def _take_finish(self, finish: Finish) -> None:
        choice = self._choices.get(finish.index)
        if choice is not None and not choice.caught_up:
            raise Differs("it ended before")
        if finish.index not in self._finished:
            self._finished.add(finish.index)
            self._waiting.append(finish)

    def _take_signature(self, signature: Quiet) -> None:
        """The client has those of the first for what it was told; new is one of what it was not."""
        if self.caught_up and not self._signed:
            self._waiting.append(signature)

    def _take_end(self, done: Done) -> None:
        self.ended()
        if self._usage is not None and not self._counted:
            self._waiting.append(self._usage)
        self._waiting.append(done)


class Appended:
    """The rest of a text, by a target that was given its beginning, of about `tokens` tokens: all of it is new.

    But for the white space at the end of that, which it was not given: many models do not take it, or go on badly from
    it. What they begin with of it is left out.
    """

    def __init__(self, tokens: int, space: str = "") -> None:
        self._tokens = tokens
        self._space = space
        self._usage: Usage | None = None

    def take(self, events: list[Event]) -> list[Event]:
        """What the client is to be told. Raises `Differs` where it is no text."""
        new: list[Event] = []
        for event in events:
            if isinstance(event, Token):
                if event.kind != "text" or event.index:
                    raise Differs(f"{event.kind} in the middle of a text")
                text = self._beyond(event.text)
                if text:
                    new.append(event if text == event.text else msgspec.structs.replace(event, text=text))
            elif isinstance(event, Usage):
                self._usage = self._whole(event)
            elif isinstance(event, Done):
                new.extend([event] if self._usage is None else [self._usage, event])
            elif not isinstance(event, Quiet) or event.data:
                new.append(event)
        return new

    def ended(self) -> None:
        """It ended well."""

    def _beyond(self, text: str) -> str:
        """`text` without what the client has of it."""
        known = 0
        while text[known : known + 1] and self._space.startswith(text[: known + 1]):
            known += 1
        self._space = self._space[known:] if known == len(text) else ""
        return text[known:]

    def _whole(self, usage: Usage) -> Usage:
        """The counts of the whole answer: what was said before was output, and not a part of the prompt."""
        given, made = usage.input_tokens, usage.output_tokens
        return msgspec.structs.replace(
            usage,
            input_tokens=None if given is None else max(given - self._tokens, 0),
            output_tokens=None if made is None else made + self._tokens,
        )


def appended(told: Told) -> Appended:
    """The rest of what was `told`, by a target that is given all of it but the white space at its end."""
    text = told.text or ""
    return Appended(told.tokens, text[len(text.rstrip()) :])


class _Choice:
    """Where one choice is, on its way through what is known of it."""

    def __init__(self, runs: list[_Run]) -> None:
        self._known = [(run, "".join(run.parts)) for run in runs]
        self._run = 0
        self._at = 0

    @property
    def caught_up(self) -> bool:
        return not self._known or (self._run == len(self._known) - 1 and self._at == len(self._known[-1][1]))

    def beyond(self, token: Token) -> Token | None:
        """What `token` says beyond all that is known; None: nothing. Raises `Differs`."""
        if self.caught_up:
            return token
        run, text = self._known[self._run]
        if self._at == len(text) and not run.goes_on(token):
            self._run, self._at = self._run + 1, 0
            run, text = self._known[self._run]
        if not run.goes_on(token):
            raise Differs(f"{token.kind} in the place of {run.kind}")
        if self._at == 0 and token.tool is not None and token.tool.name != run.name:
            raise Differs("another tool is called")
        known = text[self._at : self._at + len(token.text)]
        if not token.text.startswith(known) or (known != token.text and self._run < len(self._known) - 1):
            raise Differs(f"after {self._at} characters of {run.kind}")
        self._at += len(known)
        rest = token.text[len(known) :]
        return _cut(token, rest) if rest else None


def _cut(token: Token, rest: str) -> Token:
    """`token` without its beginning. What it says of tokens holds for the whole of it."""
    tool = token.tool
    if tool is not None and tool.name:
        if len(rest) > len(token.arguments):
            raise Differs("a tool's name goes on")
        tool = ToolPart(tool.number)
    return msgspec.structs.replace(token, text=rest, tool=tool)


def _number(token: Token) -> int:
    return -1 if token.tool is None else token.tool.number
