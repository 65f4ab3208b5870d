"""Rankings at Cohere for clients of OpenAI's paths: the request and the answer are translated.

Jina's and vLLM's ``/v1/rerank`` have Cohere's fields. The results pass as data of a `Quiet`. Cohere
counts searches, not tokens, so the answer has no usage.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.events import Done, Event, Quiet, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire.api_format import WHOLE_HEADERS, Encoded
from splitsecond.core.wire.openai.embeddings import ItemsDecoder
from splitsecond.core.wire.provider_errors import error_of
from splitsecond.core.wire.transcoder import Transcoder
from splitsecond.core.wire.translation import not_translatable, plain_fields, shared_fields

_OWN = ("top_n", "max_tokens_per_doc", "priority")
_RESULTS = "results"


def encode(call: Call, model: str) -> Encoded:
    """Encode a request for a ranking. Raises `CallerFault` for documents that are no texts."""
    fields = plain_fields(call)
    query, documents = fields.pop("query", None), fields.pop("documents", None)
    texts = [_text(each) for each in documents] if isinstance(documents, list) else []
    if not isinstance(query, str) or not texts or None in texts:
        raise not_translatable("a query or documents that are no texts", "Cohere")
    for name in ("model", "stream", "return_documents"):
        fields.pop(name, None)
    own = shared_fields(call, fields, _OWN)
    body = {"model": model, "query": query, "documents": texts, **own}
    return Encoded("/rerank", WHOLE_HEADERS, msgspec.json.encode(body), streamed=False)


def _text(document: Any) -> str | None:
    text = document.get("text") if isinstance(document, dict) else document
    return text if isinstance(text, str) else None


class _Answer(Struct, gc=False):
    results: list[Raw] | None = None
    error: Any = None


class RankingDecoder(ItemsDecoder):
    whole_form = msgspec.json.Decoder(_Answer)

    def _take_whole(self, answer: _Answer, body: bytes) -> None:
        if answer.error:
            self._report_error(error_of(answer.error), b"")
        elif not answer.results:
            self._break("malformed", "the body is JSON without results")
        else:
            results = b"[%b]" % b",".join(map(bytes, answer.results))
            self._add_quiet(_RESULTS, results.decode())
            self._finish(Usage(self._at, None, 0))


class RankingTranscoder(Transcoder):
    def __init__(self, model: str) -> None:
        self._model = model
        self._results = ""

    def encode(self, events: Sequence[Event]) -> bytes:
        for event in events:
            match event:
                case Quiet(what="results"):
                    self._results = event.data
                case Done():
                    results = Raw(self._results.encode())
                    return msgspec.json.encode({"model": self._model, "results": results})
        return b""
