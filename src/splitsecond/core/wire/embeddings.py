"""Embeddings and rankings at providers of other formats than OpenAI's: the request and the answer
are translated.

Texts become one request of Gemini, Cohere or Ollama, and the answer has OpenAI's form, with numbers
or base64. A ranking becomes one of Cohere's: Jina's and vLLM's ``/v1/rerank`` have its fields. The
vectors and results pass as data of a `Quiet`. Gemini does not count tokens, and Cohere counts
searches.
"""

from array import array
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Raw, field

from splitsecond.core.events import Done, Event, Quiet, Usage
from splitsecond.core.service import Call, Operation
from splitsecond.core.validation import plain_value
from splitsecond.core.wire.api_format import Encode, Encoded, Quirks, chat_request
from splitsecond.core.wire.openai.embeddings import ItemsDecoder
from splitsecond.core.wire.openai.shapes import TokenUsage
from splitsecond.core.wire.provider_errors import error_of
from splitsecond.core.wire.sse import malformed
from splitsecond.core.wire.streaming import Count, Decoder, Shape
from splitsecond.core.wire.transcoder import Transcoder
from splitsecond.core.wire.translation import Fields, not_translatable, plain_fields, shared_fields

_OWN: Mapping[str, tuple[str, ...]] = {
    "Gemini": ("taskType", "title"), "Cohere": ("input_type", "truncate"),
    "Ollama": ("truncate", "keep_alive"),
}  # fmt: skip
"""Fields of the formats that a request may hold, under the name that they have here."""
_OF_RANKINGS = ("top_n", "max_tokens_per_doc", "priority")


def encoder(api_format: str, chat: Encode) -> Encode:
    """Return the function that encodes the calls of a format; `chat` encodes a chat."""

    def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
        if call.operation == "embeddings":
            return _embeddings(call, model, api_format)
        if call.operation == "rerank" and api_format == "Cohere":
            return _ranking(call, model)
        return chat(call, model, quirks)

    return encode


def _embeddings(call: Call, model: str, api_format: str) -> Encoded:
    fields = plain_fields(call, "model", "encoding_format", "stream")
    texts = fields.pop("input", None)
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise not_translatable("input that is not a text or a list of texts", api_format)
    size = fields.pop("dimensions", None)
    own = shared_fields(call, fields, _OWN[api_format])
    path, name = "/api/embed", "dimensions"
    body: Fields = {"model": model, "input": texts}
    if api_format == "Cohere":
        path, name = "/embed", "output_dimension"
        body = {"model": model, "texts": texts}
        body |= {"embedding_types": ["float"], "input_type": "search_document"}
    elif api_format == "Gemini":
        path = f"/{quote(f'models/{model}', safe='/@')}:batchEmbedContents"
        name, body = "outputDimensionality", {"model": f"models/{model}"}
    body |= own if size is None else {**own, name: size}
    if api_format == "Gemini":
        body = {"requests": [{**body, "content": {"parts": [{"text": text}]}} for text in texts]}
    return chat_request(path, body, False)


def _ranking(call: Call, model: str) -> Encoded:
    fields = plain_fields(call, "model", "stream", "return_documents")
    query, documents = fields.pop("query", None), fields.pop("documents", None)
    texts = [_text(each) for each in documents] if isinstance(documents, list) else []
    if not isinstance(query, str) or not texts or None in texts:
        raise not_translatable("a query or documents that are no texts", "Cohere")
    own = shared_fields(call, fields, _OF_RANKINGS)
    return chat_request(
        "/rerank", {"model": model, "query": query, "documents": texts, **own}, False
    )


def _text(document: Any) -> str | None:
    text = document.get("text") if isinstance(document, dict) else document
    return text if isinstance(text, str) else None


class _Values(Shape):
    values: Raw = Raw()


class _Floats(Shape):
    numbers: list[Raw] = field(default_factory=list, name="float")


class _Meta(Shape):
    billed_units: TokenUsage | None = None


