"""The server role, reading: a request for ``/responses`` in OpenAI's chat form, which all targets' dialects encode.

A chat has no items: what an assistant thought, said and called in a row becomes one message. Thoughts go on as text,
for targets that take them back; in their encrypted form they mean something to their maker alone.

Whatever a provider would have to remember or do itself is refused by name: earlier answers by their id, its own tools,
files that it holds. That an answer is to be stored (which it is, if nobody says otherwise) is left out, as nothing here
keeps one. What else is left out changes nothing in the answer, and the call's notes name it. Fields that are unknown
here go on as they are: they are the target's to take or to refuse.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call
from splitsecond.wire import thinking
from splitsecond.wire.translation import leave_out, not_translatable, plain_fields, short

ELSEWHERE = "a target that does not speak the Responses API"
_LEFT_OUT = (
    "store", "metadata", "include", "truncation", "max_tool_calls", "client_metadata",
)  # fmt: skip
_USUAL: Mapping[str, tuple[Any, ...]] = {
    "store": (False,),
    "truncation": ("disabled",),
    "metadata": ({},),
    "include": ([],),
}
"""Values that ask for what happens anyway, of which nothing need be said."""
_REFUSED = ("previous_response_id", "conversation", "prompt", "background", "top_logprobs", "context_management")
_OURS = ("model", "stream", "stream_options")
_ROLES = ("user", "assistant", "system", "developer")

Fields = dict[str, Any]


def to_chat(call: Call) -> Call:
    """`call`, whose body is a request for ``/responses``, in OpenAI's chat form.

    Raises `CallerFault`: for a field that is wrong, or ("not_translatable") that a chat has not.
    """
    fields = plain_fields(call)
    for name in _OURS:
        fields.pop(name, None)
    for name in _LEFT_OUT:
        if fields.get(name) in _USUAL.get(name, ()):
            fields.pop(name, None)
        leave_out(call, fields, name)
    for name in _REFUSED:
        if value := fields.pop(name, None):
            raise not_translatable(f"{name} {short(value)}", ELSEWHERE, _HINTS.get(name, ""))
    body: Fields = {"messages": _messages(fields.pop("instructions", None), fields.pop("input", None))}
    if (limit := fields.pop("max_output_tokens", None)) is not None:
        body["max_completion_tokens"] = limit
    body |= _tools(fields)
    body |= _text(fields)
    if (wish := _thinking(call, _object("reasoning", fields.pop("reasoning", {})))) is not None:
        body[thinking.FIELD] = wish
    return msgspec.structs.replace(call, body=body | fields, dialect="openai")


_HINTS = {"previous_response_id": "Send all of the conversation as input; nothing is stored here."}


class _Chat:
    """The messages so far."""

    def __init__(self) -> None:
        self.messages: list[Fields] = []
        self._open: Fields | None = None  # the assistant's message that items still belong to

    def assistant(self) -> Fields:
        """The assistant's message that an item belongs to."""
        if self._open is None:
            self._open = {"role": "assistant", "content": None}
            self.messages.append(self._open)
        return self._open

    def add(self, message: Fields) -> None:
        """A message of somebody else."""
        self._open = None
        self.messages.append(message)


def _messages(instructions: Any, given: Any) -> list[Fields]:
    chat = _Chat()
    if instructions is not None:
        if not isinstance(instructions, str):
            raise CallerFault(f"instructions must be a text, got {short(instructions)}")
        chat.add({"role": "system", "content": instructions})
    if isinstance(given, str):
        chat.add({"role": "user", "content": given})
    elif isinstance(given, list) and given:
        for number, item in enumerate(given):
            _item(item, f"input[{number}]", chat)
    else:
        raise CallerFault("input must be a text, or a list of at least one item")
    return chat.messages


def _item(item: Any, where: str, chat: _Chat) -> None:
    match item:
        case {"role": str(role), "content": str() | list() as content} if item.get("type", "message") == "message":
            if role not in _ROLES:
                raise CallerFault(f"{where}.role is {role!r}: expected one of {', '.join(_ROLES)}")
            parts = _parts(content, f"{where}.content")
            if role != "assistant":
                chat.add({"role": "user" if role == "user" else "system", "content": _plain(parts)})
            elif text := _texts(parts, where):
                said = chat.assistant()
                said["content"] = f"{said['content']}\n{text}" if said["content"] else text
        case {"type": "reasoning"}:
            _think(item, chat)
        case {"type": "function_call", "call_id": str(identity), "name": str(name), "arguments": str(arguments)}:
            function = {"name": name, "arguments": arguments}
            called = chat.assistant().setdefault("tool_calls", [])
            called.append({"id": identity, "type": "function", "function": function})
        case {"type": "function_call_output", "call_id": str(identity), "output": str() | list() as output}:
            _result(identity, _parts(output, f"{where}.output"), chat)
        case {"type": "message" | "function_call" | "function_call_output" as kind}:
            raise CallerFault(f"{where} is not an item of type {kind!r} as the Responses API defines it")
        case {"type": str(kind)}:
            raise not_translatable(f"{where} of type {kind!r}", ELSEWHERE)
        case _:
            raise CallerFault(f"{where} must be an object with a type, or a role and content, got {short(item)}")


