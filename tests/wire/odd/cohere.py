"""Cohere's chats (v2), also as other servers send them."""

from typing import Any

from tests.wire.odd import (
    ALL,
    BOTH,
    HALVES,
    HI,
    OSLO,
    SMILE,
    UTC,
    Fields,
    Meaning,
    OddAnswer,
    framings,
    streamed,
    whole,
)
from tests.wire.odd.openai import fragment

COUNTED = Meaning("Hi there", usage=(11, 7))
USAGE = {
    "billed_units": {"input_tokens": 5, "output_tokens": 7},
    "tokens": {"input_tokens": 11, "output_tokens": 7},
}
THOUGHT = Meaning("Hi there", "Hm.")


def raw(name: str, meaning: Meaning, *events: Any) -> OddAnswer:
    return streamed("cohere", name, meaning, *events)


def end(reason: Any = "COMPLETE", usage: Any = None, **fields: Any) -> Fields:
    return {
        "type": "message-end",
        "delta": {"finish_reason": reason, "usage": {} if usage is None else usage} | fields,
    }


def cohere(name: str, meaning: Meaning, *events: Any, usage: Any = None) -> OddAnswer:
    return raw(name, meaning, *events, end(usage=usage))


def content(given: Any, kind: str = "delta", **fields: Any) -> Fields:
    return {
        "type": f"content-{kind}",
        "index": 0,
        "delta": {"message": {"content": given}},
        **fields,
    }


def text(given: str, **fields: Any) -> Fields:
    return content({"text": given}, **fields)


def tool(kind: str, call: Any, **index: Any) -> Fields:
    return {"type": f"tool-call-{kind}", **index, "delta": {"message": {"tool_calls": call}}}


def answer(
    name: str, meaning: Meaning, message: Any, reason: Any = "COMPLETE", **fields: Any
) -> OddAnswer:
    return whole(
        "cohere",
        name,
        meaning,
        {"id": "x", "message": message, "finish_reason": reason, "usage": USAGE} | fields,
    )


WORDS = (text("Hi "), text("there"))
START = {
    "type": "message-start",
    "id": "x",
    "delta": {
        "message": {
            "role": "assistant",
            "content": [],
            "tool_plan": "",
            "tool_calls": [],
            "citations": [],
        }
    },
}
NAMED = [
    (fragment("", "a", "weather"), '{"city":', '"Oslo"}'),
    (fragment("", "b", "clock"), '{"zone":', '"UTC"}'),
]


def calls(*indexes: Fields) -> list[Fields]:
    """Events of two calls, with these fields for their indexes."""
    return [
        event for place, (begin, *pieces) in zip(indexes, NAMED, strict=True)
        for event in (tool("start", begin, **place),
        *(tool("delta", fragment(piece), **place) for piece in pieces),
                      {"type": "tool-call-end", **place})
    ]  # fmt: skip


