"""OpenAI's Responses, also as other servers send them."""

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

COUNTED = Meaning("Hi there", usage=(11, 7))
USAGE = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}


def head(**fields: Any) -> Fields:
    given = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "m",
        "output": [],
    }
    return given | fields


def raw(name: str, meaning: Meaning, *events: Any) -> OddAnswer:
    return streamed("responses", name, meaning, *events)


def end(kind: str = "completed", **fields: Any) -> Fields:
    return {"type": f"response.{kind}", "response": head(**fields)}


def response(name: str, meaning: Meaning, *events: Any, **fields: Any) -> OddAnswer:
    return raw(name, meaning, *events, end(**fields))


def item(kind: str, value: Fields, **index: Any) -> Fields:
    return {"type": f"response.output_item.{kind}", "item": value, **index}


def said(text: str, **fields: Any) -> Fields:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    } | fields


def function(id: str, name: str, arguments: Any) -> Fields:
    return {
        "type": "function_call",
        "id": f"fc_{id}",
        "call_id": id,
        "name": name,
        "arguments": arguments,
    }


ITEMS = [
    said("Hi there"),
    function("a", "weather", '{"city":"Oslo"}'),
    function("b", "clock", '{"zone":"UTC"}'),
]
PLACES = [{"output_index": number} for number in range(3)]


def deltas(value: Fields, **place: Any) -> list[Fields]:
    if value["type"] == "message":
        kind, pieces = "response.output_text.delta", ("Hi ", "there")
    else:
        kind, pieces = (
            "response.function_call_arguments.delta",
            (value["arguments"][:4], value["arguments"][4:]),
        )
    return [{"type": kind, "delta": piece, **place} for piece in pieces]


def begun(value: Fields, **place: Any) -> Fields:
    return item(
        "added",
        {**value, "content": []} if value["type"] == "message" else {**value, "arguments": ""},
        **place,
    )


def items(*indexes: Fields, values: list[Fields] = ITEMS) -> list[Fields]:
    """Events of one text and two calls, with these fields for the indexes of the items."""
    return [
        event for place, value in zip(indexes, values, strict=False)
        for event in (begun(value, **place), *deltas(value, **place), item("done", value, **place))
    ]  # fmt: skip


def reasoning(**fields: Any) -> Fields:
    return {"type": "reasoning", "id": "rs_1", "summary": [], **fields}


def summary(text: str) -> list[Fields]:
    return [{"type": "summary_text", "text": text}]


