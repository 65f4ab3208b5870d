"""Tools of Responses that a chat does not have, carried as functions: custom tools, and tools in a
namespace.

A function of a namespace gets the name of both. A custom tool, whose input is a text, becomes a
function with that text as its only argument; a grammar for the text is added to the description.
The answer names the client's own tool again (`carried_tools`).
"""

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.errors import CallerFault
from splitsecond.core.wire.translation import Fields, checked_name, not_translatable, short

_LONGEST_NAME = 64
"""Characters in the name of a function, at OpenAI and Anthropic."""
_DIGEST = 8
INPUT = "input"
"""The argument that holds the text of a custom tool."""

ADDITIONAL_TOOLS = "additional_tools"
"""The type of an item of ``input`` that holds tools, as Codex sends it."""


class CarriedTool(Struct, frozen=True):
    """A tool of the client that is carried as a function with another name or form."""

    name: str
    namespace: str = ""
    custom: bool = False


def function_name(name: str, namespace: Any) -> str:
    if not isinstance(namespace, str) or not namespace:
        return name
    flat = f"{namespace}__{name}"
    if len(flat) <= _LONGEST_NAME:
        return flat
    digest = hashlib.sha256(flat.encode()).hexdigest()[:_DIGEST]
    return f"{flat[: _LONGEST_NAME - _DIGEST - 1]}_{digest}"


def functions(tool: Any, place: str, namespace: str = "") -> Iterator[tuple[Fields, CarriedTool]]:
    """Yield the functions for a tool of the request, in the common chat form, each with the tool
    that it carries. Raises `CallerFault` for a tool that only the provider can run."""
    match tool:
        case {"type": "function", "name": str(name)}:
            fields = {
                key: tool[key]
                for key in ("description", "parameters", "strict")
                if tool.get(key) is not None
            }
            yield (
                _function(checked_name(name, place), namespace, fields),
                CarriedTool(name, namespace),
            )
        case {"type": "custom", "name": str(name)}:
            text = {
                "type": "object",
                "properties": {INPUT: {"type": "string"}},
                "required": [INPUT],
            }
            described = _description(tool)
            fields = {**({"description": described} if described else {}), "parameters": text}
            yield (
                _function(checked_name(name, place), namespace, fields),
                CarriedTool(name, namespace, custom=True),
            )
        case {"type": "namespace", "name": str(name), "tools": [*tools]} if not namespace:
            checked_name(name, place)
            for number, each in enumerate(tools):
                yield from functions(each, f"{place}.tools[{number}]", name)
        case {"type": str(kind)} if kind not in ("function", "custom", "namespace"):
            raise not_translatable(f"{place}, a tool of type {kind!r},", hint="Leave it out.")
        case _:
            raise CallerFault(f"{place} must be a function with a name, got {short(tool)}")


def all_tools(tools: list[Any], items: Any) -> list[Any]:
    for item in items if isinstance(items, list) else ():
        match item:
            case {"type": kind, "tools": [*more]} if kind == ADDITIONAL_TOOLS:
                tools = tools + more
    return tools


def _function(name: str, namespace: str, fields: Fields) -> Fields:
    return {"type": "function", "function": {"name": function_name(name, namespace), **fields}}


def _description(tool: Fields) -> str:
    description = tool.get("description")
    texts = [description] if isinstance(description, str) else []
    match tool.get("format"):
        case {"type": "grammar", "syntax": str(syntax), "definition": str(definition)}:
            texts.append(f"The input matches this {syntax} grammar:\n{definition}")
    return "\n\n".join(texts)


def carried_tools(body: Mapping[str, Any]) -> dict[str, CarriedTool]:
    """Return the tools of a request that are carried in another form, by their functions' names."""
    tools, items = body.get("tools"), body.get("input")
    if isinstance(tools, Raw):
        data = bytes(tools)
        if b'"custom"' not in data and b'"namespace"' not in data:  # as in nearly all requests
            data = b"[]"
        tools = msgspec.json.decode(data)
    if isinstance(items, Raw):
        items = msgspec.json.decode(items) if ADDITIONAL_TOOLS.encode() in bytes(items) else None
    by_name: dict[str, CarriedTool] = {}
    for tool in all_tools(tools if isinstance(tools, list) else [], items):
        # the request was accepted: a target of this format has the tool
        with contextlib.suppress(CallerFault):
            by_name |= {
                each["function"]["name"]: carried for each, carried in functions(tool, "tools")
            }
    return {name: tool for name, tool in by_name.items() if tool.custom or tool.namespace}


def custom_input(arguments: str) -> str:
    """Return the text in the arguments of a function that carries a custom tool, or else all."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, str])[INPUT]
    except (ValueError, RecursionError, KeyError):
        return arguments
