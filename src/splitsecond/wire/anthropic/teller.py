"""A stream of Messages that another target's answer may go on.

The message stays the first one's, with its id and model, and blocks are numbered on.
"""

from typing import Any

import msgspec

from splitsecond.events import TokenKind
from splitsecond.service import Call
from splitsecond.wire.anthropic.answers import StreamWriter
from splitsecond.wire.anthropic.decode import decoder
from splitsecond.wire.telling import PartsTeller, only_tools

_KINDS: dict[str, TokenKind] = {"text": "text", "thinking": "reasoning", "tool_use": "tool"}
_TOOLS = (None, "custom")
_BOUNDS = b'"content_block_st'
"""As begin the names of the events that begin and stop a block."""


def teller(call: Call) -> "MessageTeller | None":
    """The teller of the answer to `call`; None: it may hold blocks that this one does not know."""
    return MessageTeller(call) if call.operation == "chat" and only_tools(call.body, _TOOLS) else None


class _Block(msgspec.Struct):
    type: str = ""


class _Bound(msgspec.Struct):
    """The beginning or the end of a block."""

    index: Any = None
    type: str = ""
    content_block: _Block | None = None


_bound = msgspec.json.Decoder(_Bound).decode


class MessageTeller(PartsTeller):
    """One message."""

    def __init__(self, call: Call) -> None:
        super().__init__(decoder(call.operation))
        self._operation = call.operation
        self._blocks = 0
        self._open = ""  # the type of the block that is

    def note(self, data: bytes) -> None:
        """One more event of the message."""
        if _BOUNDS not in data:
            return
        try:
            bound = _bound(data)
        except (ValueError, RecursionError):
            self._is_sure = False
            return
        if bound.type == "content_block_stop":
            self._ends(_KINDS.get(self._open))
            self._open = ""
        elif bound.type == "content_block_start" and bound.content_block is not None:
            self._blocks = bound.index + 1 if isinstance(bound.index, int) else self._blocks + 1
            self._open = bound.content_block.type or "unknown"
            self._begins(_KINDS.get(self._open))
            self._calls += self._open == "tool_use"

    def resumed(self) -> StreamWriter:
        """A writer that goes on from there."""
        writer = StreamWriter(self._operation, "", id="", created=0)
        writer.resume(self._blocks, _KINDS.get(self._open), is_open=bool(self._open))
        return writer
