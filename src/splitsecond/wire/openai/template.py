"""Recognition, by their bytes, of events that hold only the next piece of a text.

Within one stream nearly all events are the same JSON except for the text: id, model and index stay. After one of them
is decoded, the bytes before and after the text are known, and an event that begins and ends with these needs no
decoding: two JSON texts that differ only inside one string, without quote or backslash in it, have the same structure.
Any other event is decoded as usual.
"""

import re
from collections.abc import Callable, Sequence
from io import BytesIO
from operator import itemgetter

from splitsecond.wire.text_events import bytes_around

_TRIES = 8
"""After so many events that do not fit the template is dropped: some servers change more than the text in each
event."""
_NOT_PLAIN_BYTES = bytes(range(0x20)) + b'"\\'
_fullmatch_plain = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch


class Template:
    """Template of the text events of one stream, learned from one event."""

    __slots__ = ("_after", "_before", "_begin", "_end", "_misses", "index")

    def __init__(self) -> None:
        self.index = 0
        """The number of the choice that the text belongs to."""
        self._before = self._after = b""
        self._begin = self._end = b""  # the same with what is around the JSON of an event
        self._misses = 0

    @property
    def wanted(self) -> bool:
        """Whether the template can still be learned."""
        return not self._before and self._misses < _TRIES

    def learn(self, data: bytes, text: str, index: int, read: Callable[[bytes], str | None]) -> None:
        """Learn from `data`, the JSON of one event that holds only `text`; `read` returns the text of another event."""
        around = bytes_around(data, text, read)
        if around is None:
            self._misses += 1
            return
        self.index = index
        self._before, self._after = around
        self._begin, self._end = b"data: " + self._before, self._after + b"\n\n"

    def text(self, data: bytes, begin: int, end: int) -> str | None:
        """Return the text if ``data[begin:end]`` is the JSON of an event that fits the template; otherwise None."""
        before, after = self._before, self._after
        if not before:
            return None
        begins, ends = begin + len(before), end - len(after)
        fits = begins < ends and data.startswith(before, begin) and data.endswith(after, begin, end)
        if not fits or not _fullmatch_plain(data, begins, ends):
            self._misses += 1
            if self._misses == _TRIES:
                self._before = self._begin = b""
            return None
        self._misses = 0
        try:
            return data[begins:ends].decode()
        except UnicodeDecodeError:
            return None

    def begins(self, events: Sequence[bytes]) -> bool:
        """Whether each of `events` begins like one that fits the template."""
        return all(event.startswith(self._begin) for event in events)

    def lengths(self, data: bytes) -> Sequence[int]:
        """Return the lengths of the texts if `data` is whole events that fit the template; otherwise nothing."""
        begin, end = self._begin, self._end
        text = data.removeprefix(begin).removesuffix(end)
        if not begin or len(data) - len(text) != len(begin) + len(end):
            return ()
        if not _fullmatch_plain(text):  # several events
            texts, stop = self.run(data)
            return list(map(len, texts)) if stop == len(data) else ()
        try:
            return (len(text) if text.isascii() else len(text.decode()),)
        except UnicodeDecodeError:
            return ()

    def run(self, data: bytes) -> tuple[list[str], int]:
        """Return the texts of the first events of `data` that fit the template, and where these events end.

        This runs at C speed for all of them together: they are cut at the expected places, and the parts that were cut
        away are put back and compared.
        """
        begin, end = self._begin, self._end
        if not begin or not data.startswith(begin):
            return [], 0
        after = end[:-1]
        events = BytesIO(data).readlines()[::2]  # the only way to cut that searches many bytes in one step
        while events and not (events[-1].startswith(begin) and events[-1].endswith(after)):
            events.pop()
        start = len(begin)
        parts = list(map(itemgetter(slice(start, -len(after))), events))
        run = (end + begin).join(parts)
        stop = start + len(run)
        if not parts or not all(parts) or not data.startswith(run, start) or not data.startswith(end, stop):
            return [], 0
        lines = b"\n".join(parts)
        if len(lines.translate(None, _NOT_PLAIN_BYTES)) <= len(lines) - len(parts):
            return [], 0
        try:
            return lines.decode().split("\n"), stop + len(end)
        except UnicodeDecodeError:
            return [], 0