THOUGHT = Meaning("Hi there", "Hm.")
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
STREAMS = [
    # Indexes and order of items.
    response("the last event without output", ALL, *items(*PLACES)),
    response("output null in the last event", ALL, *items(*PLACES), output=None),
    response("items without index", ALL, *items({}, {}, {}), output=ITEMS),
    response("items with index null", ALL, *items(*({"output_index": None},) * 3), output=ITEMS),
    response("items that all have index 0", ALL, *items(*({"output_index": 0},) * 3), output=ITEMS),
    response("indexes "
    "as text", ALL, *items(*({"output_index": number} for number in "012")), output=ITEMS),
    response("indexes "
    "with gaps", ALL, *items(*({"output_index": number} for number in (1, 5, 9))), output=ITEMS),
    response(
        "calls that begin together", BOTH,
        *(begun(value, output_index=n) for n, value in enumerate(ITEMS[1:])),
        *({**deltas(value)[k], "output_index": n} for k in range(2) for n, value
        in enumerate(ITEMS[1:])),
        *(item("done", value, output_index=n) for n, value in enumerate(ITEMS[1:])),
    ),
    # What only some events hold.
    response("only whole "
    "items", ALL, *(item("done", value, output_index=n) for n, value in enumerate(ITEMS))),
    response("only whole items "
    "without index", ALL, *(item("done", value) for value in ITEMS), output=ITEMS),
    response("all of it in the last event", ALL, output=ITEMS),
    response("calls only in the last event", ALL, *items(*PLACES)[:4], output=ITEMS),
    response("calls as whole items without index", ALL, *items({}, {}, {})[:4], *(
        item("done", value) for value in ITEMS[1:]
    )),
    response("text without an item", HI, *deltas(ITEMS[0])),
    response("text without an item, and the item "
    "in the last event", HI, *deltas(ITEMS[0]), output=ITEMS[:1]),
    response("arguments only at "
    "their end", Meaning(calls=(OSLO,)), begun(ITEMS[1], output_index=0), {
        "type": "response.function_call_arguments.done", "arguments": '{"city":"Oslo"}',
        "output_index": 0,
    }, item("done", ITEMS[1], output_index=0)),
    response("arguments only at their end, and no end of the item", Meaning(calls=(OSLO,)), begun(
        ITEMS[1], output_index=0,
    ), {"type": "response.function_call_arguments.done", "arguments": '{"city":"Oslo"}',
    "output_index": 0}),
    response("text only at its end", HI, begun(ITEMS[0], output_index=0), {
        "type": "response.output_text.done", "text": "Hi there", "output_index": 0,
        "content_index": 0,
    }),
    response("arguments already in the first event of the call", Meaning(calls=(OSLO,)), item(
        "added", ITEMS[1], output_index=0,
    ), item("done", ITEMS[1], output_index=0)),
    response("a call without call_id", Meaning(calls=(OSLO,)), *items({}, values=[
        {"type": "function_call", "id": "fc_1", "name": "weather", "arguments": '{"city":"Oslo"}'},
    ])),
    response("arguments as objects", BOTH, output=[function("a", *OSLO), function("b", *UTC)]),
    response("a call without "
    "arguments", Meaning(calls=(("clock", {}),)), item("done", function("a", "clock", ""))),
    # Parts and types.
    response("events of parts and of logprobs", HI, begun(ITEMS[0], output_index=0), {
        "type": "response.content_part.added", "part": {"type": "output_text", "text": ""},
        "output_index": 0,
    }, *({**each, "logprobs": [], "obfuscation": "x"} for each
    in deltas(ITEMS[0], output_index=0)), {
        "type": "response.output_text.done", "text": "Hi there", "output_index": 0,
    }, {"type": "response.content_part.done", "part": {"type": "output_text", "text": "Hi there"}},
    item(
        "done", ITEMS[0], output_index=0,
    )),
    response("annotations between deltas", HI, *items({})[:2], {
        "type": "response.output_text.annotation.added",
        "annotation": {"type": "url_citation", "url": "http://x"},
    }, *items({})[2:4]),
    response("a text part under the name of a chat", HI, output=[said("", content=[{"type": "text",
        "text": "Hi there"}])]),
    response("content as one text", HI, item("done", said("", content="Hi there"))),
    response("two messages, of which the first comments", Meaning("Hm. Hi there"), output=[
        said("Hm. ", phase="commentary"), said("Hi there", phase="final_answer"),
    ]),
    response("a summary of the reasoning", THOUGHT, item("added", reasoning(), output_index=0), {
        "type": "response.reasoning_summary_text.delta", "delta": "Hm.", "output_index": 0,
        "summary_index": 0,
    }, item("done", reasoning(summary=summary("Hm."), encrypted_content="abc"), output_index=0),
    *items(PLACES[1])),
    response("a summary only at the end of its item", THOUGHT, item(
        "done", reasoning(summary=summary("Hm.")),
    ), *items({})),
    response("the reasoning itself "
    "(gpt-oss)", THOUGHT, item("added", reasoning(content=[]), output_index=0), {
        "type": "response.reasoning_text.delta", "delta": "Hm.", "output_index": 0,
        "content_index": 0,
    }, item("done", reasoning(content=[{"type": "reasoning_text", "text": "Hm."}]),
    output_index=0), *items(PLACES[1])),
    response("reasoning of which only the hidden form is known", HI, item(
        "done", reasoning(encrypted_content="abc"), output_index=0,
    ), *items(PLACES[1])),
    response("a summary that "
    "is null", HI, item("done", reasoning(summary=None, content=None)), *items({})),
    response("a search that the provider runs", HI, item("added", SEARCH, output_index=0), {
        "type": "response.web_search_call.searching", "output_index": 0,
    }, item("done", SEARCH, output_index=0), *items(PLACES[1])),
    response("a pair of surrogates in two events", SMILE, *(
        {"type": "response.output_text.delta", "delta": half, "output_index": 0} for half in HALVES
    ), item("done", said("Hi \U0001f600!"), output_index=0)),
    # Events around the items.
    raw("OpenAI's end mark of chats", HI, *items(*PLACES[:1]), end(), b"[DONE]"),
    raw("pings of Codex' server", HI, *(
        each for event in items({})[:4] for each
        in ({"type": "keepalive", "sequence_number": 3}, event)
    ), end()),
    raw("a beginning in three events", HI, *(
        {"type": f"response.{kind}", "response": head(status=kind, usage=None)}
        for kind in ("created", "queued", "in_progress")
    ), *items(*PLACES[:1]), end()),
    raw("an error that is null, and metadata that is", COUNTED, *items({})[:4], end(
        error=None, incomplete_details=None, metadata=None, usage=USAGE,
    )),
    # Ends and usage.
    raw("a token limit", Meaning("Hi there", end="length"), *items({})[:4], end(
        "incomplete", status="incomplete", incomplete_details={"reason": "max_output_tokens"},
    )),
    raw("a token limit in an event that "
    "completes", Meaning("Hi there", end="length"), *items({})[:4], end(
        status="incomplete", incomplete_details={"reason": "max_output_tokens"},
    )),
    raw("a filter", Meaning("Hi there", end="content_filter"), *items({})[:4], end(
        "incomplete", status="incomplete", incomplete_details={"reason": "content_filter"},
    )),
    response("no status", HI, *items({})[:4], status=None),
    response("usage as a list", HI, output=ITEMS[:1], usage=[]),
    response("usage null", HI, output=ITEMS[:1], usage=None),
    response("counts "
    "as text", COUNTED, output=ITEMS[:1], usage={"input_tokens": "11", "output_tokens": "7"}),
    response("counts with a fraction of zero", COUNTED, output=ITEMS[:1], usage={
        "input_tokens": 11.0, "output_tokens": 7.0, "input_tokens_details": None,
        "output_tokens_details": {},
    }),
    response("incomplete_details of another type", HI, output=ITEMS[:1], incomplete_details="none"),
]  # fmt: skip
MESSAGES = [
    whole("responses", "arguments as objects", Meaning("Hi there", calls=(OSLO,)), head(
        output=[said("Hi there"), function("a", *OSLO)], usage=[],
    )),
    whole("responses", "no status", COUNTED, head(output=ITEMS[:1], usage=USAGE, status=None)),
    whole("responses", "a token limit", Meaning("Hi there", end="length", usage=(11, 7)), head(
        output=ITEMS[:1], usage=USAGE, status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
    )),
    whole("responses", "reasoning that is null", COUNTED, head(output=[
        reasoning(summary=None, encrypted_content=None), ITEMS[0],
    ], usage=USAGE, error=None)),
    whole("responses", "an item "
    "without a type", COUNTED, head(output=[{"id": "x"}, ITEMS[0]], usage=USAGE)),
]  # fmt: skip
CASES = [*STREAMS, *MESSAGES, *framings(STREAMS[5])]
