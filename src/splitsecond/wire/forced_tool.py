"""Which tool an answer must call: the server role's reading of ``tools`` and ``tool_choice``, in every dialect's form.

The forms do not contradict each other, so one reading serves all. What is of no known form forces nothing: it is for
whoever answers to refuse it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw


def forced_tool(fields: Mapping[str, Raw]) -> str:
    """The name of the tool that the answer to a request with these `fields` must call; "": it need not call one."""
    match _plain(fields, "tool_choice"), _plain(fields, "toolConfig"):
        case {"type": "function", "function": {"name": str(name)}}, _:
            return name
        case {"type": "function" | "tool", "name": str(name)}, _:
            return name
        case _, {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [str(name), *_]}}:
            return name
        case ("required" | "REQUIRED" | {"type": "any"}, _) | (_, {"functionCallingConfig": {"mode": "ANY"}}):
            return next(tool_names(fields), "")
    return ""


def tool_names(fields: Mapping[str, Raw]) -> Iterator[str]:
    """The names of the functions that the request offers."""
    tools = _plain(fields, "tools")
    for tool in tools if isinstance(tools, list) else ():
        match tool:
            case {"function": {"name": str(name)}} | {"name": str(name)}:
                yield name
            case {"functionDeclarations": [*declared]} | {"function_declarations": [*declared]}:
                yield from (
                    one["name"] for one in declared if isinstance(one, dict) and isinstance(one.get("name"), str)
                )


def _plain(fields: Mapping[str, Raw], name: str) -> Any:
    try:
        return msgspec.json.decode(fields.get(name, b"null"))
    except (ValueError, RecursionError):
        return None
