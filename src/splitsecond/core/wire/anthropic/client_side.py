"""Anthropic's Messages on the client's side of the gateway: relay, assembly and continuation.

A continued message keeps the id and the model of the first target, and the numbers of its blocks go
on.
"""

from functools import partial
from typing import Any

import msgspec

from splitsecond.core.events import TokenKind
from splitsecond.core.service import Call
from splitsecond.core.validation import read_json
from splitsecond.core.wire.anthropic.answers import StreamWriter
from splitsecond.core.wire.anthropic.decode import AnthropicDecoder
from splitsecond.core.wire.assembly import MAX_INDEXES, Added, Assembly, merge, plain
from splitsecond.core.wire.continuation import PartsEncoder, only_tools
from splitsecond.core.wire.relay import StreamRelay
from splitsecond.core.wire.sse import malformed
from splitsecond.core.wire.tool_calls import PartNumbers
from splitsecond.core.wire.transcoder import new_transcoder

_decode_input = msgspec.json.Decoder(dict[str, Any]).decode
transcoder = partial(new_transcoder, StreamWriter, "msg_")


class MessageRelay(StreamRelay):
    decoder = AnthropicDecoder
    transcoder = staticmethod(transcoder)  # from Python 3.14 on, a partial in a class is a method


class MessageAssembly(Assembly):
    """Assembly of a message, block by block, with unknown fields of events."""

    done_ends = False

    def __init__(self) -> None:
        super().__init__()
        self._numbers = PartNumbers()
        self._blocks: dict[int, dict[str, Any]] = {}

    def merge(self, chunk: dict[str, Any], name: str) -> Added:
        added: Added = []
        match {**chunk, "type": chunk.get("type") or name}:
            case {"type": "message_start", "message": dict(message)}:
                self.merged |= message
            case {"type": "content_block_start", "content_block": dict(block)}:
                merge(self._block(self._numbers.begin(chunk.get("index"))), block, [], joins=True)
            case {"type": "content_block_delta", "delta": dict(delta)}:
                fields = {name: value for name, value in delta.items() if name != "type"}
                if "citation" in fields:
                    fields["citations"] = [fields.pop("citation")]
                merge(self._block(self._numbers.of(chunk.get("index"))), fields, added, joins=True)
            case {"type": "message_delta", **rest}:
                delta, usage = rest.pop("delta", None), rest.pop("usage", None)
                self.merged |= {str(name): value for name, value in rest.items()}
                self.merged |= delta if isinstance(delta, dict) else {}
                if isinstance(usage, dict):
                    self._merge_usage(usage)
            case {"type": "message_stop"}:
                self._ended = True
        return added

    def _merge_usage(self, usage: dict[str, Any]) -> None:
        earlier = self.merged.get("usage")
        counts = self.merged["usage"] = dict(earlier) if isinstance(earlier, dict) else {}
        # counts never decrease: some servers send 0 for those that they sent before
        counts |= {
            name: count for name, count in usage.items() if count or not counts.get(name, count)
        }

    def fields(self) -> dict[str, Any]:
        blocks = [plain(self._blocks[number]) for number in sorted(self._blocks)]
        for block in blocks:
            tool_input = block.pop("partial_json", None) or block.get("input")
            # empty, as in Anthropic's libraries, if a token limit cut its JSON
            if isinstance(tool_input, str):
                block["input"] = read_json(tool_input, _decode_input) or {}
        return {**self.merged, "content": blocks}

    def _block(self, number: int) -> dict[str, Any]:
        if number == MAX_INDEXES:
            raise malformed(f"the message has more than {MAX_INDEXES:,} blocks", "too_long")
        return self._blocks.setdefault(number, {"type": "text"})


_KINDS: dict[str, TokenKind] = {"text": "text", "thinking": "reasoning", "tool_use": "tool"}
_TOOLS = (None, "custom")
_BOUNDS = b'"content_block_st'
"""The common beginning of the names of the events that start and stop a block."""


def continuation_encoder(call: Call) -> "MessageEncoder | None":
    """Return the encoder for the answer to `call`; None if it may hold blocks of unknown types."""
    return (
        MessageEncoder(call) if call.operation == "chat" and only_tools(call.body, _TOOLS) else None
    )


class _Block(msgspec.Struct):
    type: str = ""


class _Bound(msgspec.Struct):
    index: Any = None
    type: str = ""
    content_block: _Block | None = None


_decode_bound = msgspec.json.Decoder(_Bound).decode


class MessageEncoder(PartsEncoder):
    def __init__(self, call: Call) -> None:
        super().__init__(AnthropicDecoder())
        self._operation = call.operation
        self._blocks = 0
        self._open = ""  # the type of the open block

    def note(self, data: bytes) -> None:
        if _BOUNDS not in data:
            return
        bound = read_json(data, _decode_bound)
        if bound is None:
            self._position_known = False
        elif bound.type == "content_block_stop":
            self._ends(_KINDS.get(self._open))
            self._open = ""
        elif bound.type == "content_block_start" and bound.content_block is not None:
            self._blocks = bound.index + 1 if isinstance(bound.index, int) else self._blocks + 1
            self._open = bound.content_block.type or "unknown"
            self._begins(_KINDS.get(self._open))
            self._calls += self._open == "tool_use"

    def resumed(self) -> StreamWriter:
        writer = StreamWriter(self._operation, "", id="", created=0)
        writer.resume(self._blocks, _KINDS.get(self._open), is_open=bool(self._open))
        return writer
