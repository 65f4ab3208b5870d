"""The server role, writing: answers as bytes.

An answer is a list of items (thoughts, a message, tool calls), and each begins, grows by deltas and ends; the writer
begins and ends them itself, so that the caller only says what comes. All that is the same in every delta of an item is
put into JSON once; a token then costs the JSON of its own text, the running number that every event has, and one
concatenation. What ends an item, or the answer, holds all of it once more: texts are kept until then.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from splitsecond.events import TokenKind, Usage
from splitsecond.service import Operation
from splitsecond.wire.dialect import Answer
from splitsecond.wire.sse import encode_event

_json = msgspec.json.Encoder().encode

_INCOMPLETE = {
    "length": "max_output_tokens",
    "max_output_tokens": "max_output_tokens",
    "content_filter": "content_filter",
}
"""Why an answer is no longer, in OpenAI's words of a chat, or the API's own; whatever else ended it, it is complete."""


class Growing(Struct, frozen=True):
    """How an item of one kind grows. `field` holds what its deltas add up to.

    Where that stands in a part of the item: `part` is the part's type, `parts` the item's field with its parts, `place`
    the part's number in events, and `around` begins the names of the events that begin and end the part.
    """

    deltas: str
    field: str
    part: str = ""
    parts: str = "content"
    place: str = "content_index"
    around: str = "response.content_part"


_KINDS: Mapping[TokenKind, Growing] = {
    "text": Growing("response.output_text", "text", "output_text"),
    "refusal": Growing("response.refusal", "refusal", "refusal"),
    "reasoning": Growing(
        "response.reasoning_summary_text",
        "text",
        "summary_text",
        "summary",
        "summary_index",
        "response.reasoning_summary_part",
    ),
    "tool": Growing("response.function_call_arguments", "arguments"),
}
GROWING: Sequence[tuple[TokenKind, Growing]] = (
    *_KINDS.items(),
    ("reasoning", Growing("response.reasoning_text", "text", "reasoning_text")),
)
"""All the ways in which an item grows. The last is that of models that show what they think, not a summary of it."""


class Begun(Struct):
    """An answer as far as somebody else has told it. `head` is that of its first event, `sequence` the next number.

    The last of `items` has not ended where `is_open`. `grows`: how deltas of `kind` go into it; None: it has no part
    that has not ended. `place`: the number of that part; `texts`: what its deltas were; `said`: no more of them come.
    """

    head: dict[str, Any] = {}
    sequence: int = 0
    items: list[dict[str, Any]] = []
    is_open: bool = False
    kind: TokenKind | None = None
    grows: Growing | None = None
    place: int = 0
    texts: list[str] = []
    said: bool = False


class StreamWriter:
    """The bytes of one streamed answer. Each method gives whole events, ready to send.

    There is one choice: `index` is always 0. The order: `opening`, tokens and tool calls, `finish`, `usage`, `done`.
    Reason and counts share the last event, so `finish` only ends the item that is open, and `usage` gives no bytes.
    """

    def __init__(self, operation: Operation, model: str, *, id: str, created: int) -> None:  # noqa: A002
        self._head = _head(id, model, created)
        self._begun = Begun()
        self._before = b""
        self._reason = "stop"
        self._usage: Usage | None = None

    def resume(self, begun: Begun) -> None:
        """Goes on with an answer that somebody else has begun."""
        self._head |= begun.head
        self._begun = begun
        if begun.grows is not None:
            self._before = self._delta(begun.grows)

    @property
    def kind(self) -> TokenKind | None:
        """Of which kind the tokens of the open item are; None: no item is open, or one that takes no more."""
        return None if self._begun.said else self._begun.kind

    def opening(self, index: int = 0) -> bytes:
        """The answer begins; nothing of it is known yet."""
        response = {**self._head, "status": "in_progress", "output": [], "usage": None}
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def token(self, text: str, kind: TokenKind = "text", index: int = 0) -> bytes:
        """One content event, after the beginning of its item where it is the first of its kind.

        For "tool", `text` is a fragment of the arguments (`tool_call` comes before it). Raises `KeyError` for "audio",
        which no answer of this API holds.
        """
        if kind == "image":
            ended = self._ended_item()
            return ended + self._add(_image_item(self._id("ig"), text)) + self._done_item()
        begun = b"" if kind == self.kind else self._begin(kind)
        self._begun.texts.append(text)
        return begun + self._before + _json(text) + b',"sequence_number":%d}\n\n' % self._number()

    def tool_call(self, name: str, call_id: str, index: int = 0) -> bytes:
        """A tool call begins: its name."""
        ended = self._ended_item()
        added = self._add(_call_item(self._id("fc"), call_id, name, "", "in_progress"))
        self._open("tool")
        return ended + added

    def finish(self, reason: str, index: int = 0) -> bytes:
        """The end of the item that is open. Why the answer ended waits for the last event."""
        self._reason = reason
        return self._ended_item()

    def usage(self, usage: Usage) -> bytes:
        """The counts, for the last event."""
        self._usage = usage
        return b""

    def done(self) -> bytes:
        """The last event."""
        response = {**self._head, **_end(self._reason, self._usage), "output": self._begun.items}
        return self._event(f"response.{response['status']}", response=response)

    def error(self, message: str, type: str, code: str | int | None = None) -> bytes:  # noqa: A002
        """An error inside the stream; nothing should follow. The API has a code, and no place for `type`."""
        return self._event("error", code=str(code or type), message=message, param=None)

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._head['id']}_{len(self._begun.items)}"

    def _number(self) -> int:
        """The running number of the next event."""
        self._begun.sequence += 1
        return self._begun.sequence - 1

    def _event(self, name: str, **fields: Any) -> bytes:
        return encode_event(_json({"type": name, **fields, "sequence_number": self._number()}), name)

    def _add(self, item: dict[str, Any]) -> bytes:
        """An item begins."""
        items = self._begun.items
        items.append(item)
        return self._event("response.output_item.added", output_index=len(items) - 1, item=item)

    def _done_item(self) -> bytes:
        items = self._begun.items
        return self._event("response.output_item.done", output_index=len(items) - 1, item=items[-1])

    def _begin(self, kind: TokenKind) -> bytes:
        """The beginning of a part that tokens of `kind` are deltas of: in the item that is open and has none, if there
        is one, else in one of its own."""
        grows, begun = _KINDS[kind], self._begun
        name = "reasoning" if kind == "reasoning" else "message"
        place, added = 0, b""
        if begun.is_open and begun.grows is None and begun.items[-1].get("type") == name:
            place = len(begun.items[-1].get(grows.parts) or ())
        else:
            added = self._ended_item()
            if kind == "reasoning":
                item: dict[str, Any] = {"id": self._id("rs"), "type": name, "summary": []}
            else:
                item = {"id": self._id("msg"), "type": name, "role": "assistant", "content": []}
            added += self._add({**item, "status": "in_progress"})
        self._open(kind, place)
        return added + self._part(f"{grows.around}.added", grows, "")

    def _open(self, kind: TokenKind, place: int = 0) -> None:
        """Makes ready for deltas of `kind`, of the part `place` of the last item."""
        begun, grows = self._begun, _KINDS[kind]
        begun.is_open, begun.kind, begun.grows, begun.place, begun.said = True, kind, grows, place, False
        begun.texts.clear()
        self._before = self._delta(grows)

    def _delta(self, grows: Growing) -> bytes:
        """What stands before the text of a delta."""
        name = f"{grows.deltas}.delta"
        fields = _json({"type": name, **self._where(grows), **_logprobs(grows)})
        return b"event: " + name.encode() + b"\ndata: " + fields[:-1] + b',"delta":'

    def _where(self, grows: Growing) -> dict[str, Any]:
        items = self._begun.items
        place = {grows.place: self._begun.place} if grows.part else {}
        return {"item_id": items[-1].get("id"), "output_index": len(items) - 1, **place}

    def _part(self, name: str, grows: Growing, text: str) -> bytes:
        return self._event(name, **self._where(grows), part=_part_of(grows, text))

    def _ended_item(self) -> bytes:
        """The end of the item that is open, with all that it came to; no bytes where none is."""
        begun = self._begun
        if not begun.is_open:
            return b""
        ended, grows, item = b"", begun.grows, begun.items[-1]
        if grows is not None:
            text = "".join(begun.texts)
            if not begun.said:
                fields = {grows.field: text, **_logprobs(grows)}
                ended = self._event(f"{grows.deltas}.done", **self._where(grows), **fields)
            if grows.part:
                ended += self._part(f"{grows.around}.done", grows, text)
                item = {**item, grows.parts: [*(item.get(grows.parts) or ()), _part_of(grows, text)]}
            else:
                item = {**item, grows.field: text}
        begun.items[-1] = {**item, "status": "completed"}
        begun.is_open, begun.kind, begun.grows = False, None, None
        return ended + self._done_item()


def whole(
    operation: Operation,
    model: str,
    answers: Sequence[Answer],
    usage: Usage,
    *,
    id: str,  # noqa: A002
    created: int,
) -> bytes:
    """A whole answer, not streamed; `answers` holds one."""
    (answer,) = answers
    items: list[dict[str, Any]] = []
    if answer.reasoning:
        summary = [_part_of(_KINDS["reasoning"], answer.reasoning)]
        items.append({"id": f"rs_{id}", "type": "reasoning", "summary": summary, "status": "completed"})
    said: list[tuple[TokenKind, str]] = [("text", answer.text), ("refusal", answer.refusal)]
    if content := [_part_of(_KINDS[kind], text) for kind, text in said if text]:
        message = {"id": f"msg_{id}", "type": "message", "role": "assistant", "content": content}
        items.append({**message, "status": "completed"})
    items += [
        _call_item(f"fc_{id}_{number}", call.id, call.name, call.arguments, "completed")
        for number, call in enumerate(answer.calls)
    ]
    return _json({**_head(id, model, created), **_end(answer.finish, usage), "output": items})


def _head(identity: str, model: str, created: int) -> dict[str, Any]:
    """What every answer says of itself, as far as it does not depend on what was asked."""
    return {
        "id": identity,
        "object": "response",
        "created_at": created,
        "model": model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def _end(reason: str, usage: Usage | None) -> dict[str, Any]:
    """What an answer says of its end."""
    short = _INCOMPLETE.get(reason)
    return {
        "status": "incomplete" if short else "completed",
        "incomplete_details": {"reason": short} if short else None,
        "usage": None if usage is None else _usage_fields(usage),
    }


def _logprobs(grows: Growing) -> dict[str, Any]:
    """A field that events of text must have."""
    return {"logprobs": []} if grows.part == "output_text" else {}


def _part_of(grows: Growing, text: str) -> dict[str, Any]:
    annotations: dict[str, Any] = {"annotations": [], "logprobs": []} if grows.part == "output_text" else {}
    return {"type": grows.part, grows.field: text, **annotations}


def _call_item(identity: str, call_id: str, name: str, arguments: str, status: str) -> dict[str, Any]:
    call = {"id": identity, "type": "function_call", "call_id": call_id, "name": name}
    return {**call, "arguments": arguments, "status": status}


def _image_item(identity: str, url: str) -> dict[str, Any]:
    """An image that is made. The API has no links: of one the link stands where the data would."""
    head, _, data = url.partition(";base64,")
    form = {"output_format": head.rpartition("/")[2]} if data else {}
    return {"id": identity, "type": "image_generation_call", "status": "completed", "result": data or url, **form}


def token_count(tokens: int) -> bytes:
    """The answer to the question how many tokens a request has."""
    return _json({"object": "response.input_tokens", "input_tokens": tokens})


def _usage_fields(usage: Usage) -> dict[str, Any]:
    read, made = usage.input_tokens or 0, usage.output_tokens or 0
    details = {"cached_tokens": usage.cached_tokens or 0, "cache_write_tokens": usage.cache_write_tokens or 0}
    return {
        "input_tokens": read,
        "input_tokens_details": details,
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": read + made,
    }
