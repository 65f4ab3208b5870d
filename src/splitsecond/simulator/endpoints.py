"""The endpoints of a simulated provider: which path serves which operation in which API format.

Each API format is served at its vendor's path, so the vendor's client library can be pointed here.
Gemini's path contains the model and whether to stream, as does that of Claude at Google's Vertex
AI. Replicate's contains the model as "owner/name" ("simulated/name" for a model without an owner),
and a stream there takes one request to create it and another to read it.
"""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol
from urllib.parse import unquote

import msgspec

from splitsecond.core.errors import PARSER_ERRORS, CallerFault
from splitsecond.core.events import RateLimits
from splitsecond.core.service import Operation
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.core.wire.api_format import AnswerWriter
from splitsecond.core.wire.transcoder import WriterType
from splitsecond.simulator.content.embeddings import EmbeddingFormat
from splitsecond.simulator.content.rerank import RerankFormat
from splitsecond.simulator.parsing import (
    ServerRequest,
    parse_anthropic,
    parse_anthropic_count,
    parse_cohere,
    parse_gemini,
    parse_gemini_count,
    parse_ollama,
    parse_ollama_generate,
    parse_openai,
    parse_replicate,
    parse_responses,
)
from splitsecond.simulator.rate_limit import Headers, anthropic_limits, openai_limits
from splitsecond.simulator.timed_writer import TimedWriter


class ServerFormat(Protocol):
    def StreamWriter(
        self, operation: Operation, model: str, *, id: str, created: int
    ) -> AnswerWriter: ...

    def error_body(
        self, status: int, message: str, type: str, code: str | None = None
    ) -> bytes: ...


class StreamUrlWriter(Protocol):
    def __call__(self, model: str, *, id: str, created: int, stream: str) -> bytes: ...


class ApiEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One operation in one API format.

    `read` parses a request from its operation, its body and its path. Response ids begin with
    `id_prefix`; the header `id_header` has the request's id. `malformed` is an event of this format
    whose data is cut off. `content_type` is that of a stream. With `marked_cache` only the parts of
    a prompt that the client marks are cached. `created` writes the response with the URL of a
    stream; None: the response is the stream. `limit_headers` writes the rate limits; None: the
    format has no headers for them. With `retry_in_body` the retry delay is in the body of an error.
    The query of a stream contains `stream_query`; `model_prefix` is left out of the model's name.
    `complete` adds what only the path says to a body. `writer`: in place of that of the format.
    """

    operation: Operation = "chat"
    api_format: ServerFormat
    read: Callable[[Operation, bytes, str], ServerRequest]
    id_prefix: str
    id_header: bytes = b"x-request-id"
    malformed: bytes
    content_type: bytes = b"text/event-stream; charset=utf-8"
    marked_cache: bool = False
    created: StreamUrlWriter | None = None
    limit_headers: Callable[[RateLimits, datetime], Headers] | None = None
    retry_in_body: bool = False
    stream_query: str = ""
    model_prefix: str = ""
    complete: Callable[[bytes, str], bytes] | None = None
    stop_reason: str = "stop"
    writer: WriterType | None = None

    @property
    def format_name(self) -> str:
        return self.api_format.error_body.__module__.split(".")[-2]

    def parse(self, body: bytes, path: str) -> ServerRequest:
        whole = body if self.complete is None else self.complete(body, path)
        request = self.read(self.operation, whole, path)
        if request.stream and self.stream_query not in path:
            raise CallerFault(
                "streams as a JSON list are not simulated",
                hint=f"Add ?{self.stream_query} to the URL.",
            )
        return msgspec.structs.replace(request, model=request.model.removeprefix(self.model_prefix))


class TokenCountEndpoint(msgspec.Struct, frozen=True):
    """An endpoint that only counts the tokens of a request.

    `parse` reads a request from its body and its path; `write` encodes the count. Errors have the
    form of `endpoint`.
    """

    endpoint: ApiEndpoint
    parse: Callable[[bytes, str], ServerRequest]
    write: Callable[[int], bytes]


_AT_GOOGLE = r"/v1(?:beta)?(?:/projects/[^/]+/locations/[^/]+/publishers/[^/]+)?"
_VERTEX_PATH = re.compile(_AT_GOOGLE + r"/models/([^/?]+):(streamRawPredict|rawPredict)")


def _with_model(body: bytes, path: str) -> bytes:
    match = _VERTEX_PATH.search(path)
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except PARSER_ERRORS:
        return body  # its fault is found when it is parsed
    path_fields = (
        {"model": unquote(match[1]), "stream": match[2] == "streamRawPredict"}
        if match is not None
        else {}
    )
    return msgspec.json.encode({**fields, **path_fields})


_CHAT = ApiEndpoint(
    api_format=openai,
    read=parse_openai,
    writer=TimedWriter,
    id_prefix="chatcmpl-",
    malformed=b'data: {"id":"chatcmpl-malformed","choices":[{"index":0,"del\n\n',
    limit_headers=openai_limits,
)
_COMPLETIONS = msgspec.structs.replace(_CHAT, operation="completions")
_RESPONSES = ApiEndpoint(
    api_format=responses,
    read=parse_responses,
    id_prefix="resp_",
    malformed=b'event: response.output_text.delta\ndata: {"type":"response.output_text.del\n\n',
    limit_headers=openai_limits,
)
_MESSAGES = ApiEndpoint(
    api_format=anthropic,
    read=parse_anthropic,
    id_prefix="msg_",
    id_header=b"request-id",
    malformed=b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"del\n\n',
    marked_cache=True,
    limit_headers=anthropic_limits,
    stop_reason="stop_sequence",
)
_VERTEX = msgspec.structs.replace(_MESSAGES, complete=_with_model)
_GEMINI = ApiEndpoint(
    api_format=gemini,
    read=parse_gemini,
    id_prefix="gemini-",
    malformed=b'data: {"candidates":[{"content":{"par\r\n\r\n',
    content_type=b"text/event-stream",
    retry_in_body=True,
    stream_query="alt=sse",
)
_COHERE = ApiEndpoint(
    api_format=cohere,
    read=parse_cohere,
    id_prefix="cohere-",
    malformed=b'event: content-delta\ndata: {"type":"content-delta","index":0,"del\n\n',
    stop_reason="STOP_SEQUENCE",
)
_OLLAMA = ApiEndpoint(
    api_format=ollama,
    read=parse_ollama,
    id_prefix="ollama-",
    malformed=b'{"model":"malformed","message":{"role":"assis\n',
    content_type=b"application/x-ndjson",
)


class _OllamaGenerate:
    StreamWriter = ollama.GenerateWriter
    error_body = staticmethod(ollama.error_body)


_REPLICATE = ApiEndpoint(
    api_format=replicate,
    read=parse_replicate,
    id_prefix="replicate-",
    malformed=b"event: done\ndata: {\n\n",
    created=replicate.created,
    model_prefix="simulated/",
)


def _embeddings(chat: ApiEndpoint, form: str) -> ApiEndpoint:
    api_format = EmbeddingFormat(chat.api_format, form)
    return msgspec.structs.replace(
        chat,
        operation="embeddings",
        api_format=api_format,
        read=api_format.parse_request,
        marked_cache=False,
        stream_query="",
    )


def _rerank(chat: ApiEndpoint, *, counts: bool) -> ApiEndpoint:
    api_format = RerankFormat(chat.api_format, counts=counts)
    return msgspec.structs.replace(
        chat, operation="rerank", api_format=api_format, read=api_format.parse_request
    )


_EMBEDDINGS = _embeddings(_CHAT, "openai")
_ENDPOINTS: Mapping[str, ApiEndpoint] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": _COMPLETIONS,
    "/v1/responses": _RESPONSES,
    "/openai/v1/chat/completions": _CHAT,  # Azure
    "/openai/v1/responses": _RESPONSES,
    "/v1/messages": _MESSAGES,
    "/v2/chat": _COHERE,
    "/api/chat": _OLLAMA,
    "/api/generate": msgspec.structs.replace(
        _OLLAMA, api_format=_OllamaGenerate(), read=parse_ollama_generate
    ),
    "/v1/embeddings": _EMBEDDINGS,
    "/openai/v1/embeddings": _EMBEDDINGS,
    "/v1/rerank": _rerank(_CHAT, counts=True),
    "/v2/rerank": _rerank(_COHERE, counts=False),
    "/v2/embed": _embeddings(_COHERE, "cohere"),
    "/api/embed": _embeddings(_OLLAMA, "ollama"),
    "/api/embeddings": _embeddings(_OLLAMA, "ollama one"),
}
_WITH_MODEL = {
    re.compile(_AT_GOOGLE + r"/models/[^/]+:(?:g|streamG)enerateContent"): _GEMINI,
    re.compile(_AT_GOOGLE + r"/models/[^/]+:embedContent"): _embeddings(_GEMINI, "gemini"),
    re.compile(_AT_GOOGLE + r"/models/[^/]+:batchEmbedContents"): _embeddings(
        _GEMINI, "gemini batch"
    ),
    _VERTEX_PATH: _VERTEX,
    re.compile(r"/v1/models/[^/]+/[^/]+/predictions"): _REPLICATE,
}


def endpoint_at(path: str) -> ApiEndpoint | None:
    exact = _ENDPOINTS.get(path)
    return exact or next(
        (endpoint for form, endpoint in _WITH_MODEL.items() if form.fullmatch(path)), None
    )


_COUNTS: Mapping[str, TokenCountEndpoint] = {
    "/v1/messages/count_tokens": TokenCountEndpoint(
        _MESSAGES, parse_anthropic_count, anthropic.token_count
    ),
    "/v1/responses/input_tokens": TokenCountEndpoint(
        _RESPONSES, _RESPONSES.parse, responses.token_count
    ),
}
_GEMINI_COUNT_PATH = re.compile(r"/v1(?:beta)?/models/[^/]+:countTokens")
_GEMINI_COUNT = TokenCountEndpoint(_GEMINI, parse_gemini_count, gemini.token_count)


def token_count_at(path: str) -> TokenCountEndpoint | None:
    return _COUNTS.get(path) or (_GEMINI_COUNT if _GEMINI_COUNT_PATH.fullmatch(path) else None)
