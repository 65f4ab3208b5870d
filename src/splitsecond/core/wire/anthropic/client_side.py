"""Anthropic's Messages on the client's side of the gateway: relay, assembly and continuation.

A continued message keeps the id and the model of the first target, and the numbers of its blocks go on.
"""

from functools import partial
from typing import Any

import msgspec

from splitsecond.core.events import TokenKind
from splitsecond.core.service import Call
from splitsecond.core.validation import read_json
from splitsecond.core.wire.anthropic.answers import StreamWriter
from splitsecond.core.wire.anthropic.decode import AnthropicDecoder
from splitsecond.core.wire.assembly import MAX_INDEXES, Assembly
from splitsecond.core.wire.continuation import PartsEncoder, only_tools
from splitsecond.core.wire.relay import StreamRelay
from splitsecond.core.wire.sse import malformed
from splitsecond.core.wire.tool_calls import PartNumbers
from splitsecond.core.wire.transcoder import new_transcoder

_decode_input = msgspec.json.Decoder(dict[str, Any]).decode
transcoder = partial(new_transcoder, StreamWriter, "msg_")
"""Returns the transcoder that writes the answer of a model to a call as Messages."""


class MessageRelay(StreamRelay):
    """Relay of a stream of Messages."""

    decoder = AnthropicDecoder
    transcoder = staticmethod(transcoder)  # from Python 3.14 on, a partial in a class is a method


class MessageAssembly(Assembly):
    """Assembly of a message, block by block. Fields of events that are unknown here are kept."""

    done_ends = False

    def __init__(self) -> None:
        super().__init__()
        self._numbers = PartNumbers()
        self._blocks: dict[int, dict[str, Any]] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}

    def merge(self, chunk: dict[str, Any]) -> None:
        """Merge one event into the message."""
        match chunk:
            case {"type": "message_start", "message": dict(message)}:
                self.merged |= message
            case {"type": "content_block_start", "content_block": dict(block)}:
                self._block(self._numbers.begin(chunk.get("index"))).update(block)
            case {"type": "content_block_delta", "delta": dict(delta)}:
                self._extend(self._numbers.of(chunk.get("index")), delta)
            case {"type": "message_delta", **rest}:
                delta, usage = rest.pop("delta", None), rest.pop("usage", None)
                self.merged |= {str(name): value for name, value in rest.items()}
                self.merged |= delta if isinstance(delta, dict) else {}
                if isinstance(usage, dict):
                    counts = {name: count for name, count in usage.items() if count is not None}
                    known = self.merged.get("usage")
                    self.merged["usage"] = known | counts if isinstance(known, dict) else counts
            case {"type": "message_stop"}:
                self._ended = True

    def added_text(self, chunk: dict[str, Any]) -> str | None:
        """Return the text of the only field of a delta that is joined, if nothing else of the event is added."""
        match chunk:
            case {"type": "content_block_delta", "delta": dict(delta)} if "citation" not in delta:
                names = _text_names(delta)
                return delta[names[0]] if len(names) == 1 else None
        return None

    def pieces(self, chunk: dict[str, Any]) -> list[str]:
        """Return where `merge` has put the text that `chunk` adds."""
        (name,) = _text_names(chunk["delta"])
        return self._texts[self._numbers.of(chunk.get("index")), name]

    def fields(self) -> dict[str, Any]:
        """Return the message with its blocks."""
        for (index, name), texts in self._texts.items():
            block = self._blocks[index]
            if name == "partial_json":
                # empty, as in Anthropic's libraries, if a token limit cut its JSON
                block["input"] = read_json("".join(texts), _decode_input) or {}
            else:
                start = block.get(name)
                block[name] = (start if isinstance(start, str) else "") + "".join(texts)
        return {**self.merged, "content": [self._blocks[index] for index in sorted(self._blocks)]}

    def _extend(self, index: int, delta: dict[str, Any]) -> None:
        block = self._block(index)
        for name, value in delta.items():
            if name == "citation":
                known = block.get("citations")
                if isinstance(known, list):
                    known.append(value)
                else:
                    block["citations"] = [value]
            elif name != "type" and isinstance(value, str):
                self._texts.setdefault((index, name), []).append(value)
            elif name != "type":
                block[name] = value

    def _block(self, index: int) -> dict[str, Any]:
        block = self._blocks.get(index)
        if block is None:
            if len(self._blocks) == MAX_INDEXES:
                raise malformed(f"the message has more than {MAX_INDEXES:,} blocks", "too_long")
            block = self._blocks[index] = {}
        return block


def _text_names(delta: dict[str, Any]) -> list[str]:
    """Return the names of the fields of `delta` that hold a text."""
    return [name for name, value in delta.items() if name != "type" and isinstance(value, str)]


_KINDS: dict[str, TokenKind] = {"text": "text", "thinking": "reasoning", "tool_use": "tool"}
_TOOLS = (None, "custom")
_BOUNDS = b'"content_block_st'
"""The common beginning of the names of the events that start and stop a block."""


def continuation_encoder(call: Call) -> "MessageEncoder | None":
    """Return the encoder for the answer to `call`; None if the answer may hold blocks of unknown types."""
    return MessageEncoder(call) if call.operation == "chat" and only_tools(call.body, _TOOLS) else None


class _Block(msgspec.Struct):
    type: str = ""


class _Bound(msgspec.Struct):
    """The start or the stop of a block."""

    index: Any = None
    type: str = ""
    content_block: _Block | None = None


_decode_bound = msgspec.json.Decoder(_Bound).decode


class MessageEncoder(PartsEncoder):
    """Encoder of one message."""

    def __init__(self, call: Call) -> None:
        super().__init__(AnthropicDecoder())
        self._operation = call.operation
        self._blocks = 0
        self._open = ""  # the type of the open block

    def note(self, data: bytes) -> None:
        """Follow the position in the message with one more of its events."""
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
        """Return a writer that continues at this position."""
        writer = StreamWriter(self._operation, "", id="", created=0)
        writer.resume(self._blocks, _KINDS.get(self._open), is_open=bool(self._open))
        return writer
