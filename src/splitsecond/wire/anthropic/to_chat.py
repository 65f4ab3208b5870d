"""The server role, reading: a request for ``/messages`` in OpenAI's chat form, which every target's dialect can encode.

Results of tools become messages of their own, before the rest of their turn, because that is where OpenAI wants them.
They keep their pictures, and that they are a failure, for targets that have a place for it (`tool_results`). Thoughts
go on as text, for targets that take them back; signatures and hidden thoughts mean something to Anthropic alone. How
far to think goes on in a form of its own (`thinking`).

What is left out changes nothing in the answer, and the call's notes name it: marks for the prompt cache, say. What
Anthropic would do itself (its own tools, its files) is refused by name. Fields that are unknown here go on as they are:
they are the target's to take or to refuse.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from splitsecond.errors import CallerFault
from splitsecond.service import Call
from splitsecond.wire import thinking
from splitsecond.wire.tool_results import FAILED
from splitsecond.wire.translation import leave_out, not_translatable, plain_fields, short

ELSEWHERE = "a target that does not speak Anthropic's dialect"
_LEFT_OUT = ("context_management", "inference_geo", "speed")
_REFUSED = ("mcp_servers", "container")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_TIERS = {"auto": "auto", "standard_only": "default"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_HINTS_OF_TOOLS = ("eager_input_streaming", "defer_loading", "input_examples", "allowed_callers")
_LONGEST_USER = 64
"""Characters, at OpenAI. Agents send longer ones; those are told by their digest."""

Fields = dict[str, Any]


def to_chat(call: Call) -> Call:
    """`call`, whose body is a request for ``/messages``, in OpenAI's form.

    Raises `CallerFault`: for a field that is wrong, or ("not_translatable") exists at Anthropic only.
    """
    fields = plain_fields(call)
    for name in _LEFT_OUT:
        leave_out(call, fields, name)
    for name in _REFUSED:
        if value := fields.pop(name, None):
            raise not_translatable(f"{name} {short(value)}", ELSEWHERE)
    notice = _Notice(call)
    body: Fields = {"messages": _messages(fields, notice)}
    if stop := fields.pop("stop_sequences", None):  # OpenAI refuses an empty list
        body["stop"] = stop
    body |= _tools(fields, notice)
    body |= _output(call, fields)
    body |= _whom(fields, notice)
    if (tier := fields.pop("service_tier", None)) is not None:
        if not isinstance(tier, str) or tier not in _TIERS:
            raise CallerFault(f"service_tier is {short(tier)}: expected one of {', '.join(_TIERS)}")
        body["service_tier"] = _TIERS[tier]
    return structs.replace(call, body=body | fields, dialect="openai")


class _Notice:
    """What is left out inside of messages and tools."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __call__(self, part: Fields, *names: str) -> None:
        for name in ("cache_control", *names):
            if part.get(name):
                leave_out(self._call, {name: part[name]}, name)


def _messages(fields: Fields, notice: _Notice) -> list[Fields]:
    said: list[Fields] = []
    if system := _joined(fields.pop("system", None), "system", notice):
        said.append({"role": "system", "content": system})
    turns = fields.pop("messages", None)
    if not isinstance(turns, list) or not turns:
        raise CallerFault("messages must be a list of at least one message")
    for number, turn in enumerate(turns):
        where = f"messages[{number}]"
        match turn:
            case {"role": "user" | "assistant" | "system" as role, "content": str() | list() as content}:
                said += _TURNS[role](_blocks(content, f"{where}.content"), f"{where}.content", notice)
            case _:
                raise CallerFault(f"{where} must have a role, user or assistant, and content: a text or a list")
    return said


def _blocks(content: Any, where: str) -> list[Fields]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise CallerFault(f"{where} must be a text or a list of objects, got {short(content)}")
    return blocks


