"""Common chat form (OpenAI's): its fields and messages, read for targets of other API formats.

Two tables decide about fields that such a format lacks: fields that do not change the answer are
left out and reported in the call's notes; fields that do are refused by name, unless their value
requests the default. Fields that OpenAI does not define pass unchanged if the target's format has
them (`Quirks.native`; those of a message: `own`). The others are left out and reported: clients
send back whole messages with the fields of the provider that wrote them.
"""

import re
from base64 import b64decode
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, structs

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire import tool_results
from splitsecond.core.wire.tool_calls import arguments_text
from splitsecond.core.wire.translation import (
    MAX_TOOL_NAME,
    Fields,
    leave_out,
    leave_out_unknown,
    left_out,
    not_translatable,
    plain_fields,
    refuse,
    short,
)

_DROPPED: Mapping[str, tuple[Any, ...]] = {
    "user": (),
    "metadata": (),
    "store": (False,),
    "safety_identifier": (),
    "prompt_cache_key": (),
    "prompt_cache_retention": (),
    "prediction": (),
    "service_tier": ("auto",),
    "verbosity": ("medium",),
    "parallel_tool_calls": (True,),
}
"""Fields that do not change the answer, or only its manner, and the values that are left out
without a report. Agents send the last two with every request."""

_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "audio": (),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "web_search_options": (),
}
"""Fields that would change the answer, and the values that would not."""


TRANSLATED = "translated"
"""The hint of a call whose body was rewritten in this form as it came in."""


def translated(call: Call, body: Fields) -> Call:
    return structs.replace(call, body=body, hints={**call.hints, TRANSLATED: "yes"})


class Function(Struct, frozen=True):
    """The function of a tool call; `arguments` is JSON, or the object itself, as some clients send
    it."""

    name: Annotated[str, Meta(max_length=MAX_TOOL_NAME)]
    arguments: str | Fields | None = ""


NO_SIGNATURE = "skip_thought_signature_validator"
"""Google's documented placeholder for a missing signature of the reasoning before a tool call."""


class ToolCall(Struct):
    """A tool call of the assistant. `extra_content`: fields of providers, as in Google's compatible
    API."""

    id: str = ""
    type: str = "function"
    function: Function = Function("")
    extra_content: Fields | None = None

    @property
    def arguments_text(self) -> str:
        return arguments_text(self.function.arguments)

    def arguments(self, place: str) -> Fields:
        """Return the arguments of the call at `place` as an object. Raises `CallerFault` if they
        are none."""
        try:
            # "null" is how some models call a tool without arguments
            return msgspec.json.decode(self.arguments_text or "{}", type=Fields | None) or {}
        except (ValueError, RecursionError):
            raise CallerFault(f"{place}.function.arguments is not the JSON of an object") from None


class Message(Struct):
    """One message. The `role` "developer" is replaced by "system"; `native` holds the target
    format's own fields.

    `refusal` is of an assistant; `tool_call_id`, `name` and `is_error` are of a tool.
    """

    role: str
    content: str | list[Fields] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: Any = None
    tool_call_id: str | None = None
    name: str | None = None
    is_error: bool | None = None
    audio: Any = None
    native: Fields = {}

    @property
    def reasoning_text(self) -> str:
        return self.reasoning_content or self.reasoning or ""


def assistant_message(
    texts: Sequence[str], reasoning: Sequence[str], calls: Sequence[Fields]
) -> Fields:
    message: Fields = {
        "role": "assistant",
        "content": "\n".join(texts) or (None if calls else ""),
    }
    if reasoning:
        message[REASONING_FIELD] = "\n".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    return message


def plain_content(parts: list[Fields]) -> str | list[Fields]:
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def schema_format(schema: Fields, name: str = "answer", **others: Any) -> Fields:
    """Return ``response_format`` for answers by a JSON schema, with a name: OpenAI requires it."""
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, **others}}


def tool_message(call_id: str, parts: Sequence[Fields]) -> Fields:
    """Return the message with a tool's result; `parts` that are all text become one text."""
    only_text = all(part["type"] == "text" for part in parts)
    content = "\n".join(part["text"] for part in parts) if only_text else parts
    return {"role": "tool", "tool_call_id": call_id, "content": content}


