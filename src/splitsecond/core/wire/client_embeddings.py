"""Server role: embeddings for clients of Gemini's and Ollama's formats.

A request becomes OpenAI's as it comes in, with its own fields beside, for targets of the same
format. The vectors of the answer pass byte for byte.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire.assembly import decoded
from splitsecond.core.wire.chat_form import translated
from splitsecond.core.wire.gemini.to_chat import camel, parts_of
from splitsecond.core.wire.server_answer import known, to_json
from splitsecond.core.wire.translation import Fields, not_translatable, plain_fields

_RENAMED = {"outputDimensionality": "dimensions", "prompt": "input"}


class _Item(Struct):
    embedding: Raw
    index: Any = None


class Vectors(Struct):
    data: list[_Item]
    model: Any = ""
    usage: Any = None

    def in_order(self) -> list[Raw]:
        """Return the vectors by their index; as they come, if one has none."""
        if all(isinstance(item.index, int) for item in self.data):
            self.data.sort(key=lambda item: item.index)
        return [item.embedding for item in self.data]


_decode = msgspec.json.Decoder(Vectors).decode


def vectors_answer(write: Callable[[Vectors], Fields], body: bytes) -> bytes:
    return to_json(write(decoded(body, _decode)))


def _embedding_call(call: Call, fields: Fields) -> Call:
    body = {_RENAMED.get(name, name): value for name, value in fields.items()}
    return translated(call, body)


def one_of_gemini(call: Call) -> Call:
    """Return a request for ``embedContent``."""
    return _gemini_call(call, [plain_fields(call)])


def batch_of_gemini(call: Call) -> Call:
    """Return a request for ``batchEmbedContents``."""
    requests = plain_fields(call).get("requests")
    if (
        not isinstance(requests, list)
        or not requests
        or not all(isinstance(each, dict) for each in requests)
    ):
        raise CallerFault("requests must be a list of at least one object")
    return _gemini_call(call, requests)


def _gemini_call(call: Call, requests: list[Fields]) -> Call:
    texts: list[str] = []
    settings: Fields = {}
    for number, request in enumerate(requests):
        own = camel(request)
        own.pop("model", None)
        texts.append(_text(own.pop("content", None), f"requests[{number}].content"))
        if number and own != settings:
            raise not_translatable(f"requests[{number}] with other settings than requests[0]")
        settings = own
    return _embedding_call(call, {**settings, "input": texts})


def _text(content: Any, place: str) -> str:
    parts = parts_of(content, place)
    texts = [text for part in parts if isinstance(text := part.get("text"), str)]
    if not texts or len(texts) < len(parts):
        raise not_translatable(f"{place} with parts that are no text")
    return "\n".join(texts)


def one_for_gemini(vectors: Vectors) -> Fields:
    return {"embedding": {"values": vectors.in_order()[0]}}


def batch_for_gemini(vectors: Vectors) -> Fields:
    return {"embeddings": [{"values": each} for each in vectors.in_order()]}


def of_ollama(call: Call) -> Call:
    """Return a request for ``/api/embed`` or ``/api/embeddings``."""
    return _embedding_call(call, plain_fields(call, "model"))


def for_ollama(vectors: Vectors) -> Fields:
    count = vectors.usage.get("prompt_tokens") if isinstance(vectors.usage, dict) else None
    counts = known(prompt_eval_count=count if isinstance(count, int) else None)
    return {"model": vectors.model, "embeddings": vectors.in_order(), **counts}


def one_for_ollama(vectors: Vectors) -> Fields:
    """Return the answer of ``/api/embeddings``."""
    return {"embedding": vectors.in_order()[0]}
