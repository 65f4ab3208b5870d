"""Elements of a JSON array in a file that may be larger than memory: it is read piece by piece, in
linear time."""

import json
import re
from collections.abc import Iterator
from typing import Any, NoReturn, TextIO

CHUNK = 1 << 18
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


class ArrayError(ValueError):
    """The array cannot be read from this `line` on."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


def check_encodable(value: Any) -> None:
    """Raise `ValueError` if a string in `value`, which was JSON, has half of a surrogate pair: it
    is no Unicode."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no character") from None


class ArrayElements:
    """Iterates over the elements of the array in `file`, each with the number of its line, from 1.

    Raises `ArrayError` for text that is no array, and for an element of more than `longest`
    characters.
    """

    def __init__(self, file: TextIO, longest: int) -> None:
        self._text = file
        self._longest = longest
        self._buffer = ""
        self._at = 0
        self._line = 1

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        if (mark := self._next()) != "[":
            self._refuse("expected an array")
        while mark != "]":
            self._at += 1
            following = self._next()
            if following == "]" and mark == "[":
                break
            if following in ("", "]"):
                self._refuse("expected an object")
            yield self._line, self._element()
            mark = self._next()
            if mark not in (",", "]"):
                self._refuse(
                    f"expected a comma or the end of the array, got {mark or 'the end of the file'}"
                )
        self._at += 1
        if self._next():
            self._refuse("expected the end of the file after the array")

    def _next(self) -> str:
        while True:
            match = _SPACE.match(self._buffer, self._at)
            self._skip(match.end() if match else self._at)
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def _element(self) -> Any:
        while True:
            try:
                element, end = _DECODER.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError) as error:  # perhaps it is only incomplete
                if isinstance(error, RecursionError) or not self._more():
                    self._refuse(getattr(error, "msg", str(error)))
                continue
            length = end - self._at
            if end == len(self._buffer) and self._more():  # a number may go on
                continue
            try:
                check_encodable(element)
            except ValueError as error:
                self._refuse(str(error))
            self._skip(self._at + length)
            return element

    def _skip(self, end: int) -> None:
        self._line += self._buffer.count("\n", self._at, end)
        self._at = end

    def _more(self) -> bool:
        pending = len(self._buffer) - self._at
        if pending > self._longest:
            self._refuse(f"an element of the array is longer than {self._longest:,} characters")
        try:
            piece = self._text.read(max(CHUNK, pending))
        except UnicodeDecodeError as error:
            self._refuse(f"the file is not UTF-8 text: {error.reason}")
        self._buffer = self._buffer[self._at :] + piece
        self._at = 0
        return bool(piece)

    def _refuse(self, why: str) -> NoReturn:
        raise ArrayError(self._line, why)
