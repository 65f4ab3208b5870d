"""Anthropic's Messages, also as other servers send them."""

import json
from typing import Any

from tests.wire.odd import (
    ALL,
    BOTH,
    HALVES,
    HI,
    OSLO,
    SMILE,
    Fields,
    Meaning,
    OddAnswer,
    framings,
    streamed,
    whole,
)

COUNTED = Meaning("Hi there", usage=(11, 7))


def start(block: Fields, **index: Any) -> Fields:
    return {"type": "content_block_start", **index, "content_block": block}


def delta(kind: str, name: str, text: Any, **index: Any) -> Fields:
    return {"type": "content_block_delta", **index, "delta": {"type": kind, name: text}}


def stop(**index: Any) -> Fields:
    return {"type": "content_block_stop", **index}


def opening(**fields: Any) -> Fields:
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return {"type": "message_start", "message": head | fields}


def end(reason: Any = "end_turn", usage: Any = None, **fields: Any) -> list[Fields]:
    counts = {"output_tokens": 7} if usage is None else usage
    given = {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": counts,
    }
    return [given | fields, {"type": "message_stop"}]


def raw(name: str, meaning: Meaning, *events: Any) -> OddAnswer:
    return streamed("anthropic", name, meaning, *events)


def message(name: str, meaning: Meaning, *events: Any, usage: Any = None, **head: Any) -> OddAnswer:
    if not meaning.usage[1] and usage is None:
        meaning = Meaning(meaning.text, meaning.reasoning, meaning.calls, meaning.end, (0, 7))
    return raw(
        name,
        meaning,
        opening(**head),
        *events,
        *end("tool_use" if meaning.calls else "end_turn", usage),
    )


def tool(id: str, name: str, given: Any = None) -> Fields:
    return {"type": "tool_use", "id": id, "name": name, "input": {} if given is None else given}


def pieces(text: str, **index: Any) -> list[Fields]:
    return [
        delta("input_json_delta", "partial_json", text[at : at + 8], **index)
        for at in range(0, len(text), 8)
    ]


def blocks(*indexes: Fields) -> list[Fields]:
    """Events of one text and two tool calls, with these fields for the indexes of the blocks."""
    text, first, second = indexes
    return [
        start({"type": "text", "text": ""}, **text),
        delta("text_delta", "text", "Hi there", **text), stop(**text),
        start(tool("a", "weather"), **first), *pieces('{"city":"Oslo"}', **first), stop(**first),
        start(tool("b", "clock"), **second), *pieces('{"zone":"UTC"}', **second), stop(**second),
    ]  # fmt: skip


def answer(
    name: str, meaning: Meaning, content: Any, reason: Any = "end_turn", **fields: Any
) -> OddAnswer:
    usage = {"input_tokens": 11, "output_tokens": 7}
    head = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_reason": reason,
    }
    return whole("anthropic", name, meaning, {**head, "content": content, "usage": usage} | fields)