class _Vectors(Shape):
    embeddings: list[Raw] | _Floats | None = None
    prompt_eval_count: Count | None = None
    meta: _Meta | None = None
    error: Any = None


class _Ranking(Shape):
    results: list[Raw] | None = None
    error: Any = None


def _begins(value: Raw) -> bytes:
    return bytes(memoryview(value)[:1])


_decode_values = msgspec.json.Decoder(_Values).decode


class _TranslatedItems(ItemsDecoder):
    def _take_items(self, answer: Any, what: str, items: list[Raw], tokens: int | None) -> None:
        if answer.error:
            self._report_error(error_of(answer.error), b"")
        elif not items:
            name = "embeddings" if what == "vectors" else what
            self._break("malformed", f"the body is JSON without {name}")
        else:
            self._add_quiet(what, (b"[%b]" % b",".join(map(bytes, items))).decode())
            self._finish(Usage(self._at, tokens, 0))


class VectorsDecoder(_TranslatedItems):
    """Decoder of an answer of Gemini, Cohere or Ollama."""

    whole_form = msgspec.json.Decoder(_Vectors, strict=False)

    def _take_whole(self, answer: _Vectors, body: bytes) -> None:
        embeddings = answer.embeddings
        items = embeddings.numbers if isinstance(embeddings, _Floats) else embeddings or []
        vectors = [_decode_values(each).values if _begins(each) == b"{" else each for each in items]
        if not all(_begins(each) == b"[" for each in vectors):
            vectors = []
        billed = answer.meta and answer.meta.billed_units
        tokens = billed.input_tokens if billed else answer.prompt_eval_count
        self._take_items(answer, "vectors", vectors, tokens)


class RankingDecoder(_TranslatedItems):
    whole_form = msgspec.json.Decoder(_Ranking)

    def _take_whole(self, answer: _Ranking, body: bytes) -> None:
        self._take_items(answer, "results", answer.results or [], None)


def decoder(
    chat: Callable[[Operation], Decoder], *, rankings: bool = False
) -> Callable[..., Decoder]:
    """Return the function that makes the decoders of a format; `chat` makes that of a chat."""
    decoders: dict[Operation, Callable[[Operation], Decoder]] = {"embeddings": VectorsDecoder}
    if rankings:
        decoders["rerank"] = RankingDecoder
    return lambda operation="chat": decoders.get(operation, chat)(operation)


class ItemsTranscoder(Transcoder):
    """Transcoder of the vectors or results of `model` in answer to `call`."""

    def __init__(self, call: Call, model: str) -> None:
        self._model = model
        self._ranks = call.operation == "rerank"
        self._base64 = plain_value(call.body.get("encoding_format")) == "base64"
        self._items = ""
        self._tokens = 0

    def encode(self, events: Sequence[Event]) -> bytes:
        for event in events:
            match event:
                case Quiet(what="vectors" | "results"):
                    self._items = event.data
                case Usage():
                    self._tokens = event.input_tokens or 0
                case Done():
                    return msgspec.json.encode(self._ranking() if self._ranks else self._vectors())
        return b""

    def _ranking(self) -> Fields:
        return {"model": self._model, "results": Raw(self._items.encode())}

    def _vectors(self) -> Fields:
        vectors = msgspec.json.decode(self._items or "[]", type=list[Raw])
        encoded = map(_in_base64, vectors) if self._base64 else vectors
        data = [
            {"object": "embedding", "index": index, "embedding": each}
            for index, each in enumerate(encoded)
        ]
        usage = {"prompt_tokens": self._tokens, "total_tokens": self._tokens}
        return {"object": "list", "data": data, "model": self._model, "usage": usage}


def _in_base64(vector: Raw) -> str:
    try:
        numbers = msgspec.json.decode(vector, type=list[float])
    except ValueError as error:
        raise malformed(f"an embedding is no list of numbers: {error}") from None
    return b64encode(array("f", numbers).tobytes()).decode()
