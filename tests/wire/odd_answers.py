"""Odd answers of providers and engines, as users reported them, each with the one meaning that every reader must find.

An entry has a format, the events of a stream (or, as a single object, a whole answer) and the `Meaning`.
"""

import json
from typing import Any

from msgspec import Struct

Call = tuple[str, dict[str, Any]]


class Meaning(Struct, frozen=True):
    """The content of an answer: `calls` are names with arguments."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


class OddAnswer(Struct, frozen=True):
    """One answer: `events` of a stream, or one `whole` object."""

    name: str
    api_format: str
    meaning: Meaning
    events: tuple[Any, ...] = ()
    whole: Any = None

    @property
    def body(self) -> bytes:
        """The bytes of the answer."""
        if self.whole is not None:
            return _json(self.whole)
        if self.api_format == "ollama":
            return b"".join(_json(event) + b"\n" for event in self.events)
        return b"".join(b"data: " + _json(event) + b"\n\n" for event in self.events)


def _json(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
DONE = b"[DONE]"
OSLO, UTC = ("weather", {"city": "Oslo"}), ("clock", {"zone": "UTC"})
BOTH = Meaning(calls=(OSLO, UTC))


def chunk(delta: dict[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**head, "choices": [choice], **fields}


def fragment(arguments: Any, id: str = "", name: str = "", index: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"arguments": arguments, **({"name": name} if name else {})}
    given = {"type": "function", "function": function, **({"id": id} if id else {})}
    return given | ({} if index is None else {"index": index}) | fields


def chat(name: str, meaning: Meaning, *deltas: dict[str, Any], reason: str = "stop", **last: Any) -> OddAnswer:
    events = [chunk({"role": "assistant", "content": None}), *map(chunk, deltas), chunk({}, reason, **last), DONE]
    return OddAnswer(name, "openai", meaning, tuple(events))


def called(name: str, *fragments: dict[str, Any], meaning: Meaning = BOTH) -> OddAnswer:
    return chat(name, meaning, *({"tool_calls": [each]} for each in fragments), reason="tool_calls")


def whole_chat(name: str, meaning: Meaning, message: dict[str, Any], **fields: Any) -> OddAnswer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}
    return OddAnswer(name, "openai", meaning, whole=answer | fields)


def thinking(text: str) -> list[dict[str, Any]]:
    return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]


HI = Meaning("Hi there")
SMILE, HALVES = Meaning("Hi \U0001f600!"), ("Hi ", "\ud83d", "\ude00!")
WORDS = ({"content": "Hi "}, {"content": "there"})
CHATS = [
    called(
        "calls without index",
        fragment('{"city":', "a", "weather"), fragment('"Oslo"}'),
        fragment('{"zone":', "b", "clock"), fragment('"UTC"}'),
    ),
    called(
        "all calls with index 0",
        fragment('{"city":"Oslo"}', "a", "weather", 0), fragment('{"zone":"UTC"}', "b", "clock", 0),
    ),
    called(
        "index 0 and no ids",
        fragment('{"city":', "", "weather", 0), fragment('"Oslo"}', index=0),
        fragment('{"zone":"UTC"}', "", "clock", 0),
    ),
    called(
        "fragments that alternate",
        fragment("", "a", "weather", 0), fragment("", "b", "clock", 1), fragment('{"city":', index=0),
        fragment('{"zone":', index=1), fragment('"Oslo"}', index=0), fragment('"UTC"}', index=1),
    ),
    called(
        "a fragment with a stray index",
        fragment('{"city":', "a", "weather", 0), fragment('"Oslo"}', index=3),
        fragment('{"zone":', "b", "clock", 1), fragment('"UTC"}', index=1),
    ),
    called(
        "index null",
        fragment('{"city":"Oslo"}', "a", "weather") | {"index": None},
        fragment('{"zone":"UTC"}', "b", "clock") | {"index": None},
    ),
    called(
        "index as text",
        fragment('{"city":', "a", "weather", "0"), fragment('"Oslo"}', index="0"),
        fragment('{"zone":"UTC"}', "b", "clock", "1"),
    ),
    called(
        "an id and a name in each fragment",
        fragment('{"city":', "a", "weather", 0), fragment('"Oslo"}', "a", "weather", 0),
        fragment('{"zone":"UTC"}', "b", "clock", 1),
    ),
    called(
        "an id made up for each fragment",
        fragment('{"city":', "a", "weather", 0), fragment('"Oslo"}', "b", "", 0),
        fragment('{"zone":"UTC"}', "c", "clock", 1),
    ),
    called(
        "the name after the id",
        fragment("", "a", "", 0), fragment('{"city":"Oslo"}', "", "weather", 0),
        fragment("", "b", "", 1), fragment('{"zone":"UTC"}', "", "clock", 1),
    ),
    called(
        "arguments as an object",
        fragment({"city": "Oslo"}, "a", "weather", 0), fragment({"zone": "UTC"}, "b", "clock", 1),
    ),
    chat(
        "tool_calls and function_call in each delta", Meaning(calls=(OSLO,)),
        *(
            {"tool_calls": [fragment(text, "a", "weather", 0)], "function_call": {"name": "weather", "arguments": text}}
            for text in ('{"city":', '"Oslo"}')
        ),
        reason="tool_calls",
    ),
    chat(
        "content as a list, then as text", Meaning("The answer is 4.", "Two and two."),
        {"content": thinking("Two and ")}, {"content": thinking("two.")},
        {"content": [{"type": "text", "text": "The "}]}, {"content": "answer"}, {"content": " is 4."},
    ),
    chat("a pair of surrogates in two chunks", SMILE, *({"content": half} for half in HALVES)),
    chat("a reason for tool calls without a call", HI, *WORDS, reason="tool_calls"),
    chat("usage as a list", HI, *WORDS, usage=[]),
    chat("counts as text", HI, *WORDS, usage={"prompt_tokens": "11", "completion_tokens": "7"}),
    chat("counts with a fraction of zero", HI, *WORDS, usage={"prompt_tokens": 11.0, "completion_tokens": 7.0}),
    chat("a negative count", HI, *WORDS, usage={"prompt_tokens": -1, "completion_tokens": 7}),
    chat("an unknown field of Groq", HI, *WORDS, x_groq=5),
    chat("reasoning of another type", HI, *({**word, "reasoning": {"effort": "low"}} for word in WORDS)),
    chat("reasoning_content of another type", HI, *({**word, "reasoning_content": []} for word in WORDS)),
    chat("a refusal of another type", HI, *({**word, "refusal": False} for word in WORDS)),
    chat("a role of another type", HI, *({**word, "role": 1} for word in WORDS)),
    OddAnswer(
        "a choice with index null", "openai", HI,
        (*({**chunk(word), "choices": [{"index": None, "delta": word}]} for word in WORDS), chunk({}, "stop"), DONE),
    ),
    OddAnswer(
        "a choice with index -1", "openai", HI,
        (
            *({**chunk(word), "choices": [{"index": -1, "delta": word}]} for word in WORDS),
            {**chunk({}), "choices": [{"index": -1, "delta": {}, "finish_reason": "stop"}]}, DONE,
        ),
    ),
    OddAnswer(
        "a choice without index", "openai", HI,
        (*({**chunk(word), "choices": [{"delta": word}]} for word in WORDS), chunk({}, "stop"), DONE),
    ),
    whole_chat("a whole answer with calls without index", BOTH, {"content": None, "tool_calls": [
        fragment('{"city":"Oslo"}', "a", "weather"), fragment('{"zone":"UTC"}', "b", "clock"),
    ]}),
    whole_chat("a whole answer with calls that all have index 0", BOTH, {"content": None, "tool_calls": [
        fragment('{"city":"Oslo"}', "", "weather", 0), fragment('{"zone":"UTC"}', "", "clock", 0),
    ]}),
    whole_chat("a whole answer with two calls of one name", Meaning(calls=(OSLO, OSLO)), {
        "content": None, "tool_calls": [fragment('{"city":"Oslo"}', "", "weather", 0) for _ in range(2)],
    }),
    whole_chat("a whole answer with arguments as objects", BOTH, {"content": None, "tool_calls": [
        fragment({"city": "Oslo"}, "a", "weather"), fragment({"zone": "UTC"}, "b", "clock"),
    ]}),
    whole_chat("a whole answer with the call under both names", Meaning(calls=(OSLO,)), {
        "content": None, "tool_calls": [fragment('{"city":"Oslo"}', "a", "weather")],
        "function_call": {"name": "weather", "arguments": '{"city":"Oslo"}'},
    }),
    whole_chat(
        "a whole answer with content as a list", Meaning("4.", "Two."),
        {"content": [*thinking("Two."), {"type": "text", "text": "4."}]},
    ),
    whole_chat("a whole answer with usage as a list", HI, {"content": "Hi there"}, usage=[]),
    whole_chat("a whole answer with counts as text", HI, {"content": "Hi there"}, usage={"prompt_tokens": "1"}),
    whole_chat("a whole answer with reasoning of another type", HI, {"content": "Hi there", "reasoning": {"a": 1}}),
]  # fmt: skip


def block_start(block: dict[str, Any], **index: Any) -> dict[str, Any]:
    return {"type": "content_block_start", **index, "content_block": block}


def block_delta(kind: str, name: str, text: Any, **index: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", **index, "delta": {"type": kind, name: text}}


def message(name: str, meaning: Meaning, *events: dict[str, Any], usage: Any = None, **head: Any) -> OddAnswer:
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], **head}
    counts = {"output_tokens": 7} if usage is None else usage
    stop = {"stop_reason": "tool_use" if meaning.calls else "end_turn", "stop_sequence": None}
    ends = ({"type": "message_delta", "delta": stop, "usage": counts}, {"type": "message_stop"})
    return OddAnswer(name, "anthropic", meaning, ({"type": "message_start", "message": start}, *events, *ends))


def tool_block(id: str, name: str, given: Any = None) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if given is None else given}


def blocks_of(*indexes: dict[str, Any]) -> list[dict[str, Any]]:
    """Events of one text and two tool calls, with these fields for the indexes of the blocks."""
    text, first, second = indexes
    return [
        block_start({"type": "text", "text": ""}, **text), block_delta("text_delta", "text", "Hi there", **text),
        {"type": "content_block_stop", **text},
        block_start(tool_block("a", "weather"), **first),
        block_delta("input_json_delta", "partial_json", '{"city":', **first),
        block_delta("input_json_delta", "partial_json", '"Oslo"}', **first), {"type": "content_block_stop", **first},
        block_start(tool_block("b", "clock"), **second),
        block_delta("input_json_delta", "partial_json", '{"zone":"UTC"}', **second),
        {"type": "content_block_stop", **second},
    ]  # fmt: skip


ALL = Meaning("Hi there", calls=(OSLO, UTC))
TEXT = (
    block_start({"type": "text", "text": ""}, index=0),
    block_delta("text_delta", "text", "Hi ", index=0),
    block_delta("text_delta", "text", "there", index=0),
    {"type": "content_block_stop", "index": 0},
)
MESSAGES = [
    message("blocks without index", ALL, *blocks_of({}, {}, {})),
    message("blocks with index null", ALL, *blocks_of(*({"index": None},) * 3)),
    message("blocks that all have index 0", ALL, *blocks_of(*({"index": 0},) * 3)),
    message("indexes as text", ALL, *blocks_of(*({"index": number} for number in "012"))),
    message(
        "the input at the start of the block", Meaning(calls=(OSLO, UTC)),
        block_start(tool_block("a", "weather", {"city": "Oslo"}), index=0), {"type": "content_block_stop", "index": 0},
        block_start(tool_block("b", "clock", '{"zone":"UTC"}'), index=1), {"type": "content_block_stop", "index": 1},
    ),
    message("a pair of surrogates in two events", SMILE, TEXT[0], *(
        block_delta("text_delta", "text", half, index=0) for half in HALVES
    ), TEXT[-1]),
    message("counts as text", HI, *TEXT, usage={"input_tokens": "1", "output_tokens": "7"}),
    message("usage as a list", HI, *TEXT, usage=[]),
    message("usage as a list at the start", HI, *TEXT, head_usage=[], usage={"output_tokens": 7}),
    message("a signature of another type", HI, *TEXT, block_delta("signature_delta", "signature", 5, index=0)),
    message(
        "a citation of another type", HI, *TEXT, block_delta("citations_delta", "citation", {"url": 5}, index=0)
    ),
    OddAnswer("a whole message with input as text", "anthropic", Meaning("Hi there", calls=(OSLO,)), whole={
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use", "content": [
            {"type": "text", "text": "Hi there"}, tool_block("a", "weather", '{"city":"Oslo"}'),
        ], "usage": [],
    }),
]  # fmt: skip


def response(name: str, meaning: Meaning, *events: dict[str, Any], **fields: Any) -> OddAnswer:
    end = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [], **fields}
    return OddAnswer(name, "responses", meaning, (*events, {"type": "response.completed", "response": end}))


def item(kind: str, value: dict[str, Any], **index: Any) -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "item": value, **index}


def said(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def function(id: str, name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": arguments}


ITEMS = [said("Hi there"), function("a", "weather", '{"city":"Oslo"}'), function("b", "clock", '{"zone":"UTC"}')]


def items_of(*indexes: dict[str, Any], text: str = "delta") -> list[dict[str, Any]]:
    """Events of one text and two calls, with these fields for the indexes of the items."""
    events = []
    for place, value in zip(indexes, ITEMS, strict=True):
        if value["type"] == "message":
            begun, kind, pieces = {**value, "content": []}, "response.output_text.delta", ("Hi ", "there")
        else:
            begun, kind = {**value, "arguments": ""}, "response.function_call_arguments.delta"
            pieces = (value["arguments"][:4], value["arguments"][4:])
        deltas = [{"type": kind, "delta": piece, **place} for piece in pieces]
        events += [item("added", begun, **place), *deltas, item("done", value, **place)]
    return events


RESPONSES = [
    response("the last event without output", ALL, *items_of(*({"output_index": number} for number in range(3)))),
    response("items without index", ALL, *items_of({}, {}, {}), output=ITEMS),
    response("items with index null", ALL, *items_of(*({"output_index": None},) * 3), output=ITEMS),
    response("items that all have index 0", ALL, *items_of(*({"output_index": 0},) * 3), output=ITEMS),
    response("only whole items", ALL, *(item("done", value, output_index=n) for n, value in enumerate(ITEMS))),
    response("only whole items without index", ALL, *(item("done", value) for value in ITEMS), output=ITEMS),
    response("all of it in the last event", ALL, output=ITEMS),
    response(
        "calls only in the last event", ALL, *items_of(*({"output_index": n} for n in range(3)))[:4], output=ITEMS
    ),
    response(
        "calls as whole items without index", ALL,
        *items_of({}, {}, {})[:4], *(item("done", value) for value in ITEMS[1:]),
    ),
    response("a pair of surrogates in two events", SMILE, *(
        {"type": "response.output_text.delta", "delta": half, "output_index": 0} for half in HALVES
    ), item("done", said("Hi \U0001f600!"), output_index=0)),
    response("usage as a list", HI, output=ITEMS[:1], usage=[]),
    response("counts as text", HI, output=ITEMS[:1], usage={"input_tokens": "1", "output_tokens": "7"}),
    response("incomplete_details of another type", HI, output=ITEMS[:1], incomplete_details="none"),
    response(
        "arguments as objects", Meaning(calls=(OSLO, UTC)),
        output=[function("a", *OSLO), function("b", *UTC)],
    ),
    OddAnswer("a whole response with arguments as objects", "responses", Meaning("Hi there", calls=(OSLO,)), whole={
        "id": "resp_1", "object": "response", "status": "completed", "model": "m",
        "output": [said("Hi there"), function("a", *OSLO)], "usage": [],
    }),
]  # fmt: skip


def part(value: Any) -> dict[str, Any]:
    return {"functionCall": value} if isinstance(value, dict) else {"text": value}


def candidate(*parts: Any, reason: str | None = None, **fields: Any) -> dict[str, Any]:
    content = {"role": "model", "parts": [*map(part, parts)]}
    return {"candidates": [{"content": content, **({"finishReason": reason} if reason else {}), **fields}]}


def gemini(name: str, meaning: Meaning, *chunks: dict[str, Any], **last: Any) -> OddAnswer:
    return OddAnswer(name, "gemini", meaning, (*chunks, candidate(reason="STOP") | last))


GEMINI_CALLS = ({"name": "weather", "args": {"city": "Oslo"}}, {"name": "clock", "args": {"zone": "UTC"}})
GEMINI = [
    gemini("calls without ids", BOTH, candidate(*GEMINI_CALLS)),
    gemini("args as text", BOTH, *(
        candidate({"name": name, "args": json.dumps(args)}) for name, args in (OSLO, UTC)
    )),
    gemini("a pair of surrogates in two chunks", SMILE, *map(candidate, HALVES)),
    gemini("counts as text", HI, candidate("Hi "), candidate("there"), usageMetadata={"promptTokenCount": "11"}),
    gemini("usage as a list", HI, candidate("Hi "), candidate("there"), usageMetadata=[]),
    gemini("index null", HI, candidate("Hi ", index=None), candidate("there", index=None)),
    gemini("index as text", HI, candidate("Hi ", index="0"), candidate("there", index="0")),
    gemini("a signature of another type", HI, {"candidates": [{"content": {"parts": [
        {"text": "Hi there", "thoughtSignature": 5}]}}]}),
    gemini("a mark of reasoning of another type", HI, {"candidates": [{"content": {"parts": [
        {"text": "Hi there", "thought": "no"}]}}]}),
    gemini("null parts", HI, candidate("Hi "), {"candidates": [{"content": {"parts": [None, {"text": "there"}]}}]}),
    gemini("feedback of another type", HI, candidate("Hi "), candidate("there"), promptFeedback=[]),
    OddAnswer("a whole answer with args as text", "gemini", BOTH, whole={"usageMetadata": 5, **candidate(
        *({"name": name, "args": json.dumps(args)} for name, args in (OSLO, UTC)), reason="STOP",
    )}),
]  # fmt: skip


def line(content: str = "", **message: Any) -> dict[str, Any]:
    return {"model": "m", "message": {"role": "assistant", "content": content, **message}, "done": False}


def lines(name: str, meaning: Meaning, *events: dict[str, Any], **last: Any) -> OddAnswer:
    return OddAnswer(name, "ollama", meaning, (*events, {**line(), "done": True, "done_reason": "stop"} | last))


def ollama_call(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **fields}


OLLAMA = [
    lines("arguments as text", BOTH, line(tool_calls=[ollama_call(n, json.dumps(a)) for n, a in (OSLO, UTC)])),
    lines("calls in two lines", BOTH, *(line(tool_calls=[ollama_call(*call)]) for call in (OSLO, UTC))),
    lines("an id of another type", BOTH, line(tool_calls=[ollama_call(*call, id=5) for call in (OSLO, UTC)])),
    lines("a pair of surrogates in two lines", SMILE, *map(line, HALVES)),
    lines("counts as text", HI, line("Hi "), line("there"), prompt_eval_count="11", eval_count="7"),
    lines("negative counts", HI, line("Hi "), line("there"), prompt_eval_count=-1, eval_count=7),
    lines("thinking of another type", HI, line("Hi ", thinking=False), line("there", thinking={})),
    lines("durations of another type", HI, line("Hi "), line("there"), total_duration="1s"),
    OddAnswer("a whole answer with arguments as text", "ollama", BOTH, whole={
        **line(tool_calls=[ollama_call(n, json.dumps(a)) for n, a in (OSLO, UTC)]), "done": True, "done_reason": "stop",
    }),
]  # fmt: skip


def cohere(name: str, meaning: Meaning, *deltas: Any, usage: Any = None) -> OddAnswer:
    end = {"finish_reason": "COMPLETE", "usage": {} if usage is None else usage}
    return OddAnswer(name, "cohere", meaning, (*deltas, {"type": "message-end", "delta": end}))


def cohere_text(text: str, **fields: Any) -> dict[str, Any]:
    return {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}, **fields}


def cohere_call(kind: str, call: Any, **index: Any) -> dict[str, Any]:
    return {"type": f"tool-call-{kind}", **index, "delta": {"message": {"tool_calls": call}}}


COHERE = [
    cohere(
        "calls without index", BOTH,
        cohere_call("start", fragment("", "a", "weather")), cohere_call("delta", fragment('{"city":')),
        cohere_call("delta", fragment('"Oslo"}')),
        cohere_call("start", fragment("", "b", "clock")), cohere_call("delta", fragment('{"zone":"UTC"}')),
    ),
    cohere(
        "calls that all have index 0", BOTH,
        cohere_call("start", fragment("", "a", "weather"), index=0),
        cohere_call("delta", fragment('{"city":"Oslo"}'), index=0),
        cohere_call("start", fragment("", "b", "clock"), index=0),
        cohere_call("delta", fragment('{"zone":"UTC"}'), index=0),
    ),
    cohere("arguments as objects", BOTH, *(
        cohere_call("start", fragment(args, name, name), index=n) for n, (name, args) in enumerate((OSLO, UTC))
    )),
    cohere("a pair of surrogates in two events", SMILE, *map(cohere_text, HALVES)),
    cohere("counts as text", HI, cohere_text("Hi "), cohere_text("there"), usage={"tokens": {"input_tokens": "5"}}),
    cohere("usage as a list", HI, cohere_text("Hi "), cohere_text("there"), usage=[]),
    cohere("index as text", HI, cohere_text("Hi ", index="0"), cohere_text("there", index="0")),
    cohere("a plan of another type", HI, {"type": "content-delta", "delta": {"message": {
        "tool_plan": 5, "content": {"text": "Hi there"}}}}),
    OddAnswer("a whole answer with arguments as objects", "cohere", BOTH, whole={
        "message": {"tool_calls": [fragment(args, name, name) for name, args in (OSLO, UTC)]},
        "finish_reason": "TOOL_CALL", "usage": [],
    }),
]  # fmt: skip

ODD_ANSWERS = [*CHATS, *MESSAGES, *RESPONSES, *GEMINI, *OLLAMA, *COHERE]
