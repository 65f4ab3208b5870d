"""Events that hold nothing but the next piece of a text, recognised by their bytes.

Within one stream nearly all events are the same JSON but for the text: id, model and index stay. Once one of them has
been decoded it is known what stands before and after the text, and an event that begins and ends with just that needs
no decoding: two strings of JSON that differ only inside one string, with neither quote nor backslash there, have the
same shape. Whatever does not fit is decoded as ever.
"""

import re
from collections.abc import Callable
from io import BytesIO
from operator import itemgetter

_TRIES = 8
"""After so many events that did not fit it is given up: some servers put something new into every event."""
_NOT_PLAIN = re.compile(r'["\\\x00-\x1f]')
_NOT_PLAIN_BYTES = bytes(range(0x20)) + b'"\\'
_fullmatch_plain = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch
_PROBE = "\x7f?"


class Template:
    """Learned from one event of a stream, then asked for each."""

    __slots__ = ("_after", "_before", "_misses", "index")

    def __init__(self) -> None:
        self.index = 0
        """The choice that the text belongs to."""
        self._before = self._after = b""
        self._misses = 0

    @property
    def wanted(self) -> bool:
        """Whether an event to learn from is of use."""
        return not self._before and self._misses < _TRIES

    def learn(self, data: bytes, text: str, index: int, read: Callable[[bytes], str | None]) -> None:
        """`data`, the JSON of one event, was found to say `text` and nothing else; `read` tells what another says."""
        begin = _only_value(data, text.encode())
        if begin < 0 or _NOT_PLAIN.search(text):
            self._misses += 1
            return
        before, after = data[:begin], data[begin + len(text.encode()) :]
        if read(before + _PROBE.encode() + after) != _PROBE:  # it stands in another field, and in this one escaped
            self._misses += 1
            return
        self.index = index
        self._before, self._after = before, after

    def text(self, data: bytes, begin: int, end: int) -> str | None:
        """The text, where ``data[begin:end]`` is the JSON of an event like the one learned from; else None."""
        before, after = self._before, self._after
        if not before:
            return None
        begins, ends = begin + len(before), end - len(after)
        fits = begins < ends and data.startswith(before, begin) and data.endswith(after, begin, end)
        if not fits or not _fullmatch_plain(data, begins, ends):
            self._misses += 1
            if self._misses == _TRIES:
                self._before = b""
            return None
        self._misses = 0
        try:
            return data[begins:ends].decode()
        except UnicodeDecodeError:
            return None

    def run(self, data: bytes) -> tuple[list[str], int]:
        """The texts of the events that `data` begins with, as far as they are like the one learned from, and their end.

        At the speed of C for all of them together: they are cut where they should be, and what that leaves out is put
        back and compared.
        """
        begin, after = b"data: " + self._before, self._after + b"\n"
        if not self._before or not data.startswith(begin):
            return [], 0
        end = after + b"\n"
        events = BytesIO(data).readlines()[::2]  # of all that cuts, this alone looks at many bytes in one step
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


def _only_value(data: bytes, raw: bytes) -> int:
    """Where `raw` begins as the value of a field; -1 where it is that of none, or of several."""
    found = -1
    at = data.find(b'"' + raw + b'"')
    while at >= 0:
        if data[:at].rstrip().endswith(b":"):
            if found >= 0:
                return -1
            found = at + 1
        at = data.find(b'"' + raw + b'"', at + 1)
    return found