TEXT = (
    start({"type": "text", "text": ""}, index=0), delta("text_delta", "text", "Hi ", index=0),
    delta("text_delta", "text", "there", index=0), stop(index=0),
)  # fmt: skip
THOUGHT = Meaning("Hi there", "Hm.")
THINKING = (
    start({"type": "thinking", "thinking": "", "signature": ""}, index=0),
    delta("thinking_delta", "thinking", "Hm.", index=0),
)
LATER = [{**each, "index": 1} for each in TEXT]
SEARCH = (
    start({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}, index=0),
    delta("input_json_delta", "partial_json", '{"query":"x"}', index=0), stop(index=0),
    start({"type": "web_search_tool_result", "tool_use_id": "s",
    "content": [{"type": "web_search_result"}]}, index=1),
    stop(index=1),
)  # fmt: skip
STREAMS = [
    # Indexes and order of blocks.
    message("blocks without index", ALL, *blocks({}, {}, {})),
    message("blocks with index null", ALL, *blocks(*({"index": None},) * 3)),
    message("blocks that all have index 0", ALL, *blocks(*({"index": 0},) * 3)),
    message("indexes as text", ALL, *blocks(*({"index": number} for number in "012"))),
    message("indexes with gaps", ALL, *blocks(*({"index": number} for number in (1, 4, 9)))),
    message("blocks that end together", ALL, *(
        each for each in blocks(*({"index": n} for n in range(3)))
        if each["type"] != "content_block_stop"
    ), *(stop(index=n) for n in range(3))),
    message("blocks that never end", HI, *TEXT[:-1]),
    message("calls whose fragments "
    "alternate", BOTH, *(start(tool(*given), index=n) for n, given in enumerate(
        (("a", "weather"), ("b", "clock")))), *(
        delta("input_json_delta", "partial_json", text, index=n)
        for texts in (('{"city":', '{"zone":'), ('"Oslo"}', '"UTC"}')) for n, text
        in enumerate(texts)
    ), stop(index=0), stop(index=1)),
    message("deltas of a block that never began", HI, *TEXT[1:3]),
    message("text at the start of "
    "its block", HI, start({"type": "text", "text": "Hi "}, index=0), *TEXT[2:]),
    message("a text that is "
    "null at first", HI, start({"type": "text", "text": None}, index=0), *TEXT[1:]),
    # Tool calls.
    message(
        "the input at the start of the block", BOTH,
        start(tool("a", "weather", {"city": "Oslo"}), index=0), stop(index=0),
        start(tool("b", "clock", '{"zone":"UTC"}'), index=1), stop(index=1),
    ),
    message("an input that is null, then fragments", Meaning(calls=(OSLO,)), start(
        {**tool("a", "weather"), "input": None}, index=0,
    ), *pieces('{"city":"Oslo"}', index=0), stop(index=0)),
    message("an input that is an empty text, then fragments", Meaning(calls=(OSLO,)), start(
        tool("a", "weather", ""), index=0,
    ), *pieces('{"city":"Oslo"}', index=0), stop(index=0)),
    message("a call without input, and an empty fragment", Meaning(calls=(("weather", {}),)), start(
        tool("a", "weather"), index=0,
    ), delta("input_json_delta", "partial_json", "", index=0), stop(index=0)),
    message("a call with a caller", Meaning(calls=(OSLO,)), start(
        {**tool("a", "weather"), "caller": {"type": "direct"}}, index=0,
    ), *pieces('{"city":"Oslo"}', index=0), stop(index=0)),
    raw("a reason for tool calls "
    "without a call", Meaning("Hi there", usage=(0, 7)), opening(), *TEXT,
        *end("tool_use")),
    raw("calls that end a turn", Meaning(calls=(OSLO,), usage=(0, 7)), opening(), start(
        tool("a", "weather", {"city": "Oslo"}), index=0,
    ), stop(index=0), *end("end_turn")),
    message("a search that the "
    "provider runs", HI, *SEARCH, *({**each, "index": 2} for each in TEXT)),
    # Reasoning, signatures and citations.
    message("reasoning and its signature", THOUGHT, *THINKING, delta(
        "signature_delta", "signature", "abc=", index=0,
    ), stop(index=0), *LATER),
    message("a signature that is null (other gateways)", THOUGHT, start(
        {"type": "thinking", "thinking": "", "signature": None}, index=0,
    ), *THINKING[1:], stop(index=0), *LATER),
    message("hidden reasoning", HI, start({"type": "redacted_thinking", "data": "abc="}, index=0),
        stop(index=0), *LATER),
    message("an empty delta of reasoning (Bedrock)", THOUGHT, *THINKING, delta(
        "thinking_delta", "thinking", "", index=0,
    ), stop(index=0), *LATER),
    message("a signature of "
    "another type", HI, *TEXT[:-1], delta("signature_delta", "signature", 5, index=0), TEXT[-1]),
    message("a citation of another type", HI, *TEXT[:-1], delta(
        "citations_delta", "citation", {"url": 5}, index=0,
    ), TEXT[-1]),
    message("a delta of an "
    "unknown type", HI, *TEXT[:-1], delta("mood_delta", "mood", "good", index=0), TEXT[-1]),
    message("a pair of surrogates in two events", SMILE, TEXT[0], *(
        delta("text_delta", "text", half, index=0) for half in HALVES
    ), TEXT[-1]),
    # Events around the blocks.
    message("pings "
    "everywhere", HI, *(each for event in TEXT for each in ({"type": "ping"}, event))),
    raw("a ping before all "
    "(Vertex)", Meaning("Hi there", usage=(0, 7)), {"type": "ping"}, opening(), *TEXT, *end()),
    raw("OpenAI's "
    "end mark", Meaning("Hi there", usage=(0, 7)), opening(), *TEXT, *end(), b"[DONE]"),
    raw("no message_stop", Meaning("Hi there", usage=(0, 7)), opening(), *TEXT, *end()[:1]),
    raw("metrics of Bedrock "
    "at the end", Meaning("Hi there", usage=(0, 7)), opening(), *TEXT, *end()[:1], {
        "type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 11},
    }),
    raw("a first message_delta "
    "without a reason", Meaning("Hi there", usage=(0, 7)), opening(), *TEXT, *(
        end(None, {"output_tokens": 1})[:1]
    ), *end(context_management={"applied_edits": []})),
    raw("a start without "
    "a message", Meaning("Hi there", usage=(0, 7)), {"type": "message_start"}, *TEXT, *end()),
    raw("events without a type, in the order of their names", Meaning("Hi there", usage=(0, 7)), *(
        b"\n".join((b"", b"event: " + each.pop("type").encode(),
        b"data: " + json.dumps(each).encode()))
        for each in (dict(each) for each in (opening(), *TEXT, *end()))
    )),
    # Ends and usage.
    raw("a stop "
    "sequence", Meaning("Hi there", usage=(0, 7)), opening(), *TEXT, *end("stop_sequence", delta={
        "stop_reason": "stop_sequence", "stop_sequence": "END"})),
    raw("the end of the "
    "context", Meaning("Hi there", end="length", usage=(0, 7)), opening(), *TEXT, *(
        end("model_context_window_exceeded")
    )),
    raw("a pause", Meaning("Hi there", usage=(0, 7)), opening(), *TEXT, *end("pause_turn")),
    raw("a refusal", Meaning("Hi there", end="content_filter", usage=(0, 7)), opening(), *TEXT,
    *end("refusal")),
    raw("an unknown reason", Meaning("Hi there", usage=(0, 7)), opening(), *TEXT, *end("bored")),
    message("counts as text", COUNTED, *TEXT, usage={"input_tokens": "11", "output_tokens": "7"}),
    message("counts with a "
    "fraction of zero", COUNTED, *TEXT, usage={"input_tokens": 11.0, "output_tokens": 7.0}),
    message("usage as a list", HI, *TEXT, usage=[]),
    raw("usage null", HI, opening(usage=None), *TEXT, {**end()[0], "usage": None}, end()[1]),
    raw("an output of 0 after the first count", Meaning("Hi there", usage=(11, 7)), opening(
        usage={"input_tokens": 11, "output_tokens": 1}
    ), *TEXT, *end(None, {"output_tokens": 7})[:1],
    *end(usage={"input_tokens": 0, "output_tokens": 0})),
    raw("an input of three parts", Meaning("Hi there", usage=(20, 7)), opening(usage={
        "input_tokens": 10, "cache_creation_input_tokens": 4, "cache_read_input_tokens": 6,
        "output_tokens": 1,
    }), *TEXT, *end()),
]  # fmt: skip
MESSAGES = [
    answer("input as text", Meaning("Hi there", calls=(OSLO,)), [
        {"type": "text", "text": "Hi there"}, tool("a", "weather", '{"city":"Oslo"}'),
    ], "tool_use", usage=[]),
    answer("a call whose input is missing", Meaning(calls=(("clock", {}),), usage=(11, 7)), [
        {"type": "tool_use", "id": "a", "name": "clock"},
    ], "tool_use"),
    answer("two calls of one name", Meaning(calls=(OSLO, OSLO), usage=(11, 7)), [
        tool("a", "weather", {"city": "Oslo"}), tool("b", "weather", {"city": "Oslo"}),
    ], "tool_use"),
    answer("reasoning, hidden and not", Meaning("Hi there", "Hm.", usage=(11, 7)), [
        {"type": "thinking", "thinking": "Hm.", "signature": "abc="},
        {"type": "redacted_thinking", "data": "abc="},
        {"type": "text", "text": "Hi ", "citations": None}, {"type": "text", "text": "there"},
    ]),
    answer("no blocks", Meaning(usage=(11, 7)), []),
    answer("usage null", HI, [{"type": "text", "text": "Hi there"}], usage=None),
    answer("an unknown type of block", COUNTED, [
        {"type": "container_upload", "file_id": "f"}, {"type": "text", "text": "Hi there"},
    ]),
    answer("an error that is null", COUNTED, [{"type": "text", "text": "Hi there"}], error=None),
]  # fmt: skip
CASES = [*STREAMS, *MESSAGES, *framings(STREAMS[3])]
