"""Streams of Anthropic's Messages and of OpenAI's Responses, each made into one answer as if it had not been streamed.

A message grows block by block, and what an event holds that is unknown here is kept. A response needs no putting
together: the event that ends it holds all of it, and its bytes are the answer.
"""

from typing import Any

import msgspec

from splitsecond.errors import ProviderFault
from splitsecond.gateway.assemble import Assembly, decoded

_ENDS = ("response.completed", "response.incomplete", "response.failed")


class MessageAssembly(Assembly):
    """Anthropic's."""

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[int, dict[str, Any]] = {}
        self._grown: dict[tuple[int, str], list[str]] = {}

    def merge(self, chunk: dict[str, Any]) -> None:
        match chunk:
            case {"type": "message_start", "message": dict(message)}:
                self.merged |= message
            case {"type": "content_block_start", "index": int(index), "content_block": dict(block)}:
                self._blocks[index] = block
            case {"type": "content_block_delta", "index": int(index), "delta": dict(delta)}:
                self._grow(index, delta)
            case {"type": "message_delta", **rest}:
                delta, usage = rest.pop("delta", None), rest.pop("usage", None)
                self.merged |= {str(name): value for name, value in rest.items()}
                self.merged |= delta if isinstance(delta, dict) else {}
                if isinstance(usage, dict):
                    said = {name: count for name, count in usage.items() if count is not None}
                    known = self.merged.get("usage")
                    self.merged["usage"] = known | said if isinstance(known, dict) else said

    def fields(self) -> dict[str, Any]:
        for (index, name), texts in self._grown.items():
            block = self._blocks[index]
            if name == "partial_json":
                block["input"] = _object("".join(texts))
            else:
                begun = block.get(name)
                block[name] = (begun if isinstance(begun, str) else "") + "".join(texts)
        return {**self.merged, "content": [self._blocks[index] for index in sorted(self._blocks)]}

    def _grow(self, index: int, delta: dict[str, Any]) -> None:
        block = self._blocks.setdefault(index, {})
        for name, value in delta.items():
            if name == "citation":
                known = block.get("citations")
                block["citations"] = [*known, value] if isinstance(known, list) else [value]
            elif name != "type" and isinstance(value, str):
                self._grown.setdefault((index, name), []).append(value)
            elif name != "type":
                block[name] = value


class _Event(msgspec.Struct):
    """An event of a response, of which only the last matters."""

    type: str = ""
    response: msgspec.Raw = msgspec.Raw()


_decode_event = msgspec.json.Decoder(_Event).decode


class ResponseAssembly(Assembly):
    """OpenAI's Responses."""

    def __init__(self) -> None:
        super().__init__()
        self._response = b""

    def take(self, data: bytes) -> None:
        event = decoded(data, _decode_event)
        if event.type in _ENDS and event.response:
            self._response = bytes(event.response)

    def whole(self) -> bytes:
        if not self._response:
            words = "the stream holds no event with the whole response"
            raise ProviderFault(words, kind="malformed", phase="between tokens", status=200)
        return self._response


def _object(text: str) -> Any:
    """The input of a tool. One that a limit on the answer has cut is no JSON: then, as in the SDKs, it is empty."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        return {}
