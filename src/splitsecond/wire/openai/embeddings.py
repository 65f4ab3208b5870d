"""Client role: the answer to a request for embeddings, a ranking or a moderation, one JSON object, never a stream.

The answer begins with its first item, so that a large batch is passed on while it still arrives. The items are not
decoded: at the end of the body msgspec skips them, finds the usage, and shows whether the body is complete.
"""

import re
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.events import Event, Token, TokenKind, Usage
from splitsecond.service import Operation
from splitsecond.wire.openai.shapes import UsageShape
from splitsecond.wire.provider_errors import error_of
from splitsecond.wire.streaming import AnswerDecoder

MAX_BYTES = 64 * 1024 * 1024
"""2,048 vectors, the most that OpenAI returns at once, of 3,072 numbers are 33 MB in base64."""
_VECTOR = re.compile(rb'"embedding"\s{0,16}:\s{0,16}["\[]')
_RESULT = re.compile(rb'"results"\s{0,16}:\s{0,16}\[\s{0,16}\{')
_LONGEST_MATCH = 64


class _Vector(Struct, gc=False):
    index: int | None = None


class _Answer(Struct, gc=False):
    data: list[_Vector] | None = None
    results: list[_Vector] | None = None
    usage: UsageShape | None = None
    error: Any = None


class EmbeddingsDecoder(AnswerDecoder):
    """Decoder of one answer: a `Token` when the first vector begins, all other events at the end."""

    whole_form = msgspec.json.Decoder(_Answer)
    begins = _VECTOR
    kind: TokenKind = "embedding"

    def __init__(self, operation: Operation = "embeddings") -> None:
        super().__init__(operation)
        self._body = bytearray()

    def feed(self, data: bytes, at: int) -> list[Event]:
        """Return the events that `data` completes; none after the end."""
        out: list[Event] = []
        if self._ended:
            return out
        looked_at = max(0, len(self._body) - _LONGEST_MATCH)
        self._body += data
        if len(self._body) > MAX_BYTES:
            self._break(at, out, "malformed", f"the body is longer than {MAX_BYTES:,} bytes")
        elif not self._tokens and self.begins.search(self._body, looked_at):
            self._begin(at, out)
        return out

    def close(self, at: int) -> list[Event]:
        """Return the last events: usage, and `Done` or `Broken` unless that was returned before."""
        out: list[Event] = []
        if self._ended:
            return out
        answer = self._decode_whole(bytes(self._body), at, out)
        if answer is None:
            return out
        if answer.error:
            self._report_error(at, out, error_of(answer.error), b"")
        elif not (items := self._items(answer)):
            kind = "malformed" if items is None else "empty_answer"
            self._break(at, out, kind, f"the body is JSON without any {self.kind}")
        else:
            if not self._tokens:
                self._begin(at, out)
            counted = answer.usage
            read = None if counted is None else counted.prompt_tokens
            out.append(Usage(at, counted.total_tokens if read is None and counted is not None else read, 0))
            self._complete(at, out, marker=False)
        return out

    def _items(self, answer: _Answer) -> list[_Vector] | None:
        return answer.data

    def _begin(self, at: int, out: list[Event]) -> None:
        self._tokens = 1
        out.append(Token(at, "", self.kind))

    def _break(self, at: int, out: list[Event], kind: str, message: str, data: bytes = b"") -> None:
        """Break the answer. The fault shows the beginning of the body, but no vectors."""
        super()._break(at, out, kind, message, b"" if self._tokens else bytes(self._body[:4096]))


class ResultsDecoder(EmbeddingsDecoder):
    """Decoder of a ranking or a moderation: a `Token` when the first result begins, all other events at the end."""

    begins = _RESULT
    kind: TokenKind = "result"

    def _items(self, answer: _Answer) -> list[_Vector] | None:
        return answer.results
