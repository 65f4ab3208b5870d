"""A stream of Responses that another target's answer may go on.

The response stays the first one's, with its id and what it says of itself; items and events are numbered on. What ends
an item, or the answer, holds all of it once more, so what was told is kept. Each event says a thing again at the end of
a part, and of an item: it is taken from the deltas while a part is open, and from its end when that has come.
"""

from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.service import Call
from splitsecond.wire.responses.answers import GROWING, Begun, Growing, StreamWriter
from splitsecond.wire.responses.decode import decoder
from splitsecond.wire.telling import PartsTeller, only_tools

_DELTAS = {f"{grows.deltas}.delta": (kind, grows) for kind, grows in GROWING}
_ENDS = frozenset(f"{grows.deltas}.done" for _, grows in GROWING)
_PARTS = {grows.part: f"{grows.deltas}.delta" for _, grows in GROWING if grows.part}
_ARGUMENTS = "response.function_call_arguments.delta"
_TOOLS = ("function",)


def teller(call: Call) -> "ResponseTeller | None":
    """The teller of the answer to `call`; None: it may hold items that this one does not know, or log-probabilities."""
    if call.operation != "chat" or not only_tools(call.body, _TOOLS) or _wants_logprobs(call.body.get("include")):
        return None
    return ResponseTeller(call)


class _Happening(msgspec.Struct):
    """One event, as far as it says where the answer is."""

    type: str = ""
    sequence_number: Any = None
    output_index: Any = None
    content_index: Any = None
    summary_index: Any = None
    response: dict[str, Any] | None = None
    item: dict[str, Any] | None = None
    part: dict[str, Any] | None = None
    delta: Any = None


_happening = msgspec.json.Decoder(_Happening).decode


class ResponseTeller(PartsTeller):
    """One response."""

    kinds = frozenset({"text", "refusal", "reasoning", "tool", "image"})

    def __init__(self, call: Call) -> None:
        super().__init__(decoder(call.operation))
        self._operation = call.operation
        self._begun = Begun()

    def note(self, data: bytes) -> None:
        """One more event of the response."""
        try:
            happening = _happening(data)
        except (ValueError, RecursionError):
            self._is_sure = False
            return
        begun, number = self._begun, happening.sequence_number
        begun.sequence = number + 1 if isinstance(number, int) else begun.sequence + 1
        if happening.response is not None:
            begun.head = begun.head or happening.response
        elif happening.type in _DELTAS:
            self._take_delta(happening)
        elif happening.type in _ENDS:
            begun.said = True
            self._ends(begun.kind)
        elif happening.item is not None:
            self._take_item(happening.item, happening)
        elif happening.part is not None:
            self._take_part(happening.part, happening)

    def resumed(self) -> StreamWriter:
        """A writer that goes on from there."""
        writer = StreamWriter(self._operation, "", id="", created=0)
        writer.resume(self._begun)
        return writer

    def _take_item(self, item: dict[str, Any], happening: _Happening) -> None:
        begun = self._begun
        self._ends(begun.kind)
        begun.kind, begun.grows = None, None
        if begun.is_open and happening.type == "response.output_item.done":
            begun.items[-1], begun.is_open = item, False
            return
        self._is_sure &= not begun.is_open and happening.output_index in (None, len(begun.items))
        begun.items.append(item)
        begun.is_open = happening.type == "response.output_item.added"
        self._begins("reasoning" if item.get("type") == "reasoning" else "text")
        if item.get("type") == "function_call":
            self._calls += 1
            if begun.is_open:
                self._grow(_ARGUMENTS, happening)

    def _take_part(self, part: dict[str, Any], happening: _Happening) -> None:
        begun, deltas = self._begun, _PARTS.get(str(part.get("type")))
        if deltas is None or not begun.is_open:
            self._is_sure = False
        elif happening.type.endswith(".added"):
            self._grow(deltas, happening)
        else:
            item, parts = begun.items[-1], _DELTAS[deltas][1].parts
            begun.items[-1] = {**item, parts: [*(item.get(parts) or ()), part]}
            self._ends(begun.kind)
            begun.kind, begun.grows = None, None

    def _take_delta(self, happening: _Happening) -> None:
        begun = self._begun
        if not begun.is_open or not isinstance(happening.delta, str):
            self._is_sure = False
            return
        if begun.grows is None:  # its part began without a word
            self._grow(happening.type, happening)
        self._is_sure &= begun.kind == _DELTAS[happening.type][0]
        begun.texts.append(happening.delta)

    def _grow(self, deltas: str, happening: _Happening) -> None:
        """From here on `deltas` go into the part that `happening` names, of the last item."""
        begun = self._begun
        begun.kind, begun.grows = _DELTAS[deltas]
        self._begins(begun.kind)
        begun.place, begun.texts, begun.said = _place(happening, begun.grows), [], False


def _place(happening: _Happening, grows: Growing) -> int:
    place = happening.summary_index if grows.place == "summary_index" else happening.content_index
    return place if isinstance(place, int) else 0


def _wants_logprobs(include: Raw | Any) -> bool:
    return b"logprobs" in (include if isinstance(include, Raw) else msgspec.json.encode(include))