REASONING_FIELD = "reasoning_content"
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_OPENAI_FIELDS = frozenset(Message.__struct_fields__) - {"native"} | {"annotations"}


def chat_fields(call: Call, api_format: str, *, known: Collection[str] = ()) -> Fields:
    """Return the fields of `call` for the API format `api_format`, as plain values.

    `known`: fields that this format has, although most others do not. Raises `CallerFault` for what
    the format does not have.
    """
    if call.operation != "chat":
        raise not_translatable(f"a call of {call.operation}", api_format, "Send a chat.")
    fields = plain_fields(call, "model", "stream", "stream_options")
    if _CACHE_MARK not in known and any(
        _has_marks(call.body.get(name)) for name in ("messages", "tools")
    ):
        left_out(call, _CACHE_MARK)
    for name, usual in _DROPPED.items():
        if name not in known:
            leave_out(call, fields, name, usual)
    refuse(
        fields,
        {name: harmless for name, harmless in _REFUSED.items() if name not in known},
        api_format,
    )
    return fields


_CACHE_MARK = "cache_control"


def _has_marks(value: Any) -> bool:
    """Return whether there are marks of a prompt cache in a client's own bytes; a text has its
    quotes escaped."""
    return isinstance(value, msgspec.Raw) and b'"cache_control"' in bytes(value)


def chat_messages(
    call: Call,
    value: Any,
    api_format: str,
    *,
    own: Collection[str] = (),
    pictures: bool = False,
    failures: bool = False,
    system_apart: bool = False,
) -> list[Message]:
    """Return the messages of a chat. `own`: fields of messages and parts that most formats lack and
    this one has; `pictures`: tool results may hold images; `failures`: they may be marked as
    errors; otherwise both are written as text (`tool_results`). `system_apart`: system messages
    are not among the others, so that the last becomes a user's if there are no others.

    Raises `CallerFault` for messages that are wrong, or of a form that OpenAI no longer supports.
    """
    if not pictures:
        value = tool_results.text_results(value, failures=failures)
    elif not failures:
        value = tool_results.mark_failures(value)
    try:
        messages = msgspec.convert(value, list[Message])
    except msgspec.ValidationError as error:
        raise CallerFault(f"messages: {error}") from None
    if not messages:
        raise CallerFault("the request has no messages")
    defined = {*_OPENAI_FIELDS, *own}
    for number, (message, fields) in enumerate(zip(messages, value, strict=True)):
        _check(message, f"messages[{number}]", api_format)
        _standardize(call, message, own)
        message.native = {name: fields[name] for name in own if name in fields}
        if not fields.keys() <= defined:
            leave_out_unknown(call, fields, defined)
    if system_apart and all(message.role == "system" for message in messages):
        messages[-1].role = "user"
    return messages


def _standardize(call: Call, message: Message, own: Collection[str]) -> None:
    """Give a message its usual role and parts; note in `call` what the format does not have."""
    message.role = _ROLES[message.role]
    if isinstance(message.content, list):
        message.content = [standard_part(part) for part in message.content]
        if "detail" not in own and any(map(_has_detail, message.content)):
            left_out(call, "detail")
    if message.name and message.role != "tool":
        left_out(call, "name")


def _has_detail(part: dict[str, Any]) -> bool:
    """Return whether a part is an image whose resolution is chosen."""
    match part:
        case {"image_url": {"detail": str(detail)}}:
            return detail != "auto"
    return False


def _check(message: Message, where: str, api_format: str) -> None:
    if message.role == "function" or message.function_call is not None:
        raise not_translatable(
            f"{where}, with the function calls that tools replaced,",
            api_format,
            "Use tools and tool_calls.",
        )
    if message.audio is not None:
        raise not_translatable(f"{where}.audio", api_format)
    if message.role not in _ROLES:
        raise CallerFault(f"{where}.role is {message.role!r}: expected one of {', '.join(_ROLES)}")
    for place, call in enumerate(message.tool_calls or ()):
        if not call.function.name:
            raise not_translatable(f"{where}.tool_calls[{place}].type {call.type!r}", api_format)


