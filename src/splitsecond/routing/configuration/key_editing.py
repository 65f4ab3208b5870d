"""Edits of the clients in the text of a configuration. Comments and layout stay as they are.

The text is changed at the places that the YAML parser names. Then the result is parsed and compared
with what was meant, so a layout that these edits do not understand is refused and never damaged.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml
from msgspec import UNSET

from splitsecond.core.errors import CallerFault
from splitsecond.core.validation import nearest
from splitsecond.routing.configuration.error_messages import bad
from splitsecond.routing.configuration.initial import flow_mapping, scalar
from splitsecond.routing.configuration.yaml_text import CoreLoader, parsed

Entry = dict[str, Any]


class Edit(NamedTuple):
    """Replaces the characters from `begin` until before `end`."""

    begin: int
    end: int
    text: str


def with_key(text: str, entry: Entry) -> str:
    """Return `text` with one more client. Raises `CallerFault` if that cannot be done."""
    root = _root(text)
    keys, item = _value(root, "keys"), _item(root, entry)
    if _is_sequence(keys):
        edit = _appended(text, keys, item)
    elif root.flow_style:
        raise _by_hand(f"Add to keys: {item}")
    elif keys is None:
        edit = _new_line(text, len(text), f"keys:{_newline(text)}  - {item}")
    else:  # "keys:" with nothing but comments
        edit = _new_line(text, _line_end(text, _name(root, "keys").end_mark.index), f"  - {item}")

    def add(data: Entry) -> None:
        data["keys"] = [*(data.get("keys") or []), entry]

    return _edited(text, [edit], add, f"Add to keys: {item}")


def with_rotated_key(text: str, name: str, reference: str, until: str) -> str:
    """Return `text` with another key of the client `name`. Its present key becomes a former one,
    valid until the end of the day `until`; "": it is valid no more. Raises `CallerFault`."""
    keys, number = _client(text, name)
    entry = keys.value[number]
    key, former_keys = _value(entry, "key"), _value(entry, "former_keys")
    former, root = {"key": key.value, "until": until}, _root(text)
    edits = [Edit(key.start_mark.index, key.end_mark.index, _item(root, reference))]
    if until and _is_sequence(former_keys):
        edits.append(_appended(text, former_keys, _item(root, former)))
    elif until:
        more = f"{_item(root, 'former_keys')}: [{_item(root, former)}]"
        if entry.flow_style:
            edits.append(Edit(key.end_mark.index, key.end_mark.index, f", {more}"))
        else:
            line = " " * entry.start_mark.column + more
            edits.append(_new_line(text, _line_end(text, key.end_mark.index), line))

    def rotate(data: Entry) -> None:
        client = data["keys"][number]
        client["key"] = reference
        if until:
            client["former_keys"] = [*(client.get("former_keys") or []), former]

    return _edited(text, edits, rotate, f"Set key: {reference} of {name}.")


def without_key(text: str, name: str) -> str:
    """Return `text` without the client `name`. Raises `CallerFault`, also if it is the only one:
    without keys, the gateway would need none."""
    keys, number = _client(text, name)
    items = keys.value
    if len(items) == 1:
        raise CallerFault(
            f"{name} is the only client: without keys, everyone on this machine may use the "
            "gateway",
            kind="last_key",
            hint="Add another key first, or rotate this one.",
        )
    if not keys.flow_style:
        begin = text.rfind("\n", 0, items[number].start_mark.index) + 1
        edit = Edit(begin, _line_end(text, _end(items[number])), "")
    elif number + 1 < len(items):
        edit = Edit(items[number].start_mark.index, items[number + 1].start_mark.index, "")
    else:
        edit = Edit(_end(items[number - 1]), _end(items[number]), "")

    def remove(data: Entry) -> None:
        del data["keys"][number]

    return _edited(text, [edit], remove, f"Remove the entry of {name}.")


def entries(text: str) -> list[Any]:
    """Return the entries of `keys`. Raises `CallerFault` for text that is not a configuration."""
    root = _root(text)
    keys = parsed(text).get("keys")
    if keys is not None and not _is_sequence(_value(root, "keys")):
        raise bad("keys", "expected a list")
    return keys or []


def _client(text: str, name: str) -> tuple[yaml.SequenceNode, int]:
    names = [each.get("name") if isinstance(each, dict) else None for each in entries(text)]
    if name not in names:
        client_names = [each for each in names if isinstance(each, str)]
        hint = nearest(name, client_names) or "`splitsecond key list` shows all."
        raise CallerFault(f"there is no client {name}", kind="unknown_client", hint=hint)
    number = names.index(name)
    keys: Any = _value(_root(text), "keys")
    if not isinstance(_value(keys.value[number], "key"), yaml.ScalarNode):
        raise bad(f"keys[{number}].key", "expected env:NAME or file:PATH")
    return keys, number


def _root(text: str) -> yaml.MappingNode:
    parsed(text)  # which names the place of what is wrong
    root = yaml.compose(text, CoreLoader)
    if not isinstance(root, yaml.MappingNode):
        raise bad("the file", "expected entries such as keys: and routes:")
    return root


def _item(root: yaml.MappingNode, value: Any) -> str:
    """Return `value` in one line: as JSON for a file in the form of JSON, otherwise as YAML."""
    if root.flow_style:
        return json.dumps(value)
    return flow_mapping(value) if isinstance(value, dict) else scalar(value, inside=True)


def _name(node: Any, name: str) -> Any:
    return next((key for key, _ in node.value if key.value == name), None)


def _value(node: Any, name: str) -> Any:
    return next((value for key, value in node.value if key.value == name), None)


def _is_sequence(node: Any) -> bool:
    return isinstance(node, yaml.SequenceNode)


def _appended(text: str, sequence: Any, item: str) -> Edit:
    if not sequence.flow_style:
        indent = " " * sequence.start_mark.column
        return _new_line(text, _line_end(text, _end(sequence)), f"{indent}- {item}")
    if sequence.value:
        at = _end(sequence.value[-1])
        return Edit(at, at, f", {item}")
    at = sequence.end_mark.index - 1
    return Edit(at, at, item)


def _new_line(text: str, at: int, line: str) -> Edit:
    newline = _newline(text)
    before = "" if at == 0 or text[at - 1] == "\n" else newline
    return Edit(at, at, f"{before}{line}{newline}")


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_end(text: str, at: int) -> int:
    if at and text[at - 1] == "\n":  # a block of text ends with its last line
        return at
    newline = text.find("\n", at)
    return len(text) if newline < 0 else newline + 1


def _end(node: Any) -> int:
    """Return the end of a node. The parser's own mark of a block is after the comments that follow
    it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return max(map(_end, last)) if isinstance(last, tuple) else _end(last)


def _edited(text: str, edits: list[Edit], change: Callable[[Entry], None], hint: str) -> str:
    """Return the text after `edits`. Raises `CallerFault` with `hint` if it does not mean what
    `change` makes of the data."""
    expected: Any = parsed(text)
    change(expected)
    for edit in sorted(edits, reverse=True):
        text = text[: edit.begin] + edit.text + text[edit.end :]
    try:
        edited = parsed(text)
    except CallerFault:
        edited = UNSET
    if edited != expected:
        raise _by_hand(hint)
    return text


def _by_hand(hint: str) -> CallerFault:
    words = "the layout of the file is one that this command cannot edit"
    return CallerFault(words, kind="bad_config", hint=hint)
