"""Translation of requests: reading fields, and reporting what a format cannot express."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, structs

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call
from splitsecond.core.validation import MAX_VALUES, has_too_many_values

Fields = dict[str, Any]
"""A JSON object."""
MAX_LEFT_OUT = 32
"""The most names of left-out fields that are reported for a request."""
MAX_NAME_CHARACTERS = 64
AND_MORE = "and more"
"""The last name, if there are more."""
OTHER_FORMAT = "a target of another API format"
MAX_TOOL_NAME = 256
"""Characters in the name of a tool or a namespace; providers allow up to 128. Results and calls
repeat it, so a long name would be copied thousands of times."""
MAX_MESSAGES = 20_000
"""Messages and their parts in a conversation that is translated."""


def plain_fields(call: Call, *without: str) -> Fields:
    """Return the call's fields as plain values, but those that are null or named in `without`.

    Raises `CallerFault` for broken JSON, and for more than `MAX_VALUES` values or `MAX_MESSAGES`
    messages.
    """
    fields: Fields = {}
    if has_too_many_values(*(value for value in call.body.values() if isinstance(value, Raw))):
        raise _too_large(f"the request has more than {MAX_VALUES:,} values", MAX_VALUES)
    for name, value in call.body.items():
        if isinstance(value, Raw):
            try:
                value = msgspec.json.decode(value)
            except (ValueError, RecursionError) as error:
                raise CallerFault(f"the request's field {name} is not JSON: {error}") from error
            _check_entries(name, value)
        if value is not None and name not in without:
            fields[name] = value
    return fields


def leave_out(call: Call, fields: Fields, name: str, usual: Sequence[Any] = ()) -> None:
    """Remove the field `name`, and report it in the call's notes unless its value is `usual`."""
    value = fields.pop(name, None)
    if value is not None and value not in usual:
        left_out(call, name)


def shared_fields(call: Call, fields: Fields, shared: Collection[str]) -> Fields:
    """Return those of `fields` that are in `shared`, and report the others in the call's notes."""
    for name in [name for name in fields if name not in shared]:
        leave_out(call, fields, name)
    return fields


def leave_out_unknown(call: Call, part: Mapping[str, Any], known: Collection[str]) -> None:
    """Report in the call's notes the fields of `part` that are set and not `known`."""
    for name, value in part.items():
        if value and name not in known:
            left_out(call, name)


def left_out(call: Call, name: str) -> None:
    """Report in the call's notes, once, that `name` was left out; the gateway sends the names in a
    header.

    Clients choose some names, so the notes hold a limited number of limited length.
    """
    dropped, name = call.notes.dropped, name[:MAX_NAME_CHARACTERS]
    if len(dropped) <= MAX_LEFT_OUT and name not in dropped:
        dropped.append(name if len(dropped) < MAX_LEFT_OUT else AND_MORE)


_INSTEAD = dict.fromkeys(("functions", "function_call"), "Use tools and tool_choice.")
"""What to send in the place of a field that is refused."""


def refuse(
    fields: Fields, harmless: Mapping[str, Sequence[Any]], api_format: str = OTHER_FORMAT
) -> None:
    """Remove the fields in `harmless`. Raises `CallerFault` if one has another value than these."""
    for name, values in harmless.items():
        if (value := fields.pop(name, None)) is not None and value not in values:
            hint = _INSTEAD.get(name, "Leave it out.")
            raise not_translatable(f"{name} {short(value)}", api_format, hint)


def without_tools(call: Call, messages_field: str, kinds: Sequence[str]) -> Call:
    """Return `call` without the tools whose type begins with one of `kinds`, which the notes name,
    and without items that show such a tool's run at its provider."""
    body = plain_fields(call)
    items = body.get(messages_field)
    if isinstance(items, list):
        runs = tuple(f"{kind}_call" for kind in kinds)
        items = body[messages_field] = [item for item in items if _type(item) not in runs]
    # items of Responses can hold tools, too
    for holder in (body, *(items if isinstance(items, list) else ())):
        tools = holder.get("tools") if isinstance(holder, dict) else None
        if isinstance(tools, list):
            for kind in filter(lambda kind: kind.startswith(tuple(kinds)), map(_type, tools)):
                left_out(call, kind)
            holder["tools"] = [tool for tool in tools if not _type(tool).startswith(tuple(kinds))]
    return structs.replace(call, body=body)


def _type(value: Any) -> str:
    kind = value.get("type") if isinstance(value, dict) else ""
    return kind if isinstance(kind, str) else ""


def take_tools(fields: Fields) -> list[Any]:
    """Return ``tools``, which are removed from `fields`. Raises `CallerFault` if it is no list."""
    tools = fields.pop("tools", None) or []
    if not isinstance(tools, list):
        raise CallerFault(f"tools must be a list, got {short(tools)}")
    return tools


def checked_name(name: str, place: str) -> str:
    """Return the `name` of the tool or namespace at `place`. Raises `CallerFault` if too long."""
    if len(name) > MAX_TOOL_NAME:
        raise CallerFault(
            f"{place}.name has {len(name):,} characters; the maximum is {MAX_TOOL_NAME}"
        )
    return name


def not_translatable(what: str, api_format: str = OTHER_FORMAT, hint: str = "") -> CallerFault:
    """Return the fault of a request for `what`, which `api_format` lacks."""
    return CallerFault(
        f"{what} cannot be translated for {api_format}", kind="not_translatable", hint=hint
    )


def nested_too_deeply() -> CallerFault:
    return CallerFault(
        "the request is nested too deeply", hint="Nest its lists and objects less deeply."
    )


def _check_entries(name: str, value: Any) -> None:
    """Raise `CallerFault` if the field `name` is a list of too many objects, with the objects in
    lists in them: translation takes about 4 µs for each, and nothing else runs meanwhile."""
    if not isinstance(value, list):
        return
    count = 0
    for entry in value:
        if isinstance(entry, dict):
            count += 1
            count += sum(
                isinstance(part, dict)
                for own in entry.values()
                if isinstance(own, list)
                for part in own
            )
    if count > MAX_MESSAGES:
        raise _too_large(f"{name} has {count:,} entries and parts", MAX_MESSAGES)


def _too_large(what: str, most: int) -> CallerFault:
    return CallerFault(
        f"{what}; the maximum for this target is {most:,}", kind="request_too_large", status=413
    )


def short(value: Any) -> str:
    """Return `value` as JSON that fits into a message."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:79] + "…"


def check_word(place: str, word: Any, words: Collection[str]) -> None:
    """Raise `CallerFault` if the value at `place` is not one of the `words` words."""
    if not isinstance(word, str) or word not in words:
        raise CallerFault(f"{place} is {short(word)}: expected one of {', '.join(words)}")


def object_field(name: str, value: Any) -> Fields:
    """Return `value`, of the field `name`. Raises `CallerFault` if it is not an object."""
    if not isinstance(value, dict):
        raise CallerFault(f"{name} must be an object, got {short(value)}")
    return value