_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[^,]*)?;base64,", re.ASCII)
_OTHER_TYPES: Mapping[str, str] = {
    "image/jpg": "image/jpeg",
    "audio/mpeg": "audio/mp3",
    "audio/x-wav": "audio/wav",
}
"""Media types that clients send, and the name that targets know."""
_NOT_STANDARD = "-_\r\n "
_STANDARD = str.maketrans({"-": "+", "_": "/", "\r": None, "\n": None, " ": None})
PICTURE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The types of images that Anthropic, OpenAI and Cohere take."""
DOCUMENT_TYPES = (
    "application/pdf",
    "text/plain",
    "text/markdown",
    "text/csv",
    "text/html",
    "text/xml",
)
"""The types of documents that can be written for Anthropic."""


def standard_base64(data: str) -> str:
    """Return `data` in the standard alphabet, padded and without line breaks, as strict decoders
    require: Google's Python client sends the alphabet for URLs, and shell commands break lines."""
    if any(character in data for character in _NOT_STANDARD):
        data = data.translate(_STANDARD)
    return data + "=" * (-len(data) % 4)


def standard_part(part: Fields) -> Fields:
    """Return a part of a message with its data in standard base64, under the usual name of its
    type. A document sent as an image becomes a file, and an image sent as a file an image."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url) as image} if (
            url.startswith("data:")
        ):
            url = _standard_url(url)
            if media_type(url) == _PDF:
                rest = {name: value for name, value in part.items() if name != "image_url"}
                return {
                    **rest,
                    "type": "file",
                    "file": {"filename": "document.pdf", "file_data": url},
                }
            return {**part, "image_url": {**image, "url": url} if isinstance(image, dict) else url}
        case {"type": "file", "file": {"file_data": str(url), **file}}:
            url = _standard_url(url)
            if media_type(url).startswith("image/"):
                rest = {name: value for name, value in part.items() if name != "file"}
                return {**rest, "type": "image_url", "image_url": {"url": url}}
            return {**part, "file": {**file, "file_data": url}}
        case {
            "type": "input_audio",
            "input_audio": {"data": str(data), "format": str(form), **audio},
        }:
            kind = f"audio/{form}".lower()
            form = _OTHER_TYPES.get(kind, kind).removeprefix("audio/")
            return {**part, "input_audio": {**audio, "data": standard_base64(data), "format": form}}
    return part


def _standard_url(url: str) -> str:
    match = _DATA_URL.match(url)
    if match is None:
        return url
    kind = match[1].lower()
    return f"data:{_OTHER_TYPES.get(kind, kind)};base64,{standard_base64(url[match.end() :])}"


def text_of(data: str, place: str) -> str:
    try:
        return b64decode(data, validate=True).decode()
    except ValueError:
        raise CallerFault(f"{place} is not the base64 of a text in UTF-8") from None


def refuse_type(kind: str, kinds: Collection[str], place: str, api_format: str) -> None:
    if kind and kind not in kinds:
        hint = f"Possible here: {', '.join(kinds)}."
        raise not_translatable(f"{place} of the media type {kind!r}", api_format, hint)


_PDF = "application/pdf"
_LINK_TYPES: Mapping[str, str] = {
    **{ending: f"image/{ending}" for ending in ("png", "jpeg", "webp", "gif", "heic", "heif")},
    "jpg": "image/jpeg",
    "pdf": _PDF,
}


def media_type(url: str) -> str:
    """Return the media type of a data URL, or by the ending of an address; "" if unknown."""
    if url.startswith("data:"):
        match = _DATA_URL.match(url)
        return "" if match is None else match[1]
    return _LINK_TYPES.get(url.partition("?")[0].rpartition(".")[2].lower(), "")


def media_of(url: str, place: str) -> tuple[str, str]:
    """Return the media type and the base64 of a data URL. Raises `CallerFault` for another URL."""
    match = _DATA_URL.match(url)
    if match is None:
        raise CallerFault(
            f"{place} is not a data URL in base64", hint="Expected data:image/png;base64,..."
        )
    return match[1], url[match.end() :]


def read_part(part: Fields, place: str) -> tuple[str, str]:
    """Return what a content part is, "text" (also a refusal), "image" or "file", and its text or
    URL; else "" twice.

    Raises `CallerFault` for a text or an image that is not as OpenAI defines it.
    """
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return "text", text
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            return "image", url
        case {"type": "file"}:
            return "file", ""
        case {"type": "text" | "refusal" | "image_url" as kind}:
            raise _wrong_part(place, kind)
    return "", ""


def file_of(part: Fields, place: str) -> Fields:
    match part:
        case {"file": dict(file)}:
            return file
    raise _wrong_part(place, "file")


def file_data(part: Fields, place: str, api_format: str) -> str:
    """Return the data of a part with a file. Raises `CallerFault` if it only refers to a file."""
    match file_of(part, place).get("file_data"):
        case str(data):
            return data
        case None:
            raise not_translatable(
                f"{place}.file without file_data", api_format, "Send the file's data as a data URL."
            )
    raise _wrong_part(place, "file")


def _wrong_part(place: str, kind: str) -> CallerFault:
    return CallerFault(f"{place} is not a part of type {kind!r} as OpenAI defines it")


def function_answered(
    message: Message, where: str, names: Mapping[str, str], api_format: str
) -> str:
    """Return the function whose call the message of a tool answers; `names`: by the calls' ids."""
    name = names.get(message.tool_call_id or "")
    if name is None:
        raise CallerFault(
            f"{where}.tool_call_id is {message.tool_call_id!r}, which no earlier tool call has",
            hint=f"{api_format} needs the function's name, which only the tool call has.",
        )
    return name


