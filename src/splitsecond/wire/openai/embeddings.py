"""The answer to a request for embeddings: one JSON object, never a stream.

The answer counts as begun where its first vector does, so that a large batch is handed on while it still comes in. The
vectors themselves mean nothing here: msgspec passes over them when the body has ended, and finds the counts, and
whether all of it is there.
"""

import re
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.errors import Phase, ProviderFault, excerpt
from splitsecond.events import Broken, Done, Event, Token, Usage
from splitsecond.wire.lenient import mended
from splitsecond.wire.openai.shapes import UsageShape
from splitsecond.wire.refusals import HTML_HINT, error_said

MOST_BYTES = 64 * 1024 * 1024
"""2048 vectors, the most that OpenAI gives at once, of 3072 numbers are 33 MB in base64."""
_VECTOR = re.compile(rb'"embedding"\s{0,16}:\s{0,16}["\[]')
_LONGEST_MATCH = 64


class _Vector(Struct, gc=False):
    index: int | None = None


class _Answer(Struct, gc=False):
    data: list[_Vector] | None = None
    usage: UsageShape | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Answer).decode


class EmbeddingsDecoder:
    """One answer's body in, events out: a `Token` where the first vector begins, the rest at its end."""

    def __init__(self) -> None:
        self.server_timings: dict[str, float] = {}
        self.in_runs = False
        self._body = bytearray()
        self._begun = False
        self._ended = False

    def feed(self, data: bytes, at: int) -> list[Event]:
        """The events that `data` completes. None after the end."""
        out: list[Event] = []
        if self._ended:
            return out
        looked_at = max(0, len(self._body) - _LONGEST_MATCH)
        self._body += data
        if len(self._body) > MOST_BYTES:
            self._break(at, out, "malformed", f"the body is longer than {MOST_BYTES} bytes")
        elif not self._begun and _VECTOR.search(self._body, looked_at):
            self._begin(at, out)
        return out

    def close(self, at: int) -> list[Event]:
        """The body ended: the counts, and `Done` or `Broken` unless that was given before."""
        out: list[Event] = []
        if self._ended:
            return out
        body = bytes(self._body)
        try:
            answer = _read(body)
        except (ValueError, RecursionError) as error:
            kind = "malformed" if body.rstrip().endswith(b"}") else "truncated"
            self._break(at, out, kind, f"the body is not the JSON of an answer: {error}")
            return out
        if answer.error:
            said = error_said(answer.error).message
            self._break(at, out, "in_band_error", f"the provider put an error inside a 200: {said}")
        elif not answer.data:
            kind = "malformed" if answer.data is None else "empty_answer"
            self._break(at, out, kind, "the body is JSON without any embedding")
        else:
            if not self._begun:
                self._begin(at, out)
            counted = answer.usage
            out.append(Usage(at, None if counted is None else counted.prompt_tokens, 0))
            out.append(Done(at, False))
            self._ended = True
        return out

    def _begin(self, at: int, out: list[Event]) -> None:
        self._begun = True
        out.append(Token(at, "", "embedding"))

    def _break(self, at: int, out: list[Event], kind: str, message: str) -> None:
        self._ended = True
        body = bytes(self._body[:4096])
        phase: Phase = "between tokens" if self._begun else "first token"
        hint = HTML_HINT if body.lstrip().startswith(b"<") else ""
        shown = "" if self._begun else excerpt(body)
        fault = ProviderFault(message, kind=kind, phase=phase, status=200, excerpt=shown, hint=hint)
        out.append(Broken(at, fault))


def _read(body: bytes) -> _Answer:
    try:
        return _decode(body)
    except ValueError:
        return _decode(mended(body))  # a vector with NaN in it, for one
