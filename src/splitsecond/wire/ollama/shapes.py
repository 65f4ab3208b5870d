"""One line of an Ollama answer, reduced to the fields that mean something to us. Every one may be absent or null."""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

Count = Annotated[int, Meta(ge=0, lt=1 << 53)]


class Function(Struct, gc=False):
    """What is called; `arguments` is an object, kept as its JSON."""

    name: str = ""
    arguments: Raw = Raw()


class ToolCall(Struct, gc=False):
    """One whole call: Ollama never sends a part of one, and older servers no id."""

    id: str | None = None
    function: Function | None = None


class Message(Struct, gc=False):
    """What the line adds to the answer."""

    content: str | None = None
    thinking: str | None = None
    tool_calls: list[ToolCall] | None = None


class Line(Struct, gc=False):
    """A line, or a whole answer. The last one has `done`, the counts, and the durations in nanoseconds."""

    message: Message | None = None
    done: bool = False
    done_reason: str | None = None
    error: Any = None
    prompt_eval_count: Count | None = None
    eval_count: Count | None = None
    total_duration: Count | None = None
    load_duration: Count | None = None
    prompt_eval_duration: Count | None = None
    eval_duration: Count | None = None


DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
