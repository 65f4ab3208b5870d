"""What dialects share that translate: a call comes in OpenAI's form, and not everything in it exists elsewhere."""

from typing import Any

import msgspec

from splitsecond.errors import CallerFault
from splitsecond.service import Call


def plain_fields(call: Call) -> dict[str, Any]:
    """The call's fields as plain values; those that are null are left out. Raises `CallerFault` for broken JSON."""
    fields: dict[str, Any] = {}
    for name, value in call.body.items():
        if isinstance(value, msgspec.Raw):
            try:
                value = msgspec.json.decode(value)
            except (ValueError, RecursionError) as error:
                raise CallerFault(f"the request's field {name} is no JSON: {error}") from error
        if value is not None:
            fields[name] = value
    return fields


def leave_out(call: Call, fields: dict[str, Any], name: str) -> None:
    """Take the field `name` out of `fields`, and tell the client if it was there: the call's notes say so, once."""
    if fields.pop(name, None) is not None:
        left_out(call, name)


def left_out(call: Call, name: str) -> None:
    """Tell the client that what it calls `name` was left out: the call's notes say so, once."""
    if name not in call.notes.dropped:
        call.notes.dropped.append(name)


def not_translatable(what: str, dialect: str, hint: str = "") -> CallerFault:
    """The fault of asking for `what`, a field or a field with its value, which `dialect` has not."""
    return CallerFault(f"{what} cannot be carried over to {dialect}", kind="not_translatable", hint=hint)


def short(value: Any) -> str:
    """`value` as JSON that fits into a message."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 80 else text[:79] + "…"
