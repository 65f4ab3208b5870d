"""Transcoding of an answer: events of one API format in, the bytes of a stream in another format
out.

The transcoder puts the events into the order that an `AnswerWriter` needs: the opening of a choice
before its first token, the name of a tool call before its arguments, and finish reason, usage and
end mark only when the answer is known to be complete. Nothing is written for an answer that broke:
the server ends it with an error.

Formats with an order of parts send tool calls one after another, but fragments of parallel calls
may alternate. If a call begins before the arguments of the one before it are complete, all later
calls are held back until the calls end. A fragment of a call that has ended is an error. Left out
are tool calls that the provider answers itself, and reasoning that is hidden or signed. A tool call
without arguments gets an empty object, because clients parse them as JSON.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Done, Event, Finish, Token, ToolPart, Usage
from splitsecond.core.finish_reasons import meaning, openai_reason
from splitsecond.core.service import Call, Operation
from splitsecond.core.wire.api_format import AnswerWriter
from splitsecond.core.wire.sse import malformed
from splitsecond.core.wire.streaming import is_json

MAX_CHARACTERS = 64 << 20
"""Characters of one answer, which writers of some formats keep to repeat it."""
MAX_HELD = 100_000
"""Fragments of later tool calls that wait for the end of an earlier one."""
_ID_CHARACTERS = 32
"""Characters of the answer's id in the ids of its tool calls; OpenAI accepts ids of 40."""


class WriterType(Protocol):
    def __call__(
        self, operation: Operation, model: str, *, id: str, created: int
    ) -> AnswerWriter: ...


class _Choice(Struct):
    """The state of one choice. `call`: the open tool call, and `arguments`: what came of its
    arguments; `calls`: how many have begun; `held`: the tokens of later calls."""

    reason: str = "stop"
    call: int | None = None
    calls: int = 0
    arguments: list[str] = []
    held: list[tuple[ToolPart, Token]] = []


class Transcoder:
    """Transcoder of one answer. `identity` is part of the ids of its tool calls.

    `single`: the format has one choice only; others are left out. `prompt_tokens`: an estimate for
    formats whose streams begin with the number.
    """

    prompt_tokens: int | None = None

    def __init__(self, writer: AnswerWriter, identity: str, *, single: bool) -> None:
        self._writer = writer
        self._identity = identity[-_ID_CHARACTERS:]
        self._single = single
        self._choices: dict[int, _Choice] = {}
        self._usage: Usage | None = None
        self._characters = 0

    def encode(self, events: Sequence[Event]) -> bytes:
        """Encode the next `events`; b"" if nothing can be written yet.

        Raises `CallerFault` for content that the format cannot express, and `ProviderFault` for an
        order of events that no format has.
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
                    self._usage = None if event.implausible else event
                case Done():
                    self._end(out)
        return b"".join(out)

    def _choice(self, index: int, out: list[bytes]) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice()
            out.append(self._writer.opening(index, Usage(0, self.prompt_tokens)))
        return choice

    def _take_token(self, token: Token, out: list[bytes]) -> None:
        self._characters += len(token.text)
        if self._characters > MAX_CHARACTERS:
            raise malformed(f"the answer is longer than {MAX_CHARACTERS:,} characters", "too_long")
        choice = self._choice(token.index, out)
        if token.kind == "tool":
            self._take_call(choice, token, out)
            return
        self._end_calls(choice, token.index, out)
        try:
            out.append(self._writer.token(token.text, token.kind, token.index))
        except KeyError:
            words = f"the answer holds {token.kind}, which the client's API format cannot express"
            raise CallerFault(words, kind="not_translatable", phase="between tokens") from None

    def _take_call(self, choice: _Choice, token: Token, out: list[bytes]) -> None:
        part = token.tool
        if part is None:
            return
        open_call = choice.call
        if (
            part.number == open_call
            or open_call is None
            or not (choice.held or _incomplete(choice.arguments))
        ):
            self._write_call(choice, part, token, out)
        elif len(choice.held) < MAX_HELD:
            choice.held.append((part, token))
        else:
            raise malformed(
                f"more than {MAX_HELD:,} fragments of a tool call came before the end of an "
                f"earlier one"
            )

    def _write_call(self, choice: _Choice, part: ToolPart, token: Token, out: list[bytes]) -> None:
        if part.number != choice.call:
            if part.number < choice.calls:
                raise malformed(
                    f"a fragment of tool call {part.number + 1} came after that call had ended"
                )
            if not part.name:
                raise malformed(f"tool call {part.number + 1} has no name")
            self._end_call(choice, token.index, out)
            choice.call, choice.calls = part.number, part.number + 1
            identity = part.id or f"call_{self._identity}{part.number}"
            out.append(self._writer.tool_call(part.name, identity, token.index))
        if token.arguments:
            choice.arguments.append(token.arguments)
            out.append(self._writer.token(token.arguments, "tool", token.index))

    def _end_call(self, choice: _Choice, index: int, out: list[bytes]) -> None:
        if choice.call is not None and not choice.arguments:
            out.append(self._writer.token("{}", "tool", index))
        choice.call, choice.arguments = None, []

    def _end_calls(self, choice: _Choice, index: int, out: list[bytes]) -> None:
        if choice.call is None:
            return
        for part, token in sorted(choice.held, key=lambda held: held[0].number):
            self._write_call(choice, part, token, out)
        self._end_call(choice, index, out)
        choice.held = []

    def _end(self, out: list[bytes]) -> None:
        self._choice(0, out)
        for index, choice in sorted(self._choices.items()):
            if choice.arguments and not meaning(choice.reason) and _incomplete(choice.arguments):
                raise malformed(
                    f"the answer ended inside a tool call, for the unknown reason "
                    f"{choice.reason!r:.100}"
                )
            self._end_calls(choice, index, out)
            out.append(
                self._writer.finish(openai_reason(choice.reason, called=choice.calls > 0), index)
            )
        if self._usage is not None:
            out.append(self._writer.usage(self._usage))
        out.append(self._writer.done())


def _incomplete(arguments: Sequence[str]) -> bool:
    return not is_json("".join(arguments).encode())


def new_transcoder(
    writer: WriterType, prefix: str, call: Call, model: str, *, single: bool = True
) -> Transcoder:
    """Return a transcoder of the answer of `model` to `call`, whose id begins with `prefix`;
    `single`: see `Transcoder`."""
    identity = call.id.removeprefix("req-")
    created = int(clock.wall_time().timestamp())
    return Transcoder(
        writer(call.operation, model, id=prefix + identity, created=created),
        identity,
        single=single,
    )