def _think(item: Fields, chat: _Chat) -> None:
    given = (item.get(name) for name in ("summary", "content"))
    parts = [part for each in given if isinstance(each, list) for part in each]
    if thought := "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict)):
        said = chat.assistant()
        said["reasoning_content"] = "\n".join(filter(None, [said.get("reasoning_content"), thought]))


def _result(identity: str, parts: list[Fields], chat: _Chat) -> None:
    """A tool's result, with the pictures in it for targets that have a place for them (`tool_results`)."""
    only_text = all(part["type"] == "text" for part in parts)
    content: Any = "\n".join(part["text"] for part in parts) if only_text else parts
    chat.add({"role": "tool", "tool_call_id": identity, "content": content})


def _parts(content: str | list[Any], where: str) -> list[Fields]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [_part(part, f"{where}[{number}]") for number, part in enumerate(content)]


def _part(part: Any, place: str) -> Fields:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "input_image", "image_url": str(url)}:
            detail = {"detail": said} if isinstance(said := part.get("detail"), str) and said != "auto" else {}
            return {"type": "image_url", "image_url": {"url": url, **detail}}
        case {"type": "input_file", "file_data": str(data)}:
            return {"type": "file", "file": {"filename": part.get("filename") or "file", "file_data": data}}
        case {"type": "input_audio", "input_audio": dict(audio)}:
            return {"type": "input_audio", "input_audio": audio}
        case {"type": str(kind)}:
            hint = "Send the data itself." if kind in ("input_image", "input_file") else ""
            raise not_translatable(f"{place} of type {kind!r}, as it is,", ELSEWHERE, hint)
    raise CallerFault(f"{place} must be an object with a type, got {short(part)}")


def _plain(parts: list[Fields]) -> str | list[Fields]:
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _texts(parts: list[Fields], where: str) -> str:
    if any(part["type"] != "text" for part in parts):
        raise not_translatable(f"{where}, an assistant's message that is not all text,", ELSEWHERE)
    return "\n".join(part["text"] for part in parts)


def _tools(fields: Fields) -> Fields:
    """``tools`` and what is said of their use, out of `fields`."""
    tools, choice = fields.pop("tools", None), fields.pop("tool_choice", None)
    parallel = fields.pop("parallel_tool_calls", True)
    if not tools:
        return {}
    if not isinstance(tools, list):
        raise CallerFault(f"tools must be a list, got {short(tools)}")
    made: Fields = {"tools": [_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools)]}
    if choice is not None:
        made["tool_choice"] = _tool_choice(choice)
    if not parallel:
        made["parallel_tool_calls"] = False
    return made


def _tool(tool: Any, place: str) -> Fields:
    match tool:
        case {"type": "function", "name": str(name)}:
            named = {key: tool[key] for key in ("description", "parameters", "strict") if tool.get(key) is not None}
            return {"type": "function", "function": {"name": name, **named}}
        case {"type": str(kind)} if kind != "function":
            raise not_translatable(f"{place}, a tool of type {kind!r},", ELSEWHERE, "Leave it out.")
    raise CallerFault(f"{place} must be a function with a name, got {short(tool)}")


def _tool_choice(choice: Any) -> Any:
    match choice:
        case "auto" | "none" | "required":
            return choice
        case {"type": "function", "name": str(name)}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": str(mode), "tools": [*tools]}:
            allowed = {"mode": mode, "tools": [_tool_choice(tool) for tool in tools]}
            return {"type": "allowed_tools", "allowed_tools": allowed}
    raise not_translatable(f"tool_choice {short(choice)}", ELSEWHERE)


def _thinking(call: Call, said: Fields) -> thinking.Thinking | None:
    """How far to think, and whether the thoughts are to be told; None: nothing is said of it."""
    effort, summary, older = (said.pop(name, None) for name in ("effort", "summary", "generate_summary"))
    if effort is not None and (not isinstance(effort, str) or effort not in thinking.EFFORTS):
        raise CallerFault(f"reasoning.effort is {short(effort)}: expected one of {', '.join(thinking.EFFORTS)}")
    for name in list(said):
        leave_out(call, said, name)
    shown = True if summary or older else None
    if effort is None and shown is None:
        return None
    return thinking.Thinking(name="reasoning", effort=effort or "", shown=shown)


def _text(fields: Fields) -> Fields:
    """What is said of the answer's form, out of `fields`."""
    said = _object("text", fields.pop("text", {}))
    made: Fields = {}
    if (verbosity := said.get("verbosity")) is not None:
        made["verbosity"] = verbosity
    match said.get("format"):
        case None | {"type": "text"}:
            pass
        case {"type": "json_object"}:
            made["response_format"] = {"type": "json_object"}
        case {"type": "json_schema", "schema": dict(schema)} as form:
            named = {key: form[key] for key in ("description", "strict") if form.get(key) is not None}
            named |= {"name": form.get("name") or "answer", "schema": schema}
            made["response_format"] = {"type": "json_schema", "json_schema": named}
        case wanted:
            raise not_translatable(f"text.format {short(wanted)}", ELSEWHERE)
    return made


def _object(field: str, value: Any) -> Fields:
    if not isinstance(value, dict):
        raise CallerFault(f"{field} must be an object, got {short(value)}")
    fields: Fields = value
    return {name: given for name, given in fields.items() if given is not None}
