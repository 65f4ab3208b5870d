"""Continuation of an answer by another target, in the same stream.

Only whole events are given out, so that what is written after a break begins with an event of its
own. A format's own encoder adds what it knows of its answers (ids, open parts, numbers of events).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Broken, Done, Event, Finish, Quiet, Token, TokenKind, Usage
from splitsecond.core.validation import read_json
from splitsecond.core.wire.api_format import AnswerWriter
from splitsecond.core.wire.sse import EventCutter, SseDecoder, malformed
from splitsecond.core.wire.streaming import Decoder


class ContinuationEncoder(ABC):
    """Reader of one answer, and encoder of its continuation. An answer that is no stream is given
    out as it came."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._cutter = EventCutter()

    def cut(self, data: bytes) -> bytes:
        """Return the whole events so far. Raises `ProviderFault` if one is too long."""
        return self._cutter.feed(data)

    def whole(self, data: bytes) -> bool:
        """Whether `cut` would return exactly `data`; then it need not be called."""
        return self._cutter.whole(data)

    def rest(self) -> bytes:
        return self._cutter.rest()

    def decode(self, data: bytes, at: int) -> list[Event]:
        """Decode `data`, the next that `cut` or `rest` returned."""
        return _without_break(self._decoder.feed(data, at)) if data else []

    def close(self, at: int) -> list[Event]:
        return _without_break(self._decoder.close(at))

    @abstractmethod
    def encode(self, event: Event) -> bytes:
        """Encode `event` as the next of this answer; b"" if the format has nothing for it.

        Raises `CallerFault` for an event that cannot follow; then nothing more can be encoded.
        """


class PartsEncoder(ContinuationEncoder):
    """Encoder of an answer that is a sequence of parts. A token goes into the open part if that
    takes its kind, else into a new one."""

    kinds: frozenset[TokenKind] = frozenset({"text", "reasoning", "tool"})

    def __init__(self, decoder: Decoder) -> None:
        super().__init__(decoder)
        self._events = SseDecoder()
        self._writer: AnswerWriter | None = None
        self._calls = 0
        self._position_known = True
        self._last_kind: TokenKind | None = None  # the kind of the last token that came
        self._ended_kind: TokenKind | None = None
        self._finished = False

    @abstractmethod
    def note(self, data: bytes) -> None:
        """Follow the position in the answer with one more of its events.

        Counts `_calls`, the tool calls that have begun; clears `_position_known` for an event that
        it cannot place; calls `_begins` and `_ends` for each part.
        """

    def _begins(self, kind: TokenKind | None) -> None:
        """A part of `kind` begins: more tokens of an ended part of that kind go there."""
        if kind == self._ended_kind:
            self._ended_kind = None

    def _ends(self, kind: TokenKind | None) -> None:
        if kind is not None:
            self._ended_kind = kind

    @abstractmethod
    def resumed(self) -> AnswerWriter:
        """Return a writer that continues at this position."""

    def decode(self, data: bytes, at: int) -> list[Event]:
        if not self._cutter.is_json:
            for event in self._events.feed(data):
                if event.data is not None:
                    self.note(event.data)
        events = super().decode(data, at)
        for each in events:
            if isinstance(each, Token):
                self._last_kind = each.kind
        return events

    def encode(self, event: Event) -> bytes:
        """Encode `event` as the next of this answer.

        Raises `CallerFault` for an event that cannot follow, and `ProviderFault` if the first event
        belongs to a part that has ended: another target's answer may still fit.
        """
        writer = self._writer
        if writer is None:
            if not self._position_known:
                raise _cannot_follow("parts of an unknown number")
            writer = self._writer = self.resumed()
        match event:
            case Token():
                return self._token(writer, event)
            case Quiet() if event.data:  # it has a meaning only in the answer that it came with
                raise _cannot_follow(f"a {event.what}")
            case Finish():
                self._finished = True
                return writer.finish(event.reason)
            case Usage() if self._finished:  # both are in one event
                return writer.usage(event)
            case Done():
                return writer.done()
            case _:
                return b""

    def _token(self, writer: AnswerWriter, token: Token) -> bytes:
        part = token.tool
        if token.kind not in self.kinds or (token.kind == "tool" and part is None):
            raise _cannot_follow(f"a part of kind {token.kind}")
        if token.kind == self._ended_kind == self._last_kind and not (part and part.name):
            words = (
                f"the second answer differs: its {token.kind} continues where the first "
                f"answer ended it"
            )
            raise malformed(words, "differs")
        self._ended_kind = None
        if part is None:
            return writer.token(token.text, token.kind)
        begun = b""
        if part.name:
            self._calls = part.number + 1
            begun = writer.tool_call(part.name, part.id)
        elif part.number != self._calls - 1 or writer.kind != "tool":
            raise _cannot_follow("more of a tool call that has ended")
        return begun + (writer.token(token.arguments, "tool") if token.arguments else b"")


def _cannot_follow(what: str) -> CallerFault:
    words = (
        f"the answer continues with {what}, which cannot be appended to an answer that has begun"
    )
    return CallerFault(words, kind="not_translatable", phase="between tokens")


class _Tool(msgspec.Struct):
    type: str | None = None


_read_tools = msgspec.json.Decoder(list[_Tool]).decode


def only_tools(body: Mapping[str, Raw | Any], kinds: Sequence[str | None]) -> bool:
    """Return whether all tools of a request are of these kinds (None: no type is given).

    The provider runs tools of other kinds itself, and shows them in parts that are no `Event`.
    """
    tools = body.get("tools")
    if tools is None:
        return True
    decoded = read_json(
        tools if isinstance(tools, Raw) else msgspec.json.encode(tools), _read_tools
    )
    return decoded is not None and all(tool.type in kinds for tool in decoded)


def _without_break(events: list[Event]) -> list[Event]:
    if events and isinstance(events[-1], Broken):
        del events[-1]
    return events