def call_answered(message: Message, where: str) -> str:
    if not message.tool_call_id:
        raise CallerFault(f"{where}.tool_call_id is missing")
    return message.tool_call_id


def leave_reasoning(call: Call, messages: Sequence[Message]) -> None:
    """Report as left out the reasoning in `messages`: only the target that wrote it can read it."""
    if any(message.reasoning_text for message in messages):
        left_out(call, REASONING_FIELD)


def with_prefill(chat: Call, prefill: str | bool | None) -> Call:
    """Return `chat`, whose last message may be the beginning of its answer, for a target that
    continues it.

    `prefill`: the way to tell the target, from the catalogue. Raises `CallerFault` if the target is
    not known to continue an answer: it would start again.
    """
    messages: Any = chat.body["messages"]
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls"):
        return chat
    if not prefill:
        words = f"messages[{len(messages) - 1}], the beginning of the answer,"
        hint = (
            "End the conversation with a user's message, or set prefill: true for a target "
            "that continues an answer."
        )
        raise not_translatable(words, "a target that is not known to continue it", hint)
    if prefill is True or prefill == "plain":
        return chat
    return structs.replace(
        chat, body={**chat.body, "messages": [*messages[:-1], {**last, prefill: True}]}
    )


def functions_named(tools: Any, name: str | None = None) -> list[Fields]:
    functions = []
    for tool in tools if isinstance(tools, list) else ():
        match tool:
            case {"function": {"name": str(own)}} if name in (None, own):
                functions.append(tool)
    return functions


def stop_list(fields: Fields) -> Any:
    stop = fields.pop("stop", None)
    return [stop] if isinstance(stop, str) else stop


def output_format(fields: Fields, api_format: str) -> tuple[str, Fields]:
    """Return the type of ``response_format``, which is removed from `fields`, and its schema."""
    match fields.pop("response_format", None):
        case None | {"type": "text"}:
            return "text", {}
        case {"type": "json_object"}:
            return "json_object", {}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return "json_schema", schema
        case other:
            raise not_translatable(f"response_format {short(other)}", api_format)


def take_output_limit(fields: Fields) -> Any:
    """Return the limit on output tokens, which is removed from `fields` under both of its names."""
    older, newer = fields.pop("max_tokens", None), fields.pop("max_completion_tokens", None)
    return older if newer is None else newer


def mapped_field(
    fields: Fields, name: str, table: Mapping[str, Any], api_format: str, hint: str = ""
) -> Any:
    """Return the entry of `table` for the field `name`, which is removed; None if it is absent."""
    value = fields.pop(name, None)
    if value is None:
        return None
    if not isinstance(value, str) or value not in table:
        raise not_translatable(
            f"{name} {short(value)}", api_format, hint or f"Possible here: {', '.join(table)}."
        )
    return table[value]
