"""Server role: answers of OpenAI's Responses as bytes.

An answer is a list of items (reasoning, a message, tool calls), and each begins, grows by deltas
and ends. The constant part of the deltas of an item is encoded once. The events that end an item or
the answer repeat all of it, so texts are kept until then.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.events import TokenKind, Usage
from splitsecond.core.service import Operation
from splitsecond.core.wire.api_format import AnswerWriter, ServerAnswer
from splitsecond.core.wire.responses.tools import CarriedTool, carried_tools, custom_input
from splitsecond.core.wire.server_answer import to_json, typed_event
from splitsecond.core.wire.translation import Fields

_INCOMPLETE = {
    "length": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Finish reasons of incomplete answers, as this format names them."""


class Growth(Struct, frozen=True):
    """Growth of an item of one kind. `field` holds the sum of its deltas.

    If that field is in a part of the item: `part` is the type of the part, `parts` the item's field
    with its parts, `place` the event field with the number of the part, and `around` the beginning
    of the names of the events that begin and end the part.
    """

    deltas: str
    field: str
    part: str = ""
    parts: str = "content"
    place: str = "content_index"
    around: str = "response.content_part"


_KINDS: Mapping[TokenKind, Growth] = {
    "text": Growth("response.output_text", "text", "output_text"),
    "refusal": Growth("response.refusal", "refusal", "refusal"),
    "reasoning": Growth(
        "response.reasoning_summary_text",
        "text",
        "summary_text",
        "summary",
        "summary_index",
        "response.reasoning_summary_part",
    ),
    "tool": Growth("response.function_call_arguments", "arguments"),
}
GROWTHS: Sequence[tuple[TokenKind, Growth]] = (
    *_KINDS.items(),
    ("reasoning", Growth("response.reasoning_text", "text", "reasoning_text")),
)
"""All the ways in which an item grows. The last is for models that show all their reasoning."""


class Position(Struct):
    """Position in an answer. `head`: the response in its first event; `sequence`: the next number.

    `is_open`: the last of `items` has not ended. `grows`: how deltas of `kind` extend its open
    part, if there is one. `place`: the number of that part; `texts`: its deltas so far;
    `text_ended`: no more of them come.
    """

    head: Fields = {}
    sequence: int = 0
    items: list[Fields] = []
    is_open: bool = False
    kind: TokenKind | None = None
    grows: Growth | None = None
    place: int = 0
    texts: list[str] = []
    text_ended: bool = False


_NULLS = (
    "completed_at", "error", "frequency_penalty", "incomplete_details", "instructions",
    "presence_penalty",
    "temperature", "top_p",
)  # fmt: skip
_NO_TOOLS: Mapping[str, CarriedTool] = {}


