"""Requests of clients in every API format, read as `ServerRequest`.

Only the fields that determine the answer are decoded; all fields are kept raw, so that a request
can pass unchanged. Each function takes the body of a request, and its path with the query if that
holds the model. It raises `CallerFault`: the fault names the missing or wrong field, or says that
the path does not exist (status 404).

``tools`` and ``tool_choice`` have a form of their own in each format. The forms do not contradict
each other, so one reader serves all. An unknown form requires nothing; the server that answers may
refuse it.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import accumulate
from typing import Annotated, Any, ParamSpec, TypeVar
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Raw, Struct, field

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Operation
from splitsecond.core.validation import plain_value

P = ParamSpec("P")
T = TypeVar("T")
_AtLeastOne = Annotated[int, Meta(ge=1)]
_Content = str | list[dict[str, Any]]
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


class ServerRequest(Struct, frozen=True, kw_only=True):
    """A parsed request. `prompt_text`: all its text, joined by line feeds, for counting; `fields`:
    all its fields, raw.

    `max_tokens` is None if the client set no limit; `include_usage`: the client requests the usage
    chunk of a stream. `tool`: the name of the tool that the answer must call, "" for none.
    `cache_marks`: the number of characters of `prompt_text` before each mark for the prompt cache.
    """

    operation: Operation
    model: str
    stream: bool
    max_tokens: int | None
    include_usage: bool = True
    prompt_text: str
    n: int = 1
    fields: dict[str, Raw]
    tool: str = ""
    cache_marks: tuple[int, ...] = ()


class _Request(Struct, kw_only=True):
    model: str
    stream: bool | None = None
    max_tokens: _AtLeastOne | None = None


class _Message(Struct):
    role: str
    content: _Content | None = None


class _Chat(_Request, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]


def _reads(read: Callable[P, ServerRequest]) -> Callable[P, ServerRequest]:
    """Turn the errors of wrong JSON in `read` into a `CallerFault`."""

    @wraps(read)
    def reads(*args: P.args, **kwargs: P.kwargs) -> ServerRequest:
        try:
            return read(*args, **kwargs)
        except (ValueError, RecursionError) as error:
            raise CallerFault(f"the request's body is wrong: {error}") from error

    return reads


def _decoded(body: bytes, form: type[T]) -> tuple[T, dict[str, Raw]]:
    fields = _decode_fields(body)
    return msgspec.json.decode(body, type=form), fields


def _request(
    operation: Operation,
    request: _Request,
    fields: dict[str, Raw],
    prompt: list[Any],
    **others: Any,
) -> ServerRequest:
    texts: list[str] = []
    _collect(prompt, texts, [])
    common: dict[str, Any] = {"stream": bool(request.stream), "max_tokens": request.max_tokens}
    common |= {"tool": required_tool(fields), "prompt_text": "\n".join(texts)}
    return ServerRequest(
        operation=operation, model=request.model, fields=fields, **(common | others)
    )


def _collect(value: Any, texts: list[str], marked: list[int]) -> None:
    """Collect the texts of messages, of their parts and of tool results, and the number of texts
    before each mark for the prompt cache."""
    match value:
        case str():
            texts.append(value)
        case list():
            for each in value:
                _collect(each, texts, marked)
        case {"content": inner} | {"output": inner} | {"text": inner}:
            _collect(inner, texts, marked)
    if isinstance(value, dict) and value.get("cache_control") is not None:
        marked.append(len(texts))


def _contents(messages: Sequence[_Message]) -> list[Any]:
    return [message.content for message in messages]


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _OpenAIRequest(_Request, kw_only=True):
    stream_options: _StreamOptions | None = None
    n: _AtLeastOne | None = None


class _OpenAIChat(_OpenAIRequest, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    max_completion_tokens: _AtLeastOne | None = None


class _Completion(_OpenAIRequest, kw_only=True):
    prompt: str | list[Any]


@_reads
def parse_openai(operation: Operation, body: bytes, path: str = "") -> ServerRequest:
    if operation == "chat":
        chat, fields = _decoded(body, _OpenAIChat)
        limit, texts = chat.max_completion_tokens or chat.max_tokens, _contents(chat.messages)
        parsed: _OpenAIRequest = chat
    else:
        completion, fields = _decoded(body, _Completion)
        parsed, limit, texts = completion, completion.max_tokens, _prompt_texts(completion.prompt)
    usage = bool(parsed.stream_options and parsed.stream_options.include_usage)
    return _request(
        operation, parsed, fields, texts, max_tokens=limit, include_usage=usage, n=parsed.n or 1
    )


def _prompt_texts(prompt: Any) -> list[str]:
    """Return the text of a prompt: a text, token ids, or a list of either; an id counts as a
    word."""
    texts: list[str] = []
    waiting = [prompt]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(reversed(part))
        else:
            texts.append(str(part))
    return [" ".join(texts)]


@_reads
def parse_cohere(operation: Operation, body: bytes, path: str = "") -> ServerRequest:
    chat, fields = _decoded(body, _Chat)
    return _request(operation, chat, fields, _contents(chat.messages))


class _BlockMessage(_Message):
    content: _Content


class _CountedMessages(_Request, kw_only=True):
    messages: Annotated[list[_BlockMessage], Meta(min_length=1)]
    system: _Content | None = None
    cache_control: Any = None
    max_tokens: Any = None


class _Messages(_CountedMessages, kw_only=True):
    max_tokens: _AtLeastOne


@_reads
def parse_anthropic(operation: Operation, body: bytes, path: str = "") -> ServerRequest:
    parsed, fields = _decoded(body, _Messages)
    return _marked_request(operation, parsed, fields)


@_reads
def parse_anthropic_count(body: bytes, path: str = "") -> ServerRequest:
    parsed, fields = _decoded(body, _CountedMessages)
    parsed.max_tokens = None
    return _marked_request("chat", parsed, fields)


def _marked_request(
    operation: Operation, parsed: _CountedMessages, fields: dict[str, Raw]
) -> ServerRequest:
    texts: list[str] = []
    marked: list[int] = []
    prompt = [parsed.system, *_contents(parsed.messages)]
    _collect(prompt, texts, marked)
    if parsed.cache_control is not None:  # a mark on the whole request marks its end
        marked.append(len(texts))
    ends = [0, *accumulate(len(text) + 1 for text in texts)]
    marks = tuple(sorted({ends[number] - 1 for number in marked if number}))
    return _request(operation, parsed, fields, prompt, cache_marks=marks)


class _Response(_Request, kw_only=True):
    input: _Content
    instructions: str | None = None
    max_tokens: _AtLeastOne | None = field(default=None, name="max_output_tokens")


@_reads
def parse_responses(operation: Operation, body: bytes, path: str = "") -> ServerRequest:
    parsed, fields = _decoded(body, _Response)
    return _request(operation, parsed, fields, [parsed.instructions, parsed.input])


class _OllamaOptions(Struct):
    num_predict: int | None = None


class _OllamaMessage(Struct):
    role: str
    content: str | None = None


class _OllamaChat(_Request, kw_only=True):
    model: Annotated[str, Meta(min_length=1)]
    messages: Annotated[list[_OllamaMessage], Meta(min_length=1)]
    options: _OllamaOptions | None = None
    max_tokens: Any = None


@_reads
def parse_ollama(operation: Operation, body: bytes, path: str = "") -> ServerRequest:
    """Parse a request for ``/api/chat``. It streams unless ``stream`` is false."""
    chat, fields = _decoded(body, _OllamaChat)
    return _request(
        operation,
        chat,
        fields,
        [message.content for message in chat.messages],
        stream=chat.stream is not False,
        max_tokens=_predicted(chat.options),
    )


class _OllamaGenerate(_Request, kw_only=True):
    model: Annotated[str, Meta(min_length=1)]
    prompt: str = ""
    system: str | None = None
    options: _OllamaOptions | None = None
    max_tokens: Any = None


@_reads
def parse_ollama_generate(operation: Operation, body: bytes, path: str = "") -> ServerRequest:
    """Parse a request for ``/api/generate``. It streams unless ``stream`` is false."""
    generate, fields = _decoded(body, _OllamaGenerate)
    prompt = [text for text in (generate.system, generate.prompt) if text is not None]
    limit = _predicted(generate.options)
    return _request(
        operation, generate, fields, prompt, stream=generate.stream is not False, max_tokens=limit
    )


def _predicted(options: _OllamaOptions | None) -> int | None:
    """Return the limit on output tokens. A ``num_predict`` below 1 sets none (-1: none, -2: as much
    as the context holds)."""
    limit = options.num_predict if options is not None else None
    return limit if limit is not None and limit >= 1 else None


_GEMINI_PATH = re.compile(r"/(?:m|tunedM)odels/([^/:?]+):(g|streamG)enerateContent(?:\?|$)")
_GEMINI_COUNT_PATH = re.compile(r"/(?:m|tunedM)odels/([^/:?]+):(count)Tokens(?:\?|$)")
_REPLICATE_PATH = re.compile(r"/models/([^/]+/[^/?]+)/predictions(?:\?|$)")


class _Part(Struct):
    text: str | None = None


class _GeminiContent(Struct):
    parts: list[_Part] | None = None


class _GeminiConfig(Struct, rename="camel"):
    max_output_tokens: _AtLeastOne | None = None
    candidate_count: _AtLeastOne | None = None


class _GeminiRequest(Struct, rename="camel", kw_only=True):
    contents: Annotated[list[_GeminiContent], Meta(min_length=1)]
    system_instruction: _GeminiContent | None = None
    generation_config: _GeminiConfig | None = None


class _GeminiCount(Struct, rename="camel", kw_only=True):
    contents: list[_GeminiContent] | None = None
    generate_content_request: _GeminiRequest | None = None


@_reads
def parse_gemini(operation: Operation, body: bytes, path: str) -> ServerRequest:
    target = _target(_GEMINI_PATH, path, "MODEL:generateContent")
    request, fields = _decoded(body, _GeminiRequest)
    return _gemini_request(operation, target, request, fields)


@_reads
def parse_gemini_count(body: bytes, path: str) -> ServerRequest:
    """Parse a request whose tokens are to be counted: contents alone, or a whole request."""
    target = _target(_GEMINI_COUNT_PATH, path, "MODEL:generateContent")
    count_request, fields = _decoded(body, _GeminiCount)
    request = count_request.generate_content_request or _decoded(body, _GeminiRequest)[0]
    return _gemini_request("chat", target, request, fields)


def _gemini_request(
    operation: Operation, target: re.Match[str], request: _GeminiRequest, fields: dict[str, Raw]
) -> ServerRequest:
    config = request.generation_config or _GeminiConfig()
    common = _Request(
        model=unquote(target[1]), stream=target[2] == "streamG", max_tokens=config.max_output_tokens
    )
    turns = [request.system_instruction or _GeminiContent(), *request.contents]
    texts = [part.text for turn in turns for part in turn.parts or () if part.text]
    return _request(operation, common, fields, texts, n=config.candidate_count or 1)


class _ReplicateInput(Struct):
    prompt: str
    system_prompt: str | None = None
    max_tokens: _AtLeastOne | None = None


class _Prediction(Struct):
    input: _ReplicateInput
    stream: bool | None = None


@_reads
def parse_replicate(operation: Operation, body: bytes, path: str) -> ServerRequest:
    """Parse a request for a prediction. The path holds the model, as "owner/name"."""
    target = _target(_REPLICATE_PATH, path, "OWNER/NAME/predictions")
    request, fields = _decoded(body, _Prediction)
    prompt = [text for text in (request.input.system_prompt, request.input.prompt) if text]
    common = _Request(
        model=unquote(target[1]), stream=request.stream, max_tokens=request.input.max_tokens
    )
    return _request(operation, common, fields, prompt, include_usage=False, tool="")


def _target(form: re.Pattern[str], path: str, expected: str) -> re.Match[str]:
    target = form.search(path)
    if target is None:
        raise CallerFault(
            f"unknown path {path}; expected models/{expected}", kind="http_404", status=404
        )
    return target


def required_tool(fields: Mapping[str, Raw]) -> str:
    """Return the name of the tool that the answer to a request with these `fields` must call; "" if
    none."""
    match plain_value(fields.get("tool_choice")), plain_value(fields.get("toolConfig")):
        case {"type": "function", "function": {"name": str(name)}}, _:
            return name
        case {"type": "function" | "tool" | "custom", "name": str(name)}, _:
            return name
        case _, {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [str(name), *_]}}:
            return name
        case ("required" | "REQUIRED" | {"type": "any"}, _) | (
            _,
            {"functionCallingConfig": {"mode": "ANY"}},
        ):
            return next(tool_names(fields), "")
    return ""


def tool_names(fields: Mapping[str, Raw]) -> Iterator[str]:
    tools = plain_value(fields.get("tools"))
    for tool in tools if isinstance(tools, list) else ():
        match tool:
            case {"type": "namespace"}:
                pass  # its tools have the names
            case {"function": {"name": str(name)}} | {"name": str(name)}:
                yield name
            case {"functionDeclarations": [*declared]} | {"function_declarations": [*declared]}:
                yield from (
                    one["name"]
                    for one in declared
                    if isinstance(one, dict) and isinstance(one.get("name"), str)
                )
