"""Client role: the answer to a request for embeddings, a ranking or a moderation, one JSON object, never a stream.

The answer begins with its first item, so that a large batch is passed on while it still arrives. The items are not
decoded: at the end of the body msgspec skips them, finds the usage, and shows whether the body is complete.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.events import Event, Token, TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.openai.shapes import UsageShape
from splitsecond.core.wire.provider_errors import error_of
from splitsecond.core.wire.streaming import ABSENT, AnswerDecoder

MAX_BYTES = 64 * 1024 * 1024
"""2,048 vectors, the most that OpenAI returns at once, of 3,072 numbers are 33 MB in base64."""
_BEGINS: Mapping[TokenKind, re.Pattern[bytes]] = {
    "embedding": re.compile(rb'"embedding"\s{0,16}:\s{0,16}["\[]'),
    "result": re.compile(rb'"results"\s{0,16}:\s{0,16}\[\s{0,16}\{'),
}
"""The beginning of the first item."""
_LONGEST_MATCH = 64


class _Item(Struct, gc=False):
    index: int | None = None


class _Answer(Struct, gc=False):
    data: list[_Item] | None = None
    results: list[_Item] | None = None
    usage: Raw = ABSENT
    error: Any = None


_decode_usage = msgspec.json.Decoder(UsageShape, strict=False).decode


class ItemsDecoder(AnswerDecoder):
    """Decoder of one answer: a `Token` when the first vector or result begins, all other events at the end."""

    whole_form = msgspec.json.Decoder(_Answer)

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation)
        self._kind: TokenKind = "embedding" if operation == "embeddings" else "result"
        self._body = bytearray()

    def feed(self, data: bytes, at: int) -> list[Event]:
        out: list[Event] = []
        if self._ended:
            return out
        looked_at = max(0, len(self._body) - _LONGEST_MATCH)
        self._body += data
        if len(self._body) > MAX_BYTES:
            self._break(at, out, "malformed", f"the body is longer than {MAX_BYTES:,} bytes")
        elif not self._tokens and _BEGINS[self._kind].search(self._body, looked_at):
            self._begin(at, out)
        return out

    def close(self, at: int) -> list[Event]:
        out: list[Event] = []
        if self._ended:
            return out
        answer = self._decode_whole(bytes(self._body), at, out)
        if answer is None:
            return out
        if answer.error:
            self._report_error(at, out, error_of(answer.error), b"")
        elif not (items := answer.data if self._kind == "embedding" else answer.results):
            kind = "malformed" if items is None else "empty_answer"
            self._break(at, out, kind, f"the body is JSON without any {self._kind}")
        else:
            if not self._tokens:
                self._begin(at, out)
            counted = self._read_counts(answer.usage, _decode_usage, at, out) or UsageShape()
            read = counted.total_tokens if counted.prompt_tokens is None else counted.prompt_tokens
            self._add_usage(out, Usage(at, read, 0))
            self._complete(at, out, marker=False)
        return out

    def _begin(self, at: int, out: list[Event]) -> None:
        self._tokens = 1
        out.append(Token(at, "", self._kind))

    def _break(self, at: int, out: list[Event], kind: str, message: str, data: bytes = b"") -> None:
        """Break the answer. The fault shows the beginning of the body, but no vectors."""
        super()._break(at, out, kind, message, b"" if self._tokens else bytes(self._body[:4096]))