class StreamWriter(AnswerWriter):
    """Writer of one answer: see `AnswerWriter`. There is one choice.

    Finish reason and usage are in the last event. `tools`: the client's tools that are carried as
    functions. The input of a custom tool is written when the function's arguments are complete.
    """

    repeats_text = True

    def __init__(
        self,
        operation: Operation,
        model: str,
        *,
        id: str,
        created: int,
        tools: Mapping[str, CarriedTool] = _NO_TOOLS,
    ) -> None:
        self._head = _head(id, model, created)
        self.tools = tools
        # the arguments of the function that carries the open custom call
        self._custom: list[str] | None = None
        self._position = Position()
        self._before = b""
        self._reason = "stop"
        self._usage: Usage | None = None

    def resume(self, position: Position) -> None:
        self._head |= position.head
        self._position = position
        if position.grows is not None:
            self._before = self._delta(position.grows)

    @property
    def kind(self) -> TokenKind | None:
        return None if self._position.text_ended else self._position.kind

    def read_tools(self, fields: Mapping[str, Any]) -> None:
        self.tools = carried_tools(fields)

    def opening(self, index: int = 0, usage: Usage | None = None) -> bytes:
        response = {**self._head, "status": "in_progress", "output": [], "usage": None}
        created = self._event("response.created", response=response)
        return created + self._event("response.in_progress", response=response)

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        if kind == "image":
            ended = self._ended_item()
            return ended + self._add(_image_item(self._id("ig"), text)) + self._done_item()
        if self._custom is not None and kind == "tool":
            self._custom.append(text)
            return b""
        start = b"" if kind == self.kind else self._begin(kind)
        self._position.texts.append(text)
        return start + self._before + to_json(text) + b',"sequence_number":%d}\n\n' % self._number()

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        ended = self._ended_item()
        tool = self.tools.get(name) or CarriedTool(name)
        own = {"namespace": tool.namespace} if tool.namespace else {}
        if tool.custom:
            item = {
                "id": self._id("ctc"),
                "type": "custom_tool_call",
                "call_id": call_id,
                "name": tool.name,
                **own,
            }
            self._position.is_open, self._custom = True, []
            return ended + self._add({**item, "input": "", "status": "in_progress"})
        added = self._add(_call_item(self._id("fc"), call_id, tool.name) | own)
        self._open("tool")
        return ended + added

    def finish(self, reason: str, index: int = 0) -> bytes:
        self._reason = reason
        return self._ended_item()

    def usage(self, usage: Usage) -> bytes:
        self._usage = usage
        return b""

    def done(self) -> bytes:
        response = {**self._head, **_end(self._reason, self._usage), "output": self._position.items}
        return self._event(f"response.{response['status']}", response=response)

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:
        return self._event("error", code=str(code or type), message=message, param=None)

    def whole(self, answers: Sequence[ServerAnswer], usage: Usage) -> bytes:
        (answer,) = answers
        self._position, self._custom = Position(), None
        texts: list[tuple[TokenKind, str]] = [
            ("reasoning", answer.reasoning), ("text", answer.text), ("refusal", answer.refusal),
        ]  # fmt: skip
        for kind, text in texts:
            if text:
                self.token(text, kind)
        for call in answer.calls:
            self.tool_call(call.name, call.id)
            self.token(call.arguments, "tool")
        self.finish(answer.finish)
        return to_json({**self._head, **_end(answer.finish, usage), "output": self._position.items})

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._head['id']}_{len(self._position.items)}"

    def _number(self) -> int:
        self._position.sequence += 1
        return self._position.sequence - 1

    def _event(self, name: str, **fields: Any) -> bytes:
        return typed_event(name, **fields, sequence_number=self._number())

    def _add(self, item: Fields) -> bytes:
        items = self._position.items
        items.append(item)
        return self._event("response.output_item.added", output_index=len(items) - 1, item=item)

    def _done_item(self) -> bytes:
        items = self._position.items
        return self._event("response.output_item.done", output_index=len(items) - 1, item=items[-1])

    def _begin(self, kind: TokenKind) -> bytes:
        """Return the start of a part for tokens of `kind`, in the open item if that has the right
        type and no open part, otherwise in a new one."""
        grows, position = _KINDS[kind], self._position
        name = "reasoning" if kind == "reasoning" else "message"
        place, added = 0, b""
        if position.is_open and position.grows is None and position.items[-1].get("type") == name:
            place = len(position.items[-1].get(grows.parts) or ())
        else:
            added = self._ended_item()
            if kind == "reasoning":
                item: Fields = {"id": self._id("rs"), "type": name, "summary": []}
            else:
                item = {"id": self._id("msg"), "type": name, "role": "assistant", "content": []}
            added += self._add({**item, "status": "in_progress"})
        self._open(kind, place)
        return added + self._part(f"{grows.around}.added", grows, "")

    def _open(self, kind: TokenKind, place: int = 0) -> None:
        """Prepare for deltas of `kind` of part `place` of the last item."""
        position, grows = self._position, _KINDS[kind]
        position.is_open, position.text_ended = True, False
        position.kind, position.grows, position.place = kind, grows, place
        position.texts.clear()
        self._before = self._delta(grows)

    def _delta(self, grows: Growth) -> bytes:
        name = f"{grows.deltas}.delta"
        fields = to_json({"type": name, **self._where(grows), **_logprobs(grows)})
        return b"event: " + name.encode() + b"\ndata: " + fields[:-1] + b',"delta":'

    def _where(self, grows: Growth) -> Fields:
        items = self._position.items
        place = {grows.place: self._position.place} if grows.part else {}
        return {"item_id": items[-1].get("id"), "output_index": len(items) - 1, **place}

    def _part(self, name: str, grows: Growth, text: str) -> bytes:
        return self._event(name, **self._where(grows), part=_part_of(grows, text))

    def _ended_item(self) -> bytes:
        """Return the end of the open item with all of its content; b"" if no item is open."""
        position = self._position
        if not position.is_open:
            return b""
        ended, grows, item = b"", position.grows, position.items[-1]
        if self._custom is not None:
            text, self._custom = custom_input("".join(self._custom)), None
            place = {"item_id": item["id"], "output_index": len(position.items) - 1}
            ended = self._event("response.custom_tool_call_input.delta", **place, delta=text)
            ended += self._event("response.custom_tool_call_input.done", **place, input=text)
            item = {**item, "input": text}
        elif grows is not None:
            text = "".join(position.texts)
            if not position.text_ended:
                fields = {grows.field: text, **_logprobs(grows)}
                ended = self._event(f"{grows.deltas}.done", **self._where(grows), **fields)
            if grows.part:
                ended += self._part(f"{grows.around}.done", grows, text)
                item = {
                    **item,
                    grows.parts: [*(item.get(grows.parts) or ()), _part_of(grows, text)],
                }
            else:
                item = {**item, grows.field: text}
        position.items[-1] = {**item, "status": "completed"}
        position.is_open, position.kind, position.grows = False, None, None
        return ended + self._done_item()


