"""A stream on its way through, byte for byte. This is OpenAI's; `relay_others` has the rest.

Only whole events go on: what a failure cuts in two never reaches the client, so that the error which follows stands in
an event of its own. An event is looked into only where it may be the chunk of usage that the client did not ask for:
the one with no choices.
"""

import re
from typing import Any

import msgspec

from splitsecond.gateway.assemble import Assembly
from splitsecond.gateway.refusal import Refusal
from splitsecond.wire.sse import encode_event

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_COUNTED = b'"usage"'
_NONE = b'"usage":null'
_MARK = b"[DONE]"
_LONGEST_MARK = 32
"""Bytes of an event that is the mark, with its blank line."""
_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]\s*$")
BLANK = b"\xef\xbb\xbf \t\r\n"


class _Chunk(msgspec.Struct):
    choices: list[Any]
    usage: msgspec.Raw


_decode = msgspec.json.Decoder(_Chunk).decode


class Relay:
    """`feed` gives what may go on; `rest`, after a whole answer, what is left of it.

    `done`: the end mark has gone on, and there is nothing after it.
    """

    def __init__(self, *, usage: bool) -> None:
        """`usage`: the client wants it."""
        self._usage = usage
        self._tail = b""
        self._begun = False
        self._whole: Assembly | None = None
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """The events that `data` completes."""
        if self._whole is not None:
            self._whole.feed(data)
            return b""
        if self._tail:
            data = self._tail + data
        if not self._begun:
            start = data.lstrip(BLANK)
            if start.startswith(b"{"):  # a provider that does not stream: its answer is made a stream at its end
                self._whole = Assembly()
                return self.feed(start)
            self._begun = bool(start)
        if data.endswith(b"\n\n"):
            self._tail = b""
        else:
            end = end_of_events(data, max(0, len(self._tail) - 3))
            data, self._tail = data[:end], data[end:]
            if not data:
                return b""
        self.done = data.rfind(_MARK, -_LONGEST_MARK) >= 0 and _DONE.search(data[-_LONGEST_MARK:]) is not None
        return data if self._usage else _without_usage(data)

    def rest(self) -> bytes:
        """The end of a whole answer: what came without its blank line, and the end mark if the provider sent none."""
        left = b""
        if self._whole is not None:
            left = b"".join(encode_event(chunk) for chunk in self._whole.chunks(usage=self._usage))
        elif self._tail.strip():
            left = self.feed(b"\n\n")
        return left if self.done else left + b"data: [DONE]\n\n"

    def broken(self, no: Refusal) -> bytes:
        """The end of an answer that broke."""
        return no.event


def end_of_events(data: bytes, begin: int) -> int:
    """Where the last whole event of `data` ends; 0: none does. None ends before `begin`."""
    if data.find(b"\r", begin) < 0:
        last = data.rfind(b"\n\n", begin)
        return 0 if last < 0 else last + 2
    return max((found.end() for found in _EVENT_END.finditer(data, begin)), default=0)


def _without_usage(events: bytes) -> bytes:
    """`events` without those of usage alone.

    Only those with a word of usage are looked into, from the end, where it stands, and from where bytes are searched
    faster. Many providers say of each chunk that it has none.
    """
    kept: list[bytes] = []
    end = len(events)
    place = events.rfind(_COUNTED)
    while place >= 0:
        if not events.startswith(_NONE, place):
            place, stop = _event_around(events, place)
            if _is_usage(events[place:stop]):
                kept.append(events[stop:end])
                end = place
        place = events.rfind(_COUNTED, 0, place)
    return b"".join((events[:end], *reversed(kept))) if kept else events


def _event_around(events: bytes, place: int) -> tuple[int, int]:
    """Where the event that holds `place` begins and ends."""
    if events.find(b"\r") < 0:
        before = events.rfind(b"\n\n", 0, place)
        return (0 if before < 0 else before + 2), events.index(b"\n\n", place) + 2
    start = 0
    for found in _EVENT_END.finditer(events):
        if found.end() > place:
            return start, found.end()
        start = found.end()
    return start, len(events)


def _is_usage(event: bytes) -> bool:
    if not _NO_CHOICES.search(event):
        return False
    try:
        chunk = _decode(event.strip().removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return False
    return not chunk.choices and bytes(chunk.usage) != b"null"
