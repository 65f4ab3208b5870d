"""A stream on its way through, byte for byte.

Only whole events go on: what a failure cuts in two never reaches the client, so that the error which follows stands in
an event of its own. An event is looked into only where it may be the chunk of usage that the client did not ask for:
the one with no choices.
"""

import re
from typing import Any

import msgspec

from splitsecond.gateway.assemble import Assembly
from splitsecond.wire.sse import encode_event

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_DONE = re.compile(rb"(?:^|[\r\n])data: ?\[DONE\]\s*$")
_BLANK = b"\xef\xbb\xbf \t\r\n"


class _Chunk(msgspec.Struct):
    choices: list[Any]
    usage: msgspec.Raw


_decode = msgspec.json.Decoder(_Chunk).decode


class Relay:
    """`feed` gives what may go on; `rest`, after a whole answer, what is left of it. `usage`: the client wants it."""

    def __init__(self, *, usage: bool) -> None:
        self._usage = usage
        self._tail = b""
        self._begun = False
        self._whole: Assembly | None = None
        self._done = False

    def feed(self, data: bytes) -> bytes:
        """The events that `data` completes."""
        if self._whole is not None:
            self._whole.feed(data)
            return b""
        data = self._tail + data
        if not self._begun:
            start = data.lstrip(_BLANK)
            if start.startswith(b"{"):  # a provider that does not stream: its answer is made a stream at its end
                self._whole = Assembly()
                return self.feed(start)
            self._begun = bool(start)
        end = 0
        for found in _EVENT_END.finditer(data, max(0, len(self._tail) - 3)):
            end = found.end()
        whole, self._tail = data[:end], data[end:]
        if whole:
            self._done = _DONE.search(whole[-32:]) is not None
            if not self._usage and _NO_CHOICES.search(whole):
                return _without_usage(whole)
        return whole

    def rest(self) -> bytes:
        """The end of a whole answer: what came without its blank line, and the end mark if the provider sent none."""
        left = b""
        if self._whole is not None:
            left = b"".join(encode_event(chunk) for chunk in self._whole.chunks(usage=self._usage))
        elif self._tail.strip():
            left = self.feed(b"\n\n")
        return left if self._done else left + b"data: [DONE]\n\n"


def _without_usage(events: bytes) -> bytes:
    kept = bytearray()
    begin = 0
    for found in _EVENT_END.finditer(events):
        event = events[begin : found.end()]
        begin = found.end()
        if not _is_usage(event):
            kept += event
    return bytes(kept)


def _is_usage(event: bytes) -> bool:
    if not _NO_CHOICES.search(event):
        return False
    try:
        chunk = _decode(event.strip().removeprefix(b"data:"))
    except (ValueError, RecursionError):
        return False
    return not chunk.choices and bytes(chunk.usage) != b"null"
