"""Server-sent events: bytes to events and back, in any split.

Almost every read holds whole events, each a single ``data: …`` line, in some formats after an
``event: …`` line. A few searches at C speed cut those. Everything else goes line by line, by the
rules of the HTML standard, "Server-sent events", 9.2.6.

Intended differences: comments are reported, because they show that the provider is alive; an event
that the end of the body cuts off is available from `rest`; and lines of llama.cpp's older servers
that begin with ``error:`` count as data of an event named "error".

Memory is bounded: a line or an event longer than `max_bytes` sets `overflow`, and nothing is
decoded after it.
"""

import re

from msgspec import Struct, field

from splitsecond.core.errors import ProviderFault

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Most bytes of one line or event. Images as base64 run to a few megabytes."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LEADING = _BYTE_ORDER_MARK + b" \t\r\n"
"""A byte order mark, and the blank lines that some providers send while a request waits."""
_MARK_BEGINS = (b"", _BYTE_ORDER_MARK[:1])
_JUNK_BYTES = 4000
_LINE_ENDS = (b"\n", b"\r")
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


def malformed(message: str, kind: str = "malformed") -> ProviderFault:
    return ProviderFault(message, kind=kind, phase="between tokens", status=200)


class SseEvent(Struct, frozen=True, gc=False):
    """One event; `data` is None for a comment, `name` is the ``event:`` field or ""."""

    data: bytes | None
    name: str = ""


class SseDecoder(Struct, eq=False):
    """Incremental SSE decoder. A line or an event may have `max_bytes`; `overflow`: one was longer.

    `junk`: the first few thousand bytes of lines that are not SSE. `between_events`: the next byte
    begins an event.
    """

    max_bytes: int = MAX_EVENT_BYTES
    overflow: bool = False
    junk: bytes = b""
    between_events: bool = False
    _line: bytearray = field(default_factory=bytearray)  # the unfinished line
    _data: list[bytes] = []  # data lines of the unfinished event
    _data_bytes: int = 0
    _name: str = ""
    _after_cr: bool = False  # a line feed that comes next belongs to the previous carriage return
    _at_start: bool = True  # a byte order mark may still come

    def feed(self, data: bytes) -> list[SseEvent]:
        events: list[SseEvent] = []
        if self.overflow:
            return events
        if self._at_start and not self._line and data[:1] not in _MARK_BEGINS:
            self._at_start = False
            self.between_events = True
        if self.between_events and b"\r" not in data and len(data) <= self.max_bytes:
            *blocks, rest = data.split(b"\n\n")
            for place, block in enumerate(blocks):
                if block.startswith(b"data: "):
                    name, body = "", block[6:]
                elif block.startswith(b"event: "):
                    first, _, body = block.partition(b"\ndata: ")
                    name = first[7:].decode("utf-8", "replace")
                else:
                    body = b""
                if not body or b"\n" in body or "\n" in name:
                    rest = b"\n\n".join((*blocks[place:], rest))
                    break
                events.append(SseEvent(body, name))
            if not rest:
                return events
            data = rest
        self._feed_lines(data, events)
        return events

    @property
    def unfinished(self) -> bool:
        return bool(self._line or self._data)

    def rest(self) -> list[SseEvent]:
        """Return the event that the end of the body left without its blank line."""
        self._after_cr = False
        return self.feed(b"\n\n")

    def _feed_lines(self, data: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._line += data
            if len(self._line) < 3 and _BYTE_ORDER_MARK.startswith(self._line):
                return
            self._at_start = False
            data = bytes(self._line).removeprefix(_BYTE_ORDER_MARK)
            self._line.clear()
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        for line in data.splitlines(keepends=True):
            if not line.endswith(_LINE_ENDS):
                self._line += line
                self._bound(len(self._line))
            elif self._line:
                whole = bytes(self._line) + line
                self._line.clear()
                self._take_line(whole.rstrip(b"\r\n"), events)
            else:
                self._take_line(line.rstrip(b"\r\n"), events)
            if self.overflow:
                return
        self.between_events = not (self._line or self._data or self._name or self._after_cr)

    def _take_line(self, line: bytes, events: list[SseEvent]) -> None:
        if not line:
            if self._data:
                events.append(SseEvent(b"\n".join(self._data), self._name))
                self._data.clear()
                self._data_bytes = 0
            self._name = ""
            return
        self._bound(len(line))
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not field:
            events.append(SseEvent(None))
        elif field in (b"data", b"error"):
            self._data.append(value)
            self._data_bytes += len(value) + 1
            self._bound(self._data_bytes)
            if field == b"error":
                self._name = "error"
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field not in (b"id", b"retry") and len(self.junk) < _JUNK_BYTES:
            self.junk = (self.junk + b"\n" + line if self.junk else line)[:_JUNK_BYTES]

    def _bound(self, size: int) -> None:
        self.overflow = self.overflow or size > self.max_bytes


class EventCutter(Struct):
    """Cutter of a stream into whole events. Each byte is searched once, however small the pieces
    are.

    `tail` is the incomplete event at the end. `is_json`: the body is one JSON object, which is not
    cut; None: not known before the first byte.
    """

    is_json: bool | None = None
    tail: bytearray = field(default_factory=bytearray)

    def whole(self, data: bytes) -> bool:
        """Whether `feed` would return exactly `data`; then it need not be called."""
        return self.is_json is False and not self.tail and data.endswith(b"\n\n")

    def feed(self, data: bytes) -> bytes:
        if self.is_json is not False:
            if self.is_json is None and (start := data.lstrip(LEADING)):
                self.is_json = start.startswith(b"{")
            if self.is_json:
                return self.rest() + data
        tail = self.tail
        if not tail and data.endswith(b"\n\n"):  # usually a read is one or more whole events
            return data
        begin = max(0, len(tail) - 3)
        tail += data
        end = end_of_events(tail, begin)
        if len(tail) - end > MAX_EVENT_BYTES:
            raise malformed(f"an event is longer than {MAX_EVENT_BYTES:,} bytes")
        if not end:
            return b""
        whole = bytes(memoryview(tail)[:end])
        del tail[:end]
        return whole

    def rest(self) -> bytes:
        """Return the incomplete event and forget it."""
        left = bytes(self.tail)
        self.tail.clear()
        return left


def end_of_events(data: bytes | bytearray, begin: int) -> int:
    """Return where the last whole event of `data` ends, 0 if none does. None ends before
    `begin`."""
    if data.find(b"\r", begin) < 0:
        last = data.rfind(b"\n\n", begin)
        return 0 if last < 0 else last + 2
    end = 0
    for match in _EVENT_END.finditer(data, begin):
        end = match.end()
    return end


def events_in(data: bytes) -> list[bytes]:
    ends = [match.end() for match in _EVENT_END.finditer(data)]
    starts = [0, *ends]
    return [data[start:end] for start, end in zip(starts, [*ends, len(data)], strict=True)]


def encode_event(data: bytes, event: str = "") -> bytes:
    """Encode one event. `data` may hold line feeds; `event` is its name, omitted if ""."""
    name = b"event: " + event.encode() + b"\n" if event else b""
    return name + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
