"""Fast recognition of stream events that only append text: their bytes are compared.

Two JSON texts that differ only inside one string have the same structure. So an event that goes the
general way and turns out to add a text, and nothing else, is learned, and the events that follow it
directly and have the same bytes around a string only add theirs. After any other event the bytes
can mean another place, so the next event goes the general way again.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter

import msgspec
from msgspec import Struct

from splitsecond.core.wire.sse import MAX_EVENT_BYTES, SseDecoder, SseEvent

_LONGEST_LEARNED = 8_192
"""Bytes of an event to learn from. A text that occurs in it many times is searched as often."""
MAX_LESSONS = 16
"""How often the bytes are learned in one stream: answers change between kinds of text, and some
servers change more than the text in each event."""
_NOT_PLAIN = re.compile(r'["\\\x00-\x1f]')
_PROBE = "\x7f?"
_SEPARATOR = b"\x7f"
"""Between texts. After an unfinished escape sequence or UTF-8 character it is invalid."""
_MISSES = 8
"""Reads in a row that begin with another event before what was learned is forgotten."""
_UNUSED = 3
"""Lessons in a row without use before no more are taken."""
_MANY_BYTES = 1_000
_decode_text = msgspec.json.Decoder(str).decode


def bytes_around(
    data: bytes, text: str, read: Callable[[bytes], str | None]
) -> tuple[bytes, bytes] | None:
    """Return the bytes before and after `text` in `data`, the JSON of an event that only adds
    `text`; None if its place is not certain.

    `read` returns the text that another event adds.
    """
    raw = text.encode("utf-8", "replace")
    begin = _only_value(data, raw) if len(data) <= _LONGEST_LEARNED else -1
    if begin < 0 or _NOT_PLAIN.search(text):
        return None
    before, after = data[:begin], data[begin + len(raw) :]
    # otherwise the match is in another field, and the text here is escaped
    return (before, after) if read(before + _PROBE.encode() + after) == _PROBE else None


def _only_value(data: bytes, raw: bytes) -> int:
    place = -1
    at = data.find(b'"' + raw + b'"')
    while at >= 0:
        if data[:at].rstrip().endswith(b":"):
            if place >= 0:
                return -1
            place = at + 1
        at = data.find(b'"' + raw + b'"', at + 1)
    return place


class TextEvents(Struct, eq=False):
    """The events of one stream that only add to one text, learned from one of them.

    `lessons`: how many were taken. `current`: the last event was one of them. `useful`: they are
    known, or can still be learned.
    """

    lessons: int = 0
    current: bool = False
    _before: bytes = b""
    _after: bytes = b""
    _runs: bool = True  # many events that follow each other were known so far
    _unused: int = 0
    _misses: int = 0

    def events(self, sse: SseDecoder, data: bytes) -> Iterator[SseEvent | list[str]]:
        """Yield the events that `data` completes, or the texts of known events that follow each
        other."""
        at = 0
        while True:
            if self.current and sse.between_events:
                texts, at = self.read(data, at)
                if texts:
                    yield texts
            if at >= len(data):
                return
            end = 1
            if self.useful and len(data) - at > _MANY_BYTES:
                # most streams begin without a text
                begin = at if self.lessons else data.find(b"\n\n", at) + 2
                end = data.find(b"\n\n", begin) + 2
            for event in sse.feed(data[at:end] if end > 1 else data[at:]):
                self.current = False
                yield event
            if end == 1:
                return
            at = end

    @property
    def useful(self) -> bool:
        return bool(self._before) or (self.lessons < MAX_LESSONS and self._unused < _UNUSED)

    def learn(self, data: bytes, name: str, text: str, read: Callable[[bytes], str | None]) -> bool:
        """Learn from an event that only adds `text`: its JSON `data` and its `name`. Return whether
        it is known now; `read`: see `bytes_around`."""
        head = b"event: %b\ndata: " % name.encode() if name else b"data: "
        if self._before and self.read(head + data + b"\n\n", 0)[0]:
            self.current = True
        elif self.lessons < MAX_LESSONS and self._unused < _UNUSED and b"\n" not in data:
            self.lessons += 1
            self._unused += 1
            around = bytes_around(data, text, read)
            if around is not None:
                self._before, self._after = head + around[0], around[1] + b"\n\n"
                self._misses = 0
                self.current = True
        return self.current

    def expect_others(self) -> None:
        """Prepare for events of another kind, which may be learned although the last were not."""
        self._unused = 0

    def each(self, parts: Sequence[bytes]) -> list[str] | None:
        """Return the texts of `parts` if each of them is one known event; otherwise None.

        This runs at C speed: the texts are cut out at the expected places, and the bytes around
        them compared.
        """
        texts = self._cut(parts, self._after) if self.current else None
        if texts is not None:
            self._misses = self._unused = 0
        return texts

    def only(self, data: bytes) -> str:
        before, after = self._before, self._after
        text = data.removeprefix(before).removesuffix(after)
        if not self.current or len(data) - len(text) != len(before) + len(after):
            return ""
        try:
            decoded = _decode_text(b'"%b"' % text)
        except ValueError:
            return ""
        self._unused = 0
        return decoded

    def read(self, data: bytes, at: int) -> tuple[list[str], int]:
        """Return the texts of the known events that follow each other in `data` from `at`, and
        where they end."""
        texts: list[str] = []
        before, after = self._before, self._after
        if not before:
            return texts, at
        if (
            _MANY_BYTES < len(data) - at < MAX_EVENT_BYTES
            and self._runs
            and data.startswith(before, at)
        ):
            run = self._run(data, at)
            self._runs = run is not None  # tried again and again, it could take quadratic time
            if run is not None:
                texts, at = run
        begin = len(before)
        while data.startswith(before, at):
            end = data.find(after, at + begin)
            if end < 0 or end - at > MAX_EVENT_BYTES:
                break
            try:
                text = _decode_text(data[at + begin - 1 : end + 1])
            except ValueError:  # it ends elsewhere, or must be repaired
                break
            if not text:
                break
            texts.append(text)
            at = end + len(after)
        if texts:
            self._misses = self._unused = 0
            return texts, at
        self._misses += 1
        if self._misses >= _MISSES:  # more than the text changes in these events
            self._before, self.lessons, self.current = b"", MAX_LESSONS, False
        return texts, at

    def _run(self, data: bytes, at: int) -> tuple[list[str], int] | None:
        """Return the texts of the known events from `at` to the last one in `data`, and where they
        end.

        None: there are others between them. This runs at C speed, as `each` does.
        """
        before, after = self._before, self._after.removesuffix(b"\n\n")
        *parts, _ = data[at:].split(b"\n\n")
        while parts and not (parts[-1].startswith(before) and parts[-1].endswith(after)):
            parts.pop()
        end = at + sum(map(len, parts)) + 2 * len(parts)
        texts = self._cut(parts, after)
        return None if texts is None else (texts, end)

    def _cut(self, parts: Sequence[bytes], after: bytes) -> list[str] | None:
        """Return the texts between what was learned and `after` in `parts`; None if one of these is
        another event."""
        before = self._before
        strings = list(map(itemgetter(slice(len(before), -len(after))), parts))
        if before + (after + before).join(strings) + after != b"".join(parts):
            return None
        try:  # a part that is no complete string makes the whole invalid
            texts = _decode_text(b'"' + _SEPARATOR.join(strings) + b'"').split(_SEPARATOR.decode())
        except ValueError:
            return None
        return texts if len(texts) == len(strings) and all(texts) else None
