"""Events that hold nothing but the next piece of a text, recognised by their bytes.

Within one stream nearly all events are the same JSON but for the text: id, model and index stay. Once one of them has
been decoded it is known what stands before and after the text, and an event that begins and ends with just that needs
no decoding: two strings of JSON that differ only inside one string, with neither quote nor backslash there, have the
same shape. Whatever does not fit is decoded as ever.
"""

import re
from collections.abc import Callable

_TRIES = 8
"""After so many events that did not fit it is given up: some servers put something new into every event."""
_NOT_PLAIN = re.compile(r'["\\\x00-\x1f]')
_PROBE = "\x7f?"


class Template:
    """Learned from one event of a stream, then asked for each."""

    __slots__ = ("_fullmatch", "_misses", "index")

    def __init__(self) -> None:
        self.index = 0
        """The choice that the text belongs to."""
        self._fullmatch: Callable[..., re.Match[bytes] | None] | None = None
        self._misses = 0

    @property
    def wanted(self) -> bool:
        """Whether an event to learn from is of use."""
        return self._fullmatch is None and self._misses < _TRIES

    def learn(self, data: bytes, text: str, index: int, read: Callable[[bytes], str | None]) -> None:
        """`data`, the JSON of one event, was found to say `text` and nothing else; `read` tells what another says."""
        values = [found.span(1) for found in re.finditer(rb'":\s*"(' + re.escape(text.encode()) + rb')"', data)]
        if len(values) != 1 or _NOT_PLAIN.search(text):
            self._misses += 1
            return
        ((begin, end),) = values
        before, after = data[:begin], data[end:]
        if read(before + _PROBE.encode() + after) != _PROBE:  # it stands in another field, and in this one escaped
            self._misses += 1
            return
        self.index = index
        self._fullmatch = re.compile(re.escape(before) + rb'([^"\\\x00-\x1f]+)' + re.escape(after)).fullmatch

    def text(self, data: bytes, begin: int, end: int) -> str | None:
        """The text, where ``data[begin:end]`` is the JSON of an event like the one learned from; else None."""
        if self._fullmatch is None:
            return None
        found = self._fullmatch(data, begin, end)
        if found is None:
            self._misses += 1
            if self._misses == _TRIES:
                self._fullmatch = None
            return None
        self._misses = 0
        try:
            return found[1].decode()
        except UnicodeDecodeError:
            return None
