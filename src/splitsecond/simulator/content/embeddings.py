"""The embeddings of a simulated provider, in the API formats that have them: OpenAI, Gemini, Cohere
and Ollama.

The same text always has the same unit vector. It is the sum of a vector for each of its words,
drawn from the word itself, so texts that share words are near each other: a search in a test finds
what it should.
"""

import base64
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import unquote
from zlib import crc32

import msgspec
from msgspec import Meta, Struct

from splitsecond.core.errors import PARSER_ERRORS, CallerFault, parser_words
from splitsecond.core.service import Operation
from splitsecond.simulator.parsing import ServerRequest

if TYPE_CHECKING:
    import numpy as np

MAX_TEXTS = 2_048
MAX_NUMBERS = 4_000_000
_WORD = re.compile(r"\w+")
_PATH_MODEL = re.compile(r"/models/([^/:?]+):")
_Dimensions = Annotated[int, Meta(ge=1, le=16_384)]


class EmbeddingRequest(ServerRequest, frozen=True, kw_only=True):
    """A request to embed `texts`. `dimensions`: the length of a vector, None for that of the
    profile; `form`: the form of the response."""

    texts: tuple[str, ...]
    dimensions: int | None = None
    form: str


class EmbeddingFormat:
    def __init__(self, api_format: Any, form: str) -> None:
        self.StreamWriter = api_format.StreamWriter
        self.error_body = api_format.error_body
        self._form = form

    def parse_request(self, operation: Operation, body: bytes, path: str) -> ServerRequest:
        try:
            model, texts, dimensions, form = _read(self._form, body, path)
        except PARSER_ERRORS as error:
            raise CallerFault(f"the request's body is wrong: {parser_words(error)}") from error
        if not texts or len(texts) > MAX_TEXTS:
            raise CallerFault(
                f"the request has {len(texts):,} texts; from 1 to {MAX_TEXTS:,} can be embedded"
            )
        return EmbeddingRequest(
            operation=operation,
            model=model,
            stream=False,
            max_tokens=1,
            prompt_text="\n".join(texts),
            fields={},
            texts=texts,
            dimensions=dimensions,
            form=form,
        )


class _OpenAI(Struct):
    model: str
    input: str | list[str | int | list[int]]
    dimensions: _Dimensions | None = None
    encoding_format: Literal["float", "base64"] = "float"


class _Cohere(Struct):
    model: str
    texts: list[str] | None = None
    inputs: list["_CohereInput"] | None = None
    output_dimension: _Dimensions | None = None
    embedding_types: list[Literal["float"]] | None = None


class _CohereInput(Struct):
    content: list["_TextPart"]


class _Ollama(Struct):
    model: str
    input: str | list[str] | None = None
    prompt: str | None = None
    dimensions: _Dimensions | None = None


class _TextPart(Struct):
    text: str = ""


class _GeminiContent(Struct):
    parts: list[_TextPart] = []


class _Gemini(Struct, rename="camel"):
    content: _GeminiContent
    output_dimensionality: _Dimensions | None = None


class _GeminiBatch(Struct):
    requests: list[_Gemini]


_Parsed = tuple[str, tuple[str, ...], int | None, str]
"""Model, texts, dimensions and form of the response."""


def _read(form: str, body: bytes, path: str) -> _Parsed:
    decode = msgspec.json.decode
    match form:
        case "openai":
            to_openai = decode(body, type=_OpenAI)
            texts = _openai_texts(to_openai.input)
            return (
                to_openai.model,
                texts,
                to_openai.dimensions,
                f"openai {to_openai.encoding_format}",
            )
        case "cohere":
            to_cohere = decode(body, type=_Cohere)
            inputs = [part.text for each in to_cohere.inputs or () for part in each.content]
            return (
                to_cohere.model,
                tuple(to_cohere.texts or inputs),
                to_cohere.output_dimension,
                form,
            )
        case "ollama" | "ollama one":
            to_ollama = decode(body, type=_Ollama)
            prompts = to_ollama.input or to_ollama.prompt or ()
            return (
                to_ollama.model,
                (prompts,) if isinstance(prompts, str) else tuple(prompts),
                to_ollama.dimensions,
                form,
            )
    return _read_gemini(form, body, path)


def _read_gemini(form: str, body: bytes, path: str) -> _Parsed:
    match = _PATH_MODEL.search(path)
    if form == "gemini batch":
        requests = msgspec.json.decode(body, type=_GeminiBatch).requests
    else:
        requests = [msgspec.json.decode(body, type=_Gemini)]
    texts = tuple(" ".join(part.text for part in each.content.parts) for each in requests)
    dimensions = next((each.output_dimensionality for each in requests), None)
    return unquote(match[1]) if match else "", texts, dimensions, form


def _openai_texts(request_input: str | list[str | int | list[int]]) -> tuple[str, ...]:
    if isinstance(request_input, str):
        return (request_input,)
    if all(isinstance(each, int) for each in request_input):
        return (" ".join(map(str, request_input)),) if request_input else ()
    return tuple(
        " ".join(map(str, each)) if isinstance(each, list) else str(each) for each in request_input
    )


def with_dimensions(request: EmbeddingRequest, default: int) -> EmbeddingRequest:
    """Return the request with its number of dimensions. Raises `CallerFault` if the response would
    be too long."""
    dimensions = request.dimensions or default
    if dimensions * len(request.texts) > MAX_NUMBERS:
        raise CallerFault(
            f"{len(request.texts):,} vectors of {dimensions:,} numbers are too many for one "
            f"response"
        )
    return msgspec.structs.replace(request, dimensions=dimensions)


def embedding_response(request: EmbeddingRequest, prompt_tokens: int, response_id: str) -> bytes:
    vectors = [embed(text, request.dimensions or 1) for text in request.texts]
    lists = [vector.tolist() for vector in vectors]
    match request.form:
        case "openai float" | "openai base64":
            encoded: list[Any] = lists
            if request.form == "openai base64":
                encoded = [
                    base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors
                ]
            data = [
                {"object": "embedding", "index": at, "embedding": each}
                for at, each in enumerate(encoded)
            ]
            usage = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
            fields: dict[str, Any] = {
                "object": "list",
                "data": data,
                "model": request.model,
                "usage": usage,
            }
        case "cohere":
            meta = {
                "api_version": {"version": "2"},
                "billed_units": {"input_tokens": prompt_tokens},
            }
            fields = {
                "id": response_id,
                "embeddings": {"float": lists},
                "texts": request.texts,
                "meta": meta,
            }
            fields["response_type"] = "embeddings_by_type"
        case "ollama":
            fields = {
                "model": request.model,
                "embeddings": lists,
                "prompt_eval_count": prompt_tokens,
            }
        case "ollama one":
            fields = {"embedding": lists[0]}
        case "gemini batch":
            fields = {"embeddings": [{"values": each} for each in lists]}
        case _:
            fields = {"embedding": {"values": lists[0]}}
    return msgspec.json.encode(fields)


def embed(text: str, dimensions: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
    total = _word_vector(text, dimensions) * 0.01  # so that no two texts are the same
    for word in _WORD.findall(text.lower())[:MAX_TEXTS]:
        total = total + _word_vector(word, dimensions)
    unit: np.ndarray[Any, np.dtype[np.float64]] = total / (total @ total) ** 0.5
    return unit


@lru_cache(maxsize=1024)
def _word_vector(word: str, dimensions: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
    import numpy as np  # not needed by a simulator without embeddings

    return np.random.RandomState(crc32(word.encode())).standard_normal(dimensions)
