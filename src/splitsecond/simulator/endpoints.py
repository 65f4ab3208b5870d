"""The paths that a simulated provider answers at: what is asked there, and in which dialect.

Each dialect has the path of its makers, so that their own client libraries can be pointed here. Gemini's path holds the
model, and whether to stream. Replicate's holds the model as "owner/name"; a model without an owner is "simulated/name",
and a stream is asked for there with one request and read with another.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.events import RateLimits, Usage
from splitsecond.service import Operation
from splitsecond.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.wire.dialect import Answer, ServerRequest, Writer
from splitsecond.wire.limit_headers import Headers, anthropic_limits, openai_limits


class Dialect(Protocol):
    """What a dialect of `wire` offers in the server role, as far as it is played here."""

    def StreamWriter(self, operation: Operation, model: str, *, id: str, created: int) -> Writer: ...  # noqa: A002

    def whole(
        self,
        operation: Operation,
        model: str,
        answers: Sequence[Answer],
        usage: Usage,
        *,
        id: str,  # noqa: A002
        created: int,
    ) -> bytes: ...

    def error_body(self, status: int, message: str, type: str, code: str | None = None) -> bytes: ...  # noqa: A002


class Created(Protocol):
    """Writes the answer that says where a stream will be."""

    def __call__(self, model: str, *, id: str, created: int, stream: str) -> bytes: ...  # noqa: A002


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered at one path, or at many of one form.

    `parse` reads a request out of its body and its path with the query. `id_prefix` begins the ids of its answers, and
    `id_header` names the header with the request's. `malformed` is an event as it is sent there, with data that breaks
    off. `content_type` is a stream's. `marked_cache`: of a prompt only what the client marks is cached. `created`
    writes the answer that only says at which URL a stream will be; None: the answer is the stream. `limit_headers`
    writes the rate limits (None: the dialect has no headers for them); `retry_in_body`: how long to wait stands in the
    body of an error.
    """

    operation: Operation
    dialect: Dialect
    parse: Callable[[bytes, str], ServerRequest]
    id_prefix: str
    id_header: bytes = b"x-request-id"
    malformed: bytes
    content_type: bytes = b"text/event-stream; charset=utf-8"
    marked_cache: bool = False
    created: Created | None = None
    limit_headers: Callable[[RateLimits, datetime], Headers] | None = None
    retry_in_body: bool = False


def _gemini_request(body: bytes, path: str) -> ServerRequest:
    request = gemini.parse_request("chat", body, path)
    if request.stream and "alt=sse" not in path:
        raise CallerFault("a stream is a list in JSON here, which is not simulated", hint="Ask with ?alt=sse.")
    return request


def _replicate_request(body: bytes, path: str) -> ServerRequest:
    request = replicate.parse_request("chat", body, path)
    return msgspec.structs.replace(request, model=request.model.removeprefix("simulated/"))


_CHAT = Endpoint(
    operation="chat",
    dialect=openai,
    parse=lambda body, _path: openai.parse_request("chat", body),
    id_prefix="chatcmpl-",
    malformed=b'data: {"id":"chatcmpl-malformed","choices":[{"index":0,"del\n\n',
    limit_headers=openai_limits,
)
_COMPLETIONS = msgspec.structs.replace(
    _CHAT, operation="completions", parse=lambda body, _path: openai.parse_request("completions", body)
)
RESPONSES = Endpoint(
    operation="chat",
    dialect=responses,
    parse=lambda body, _path: responses.parse_request("chat", body),
    id_prefix="resp_",
    malformed=b'event: response.output_text.delta\ndata: {"type":"response.output_text.del\n\n',
    limit_headers=openai_limits,
)
MESSAGES = Endpoint(
    operation="chat",
    dialect=anthropic,
    parse=lambda body, _path: anthropic.parse_request("chat", body),
    id_prefix="msg_",
    id_header=b"request-id",
    malformed=b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"del\n\n',
    marked_cache=True,
    limit_headers=anthropic_limits,
)
GEMINI = Endpoint(
    operation="chat",
    dialect=gemini,
    parse=_gemini_request,
    id_prefix="gemini-",
    malformed=b'data: {"candidates":[{"content":{"par\r\n\r\n',
    content_type=b"text/event-stream",
    retry_in_body=True,
)
_COHERE = Endpoint(
    operation="chat",
    dialect=cohere,
    parse=lambda body, _path: cohere.parse_request("chat", body),
    id_prefix="cohere-",
    malformed=b'event: content-delta\ndata: {"type":"content-delta","index":0,"del\n\n',
)
_OLLAMA = Endpoint(
    operation="chat",
    dialect=ollama,
    parse=lambda body, _path: ollama.parse_request("chat", body),
    id_prefix="ollama-",
    malformed=b'{"model":"malformed","message":{"role":"assis\n',
    content_type=b"application/x-ndjson",
)
_REPLICATE = Endpoint(
    operation="chat",
    dialect=replicate,
    parse=_replicate_request,
    id_prefix="replicate-",
    malformed=b"event: done\ndata: {\n\n",
    created=replicate.created,
)

_ENDPOINTS: Mapping[str, Endpoint] = {
    "/v1/chat/completions": _CHAT,
    "/v1/completions": _COMPLETIONS,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v2/chat": _COHERE,
    "/api/chat": _OLLAMA,
}
_WITH_MODEL = {
    re.compile(r"/v1(?:beta)?/models/[^/]+:(?:g|streamG)enerateContent"): GEMINI,
    re.compile(r"/v1/models/[^/]+/[^/]+/predictions"): _REPLICATE,
}


def endpoint_at(path: str) -> Endpoint | None:
    """The endpoint at `path`, without its query; None: there is none."""
    found = _ENDPOINTS.get(path)
    return found or next((endpoint for form, endpoint in _WITH_MODEL.items() if form.fullmatch(path)), None)