def _head(identity: str, model: str, created: int) -> Fields:
    head = {"id": identity, "object": "response", "created_at": created, "model": model}
    usual = {"metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**head, **dict.fromkeys(_NULLS), **usual}


def _end(reason: str, usage: Usage | None) -> Fields:
    short = _INCOMPLETE.get(reason)
    return {
        "completed_at": None if short else int(clock.wall_time().timestamp()),
        "status": "incomplete" if short else "completed",
        "incomplete_details": {"reason": short} if short else None,
        **({"usage": None} if usage is None else counts(usage)),
    }


def _logprobs(grows: Growth) -> Fields:
    return {"logprobs": []} if grows.part == "output_text" else {}


def _part_of(grows: Growth, text: str) -> Fields:
    annotations: Fields = {"annotations": [], "logprobs": []} if grows.part == "output_text" else {}
    return {"type": grows.part, grows.field: text, **annotations}


def _call_item(identity: str, call_id: str, name: str) -> Fields:
    call = {"id": identity, "type": "function_call", "call_id": call_id, "name": name}
    return {**call, "arguments": "", "status": "in_progress"}


def _image_item(identity: str, url: str) -> Fields:
    """Return the item of a generated image; a link takes the place of the data."""
    head, _, data = url.partition(";base64,")
    form = {"output_format": head.rpartition("/")[2]} if data else {}
    return {
        "id": identity,
        "type": "image_generation_call",
        "status": "completed",
        "result": data or url,
        **form,
    }


def token_count(tokens: int) -> bytes:
    return to_json({"object": "response.input_tokens", "input_tokens": tokens})


def counts(usage: Usage) -> Fields:
    read, output = usage.input_tokens or 0, usage.output_tokens or 0
    details = {
        "cached_tokens": usage.cached_tokens or 0,
        "cache_write_tokens": usage.cache_write_tokens or 0,
    }
    fields = {
        "input_tokens": read,
        "input_tokens_details": details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": read + output,
    }
    return {"usage": fields}
