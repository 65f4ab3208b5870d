"""Server role: a request for ``/messages`` in the common chat form.

Results of tools become messages of their own before the rest of their turn, where OpenAI requires
them. They keep their images and their error flag for targets that support these (`tool_results`).
Reasoning passes as text, for targets that take it back. Fields that are left out do not change the
answer, and the call's notes name them. Anthropic's own services (its tools, its files, kept
conversations) are refused by name.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import Raw, structs

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Notes
from splitsecond.core.wire import reasoning
from splitsecond.core.wire.chat_form import (
    assistant_message,
    plain_content,
    schema_format,
    tool_message,
)
from splitsecond.core.wire.server_answer import function_call
from splitsecond.core.wire.tool_calls import arguments_text
from splitsecond.core.wire.tool_results import FAILED
from splitsecond.core.wire.translation import (
    Fields,
    check_word,
    leave_out,
    leave_out_unknown,
    not_translatable,
    object_field,
    plain_fields,
    refuse,
    shared_fields,
    short,
    take_tools,
)

_REFUSED: Mapping[str, tuple[Any, ...]] = {"mcp_servers": ([],), "container": ("", {})}
_SHARED = ("model", "stream", "max_tokens", "temperature", "top_p", "top_k")
NO_THREAD = (None, Raw(b"null"))
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_TIERS = {"auto": "auto", "standard_only": "default"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_PASSED = frozenset((
    "role", "content", "type", "text", "thinking", "signature", "data", "id", "name", "input",
    "tool_use_id",
    "is_error", "source", "title", "context", "description", "strict", "input_schema",
))  # fmt: skip
"""Fields of messages, blocks and tools that have an equivalent, or only sign reasoning."""
_LONGEST_USER = 64
"""Characters, at OpenAI. The digest of a longer id is passed instead."""

_Notice = Callable[[Fields], None]
"""Reports the fields of a part that are left out."""


def to_chat(call: Call) -> Call:
    fields = plain_fields(call)
    if "thread" in fields:
        raise no_threads()
    refuse(fields, _REFUSED)
    notice = partial(leave_out_unknown, call, known=_PASSED)
    body: Fields = {"messages": [message for _, message in _messages(fields, notice)]}
    if stop := fields.pop("stop_sequences", None):  # OpenAI rejects an empty list
        body["stop"] = stop
    body |= _tools(fields, notice)
    body |= _output(call, fields)
    body |= _user_id(fields, notice)
    if (tier := fields.pop("service_tier", None)) is not None:
        check_word("service_tier", tier, _TIERS)
        body["service_tier"] = _TIERS[tier]
    return structs.replace(
        call, body=body | shared_fields(call, fields, _SHARED), api_format="openai"
    )


def no_threads() -> CallerFault:
    """Return the fault of a request that continues a conversation kept by Anthropic's own API. Its
    libraries know the code, and send the whole conversation."""
    fault = not_translatable(
        "thread", "a target that keeps no conversations", "Send the whole conversation, without it."
    )
    fault.code = "thread_unsupported_request"
    return fault


def sources(call: Call) -> list[int]:
    own = structs.replace(call, notes=Notes())
    return [
        number
        for number, _ in _messages(
            plain_fields(own), partial(leave_out_unknown, own, known=_PASSED)
        )
    ]


def _messages(fields: Fields, notice: _Notice) -> Iterator[tuple[int, Fields]]:
    if system := _joined(fields.pop("system", None), "system", notice):
        yield -1, {"role": "system", "content": system}
    turns = fields.pop("messages", None)
    if not isinstance(turns, list) or not turns:
        raise CallerFault("messages must be a list of at least one message")
    for number, turn in enumerate(turns):
        where = f"messages[{number}]"
        match turn:
            case {
                "role": "user" | "assistant" | "system" as role,
                "content": str() | list() as content,
            }:
                notice(turn)
                for message in _TURNS[role](
                    _blocks(content, f"{where}.content"), f"{where}.content", notice
                ):
                    yield number, message
            case _:
                raise CallerFault(
                    f"{where} must have a role, user or assistant, and content: a text or a list"
                )


def _blocks(content: Any, where: str) -> list[Fields]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise CallerFault(f"{where} must be a text or a list of objects, got {short(content)}")
    return blocks


def _joined(content: Any, where: str, notice: _Notice) -> str:
    texts = []
    for number, block in enumerate([] if content is None else _blocks(content, where)):
        match block:
            case {"type": "text", "text": str(text)}:
                notice(block)
                texts.append(text)
            case _:
                raise not_translatable(f"{where}[{number}].type {block.get('type')!r}")
    return "\n".join(texts)


def _user(blocks: list[Fields], where: str, notice: _Notice) -> list[Fields]:
    results: list[Fields] = []
    parts: list[Fields] = []
    for number, block in enumerate(blocks):
        place = f"{where}[{number}]"
        if block.get("type") == "tool_result":
            results.append(_result(block, place, notice))
        else:
            parts += _parts(block, place, notice)
    return (
        [*results, {"role": "user", "content": plain_content(parts)}]
        if parts or not results
        else results
    )


def _result(block: Fields, place: str, notice: _Notice) -> Fields:
    identity = block.get("tool_use_id")
    if not isinstance(identity, str):
        raise CallerFault(f"{place}.tool_use_id must be a text, got {short(identity)}")
    notice(block)
    parts: list[Fields] = []
    for number, inner in enumerate(_blocks(block.get("content", ""), f"{place}.content")):
        parts += _parts(inner, f"{place}.content[{number}]", notice)
    failed = {FAILED: True} if block.get("is_error") is True else {}
    return {**tool_message(identity, parts), **failed}


def _assistant(blocks: list[Fields], where: str, notice: _Notice) -> list[Fields]:
    texts: list[str] = []
    reasoning_texts: list[str] = []
    calls: list[Fields] = []
    for number, block in enumerate(blocks):
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(reasoning_text)}:
                reasoning_texts.append(reasoning_text)
            case {"type": "redacted_thinking"}:
                notice({"redacted_thinking": True})
            case {
                "type": "tool_use",
                "id": str(identity),
                "name": str(name),
                "input": dict() | str() as arguments,
            }:
                calls.append(function_call(identity, name, arguments_text(arguments) or "{}"))
            case _:
                raise _unknown(block, f"{where}[{number}]", ("text", "thinking", "tool_use"))
        notice(block)
    return [assistant_message(texts, reasoning_texts, calls)]


_TURNS: Mapping[str, Callable[[list[Fields], str, _Notice], list[Fields]]] = {
    "user": _user,
    "assistant": _assistant,
    "system": lambda blocks, where, notice: [
        {"role": "system", "content": _joined(blocks, where, notice)}
    ],
}


def _parts(block: Fields, place: str, notice: _Notice) -> list[Fields]:
    notice(block)
    match block:
        case {"type": "text", "text": str(text)}:
            return [{"type": "text", "text": text}]
        case {
            "type": "image",
            "source": {"type": "base64", "media_type": str(kind), "data": str(data)},
        }:
            return [{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}]
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return [{"type": "image_url", "image_url": {"url": url}}]
        case {"type": "document", "source": {"type": str(), **_rest}}:
            return _document(block, place, notice)
    raise _unknown(block, place, ("text", "image", "document", "tool_result"))


def _document(block: Fields, place: str, notice: _Notice) -> list[Fields]:
    about = [text for name in ("title", "context") if isinstance(text := block.get(name), str)]
    match block["source"]:
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            file = {
                "filename": block.get("title") or "document.pdf",
                "file_data": f"data:{kind};base64,{data}",
            }
            return [{"type": "file", "file": file}]
        case {"type": "text", "data": str(text)}:
            return [{"type": "text", "text": "\n".join([*about, text])}]
        case {"type": "content", "content": inner}:
            blocks = _blocks(inner, f"{place}.source.content")
            held = [
                _parts(each, f"{place}.source.content[{n}]", notice)
                for n, each in enumerate(blocks)
            ]
            return [{"type": "text", "text": text} for text in about] + [
                part for parts in held for part in parts
            ]
        case source:
            raise not_translatable(
                f"{place}.source of type {source['type']!r}", hint="Send the document itself."
            )


def _unknown(block: Fields, place: str, kinds: tuple[str, ...]) -> CallerFault:
    kind = block.get("type")
    if kind in kinds:
        return CallerFault(f"{place} is not a block of type {kind!r} as Anthropic defines it")
    return not_translatable(f"{place}.type {kind!r}")


def _tools(fields: Fields, notice: _Notice) -> Fields:
    tools, choice = take_tools(fields), fields.pop("tool_choice", None)
    if not tools:
        return {}
    body: Fields = {
        "tools": [_tool(tool, f"tools[{number}]", notice) for number, tool in enumerate(tools)]
    }
    match choice:
        case None:
            return body
        case {"type": "tool", "name": str(name)}:
            body["tool_choice"] = {"type": "function", "function": {"name": name}}
        case {"type": "auto" | "any" | "none" as kind}:
            body["tool_choice"] = _CHOICES[kind]
        case _:
            raise not_translatable(f"tool_choice {short(choice)}")
    if choice.get("disable_parallel_tool_use"):
        body["parallel_tool_calls"] = False
    return body


def _tool(tool: Any, place: str, notice: _Notice) -> Fields:
    match tool:
        case {"name": str(name), "input_schema": dict(schema)} if tool.get("type") in (
            None,
            "custom",
        ):
            notice(tool)
            function: Fields = {"name": name, "parameters": schema}
            function |= {
                key: tool[key] for key in ("description", "strict") if tool.get(key) is not None
            }
            return {"type": "function", "function": function}
        case {"type": str(kind)} if kind != "custom":
            raise not_translatable(f"{place}, Anthropic's own tool {kind!r},", hint="Leave it out.")
    raise CallerFault(f"{place} must have a name and an input_schema, got {short(tool)}")


def _output(call: Call, fields: Fields) -> Fields:
    config = dict(object_field("output_config", fields.pop("output_config", {})))
    older = fields.pop("output_format", None)
    body: Fields = {}
    match config.pop("format", None) or older:
        case None:
            pass
        case {"type": "json_schema", "schema": dict(schema)}:
            body["response_format"] = schema_format(schema, strict=True)
        case setting:
            raise not_translatable(f"output_config.format {short(setting)}")
    if (setting := _thinking(fields.pop("thinking", None), config.pop("effort", None))) is not None:
        body[reasoning.FIELD] = setting
    for name in list(config):
        leave_out(call, config, name)
    return body


def _thinking(thinking: Any, effort: Any) -> reasoning.ReasoningRequest | None:
    """Return the requested reasoning; None if unset. Anthropic's effort is for the whole answer."""
    if effort is not None:
        check_word("output_config.effort", effort, _EFFORTS)
    if thinking is None:
        return reasoning.ReasoningRequest(name="effort", effort=effort) if effort else None
    request = reasoning.from_messages(thinking)
    if request is None:
        raise CallerFault(
            f"thinking is {short(thinking)}: expected the type enabled, adaptive or disabled"
        )
    return structs.replace(request, effort=effort or "")


def _user_id(fields: Fields, notice: _Notice) -> Fields:
    metadata = fields.pop("metadata", None)
    if not isinstance(metadata, dict):
        return {}
    user = metadata.get("user_id")
    if not isinstance(user, str):
        notice({"metadata": metadata})
        return {}
    return {
        "user": user if len(user) <= _LONGEST_USER else hashlib.sha256(user.encode()).hexdigest()
    }
