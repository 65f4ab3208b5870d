"""An answer that another target may have to carry on: heard event by event, and told on in the same voice.

Only whole events are given out, so that what is told after a break stands in an event of its own. What a dialect knows
of its answers (their ids, the parts that are open, the numbers of events) its own teller adds.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from splitsecond.errors import CallerFault, ProviderFault
from splitsecond.events import Broken, Done, Event, Finish, Quiet, Token, TokenKind, Usage
from splitsecond.wire.dialect import Decoder, Writer
from splitsecond.wire.sse import SseDecoder
from splitsecond.wire.streaming import LEADING

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class EventTeller(ABC):
    """One answer. An answer that is no stream is given out as it came."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._tail = b""
        self._plain: bool | None = None

    def whole(self, data: bytes) -> bytes:
        """The whole events among what came so far; the rest waits for its end."""
        if self._plain is None and (begin := data.lstrip(LEADING)):
            self._plain = begin.startswith(b"{")
        begun = len(self._tail)
        if begun:
            data = self._tail + data
        if self._plain or data.endswith(b"\n\n"):  # mostly a read is one event, or some
            self._tail = b""
        else:
            end = max((found.end() for found in _EVENT_END.finditer(data, max(begun - 3, 0))), default=0)
            data, self._tail = data[:end], data[end:]
        return data

    def left(self) -> bytes:
        """What still waits when the body has ended well."""
        left, self._tail = self._tail, b""
        return left

    def hear(self, data: bytes, at: int) -> list[Event]:
        """What is said by `data`, the next that `whole` or `left` gave."""
        return _unbroken(self._decoder.feed(data, at)) if data else []

    def close(self, at: int) -> list[Event]:
        """What the end of the body says."""
        return _unbroken(self._decoder.close(at))

    @abstractmethod
    def tell(self, event: Event) -> bytes:
        """`event`, as one more of this answer's; b"" where the dialect has nothing for it.

        Raises `CallerFault` for what cannot be told from the middle on. Then nothing more can be told.
        """


class PartsWriter(Writer, Protocol):
    """Writes an answer that is a row of parts, of which the last may be open."""

    @property
    def kind(self) -> TokenKind | None:
        """Of which kind the tokens of the open part are; None: no part is open, or one that takes no more."""
        ...


class PartsTeller(EventTeller):
    """An answer that is a row of parts. What is told on goes into the open one if it is of its kind, else after it."""

    kinds: frozenset[TokenKind] = frozenset({"text", "reasoning", "tool"})

    def __init__(self, decoder: Decoder) -> None:
        super().__init__(decoder)
        self._events = SseDecoder()
        self._writer: PartsWriter | None = None
        self._calls = 0
        self._is_sure = True
        self._said: TokenKind | None = None  # of which kind the last token was that came
        self._ended: TokenKind | None = None
        self._finished = False

    @abstractmethod
    def note(self, data: bytes) -> None:
        """One more event of the answer as it came: where the answer is after that.

        Counts `_calls`, the tool calls that have begun, and clears `_is_sure` where it does not understand. Says where
        a part `_begins` and `_ends`.
        """

    def _begins(self, kind: TokenKind | None) -> None:
        """A part of that kind begins; of one that has ended before it nothing more comes but there."""
        if kind == self._ended:
            self._ended = None

    def _ends(self, kind: TokenKind | None) -> None:
        """The open part ends, which is of that kind."""
        if kind is not None:
            self._ended = kind

    @abstractmethod
    def resumed(self) -> PartsWriter:
        """A writer that goes on from there."""

    def hear(self, data: bytes, at: int) -> list[Event]:
        """What is said by `data`, the next that `whole` or `left` gave."""
        if not self._plain:
            for event in self._events.feed(data):
                if event.data is not None:
                    self.note(event.data)
        events = super().hear(data, at)
        for said in events:
            if isinstance(said, Token):
                self._said = said.kind
        return events

    def tell(self, event: Event) -> bytes:
        """`event`, as one more of this answer's.

        Raises `CallerFault` for what cannot be told from the middle on, and `ProviderFault` where the first thing that
        is to be told belongs to a part that has ended: then the answers differ, and another one may still be told.
        """
        writer = self._writer
        if writer is None:
            if not self._is_sure:
                raise _untellable("parts that nobody knows the numbers of")
            writer = self._writer = self.resumed()
        match event:
            case Token():
                return self._token(writer, event)
            case Quiet() if event.data:  # it means something as a part of the answer that it came with only
                raise _untellable(f"a {event.what}")
            case Finish():
                self._finished = True
                return writer.finish(event.reason)
            case Usage() if self._finished:  # they share an event
                return writer.usage(event)
            case Done():
                return writer.done()
            case _:
                return b""

    def _token(self, writer: PartsWriter, token: Token) -> bytes:
        part = token.tool
        if token.kind not in self.kinds or (token.kind == "tool" and part is None):
            raise _untellable(f"a part of kind {token.kind}")
        if token.kind == self._ended == self._said and not (part and part.name):
            words = f"it does not say the same again: {token.kind} goes on where the first had ended it"
            raise ProviderFault(words, kind="differs", phase="between tokens", status=200)
        self._ended = None
        if part is None:
            return writer.token(token.text, token.kind)
        begun = b""
        if part.name:
            self._calls = part.number + 1
            begun = writer.tool_call(part.name, part.id)
        elif part.number != self._calls - 1 or writer.kind != "tool":
            raise _untellable("more of a tool call that has ended")
        return begun + (writer.token(token.arguments, "tool") if token.arguments else b"")


def _untellable(what: str) -> CallerFault:
    words = f"the answer goes on with {what}, which cannot be told from the middle on"
    return CallerFault(words, kind="not_translatable", phase="between tokens")


class _Tool(msgspec.Struct):
    type: str | None = None


_read_tools = msgspec.json.Decoder(list[_Tool]).decode


def only_tools(body: Mapping[str, Raw | Any], kinds: Sequence[str | None]) -> bool:
    """Whether all tools of a request are of these kinds (None: it has no word for it). Others the provider uses itself
    and shows in parts of the answer that no event here speaks of."""
    tools = body.get("tools")
    if tools is None:
        return True
    try:
        found = _read_tools(tools if isinstance(tools, Raw) else msgspec.json.encode(tools))
    except (ValueError, TypeError, RecursionError):
        return False
    return all(tool.type in kinds for tool in found)


def _unbroken(events: list[Event]) -> list[Event]:
    """`events` without the break they end in: that is told by whoever reads the answer from its provider."""
    if events and isinstance(events[-1], Broken):
        del events[-1]
    return events
