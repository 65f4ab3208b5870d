"""The API formats in which clients call the gateway: one record for each, with all that the gateway
and the policies know of it.

To add a format, add a record to `CLIENT_FORMATS` (and its name to `service.Spoken`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Struct, structs

from splitsecond.core.events import Usage
from splitsecond.core.service import Call, Operation, Spoken
from splitsecond.core.wire import anthropic, gemini, ollama, openai, responses, stored_ids
from splitsecond.core.wire import client_embeddings as vectors
from splitsecond.core.wire.anthropic import client_side as messages_side
from splitsecond.core.wire.anthropic.messages import UNSIGNED_REASONING
from splitsecond.core.wire.api_format import Encode, Encoded
from splitsecond.core.wire.assembly import Assembly
from splitsecond.core.wire.chat_form import REASONING_FIELD
from splitsecond.core.wire.client_embeddings import Vectors, vectors_answer
from splitsecond.core.wire.continuation import ContinuationEncoder
from splitsecond.core.wire.openai import client_side as chat_side
from splitsecond.core.wire.openai.client_side import (
    TranslatedAssembly,
    TranslatedRelay,
    translated_answer,
)
from splitsecond.core.wire.relay import StreamRelay
from splitsecond.core.wire.responses import client_side as responses_side
from splitsecond.core.wire.responses.encode import FOREIGN_REASONING
from splitsecond.core.wire.stored_ids import KeptAnswers
from splitsecond.core.wire.transcoder import Transcoder, WriterType


class RelayType(Protocol):
    def __call__(self, call: Call, target: str, *, usage: bool) -> StreamRelay: ...


class RequestReader(Struct, frozen=True):
    """Functions for requests of a format that is not the common chat form. Both translations raise
    `CallerFault` for what is wrong.

    `pass_on` encodes a request for a target of the same format. `to_chat` rewrites it in the common
    chat form, OpenAI's; `sources` gives, for each message in that form, the number of the client's
    message that it comes from, or -1 for the system prompt.
    """

    pass_on: Encode
    to_chat: Callable[[Call], Call]
    sources: Callable[[Call], Sequence[int]]


class ModelListing(Struct, frozen=True):
    """Model listing for clients of a format: `paths`, below each the path of each model, and what
    they return.

    `model`: None if there is no path for one model. `header`: one that all clients of this format
    send, where several formats have the same path; without it, the first of these formats is meant.
    `details_path`: where a request names one model; `details` describes it, with its context length
    in tokens, None if unknown.
    """

    paths: tuple[str, ...]
    whole: Callable[[Sequence[str]], bytes]
    model: Callable[[str], dict[str, Any]] | None = None
    header: bytes = b""
    details_path: str = ""
    details: Callable[[str, int | None], bytes] | None = None


class TokenCounting(Struct, frozen=True):
    """Token counting for clients of a format, at `path`, or as `method` at the paths of methods.

    `encode` makes the request to a target of the same format, if there is one; `answer` the
    response with an estimate.
    """

    path: str
    encode: Callable[[Call, str], Encoded] | None
    answer: Callable[[int], bytes]
    method: str = ""


class ClientFormat(Struct, frozen=True, kw_only=True):
    """An API format of clients. `vendor`: the catalogue's provider that has defined it.

    Requests. `paths`: the gateway's paths, and what each requests; errors of all paths below `root`
    have this format. `counting`, `models`: how clients count tokens and list models.
    `messages_field`: the conversation; `system_field`: the system prompt, "" if it is a message.
    `limit_fields`: the limit on output tokens; the last is set if the client sets none.
    `output_format`: paths of fields that fix the form of the answer; `effort`: that of the
    reasoning effort. `stored`: the provider stores answers unless the request forbids it.
    `prefills`: a last message of the assistant begins the answer. `kept`: the answers that a
    provider may keep. `streams`: an answer is a stream unless the request says otherwise.
    `opens_with_tokens`: a stream begins with the number of tokens of the prompt. `method_roots`:
    other paths are one of these (the first that fits), a model and a method (`methods`: whether it
    streams; all are of `method_operation`). `incoming`: rewrites a call in OpenAI's form as it
    comes in; then `name` is that form's, and policies and targets know no other.

    Translation. `reader`: None for the common chat form itself. `own_fields`, `own_parts`: what
    this format calls fields and parts of the common chat form, for error messages;
    `left_out_names`: the same for what was left out.

    Answers. `transcoder` writes the answer of a target of another format; `relay` passes a stream
    on; `assembly` makes one answer of a stream; `counts` makes the fields with its token counts;
    `continuation` encodes what another target adds to an answer, None if that is impossible.
    `error_body` makes the body of an error response from status, message, type, code and parameter;
    `statuses`: status codes that differ from the gateway's own. `id_header`: a header for the
    request id beside ``x-request-id``. `stream_type`: the content type of a stream.
    """

    name: Spoken
    vendor: str
    paths: Mapping[str, Operation]
    root: str = ""
    method_roots: tuple[str, ...] = ()
    methods: Mapping[str, bool] = {}
    method_operation: Operation = "chat"
    counting: TokenCounting | None = None
    models: ModelListing | None = None
    messages_field: str = "messages"
    system_field: str = ""
    limit_fields: tuple[str, ...]
    output_format: tuple[tuple[str, ...], ...]
    effort: tuple[str, ...]
    stored: bool = False
    prefills: bool = False
    kept: KeptAnswers | None = None
    streams: bool = False
    opens_with_tokens: bool = False
    incoming: Callable[[Call], Call] | None = None
    reader: RequestReader | None = None
    own_fields: Mapping[str, str] = {}
    own_parts: Mapping[str, str] = {}
    left_out_names: Mapping[str, str] = {}
    transcoder: Callable[[Call, str], Transcoder]
    relay: RelayType
    assembly: Callable[[], Assembly]
    counts: Callable[[Usage], Mapping[str, Any]]
    continuation: Callable[[Call], ContinuationEncoder | None]
    error_body: Callable[[int, str, str, str, str | None], bytes]
    statuses: Mapping[int, int] = {}
    id_header: bytes = b""
    stream_type: bytes = b"text/event-stream; charset=utf-8"


OPENAI_CHAT = ClientFormat(
    name="openai",
    vendor="openai",
    paths={
        "/v1/chat/completions": "chat",
        "/v1/completions": "completions",
        "/v1/embeddings": "embeddings",
        "/v1/rerank": "rerank",
        "/v1/moderations": "moderations",
    },
    models=ModelListing(("/v1/models",), openai.model_list, openai.model),
    limit_fields=("max_completion_tokens", "max_tokens"),
    output_format=(("response_format",),),
    effort=("reasoning_effort",),
    transcoder=chat_side.transcoder,
    relay=chat_side.ChunkRelay,
    assembly=chat_side.ChunkAssembly,
    counts=openai.counts,
    continuation=chat_side.continuation_encoder,
    error_body=openai.error_body,
)
OPENROUTER_CHAT = structs.replace(
    OPENAI_CHAT,
    paths={f"/api{path}": operation for path, operation in OPENAI_CHAT.paths.items()},
    root="/api/v1/",
    models=ModelListing(("/api/v1/models",), openai.model_list, openai.model),
    error_body=openai.numbered_error_body,
)
ANTHROPIC_MESSAGES = ClientFormat(
    name="anthropic",
    vendor="anthropic",
    paths={"/v1/messages": "chat"},
    root="/v1/messages/",
    counting=TokenCounting("/v1/messages/count_tokens", anthropic.count, anthropic.token_count),
    models=ModelListing(
        ("/v1/models",), anthropic.model_list, anthropic.model, header=b"anthropic-version"
    ),
    system_field="system",
    limit_fields=("max_tokens",),
    output_format=(("output_config", "format"), ("output_format",)),
    effort=("output_config", "effort"),
    prefills=True,
    opens_with_tokens=True,
    kept=stored_ids.MESSAGES,
    reader=RequestReader(anthropic.pass_on, anthropic.to_chat, anthropic.sources),
    own_fields={"stop": "stop_sequences", "response_format": "output_config.format"},
    own_parts={"file": "document", "image_url": "image"},
    left_out_names={
        REASONING_FIELD: UNSIGNED_REASONING,
        "user": "metadata",
        "parallel_tool_calls": "disable_parallel_tool_use",
        "stop": "stop_sequences",
    },
    transcoder=messages_side.transcoder,
    relay=messages_side.MessageRelay,
    assembly=messages_side.MessageAssembly,
    counts=anthropic.counts,
    continuation=messages_side.continuation_encoder,
    error_body=anthropic.error_body,
    statuses={503: 529},
    id_header=b"request-id",
)
OPENAI_RESPONSES = ClientFormat(
    name="responses",
    vendor="openai-responses",
    paths={"/v1/responses": "chat"},
    root="/v1/responses/",
    counting=TokenCounting("/v1/responses/input_tokens", responses.count, responses.token_count),
    messages_field="input",
    system_field="instructions",
    limit_fields=("max_output_tokens",),
    output_format=(("text", "format"),),
    effort=("reasoning", "effort"),
    stored=True,
    kept=stored_ids.RESPONSES,
    reader=RequestReader(responses.pass_on, responses.to_chat, responses.sources),
    own_fields={"response_format": "text.format", "max_completion_tokens": "max_output_tokens"},
    own_parts={"file": "input_file", "image_url": "input_image"},
    left_out_names={REASONING_FIELD: FOREIGN_REASONING, "response_format": "text.format"},
    transcoder=responses_side.transcoder,
    relay=responses_side.ResponseRelay,
    assembly=responses_side.ResponseAssembly,
    counts=responses.counts,
    continuation=responses_side.continuation_encoder,
    error_body=responses.error_body,
)
CLIENT_FORMATS: Mapping[Spoken, ClientFormat] = {
    each.name: each for each in (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC_MESSAGES)
}


def _written(write: Callable[[Any, bytes], bytes], how: Any) -> Callable[[], Assembly]:
    return partial(TranslatedAssembly, partial(write, how))


def _translated(
    writer: WriterType,
    error_event: tuple[bytes, bytes],
    *,
    single: bool = False,
    like: ClientFormat = OPENAI_CHAT,
    **fields: Any,
) -> ClientFormat:
    """Return a format whose requests are translated as they come in, and its answers written by
    `writer`."""
    relay = partial(TranslatedRelay, writer=writer, error_event=error_event, single=single)
    own = {"models": None, "relay": relay, "assembly": _written(translated_answer, writer)}
    return structs.replace(like, **(own | fields))


GEMINI = _translated(
    gemini.StreamWriter,
    # Google's older library for JavaScript ignores error events, but not a rest that is no event:
    # here a comment.
    (b"data: ", b"\r\n\r\n: error"),
    vendor="gemini",
    paths={},
    root="/v1beta/",
    # Vercel's and LangChain's clients leave out "models/" if a name has a slash.
    method_roots=("/v1beta/models/", "/v1/models/", "/v1beta/"),
    methods={"generateContent": False, "streamGenerateContent": True},
    models=ModelListing(
        ("/v1beta/models", "/v1/models"),
        gemini.model_list,
        gemini.model,
        header=b"x-goog-api-client",
    ),
    counting=TokenCounting("", None, gemini.token_count, method="countTokens"),
    incoming=gemini.to_chat,
    counts=gemini.counts,
    error_body=gemini.error_body,
)
OLLAMA_CHAT = _translated(
    ollama.StreamWriter,
    (b"", b"\n"),
    single=True,
    vendor="ollama",
    paths={"/api/chat": "chat"},
    root="/api/",
    models=ModelListing(
        ("/api/tags",), ollama.model_list, details_path="/api/show", details=ollama.model_details
    ),
    streams=True,
    incoming=ollama.chat_to_chat,
    counts=ollama.counts,
    error_body=ollama.error_body,
    stream_type=b"application/x-ndjson",
)
OLLAMA_GENERATE = _translated(
    ollama.GenerateWriter,
    (b"", b"\n"),
    single=True,
    like=OLLAMA_CHAT,
    paths={"/api/generate": "chat"},
    root="",
    incoming=ollama.generate_to_chat,
)


def _embeddings(
    form: ClientFormat,
    incoming: Callable[[Call], Call],
    write: Callable[[Vectors], dict[str, Any]],
    **fields: Any,
) -> ClientFormat:
    own = {"root": "", "models": None, "counting": None, "paths": {}, "methods": {}, **fields}
    own |= {"incoming": incoming, "assembly": _written(vectors_answer, write)}
    return structs.replace(form, method_operation="embeddings", **own)


_EMBEDDINGS = (
    _embeddings(
        GEMINI, vectors.one_of_gemini, vectors.one_for_gemini, methods={"embedContent": False}
    ),
    _embeddings(
        GEMINI,
        vectors.batch_of_gemini,
        vectors.batch_for_gemini,
        methods={"batchEmbedContents": False},
    ),
    _embeddings(
        OLLAMA_CHAT, vectors.of_ollama, vectors.for_ollama, paths={"/api/embed": "embeddings"}
    ),
    _embeddings(
        OLLAMA_CHAT,
        vectors.of_ollama,
        vectors.one_for_ollama,
        paths={"/api/embeddings": "embeddings"},
    ),
)
FORMATS: Sequence[ClientFormat] = (
    *CLIENT_FORMATS.values(),
    OPENROUTER_CHAT,
    GEMINI,
    OLLAMA_CHAT,
    OLLAMA_GENERATE,
    *_EMBEDDINGS,
)
"""The formats of `CLIENT_FORMATS`, which policies know, and those that become one of them as they
come in. The first whose `root` fits a path counts."""


def listing_at(path: str, headers: Mapping[bytes, bytes]) -> tuple[ModelListing, str] | None:
    """Return how to list models at `path`, and the name of the model there, "" for all; None if no
    format does."""
    pair = listing_format(path, headers)
    return None if pair is None or pair[0].models is None else (pair[0].models, pair[1])


def listing_format(path: str, headers: Mapping[bytes, bytes]) -> tuple[ClientFormat, str] | None:
    """Return the format whose clients list models at `path`, and the name of the model there, or
    None."""
    candidates = [
        (form, path[len(root) + 1 :])
        for form in FORMATS
        for root in (form.models.paths if form.models else ())
        if path == root or (form.models and form.models.model and path.startswith(root + "/"))
    ]
    marked = (each for each in candidates if each[0].models and each[0].models.header in headers)
    return next(marked, candidates[0] if candidates else None)


def client_format(call: Call) -> ClientFormat:
    return CLIENT_FORMATS[call.api_format]