STREAMS = [
    # Tool calls.
    cohere("calls without index", BOTH, *calls({}, {})),
    cohere("calls that all have index 0", BOTH, *calls(*({"index": 0},) * 2)),
    cohere("calls with index null", BOTH, *calls(*({"index": None},) * 2)),
    cohere("indexes as text", BOTH, *calls(*({"index": number} for number in "01"))),
    cohere("indexes from 1", BOTH, *calls({"index": 1}, {"index": 2})),
    cohere("arguments at the start, as objects", BOTH, *(
        tool("start", fragment(given, name, name), index=n) for n, (name, given)
        in enumerate((OSLO, UTC))
    )),
    cohere("arguments whole at the start", BOTH, *(
        tool("start", fragment(given, name, name), index=n)
        for n, (name, given) in enumerate(
        (("weather", '{"city":"Oslo"}'), ("clock", '{"zone":"UTC"}')))
    )),
    cohere("calls in a list", BOTH, *(
        tool(each["type"].removeprefix("tool-call-"), [each["delta"]["message"]["tool_calls"]],
        index=each["index"])
        for each in calls({"index": 0}, {"index": 1}) if "delta" in each
    )),
    cohere("a call without "
    "arguments", Meaning(calls=(("weather", {}),)), tool("start", NAMED[0][0], index=0)),
    cohere("arguments null at the start", Meaning(calls=(OSLO,)), tool("start", fragment(None, "a",
        "weather"), index=0), *(
        tool("delta", fragment(piece), index=0) for piece in NAMED[0][1:]
    )),
    cohere("a plan before the calls", Meaning("", "Hm.", (OSLO, UTC)), {
        "type": "tool-plan-delta", "delta": {"message": {"tool_plan": "Hm."}},
    }, *calls({"index": 0}, {"index": 1})),
    cohere("text before the calls", ALL, *WORDS, *calls({"index": 0}, {"index": 1})),
    raw("calls, and the reason "
    "COMPLETE", BOTH, START, *calls({"index": 0}, {"index": 1}), end("COMPLETE")),
    raw("a reason for calls without a call", HI, START, *WORDS, end("TOOL_CALL")),
    # Text and reasoning.
    cohere("starts and ends "
    "of blocks", HI, START, content({"type": "text", "text": ""}, "start"), *WORDS, {
        "type": "content-end", "index": 0}),
    cohere("text at the start of "
    "its block", HI, content({"type": "text", "text": "Hi "}, "start"), WORDS[1]),
    cohere("deltas of a block that never began", HI, *WORDS),
    cohere("thinking and text "
    "with one index", THOUGHT, content({"type": "thinking", "thinking": ""}, "start"), content(
        {"thinking": "Hm."},
    ), {"type": "content-end", "index": 0}, content({"type": "text", "text": ""}, "start"), *WORDS),
    cohere("thinking and text in "
    "one event", THOUGHT, content({"thinking": "Hm.", "text": "Hi "}), WORDS[1]),
    cohere("a null beside "
    "the text", HI, *(content({"text": word, "thinking": None}) for word in ("Hi ", "there"))),
    cohere("content as one text", HI, content("Hi "), content("there")),
    cohere("content as "
    "a list", HI, content([{"text": "Hi "}]), content([{"type": "text", "text": "there"}])),
    cohere("content null", HI, content(None), *WORDS),
    cohere("a plan of another type", HI, {"type": "content-delta", "delta": {"message": {
        "tool_plan": 5, "content": {"text": "Hi there"}}}}),
    cohere("a pair of surrogates in two events", SMILE, *map(text, HALVES)),
    cohere("index as text", HI, text("Hi ", index="0"), text("there", index="0")),
    cohere("index null", HI, text("Hi ", index=None), text("there", index=None)),
    cohere("log probabilities", HI, *({**each, "logprobs": {"text": "x", "token_ids": [1],
        "logprobs": [-0.1]}} for each in WORDS)),
    # Other events.
    cohere("citations "
    "between deltas", HI, WORDS[0], {"type": "citation-start", "index": 0, "delta": {"message": {
        "citations": {"start": 0, "end": 2, "text": "Hi", "sources": []}}}},
        {"type": "citation-end",
            "index": 0}, WORDS[1]),
    cohere("an event of an unknown type", HI, {"type": "debug", "prompt": "x"}, *WORDS),
    cohere("a delta that "
    "is null", HI, {"type": "content-start", "index": 0, "delta": None}, *WORDS),
    cohere("a message that "
    "is null", HI, {"type": "content-start", "index": 0, "delta": {"message": None}}, *WORDS),
    cohere("an error that is null", HI, *({**each, "error": None} for each in WORDS)),
    cohere("events "
    "without a type", HI, *({name: each[name] for name in ("index", "delta")} for each in WORDS)),
    raw("OpenAI's end mark", HI, *WORDS, end(), b"[DONE]"),
    raw("an end with a null error", HI, *WORDS, end(error=None)),
    raw("an end without a reason", HI, *WORDS, {"type": "message-end", "delta": {}}),
    raw("an end without a type", HI, *WORDS, {"delta": {"finish_reason": "COMPLETE"}}),
    # Ends and usage.
    raw("a token limit", Meaning("Hi there", end="length"), *WORDS, end("MAX_TOKENS")),
    raw("a stop sequence", HI, *WORDS, end("STOP_SEQUENCE")),
    raw("a reason in small letters", HI, *WORDS, end("complete")),
    raw("an unknown reason", HI, *WORDS, end("TIRED")),
    cohere("tokens beside what is billed", COUNTED, *WORDS, usage=USAGE),
    cohere("only what is billed", Meaning("Hi there", usage=(5, 7)), *WORDS,
        usage={"billed_units": USAGE["billed_units"]}),
    cohere("tokens "
    "null", Meaning("Hi there", usage=(5, 7)), *WORDS, usage={**USAGE, "tokens": None}),
    cohere("counts with a "
    "fraction of zero", COUNTED, *WORDS, usage={"tokens": {"input_tokens": 11.0,
        "output_tokens": 7.0}}),
    cohere("counts with a "
    "fraction", HI, *WORDS, usage={"tokens": {"input_tokens": 11.5, "output_tokens": 7}}),
    cohere("counts "
    "as text", Meaning("Hi there", usage=(5, 0)), *WORDS, usage={"tokens": {"input_tokens": "5"}}),
    cohere("usage as a list", HI, *WORDS, usage=[]),
    raw("usage null", HI, *WORDS, {"delta": {"finish_reason": "COMPLETE", "usage": None}}),
]  # fmt: skip
MESSAGES = [
    answer("arguments as objects", BOTH, {
        "tool_calls": [fragment(given, name, name) for name, given in (OSLO, UTC)],
    }, "TOOL_CALL", usage=[]),
    answer("a plan and calls", Meaning("", "Hm.", (OSLO,), usage=(11, 7)), {
        "role": "assistant", "content": None, "tool_plan": "Hm.",
        "tool_calls": [fragment('{"city":"Oslo"}',
            "a", "weather")],
    }, "TOOL_CALL"),
    answer("content as one text", COUNTED, {"role": "assistant", "content": "Hi there"}),
    answer("thinking and text", Meaning("Hi there", "Hm.", usage=(11, 7)), {"role": "assistant",
        "tool_calls": None, "content": [
        {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi there"},
    ], "citations": None}),
    answer("an error that "
    "is null", COUNTED, {"content": [{"type": "text", "text": "Hi there"}]}, error=None),
    answer("usage null", HI, {"content": [{"type": "text", "text": "Hi there"}]}, usage=None),
]  # fmt: skip
CASES = [*STREAMS, *MESSAGES, *framings(STREAMS[11])]
