"""Tool calls and parts in all API formats: to which a fragment belongs, and arguments.

OpenAI's format distinguishes calls by an index, which some servers omit and others set to 0 for
every call; so another id together with a name begins a new call, and so does another name. An id
alone does not: older versions of vLLM made up an id for each fragment. A repeated name counts once.
A fragment without id and name, with an index that no call has, belongs to the call before it.
"""

from collections.abc import Hashable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.events import ToolPart
from splitsecond.core.validation import read_json


class _Call(Struct):
    """A call that has begun. `rest` is the part of its later tokens."""

    rest: ToolPart
    id: str = ""
    name: str = ""

    def is_other(self, id: str, name: str) -> bool:
        """Return whether a fragment with this `id` and `name` begins another call."""
        if not name:
            return False
        other_id = bool(id and self.id and id != self.id)
        return other_id or bool(self.name and name != self.name)


class ToolCalls(Struct, eq=False):
    _begun: dict[tuple[int, Hashable], _Call] = {}
    _counts: dict[int, int] = {}
    _latest: dict[int, _Call] = {}

    def part(self, key: Hashable, id: str = "", name: str = "", index: int = 0) -> ToolPart:
        """Return the part for a fragment of the call with the provider's `key` in choice `index`;
        None: it gives none, and a name begins a call."""
        call = self._begun.get((index, key))
        if call is not None and not name and call.id:  # nearly all fragments
            self._latest[index] = call
            return call.rest
        if call is None and not name and (key is None or not id):
            call = self._latest.get(index)
        if call is None or call.is_other(id, name):
            number = self._counts.get(index, 0)
            self._counts[index] = number + 1
            call = _Call(ToolPart(number))
        if key is not None:
            self._begun[index, key] = call
        self._latest[index] = call
        call.id = call.id or id
        if not name or call.name:
            return call.rest
        call.name = name
        return ToolPart(call.rest.number, call.id, name)

    def begun(self, key: Hashable) -> ToolPart | None:
        call = self._begun.get((0, key))
        return None if call is None else call.rest


class PartNumbers(Struct):
    """Numbers of the blocks or items of one answer, in the order in which they begin.

    Some servers give none of them an index, or all the same: then a part ends where the next
    begins.
    """

    _numbers: dict[int | str | None, int] = {}
    _count: int = 0
    _open: set[int] = set()

    def begin(self, index: Any) -> int:
        """Return the number of a part that begins; `index`: the provider's, any JSON value."""
        number = self._numbers[_key(index)] = self._count
        self._count += 1
        self._open.add(number)
        return number

    def of(self, index: Any) -> int:
        """Return the number of the part with this `index`, or else of the latest part."""
        number = self._numbers.get(_key(index), self._count - 1)
        return self.begin(index) if number < 0 else number

    def end(self, index: Any) -> int:
        """Return the number of a part that ends, or comes whole."""
        number = self.of(index)
        if number not in self._open:
            number = self.begin(index)
        self._open.discard(number)
        return number


def _key(index: Any) -> int | str | None:
    return index if isinstance(index, int | str) else None


def arguments_text(value: Any) -> str:
    """Return the arguments of a tool call as text. Some servers send an object for a text, or the
    reverse."""
    if isinstance(value, Raw):
        data = bytes(value)
        text = read_json(data) if data.startswith(b'"') else None
        return (
            text
            if isinstance(text, str)
            else ""
            if data == b"null"
            else data.decode("utf-8", "replace")
        )
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.encode(value).decode() if value else ""
    except RecursionError:
        # nested more deeply than it can be written: no JSON, so that nobody takes it for the
        # arguments
        return "{"