def _joined(content: Any, where: str, notice: _Notice) -> str:
    """Blocks that can only be text."""
    texts = []
    for number, block in enumerate([] if content is None else _blocks(content, where)):
        match block:
            case {"type": "text", "text": str(text)}:
                notice(block)
                texts.append(text)
            case _:
                raise not_translatable(f"{where}[{number}].type {block.get('type')!r}", ELSEWHERE)
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
    if len(parts) == 1 and parts[0]["type"] == "text":
        return [*results, {"role": "user", "content": parts[0]["text"]}]
    return [*results, {"role": "user", "content": parts}] if parts or not results else results


def _result(block: Fields, place: str, notice: _Notice) -> Fields:
    """The message with a tool's result."""
    identity = block.get("tool_use_id")
    if not isinstance(identity, str):
        raise CallerFault(f"{place}.tool_use_id must be a text, got {short(identity)}")
    notice(block)
    parts: list[Fields] = []
    for number, inner in enumerate(_blocks(block.get("content", ""), f"{place}.content")):
        parts += _parts(inner, f"{place}.content[{number}]", notice)
    content: Any = parts
    if all(part["type"] == "text" for part in parts):
        content = "\n".join(part["text"] for part in parts)
    failed = {FAILED: True} if block.get("is_error") is True else {}
    return {"role": "tool", "tool_call_id": identity, "content": content, **failed}


def _assistant(blocks: list[Fields], where: str, notice: _Notice) -> list[Fields]:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Fields] = []
    for number, block in enumerate(blocks):
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "thinking", "thinking": str(thought)}:
                thoughts.append(thought)
            case {"type": "redacted_thinking"}:
                notice({**block, "redacted_thinking": True}, "redacted_thinking")
            case {"type": "tool_use", "id": str(identity), "name": str(name), "input": dict(given)}:
                function = {"name": name, "arguments": msgspec.json.encode(given).decode()}
                calls.append({"id": identity, "type": "function", "function": function})
            case _:
                raise _unknown(block, f"{where}[{number}]", ("text", "thinking", "tool_use"))
        notice(block)
    said: Fields = {"role": "assistant", "content": "\n".join(texts) or (None if calls else "")}
    if thoughts:
        said["reasoning_content"] = "\n".join(thoughts)
    if calls:
        said["tool_calls"] = calls
    return [said]


def _system(blocks: list[Fields], where: str, notice: _Notice) -> list[Fields]:
    return [{"role": "system", "content": _joined(blocks, where, notice)}]


_TURNS: Mapping[str, Callable[[list[Fields], str, _Notice], list[Fields]]] = {
    "user": _user,
    "assistant": _assistant,
    "system": _system,
}


