"""An answer told again in another dialect: events in, the bytes of a stream out.

The events say the same whatever dialect they came in, and a dialect's `Writer` says them in its own words. Here they
are put into the order that writers want: the beginning of a choice with its first token, a tool call's name before its
arguments, and why the answer ended, its counts and its end mark when it is known to be whole. What came before that is
given at once. Nothing is said of an answer that broke: whoever serves the client ends it with an error.

Tool calls follow each other in all dialects that have an order of parts, so one is ended where the next begins; a
fragment of one that was ended cannot be told any more. Calls that the provider answers itself are left out, as are
thoughts that are hidden or signed: they mean something to their provider alone. A call without arguments is given an
empty object, because clients read them as JSON.
"""

from collections.abc import Sequence

from splitsecond.errors import CallerFault, ProviderFault
from splitsecond.events import Done, Event, Finish, Token, Usage
from splitsecond.wire.dialect import Writer
from splitsecond.wire.finish_reasons import openai_reason

MOST_CHARACTERS = 64 << 20
"""Of one answer. Some dialects say all of it once more at its end, so their writers keep it."""
_ID_CHARACTERS = 32
"""Of the part of a call's id that its tool calls share; OpenAI takes ids of 40 in the next request."""


class _Choice:
    """A choice under way. `call`: the number of the tool call that is open, None for none; `calls`: how many began."""

    __slots__ = ("argued", "call", "calls", "reason")

    def __init__(self) -> None:
        self.reason = "stop"
        self.call: int | None = None
        self.calls = 0
        self.argued = False


class Retelling:
    """The answer to one call. `identity` is what its own ids are made of.

    `single`: the dialect has one choice; all others are left out.
    """

    def __init__(self, writer: Writer, identity: str, *, single: bool) -> None:
        self._writer = writer
        self._identity = identity[-_ID_CHARACTERS:]
        self._single = single
        self._choices: dict[int, _Choice] = {}
        self._usage: Usage | None = None
        self._characters = 0

    def tell(self, events: Sequence[Event]) -> bytes:
        """`events`, of which none came before, in the words of the dialect; b"" where they say nothing yet.

        Raises `CallerFault` for what the dialect has no words for, and `ProviderFault` for what no dialect has an order
        for; of `events`, nothing is told then.
        """
        out: list[bytes] = []
        for event in events:
            match event:
                case Token():
                    if event.index == 0 or not self._single:
                        self._take_token(event, out)
                case Finish():
                    if event.index == 0 or not self._single:
                        self._choice(event.index, out).reason = event.reason
                case Usage():
                    self._usage = event
                case Done():
                    self._end(out)
        return b"".join(out)

    def _choice(self, index: int, out: list[bytes]) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice()
            out.append(self._writer.opening(index))
        return choice

    def _take_token(self, token: Token, out: list[bytes]) -> None:
        self._characters += len(token.text)
        if self._characters > MOST_CHARACTERS:
            words = f"the answer is longer than {MOST_CHARACTERS} characters"
            raise ProviderFault(words, kind="too_long", phase="between tokens", status=200)
        choice = self._choice(token.index, out)
        if token.kind == "tool":
            self._take_call(choice, token, out)
            return
        self._end_call(choice, token.index, out)
        try:
            out.append(self._writer.token(token.text, token.kind, token.index))
        except KeyError:
            words = f"the answer holds {token.kind}, which cannot be carried over to the client's dialect"
            raise CallerFault(words, kind="not_translatable", phase="between tokens") from None

    def _take_call(self, choice: _Choice, token: Token, out: list[bytes]) -> None:
        part = token.tool
        if part is None:
            return
        if part.number != choice.call:
            if part.number < choice.calls:
                words = f"a fragment of tool call {part.number + 1} came after that call was over"
                raise ProviderFault(words, kind="malformed", phase="between tokens", status=200)
            self._end_call(choice, token.index, out)
            choice.call, choice.calls = part.number, part.number + 1
            identity = part.id or f"call_{self._identity}{part.number}"
            out.append(self._writer.tool_call(part.name, identity, token.index))
        if token.arguments:
            choice.argued = True
            out.append(self._writer.token(token.arguments, "tool", token.index))

    def _end_call(self, choice: _Choice, index: int, out: list[bytes]) -> None:
        if choice.call is not None and not choice.argued:
            out.append(self._writer.token("{}", "tool", index))
        choice.call, choice.argued = None, False

    def _end(self, out: list[bytes]) -> None:
        self._choice(0, out)
        for index, choice in sorted(self._choices.items()):
            self._end_call(choice, index, out)
            out.append(self._writer.finish(openai_reason(choice.reason, called=choice.calls > 0), index))
        if self._usage is not None:
            out.append(self._writer.usage(self._usage))
        out.append(self._writer.done())
