"""Server role: a request for ``generateContent`` in the common chat form.

Names of fields are in camel or in snake case, and an object may be written in the place of a list
that has only it, as in Google's own examples. A function's result belongs to the call with its id,
or without one to the first call of that function which has no result. Fields that do not change the
answer, or that are unknown here, are left out, and the call's notes name them; Google's own tools,
files that it holds and other modalities are refused.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.wire.chat_form import (
    assistant_message,
    plain_content,
    schema_format,
    tool_message,
    translated,
)
from splitsecond.core.wire.gemini.encode import CONFIG
from splitsecond.core.wire.reasoning import FIELD, ReasoningRequest, from_budget
from splitsecond.core.wire.server_answer import function_call
from splitsecond.core.wire.tool_calls import arguments_text
from splitsecond.core.wire.translation import (
    Fields,
    left_out,
    not_translatable,
    object_field,
    plain_fields,
    refuse,
    short,
)

_MODES = {"AUTO": "auto", "NONE": "none", "ANY": "required", "VALIDATED": "auto"}
_LEVELS = ("minimal", "low", "medium", "high")
_TEXT_TYPES = (None, "", "text/plain")
_ROLES = (None, "user", "model", "function")


def to_chat(call: Call) -> Call:
    fields = camel(plain_fields(call, "model", "stream"))
    fields |= camel(
        object_field("generateContentRequest", fields.pop("generateContentRequest", {}))
    )
    refuse(fields, {"cachedContent": ("",)}, "a chat")
    conversation = _Conversation(call)
    conversation.add_system(fields.pop("systemInstruction", None))
    conversation.add_turns(fields.pop("contents", None))
    body: Fields = {"messages": conversation.messages}
    body |= _tools(fields.pop("tools", None), fields.pop("toolConfig", None))
    body |= _config(
        call, camel(object_field("generationConfig", fields.pop("generationConfig", {})))
    )
    for name in fields:
        left_out(call, name)
    return translated(call, body)


def camel(fields: Fields) -> Fields:
    return {_camel_name(name): value for name, value in fields.items()}


def _camel_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others) if first else name


class _Conversation(Struct):
    """The messages so far. `_open`: the calls that have no result yet, as id and name."""

    _call: Call
    messages: list[Fields] = []
    _count: int = 0
    _open: list[tuple[str, str]] = []

    def add_system(self, instruction: Any) -> None:
        if instruction is None:
            return
        turn = {"parts": [{"text": instruction}]} if isinstance(instruction, str) else instruction
        parts = parts_of(turn, "systemInstruction")
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str)]
        if len(texts) < len(parts):
            left_out(self._call, "systemInstruction.parts")
        if texts:
            self.messages.append({"role": "system", "content": "\n".join(texts)})

    def add_turns(self, contents: Any) -> None:
        turns = _listed(contents)
        if not isinstance(turns, list) or not turns:
            raise CallerFault("contents must be a list of at least one turn")
        for number, turn in enumerate(turns):
            where = f"contents[{number}]"
            parts = parts_of(turn, where)
            role = turn.get("role")
            if role not in _ROLES:
                raise CallerFault(f"{where}.role is {short(role)}: expected user or model")
            add = self._add_model if role == "model" else self._add_user
            add(parts, f"{where}.parts")

    def _add_user(self, parts: list[Fields], where: str) -> None:
        content: list[Fields] = []
        for number, part in enumerate(parts):
            match part:
                case {"functionResponse": {"name": str(name)} as result}:
                    self.messages.append(
                        self._result(name, result, f"{where}[{number}].functionResponse")
                    )
                case _:
                    content.append(_content(part, f"{where}[{number}]"))
        if content:
            self.messages.append({"role": "user", "content": plain_content(content)})

    def _add_model(self, parts: list[Fields], where: str) -> None:
        texts: list[str] = []
        reasoning: list[str] = []
        calls: list[Fields] = []
        for number, part in enumerate(parts):
            if part.pop("thoughtSignature", None) is not None:
                left_out(self._call, "thoughtSignature")
            match part:
                case {"text": str(text)}:
                    (reasoning if part.get("thought") else texts).append(text)
                case {"functionCall": {"name": str(name)} as called}:
                    identity = called.get("id") or f"call_{self._count}"
                    self._count += 1
                    self._open.append((identity, name))
                    calls.append(
                        function_call(identity, name, arguments_text(called.get("args")) or "{}")
                    )
                case _:
                    raise _unknown(part, f"{where}[{number}]")
        self.messages.append(assistant_message(texts, reasoning, calls))

    def _result(self, name: str, result: Fields, place: str) -> Fields:
        identity = result.get("id") or next(
            (call_id for call_id, called in self._open if called == name), None
        )
        if not isinstance(identity, str):
            raise CallerFault(
                f"the result of the function {name[:100]!r} answers no call in contents"
            )
        self._open = [each for each in self._open if each[0] != identity]
        response = result.get("response") or {}
        match response:
            case {"output": str(text), **others} | {"result": str(text), **others} if not others:
                pass
            case _:
                text = msgspec.json.encode(response).decode()
        media = parts_of({"parts": result.get("parts") or []}, place)
        parts = [_content(part, f"{place}.parts[{number}]") for number, part in enumerate(media)]
        return tool_message(identity, [{"type": "text", "text": text}, *parts])


def parts_of(turn: Any, where: str) -> list[Fields]:
    parts = _listed(turn.get("parts")) if isinstance(turn, dict) else None
    if isinstance(parts, list) and all(isinstance(part, dict) for part in parts):
        return [{name: _nested(value) for name, value in camel(part).items()} for part in parts]
    raise CallerFault(f"{where} must be an object with parts, a list of objects")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, dict) else value


def _nested(value: Any) -> Any:
    return camel(value) if isinstance(value, dict) else value


def _content(part: Fields, place: str) -> Fields:
    match part:
        case {"text": str(text)}:
            return {"type": "text", "text": text}
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}}:
            return _media(kind, data)
        case {"fileData": {"fileUri": str(url)} as file} if str(
            file.get("mimeType", "image/")
        ).startswith("image/"):
            return {"type": "image_url", "image_url": {"url": url}}
    raise _unknown(part, place)


def _media(kind: str, data: str) -> Fields:
    url = f"data:{kind};base64,{data}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    if kind.startswith("audio/"):
        return {
            "type": "input_audio",
            "input_audio": {"data": data, "format": kind.removeprefix("audio/")},
        }
    return {"type": "file", "file": {"filename": "file", "file_data": url}}


def _unknown(part: Fields, place: str) -> CallerFault:
    return not_translatable(f"{place}, a part with {', '.join(part) or 'nothing'},", "a chat")


def _tools(value: Any, config: Any) -> Fields:
    tools = _listed(value) or []
    if not isinstance(tools, list):
        raise CallerFault(f"tools must be a list, got {short(tools)}")
    functions = [
        _function(declared)
        for number, tool in enumerate(tools)
        for declared in _declarations(tool, f"tools[{number}]")
    ]
    if not functions:
        return {}
    choice = _tool_choice(config)
    return {"tools": functions} | ({} if choice == "auto" else {"tool_choice": choice})


def _tool_choice(config: Any) -> str | Fields:
    calling = camel(object_field("toolConfig", config or {})).get("functionCallingConfig") or {}
    calling = camel(object_field("toolConfig.functionCallingConfig", calling))
    mode, names = calling.get("mode", "AUTO"), calling.get("allowedFunctionNames") or []
    if not isinstance(mode, str) or mode not in _MODES or not isinstance(names, list):
        raise not_translatable(f"toolConfig {short(config)}", "a chat")
    tools: list[Fields] = [{"type": "function", "function": {"name": name}} for name in names]
    if _MODES[mode] != "required" or not tools:
        return _MODES[mode]
    if len(tools) == 1:
        return tools[0]
    return {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}}


def _declarations(tool: Any, place: str) -> list[Fields]:
    match _nested(tool):
        case {"functionDeclarations": [*declared], **others} if not any(others.values()):
            if all(
                isinstance(each, dict) and isinstance(each.get("name"), str) for each in declared
            ):
                return declared
        case dict() as own if own:
            raise not_translatable(
                f"{place}, Google's own tool {short(own)},", "a chat", "Leave it out."
            )
    raise CallerFault(f"{place} must hold functionDeclarations with names, got {short(tool)}")


def _function(declared: Fields) -> Fields:
    fields = camel(declared)
    function: Fields = {"name": fields["name"]}
    if fields.get("description"):
        function["description"] = fields["description"]
    schema = fields.get("parametersJsonSchema") or json_schema(fields.get("parameters"))
    if schema:
        function["parameters"] = schema
    return {"type": "function", "function": function}


def json_schema(schema: Any) -> Any:
    """Return Google's `schema`, a subset of OpenAPI's with types in capitals, as JSON schema."""
    if not isinstance(schema, dict):
        return schema
    result: Fields = {}
    for name, value in schema.items():
        match _camel_name(name), value:
            case "type", str():
                result["type"] = value.lower()
            case "properties", dict():
                result["properties"] = {key: json_schema(each) for key, each in value.items()}
            case ("items" | "additionalProperties") as field, dict():
                result[field] = json_schema(value)
            case "anyOf", list():
                result["anyOf"] = [json_schema(each) for each in value]
            case "nullable" | "propertyOrdering", _:
                pass
            case field, _:
                result[field] = value
    if schema.get("nullable") and isinstance(result.get("type"), str):
        result["type"] = [result["type"], "null"]
    return result


def _config(call: Call, config: Fields) -> Fields:
    body = {
        chat: value
        for chat, name in CONFIG.items()
        if (value := config.pop(name, None)) is not None
    }
    kind = config.pop("responseMimeType", None)
    schema = config.pop("responseJsonSchema", None) or config.pop("responseSchema", None)
    if kind not in (*_TEXT_TYPES, "application/json"):
        raise not_translatable(f"generationConfig.responseMimeType {short(kind)}", "a chat")
    if schema is not None:
        body["response_format"] = schema_format(json_schema(schema), strict=False)
    elif kind == "application/json":
        body["response_format"] = {"type": "json_object"}
    if (thinking := config.pop("thinkingConfig", None)) is not None:
        body[FIELD] = _reasoning(camel(object_field("generationConfig.thinkingConfig", thinking)))
    refuse(config, {"responseModalities": (["TEXT"], []), "responseLogprobs": (False,)}, "a chat")
    for name, value in config.items():
        if value is not None:
            left_out(call, name)
    return body


def _reasoning(config: Mapping[str, Any]) -> ReasoningRequest:
    name, visible = "thinkingConfig", config.get("includeThoughts")
    visible = visible if isinstance(visible, bool) else None
    match config:
        case {"thinkingLevel": str(level)} if level.lower() in _LEVELS:
            return ReasoningRequest(name=name, effort=level.lower(), shown=visible)
        case {"thinkingBudget": int(budget)}:
            return from_budget(name, budget, visible)
    return ReasoningRequest(name=name, shown=visible)
