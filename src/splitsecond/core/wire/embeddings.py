"""Embeddings at providers of other formats than OpenAI's: the request and the answer are
translated.

The texts become one request of Gemini, Cohere or Ollama. The vectors pass as data of a `Quiet`, and
the answer has OpenAI's form, as numbers or in base64. Gemini does not count tokens.
"""

from array import array
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, field

from splitsecond.core.events import Done, Event, Quiet, Usage
from splitsecond.core.service import Call, Operation
from splitsecond.core.validation import plain_value
from splitsecond.core.wire.api_format import WHOLE_HEADERS, Encode, Encoded, Quirks
from splitsecond.core.wire.openai.embeddings import ItemsDecoder
from splitsecond.core.wire.openai.shapes import TokenUsage
from splitsecond.core.wire.provider_errors import error_of
from splitsecond.core.wire.sse import malformed
from splitsecond.core.wire.streaming import Count, Decoder
from splitsecond.core.wire.transcoder import Transcoder
from splitsecond.core.wire.translation import not_translatable, plain_fields, shared_fields

_OWN: Mapping[str, tuple[str, ...]] = {
    "Gemini": ("taskType", "title"), "Cohere": ("input_type", "truncate"),
    "Ollama": ("truncate", "keep_alive"),
}  # fmt: skip
"""Fields of the formats that a request may hold, under the name that they have here."""
_VECTORS = "vectors"


def encoder(api_format: str, chat: Encode) -> Encode:

    def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
        return (
            _request(call, model, api_format)
            if call.operation == "embeddings"
            else chat(call, model, quirks)
        )

    return encode


def _request(call: Call, model: str, api_format: str) -> Encoded:
    fields = plain_fields(call)
    texts = fields.pop("input", None)
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise not_translatable("input that is not a text or a list of texts", api_format)
    size = fields.pop("dimensions", None)
    for name in ("model", "encoding_format", "stream"):
        fields.pop(name, None)
    own = shared_fields(call, fields, _OWN[api_format])
    path, name = "/api/embed", "dimensions"
    body: dict[str, Any] = {"model": model, "input": texts}
    if api_format == "Cohere":
        path, name = "/embed", "output_dimension"
        body = {
            "model": model,
            "texts": texts,
            "embedding_types": ["float"],
            "input_type": "search_document",
        }
    elif api_format == "Gemini":
        path, name = (
            f"/{quote(f'models/{model}', safe='/@')}:batchEmbedContents",
            "outputDimensionality",
        )
        body = {"model": f"models/{model}"}
    body |= own if size is None else {**own, name: size}
    if api_format == "Gemini":
        body = {"requests": [{**body, "content": {"parts": [{"text": text}]}} for text in texts]}
    return Encoded(path, WHOLE_HEADERS, msgspec.json.encode(body), streamed=False)


class _Values(Struct, gc=False):
    values: Raw = Raw()


class _Floats(Struct, gc=False):
    numbers: list[Raw] = field(default_factory=list, name="float")


class _Meta(Struct, gc=False):
    billed_units: TokenUsage | None = None


class _Answer(Struct, gc=False):
    embeddings: list[Raw] | _Floats | None = None
    prompt_eval_count: Count | None = None
    meta: _Meta | None = None
    error: Any = None


def _begins(value: Raw) -> bytes:
    return bytes(memoryview(value)[:1])


_decode_values = msgspec.json.Decoder(_Values).decode


class VectorsDecoder(ItemsDecoder):
    """Decoder of an answer of Gemini, Cohere or Ollama."""

    whole_form = msgspec.json.Decoder(_Answer, strict=False)

    def _take_whole(self, answer: _Answer, body: bytes) -> None:
        found = (
            answer.embeddings.numbers
            if isinstance(answer.embeddings, _Floats)
            else answer.embeddings or []
        )
        vectors = [_decode_values(each).values if _begins(each) == b"{" else each for each in found]
        if answer.error:
            self._report_error(error_of(answer.error), b"")
        elif not vectors or not all(_begins(each) == b"[" for each in vectors):
            self._break("malformed", "the body is JSON without embeddings")
        else:
            billed = answer.meta and answer.meta.billed_units
            self._add_quiet(_VECTORS, (b"[%b]" % b",".join(map(bytes, vectors))).decode())
            self._finish(
                Usage(self._at, billed.input_tokens if billed else answer.prompt_eval_count, 0)
            )


def decoder(chat: Callable[[Operation], Decoder]) -> Callable[..., Decoder]:
    """Return the function that makes the decoders of a format; `chat` makes that of a chat."""
    return lambda operation="chat": (
        VectorsDecoder(operation) if operation == "embeddings" else chat(operation)
    )


class VectorsTranscoder(Transcoder):
    def __init__(self, call: Call, model: str) -> None:
        self._model = model
        self._base64 = plain_value(call.body.get("encoding_format")) == "base64"
        self._vectors: list[Raw] = []
        self._tokens = 0

    def encode(self, events: Sequence[Event]) -> bytes:
        for event in events:
            match event:
                case Quiet(what="vectors"):
                    self._vectors = msgspec.json.decode(event.data, type=list[Raw])
                case Usage():
                    self._tokens = event.input_tokens or 0
                case Done():
                    return self._answer()
        return b""

    def _answer(self) -> bytes:
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": _in_base64(vector) if self._base64 else vector,
            }
            for index, vector in enumerate(self._vectors)
        ]
        usage = {"prompt_tokens": self._tokens, "total_tokens": self._tokens}
        return msgspec.json.encode(
            {"object": "list", "data": data, "model": self._model, "usage": usage}
        )


def _in_base64(vector: Raw) -> str:
    try:
        return b64encode(
            array("f", msgspec.json.decode(vector, type=list[float])).tobytes()
        ).decode()
    except ValueError as error:
        raise malformed(f"an embedding is no list of numbers: {error}") from None