def _parts(block: Fields, place: str, notice: _Notice) -> list[Fields]:
    """What a user's block holds, in OpenAI's parts."""
    notice(block)
    match block:
        case {"type": "text", "text": str(text)}:
            return [{"type": "text", "text": text}]
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return [{"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}]
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return [{"type": "image_url", "image_url": {"url": url}}]
        case {"type": "document", "source": {"type": str(), **_rest}}:
            notice(block, "citations")
            return _document(block, place, notice)
    raise _unknown(block, place, ("text", "image", "document", "tool_result"))


def _document(block: Fields, place: str, notice: _Notice) -> list[Fields]:
    about = [text for name in ("title", "context") if isinstance(text := block.get(name), str)]
    match block["source"]:
        case {"type": "base64", "media_type": str(kind), "data": str(data)}:
            file = {"filename": block.get("title") or "document.pdf", "file_data": f"data:{kind};base64,{data}"}
            return [{"type": "file", "file": file}]
        case {"type": "text", "data": str(text)}:
            return [{"type": "text", "text": "\n".join([*about, text])}]
        case {"type": "content", "content": inner}:
            blocks = _blocks(inner, f"{place}.source.content")
            held = [_parts(each, f"{place}.source.content[{n}]", notice) for n, each in enumerate(blocks)]
            return [{"type": "text", "text": text} for text in about] + [part for parts in held for part in parts]
        case source:
            raise not_translatable(f"{place}.source of type {source['type']!r}", ELSEWHERE, "Send the document itself.")


def _unknown(block: Fields, place: str, known: tuple[str, ...]) -> CallerFault:
    kind = block.get("type")
    if kind in known:
        return CallerFault(f"{place} is not a block of type {kind!r} as Anthropic defines it")
    return not_translatable(f"{place}.type {kind!r}", ELSEWHERE)


def _tools(fields: Fields, notice: _Notice) -> Fields:
    """``tools`` and what is said of their use, out of `fields`."""
    tools, choice = fields.pop("tools", None), fields.pop("tool_choice", None)
    if not tools:
        return {}
    if not isinstance(tools, list):
        raise CallerFault(f"tools must be a list, got {short(tools)}")
    made: Fields = {"tools": [_tool(tool, f"tools[{number}]", notice) for number, tool in enumerate(tools)]}
    match choice:
        case None:
            return made
        case {"type": "tool", "name": str(name)}:
            made["tool_choice"] = {"type": "function", "function": {"name": name}}
        case {"type": "auto" | "any" | "none" as kind}:
            made["tool_choice"] = _CHOICES[kind]
        case _:
            raise not_translatable(f"tool_choice {short(choice)}", ELSEWHERE)
    if choice.get("disable_parallel_tool_use"):
        made["parallel_tool_calls"] = False
    return made


def _tool(tool: Any, place: str, notice: _Notice) -> Fields:
    match tool:
        case {"name": str(name), "input_schema": dict(schema)} if tool.get("type") in (None, "custom"):
            notice(tool, *_HINTS_OF_TOOLS)
            function: Fields = {"name": name, "parameters": schema}
            function |= {key: tool[key] for key in ("description", "strict") if tool.get(key) is not None}
            return {"type": "function", "function": function}
        case {"type": str(kind)} if kind != "custom":
            raise not_translatable(f"{place}, Anthropic's own tool {kind!r},", ELSEWHERE, "Leave it out.")
    raise CallerFault(f"{place} must have a name and an input_schema, got {short(tool)}")


def _output(call: Call, fields: Fields) -> Fields:
    """What is said of the answer's form and effort, out of `fields`."""
    config = fields.pop("output_config", {})
    if not isinstance(config, dict):
        raise CallerFault(f"output_config must be an object, got {short(config)}")
    config, older = dict(config), fields.pop("output_format", None)
    made: Fields = {}
    match config.pop("format", None) or older:
        case None:
            pass
        case {"type": "json_schema", "schema": dict(schema)}:
            named = {"name": "answer", "schema": schema, "strict": True}
            made["response_format"] = {"type": "json_schema", "json_schema": named}
        case wanted:
            raise not_translatable(f"output_config.format {short(wanted)}", ELSEWHERE)
    if (wish := _thinking(fields.pop("thinking", None), config.pop("effort", None))) is not None:
        made[thinking.FIELD] = wish
    for name in list(config):
        leave_out(call, config, name)
    return made


def _thinking(given: Any, effort: Any) -> thinking.Thinking | None:
    """How far to think; None: nothing is said of it. The effort is of the whole answer, but elsewhere of thoughts."""
    if effort is not None and (not isinstance(effort, str) or effort not in _EFFORTS):
        raise CallerFault(f"output_config.effort is {short(effort)}: expected one of {', '.join(_EFFORTS)}")
    if given is None:
        return thinking.Thinking(name="effort", effort=effort) if effort else None
    wish = thinking.of_messages(given)
    if wish is None:
        raise CallerFault(f"thinking is {short(given)}: expected the type enabled, adaptive or disabled")
    return structs.replace(wish, effort=effort or "")


def _whom(fields: Fields, notice: _Notice) -> Fields:
    """``user``, out of what `fields` say of whom the request is for."""
    about = fields.pop("metadata", None)
    if not isinstance(about, dict):
        return {}
    whom = about.get("user_id")
    if not isinstance(whom, str):
        notice({"metadata": about}, "metadata")
        return {}
    return {"user": whom if len(whom) <= _LONGEST_USER else hashlib.sha256(whom.encode()).hexdigest()}
