"""Client role: the answer to a request for embeddings, a ranking or a moderation, one JSON object,
never a stream.

The answer begins with its first item, so that a large batch is passed on while it still arrives.
The items are not decoded: at the end of the body msgspec skips them and finds the usage.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.core.events import Event, Token, TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.openai.shapes import UsageShape
from splitsecond.core.wire.provider_errors import error_of
from splitsecond.core.wire.streaming import ABSENT, Decoder, Shape

MAX_BYTES = 64 * 1024 * 1024
"""2,048 vectors, the most that OpenAI returns at once, of 3,072 numbers are 33 MB in base64."""
_BEGINS: Mapping[TokenKind, re.Pattern[bytes]] = {
    "embedding": re.compile(rb'"embeddings?"\s{0,16}:\s{0,16}["\[{]'),
    "result": re.compile(rb'"results"\s{0,16}:\s{0,16}\[\s{0,16}\{'),
}
"""The beginning of the first item."""
_LONGEST_MATCH = 64


class _Item(Shape):
    index: int | None = None


class _Answer(Shape):
    data: list[_Item] | None = None
    results: list[_Item] | None = None
    usage: Raw = ABSENT
    error: Any = None


_decode_usage = msgspec.json.Decoder(UsageShape, strict=False).decode


class ItemsDecoder(Decoder):
    """Decoder of one answer: a `Token` when the first item begins, all other events at the end."""

    whole_form = msgspec.json.Decoder(_Answer)
    max_json_bytes = MAX_BYTES

    def __init__(self, operation: Operation) -> None:
        super().__init__(operation)
        self._begun = True
        self._json: list[bytes] = []
        self._kind: TokenKind = "embedding" if operation == "embeddings" else "result"
        self._end_so_far = b""  # where the first item may begin

    def feed(self, data: bytes, at: int) -> list[Event]:
        out = super().feed(data, at)
        if not (self._tokens or self._ended):
            self._end_so_far = self._end_so_far[-_LONGEST_MATCH:] + data
            if _BEGINS[self._kind].search(self._end_so_far):
                self._begin()
        return out

    def _take_whole(self, answer: Any, body: bytes) -> None:
        if answer.error:
            self._report_error(error_of(answer.error), b"")
        elif not (items := answer.data if self._kind == "embedding" else answer.results):
            kind = "malformed" if items is None else "empty_answer"
            self._break(kind, f"the body is JSON without any {self._kind}")
        else:
            shape = self._read_counts(answer.usage, _decode_usage) or UsageShape()
            read = shape.total_tokens if shape.prompt_tokens is None else shape.prompt_tokens
            self._finish(Usage(self._at, read, 0))

    def _finish(self, usage: Usage) -> None:
        if not self._tokens:
            self._begin()
        self._add_usage(usage)
        self._complete(marker=False)

    def _begin(self) -> None:
        self._tokens = 1
        self._out.append(Token(self._at, "", self._kind))

    def _break(self, kind: str, message: str, data: bytes = b"") -> None:
        """Break the answer. The fault shows the beginning of the body, but no vectors."""
        super()._break(kind, message, b"" if self._tokens else b"".join(self._json)[:4096])
