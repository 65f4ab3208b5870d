"""Server-sent events: bytes to events and back, in any split.

Strategy: almost every read holds one or more whole events, each a single ``data: …`` line, in some dialects after an
``event: …`` line. Those are recognised by a few searches at C speed and cut out without looking at lines. Everything
else (a split event, CR, a byte order mark, several data lines, comments) goes line by line, by the rules of the HTML
standard, "Server-sent events", 9.2.6.

Where this differs from the standard, on purpose: comments are reported, because they say that the provider is alive;
an event that the end of the body cuts off can be had from `rest`, because some servers leave out the last blank line;
and lines of llama.cpp's older servers that begin with ``error:`` count as data of an event named "error".

Nothing grows without bound: a line or an event longer than `max_bytes` sets `overflow`; nothing is decoded after it.
"""

from msgspec import Struct, field

MAX_EVENT_BYTES = 8 * 1024 * 1024
"""The most one line or one event may hold. Images as base64 inside a chunk run to a few megabytes."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MARK_BEGINS = (b"", _BYTE_ORDER_MARK[:1])
_JUNK_BYTES = 4000
_LINE_ENDS = (b"\n", b"\r")


class SseEvent(Struct, frozen=True, gc=False):
    """One event; `data` is None for a comment. `name` is the ``event:`` field, "" where there was none."""

    data: bytes | None
    name: str = ""


class SseDecoder(Struct, eq=False):
    """Bytes in, events out. A line or an event may have `max_bytes`.

    `overflow`: that was passed. `junk`: the lines that are not of this format, the first few thousand bytes of them.
    `between_events`: nothing is pending, so the next byte begins an event.
    """

    max_bytes: int = MAX_EVENT_BYTES
    overflow: bool = False
    junk: bytes = b""
    between_events: bool = False
    _line: bytearray = field(default_factory=bytearray)  # the unfinished line
    _data: list[bytes] = []  # data lines of the unfinished event
    _data_bytes: int = 0
    _name: str = ""
    _after_cr: bool = False  # a line feed that comes next belongs to the carriage return before it
    _at_start: bool = True  # a byte order mark may still come

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events and comments that `data` completes, in order."""
        events: list[SseEvent] = []
        if self.overflow:
            return events
        if self._at_start and not self._line and data[:1] not in _MARK_BEGINS:
            self._at_start = False
            self.between_events = True
        start, size = 0, len(data)
        if self.between_events and b"\r" not in data and size <= self.max_bytes:
            while start < size:
                begin = start + 6
                if data.startswith(b"data: ", start):
                    name = ""
                elif data.startswith(b"event: ", start):
                    line_end = data.find(b"\ndata: ", start)
                    name, begin = data[start + 7 : line_end].decode("utf-8", "replace"), line_end + 7
                    if line_end < 0 or "\n" in name:
                        break
                else:
                    break
                end = data.find(b"\n", begin)
                if not data.startswith(b"\n\n", end):
                    break
                events.append(SseEvent(data[begin:end], name))
                start = end + 2
            if start == size:
                return events
            data = data[start:]
        self._feed_lines(data, events)
        return events

    @property
    def unfinished(self) -> bool:
        """Whether a line or an event has begun and not ended."""
        return bool(self._line or self._data)

    def rest(self) -> list[SseEvent]:
        """What the end of the body left without its blank line, as if the blank line were there."""
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


def encode_event(data: bytes, event: str = "") -> bytes:
    """One event, ready to send: `data` may hold line feeds; `event` is its name, left out where it is ""."""
    name = b"event: " + event.encode() + b"\n" if event else b""
    return name + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"
