"""Numbering of streamed tool calls: the call to which a fragment belongs.

OpenAI's format distinguishes calls by an index, which some servers omit and others set to 0 for every call; so another
id together with a name begins a new call. An id alone does not: older versions of vLLM made up an id for each fragment.
Some servers repeat the name with each fragment; it counts once.
"""

from collections.abc import Hashable

from msgspec import Struct

from splitsecond.core.events import ToolPart


class _Call:
    """A call that has begun. `rest` is the part of its later tokens."""

    __slots__ = ("id", "named", "rest")

    def __init__(self, number: int) -> None:
        self.id = ""
        self.named = False
        self.rest = ToolPart(number)


class ToolCalls(Struct, eq=False):
    """The tool calls of one answer."""

    _begun: dict[tuple[int, Hashable], _Call] = {}
    _counts: dict[int, int] = {}
    _latest: dict[int, Hashable] = {}

    def part(self, key: Hashable, id: str = "", name: str = "", index: int = 0) -> ToolPart:
        """Return the part for a fragment of the call with the provider's `key` in choice `index`.

        `key` None: the provider gives none; then a name begins a call.
        """
        if key is None:
            key = ("unnumbered", self._counts.get(index, 0)) if name else self._latest.get(index)
        self._latest[index] = key
        call = self._begun.get((index, key))
        if call is None or (name and id and call.id and id != call.id):
            number = self._counts.get(index, 0)
            self._counts[index] = number + 1
            call = self._begun[index, key] = _Call(number)
        call.id = call.id or id
        if not name or call.named:
            return call.rest
        call.named = True
        return ToolPart(call.rest.number, call.id, name)

    def begun(self, key: Hashable) -> ToolPart | None:
        """Return the part of the later tokens of that call; None if it has not begun."""
        call = self._begun.get((0, key))
        return None if call is None else call.rest
