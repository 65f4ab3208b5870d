"""Tool calls as they come in, numbered: which call a fragment belongs to, whatever a provider says of that.

OpenAI's dialect tells calls apart by an index, which some servers leave out and others set to 0 for every call; whoever
begins a call under another id and with a name begins another one. An id alone does not: older versions of vLLM made up
an id for each fragment. Some servers repeat the name with each fragment; it counts once.
"""

from collections.abc import Hashable

from msgspec import Struct

from splitsecond.events import ToolPart


class _Begun:
    """A call that has begun. `rest` is what its later tokens carry."""

    __slots__ = ("id", "named", "rest")

    def __init__(self, number: int) -> None:
        self.id = ""
        self.named = False
        self.rest = ToolPart(number)


class ToolCalls(Struct, eq=False):
    """The calls of one answer."""

    _begun: dict[tuple[int, Hashable], _Begun] = {}
    _counts: dict[int, int] = {}
    _latest: dict[int, Hashable] = {}

    def part(self, key: Hashable, id: str = "", name: str = "", index: int = 0) -> ToolPart:  # noqa: A002
        """The part that a fragment is, of the call that the provider knows by `key` among those of choice `index`.

        A `key` of None: the provider does not say; then a name begins a call.
        """
        if key is None:
            key = ("unnumbered", self._counts.get(index, 0)) if name else self._latest.get(index)
        self._latest[index] = key
        call = self._begun.get((index, key))
        if call is None or (name and id and call.id and id != call.id):
            number = self._counts.get(index, 0)
            self._counts[index] = number + 1
            call = self._begun[index, key] = _Begun(number)
        call.id = call.id or id
        if not name or call.named:
            return call.rest
        call.named = True
        return ToolPart(call.rest.number, call.id, name)

    def begun(self, key: Hashable) -> ToolPart | None:
        """What the later tokens of that call carry; None: it has not begun."""
        call = self._begun.get((0, key))
        return None if call is None else call.rest
