"""Streams of Messages and Responses on their way through the gateway: in whole events, or put together."""

import asyncio
import json
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.errors import AllFailed, CallerFault, Fault, NetworkFault, Overloaded, ProviderFault
from splitsecond.events import Broken, Done, Event, Token, Usage
from splitsecond.gateway.counting import count_tokens
from splitsecond.gateway.doors import DOORS, assembly, dialect_at, way
from splitsecond.gateway.refusal import refusal
from splitsecond.gateway.relay_others import EventRelay
from splitsecond.service import Call, Spoken
from splitsecond.upstream.target import Target
from splitsecond.wire import anthropic, responses
from splitsecond.wire.dialect import Answer, CalledTool

WIRES: dict[Spoken, Any] = {"anthropic": anthropic, "responses": responses}
ANSWER = Answer(text="It snows.", reasoning="Hm.", calls=(CalledTool("call_1", "f", '{"x":1}'),), finish="tool_calls")
COUNTS = Usage(0, 9, 5)
END = {"stop_reason": "max_tokens"}


def call(dialect: Spoken) -> Call:
    return Call(id="req-1", body={}, dialect=dialect)


def streamed(dialect: Spoken) -> bytes:
    writer = WIRES[dialect].StreamWriter("chat", "m", id="id_1", created=1)
    parts = [
        writer.opening(),
        writer.token("H", "reasoning"),
        writer.token("m.", "reasoning"),
        writer.token("It "),
        writer.token("snows."),
        writer.tool_call("f", "call_1"),
        writer.token('{"x"', "tool"),
        writer.token(":1}", "tool"),
        writer.finish("tool_calls"),
        writer.usage(COUNTS),
        writer.done(),
    ]
    return b": ping\n\n".join(parts)


def whole(dialect: Spoken) -> bytes:
    data: bytes = WIRES[dialect].whole("chat", "m", [ANSWER], COUNTS, id="id_1", created=1)
    return data


def events(dialect: Spoken, data: bytes) -> list[Event]:
    decoder = WIRES[dialect].decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(places)]


def without_ids(value: Any) -> Any:
    """The writer of a stream numbers its items otherwise than that of a whole answer."""
    if isinstance(value, dict):
        return {name: without_ids(each) for name, each in value.items() if name != "id"}
    return [without_ids(each) for each in value] if isinstance(value, list) else value


@given(st.lists(st.integers(0, 4000)), st.sampled_from(["anthropic", "responses"]))
def test_a_stream_put_together_is_the_whole_answer(cuts: list[int], dialect: Spoken) -> None:
    made = assembly(call(dialect))
    for piece in cut(streamed(dialect), cuts):
        made.feed(piece)
    assert without_ids(json.loads(made.answer())) == without_ids(json.loads(whole(dialect)))


@pytest.mark.parametrize("dialect", WIRES)
def test_what_came_whole_stays_as_it_came(dialect: Spoken) -> None:
    made = assembly(call(dialect))
    data = b' {"odd": 1.50}'
    made.feed(data)
    assert made.answer() == data.strip()


def test_what_is_unknown_of_a_message_is_kept() -> None:
    def event(**fields: Any) -> bytes:
        return b"data: " + json.dumps(fields).encode() + b"\n\n"

    made = assembly(call("anthropic"))
    message = {"id": "x", "new": 1, "usage": {"input_tokens": 3, "output_tokens": 1, "speed": "fast"}}
    text: dict[str, Any] = {"type": "text", "text": "", "citations": None}
    for part in (
        event(type="message_start", message=message),
        event(type="ping"),
        event(type="content_block_start", index=0, content_block=text),
        event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "a"}),
        event(type="content_block_delta", index=0, delta={"type": "citations_delta", "citation": {"n": 1}}),
        event(type="content_block_start", index=1, content_block={"type": "thinking", "thinking": "", "signature": ""}),
        event(type="content_block_delta", index=1, delta={"type": "signature_delta", "signature": "xx"}),
        event(type="content_block_start", index=2, content_block={"type": "tool_use", "id": "t", "input": {}}),
        event(type="content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": '{"cut'}),
        event(
            type="message_delta", delta={"stop_reason": "max_tokens"}, usage={"output_tokens": 7}, container={"c": 1}
        ),
        event(type="message_stop"),
    ):
        made.feed(part)
    assert json.loads(made.answer()) == {
        **message,
        "usage": {"input_tokens": 3, "output_tokens": 7, "speed": "fast"},
        "stop_reason": "max_tokens",
        "container": {"c": 1},
        "content": [
            {"type": "text", "text": "a", "citations": [{"n": 1}]},
            {"type": "thinking", "thinking": "", "signature": "xx"},
            {"type": "tool_use", "id": "t", "input": {}},
        ],
    }


JSON = st.recursive(
    st.none() | st.integers(0, 2) | st.sampled_from(["message_start", "content_block_start", "text", "response"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["type", "index", "delta", "content_block", "message", "usage", "text", "citation", "response"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=10,
)
TYPES = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "message_delta", "response.completed"]
)


@given(st.lists(st.tuples(TYPES, st.dictionaries(st.sampled_from(["index", "delta", "usage", "message"]), JSON))), JSON)
def test_whatever_events_hold_they_are_put_together_or_refused(happened: list[Any], odd: Any) -> None:
    for dialect in WIRES:
        made = assembly(call(dialect))
        for kind, fields in happened:
            data = {"content_block": {"text": odd, "citations": odd}, "response": {"a": odd}, "index": 0, **fields}
            made.feed(b"data: " + json.dumps({**data, "type": kind}).encode() + b"\n\n")
        try:
            assert isinstance(json.loads(made.answer()), dict)
        except ProviderFault as fault:
            assert fault.kind == "malformed"  # noqa: PT017 - either will do


def test_a_response_without_its_last_event_is_none() -> None:
    made = assembly(call("responses"))
    made.feed(b'data: {"type":"response.created","response":{"id":"x"}}\n\n')
    with pytest.raises(ProviderFault, match="no event with the whole response"):
        made.answer()


@given(st.lists(st.integers(0, 4000)), st.sampled_from(["anthropic", "responses"]), st.booleans())
def test_in_any_split_it_goes_through_as_it_came(cuts: list[int], dialect: Spoken, ended: bool) -> None:
    data = streamed(dialect)
    data = data if ended else data.rstrip(b"\n")
    relay = way(call(dialect), "x/m", usage=False)
    assert b"".join([*map(relay.feed, cut(data, cuts)), relay.rest()]) == streamed(dialect)


@pytest.mark.parametrize("dialect", WIRES)
def test_an_answer_that_is_no_stream_becomes_one(dialect: Spoken) -> None:
    relay = way(call(dialect), "x/m", usage=False)
    assert not relay.feed(b" \n")
    assert not relay.feed(whole(dialect)[:20])
    assert not relay.feed(whole(dialect)[20:])
    found = events(dialect, relay.rest())
    assert [(event.kind, event.text) for event in found if isinstance(event, Token)][:2] == [
        ("reasoning", "Hm."),
        ("text", "It snows."),
    ]
    assert isinstance(found[-1], Done)
    broken = EventRelay(call(dialect), "x/m")
    broken.feed(b'{"error":{"message":"no"}}')
    with pytest.raises(ProviderFault, match="no"):
        broken.rest()


@pytest.mark.parametrize("dialect", WIRES)
@pytest.mark.parametrize("size", [0, 300, 900])
def test_a_break_stands_in_an_event_of_its_own(dialect: Spoken, size: int) -> None:
    relay = way(call(dialect), "x/m", usage=False)
    no = refusal(ProviderFault("it broke", kind="reset", phase="between tokens"), dialect)
    found = events(dialect, relay.feed(streamed(dialect)[:size]) + relay.broken(no))
    assert isinstance(found[-1], Broken)
    assert "it broke" in found[-1].fault.message


def test_the_number_of_the_last_event() -> None:
    relay = way(call("responses"), "x/m", usage=False)
    relay.feed(streamed("responses")[:1500])
    said = relay.broken(refusal(ProviderFault("it broke", kind="reset", phase="head"), "responses"))
    assert said.startswith(b"event: error\ndata: ")
    error = json.loads(said.partition(b"data: ")[2])
    assert error["type"] == "error"
    assert error["code"] == error["error"]["code"] == "reset"
    assert error["sequence_number"] > 2


@pytest.mark.parametrize(
    ("fault", "status", "kind"),
    [
        (CallerFault("no", status=404), 404, "not_found_error"),
        (CallerFault("no"), 400, "invalid_request_error"),
        (Overloaded("no", retry_after_ns=10**9), 529, "overloaded_error"),
        (ProviderFault("no", kind="http_429", phase="head", status=429), 429, "rate_limit_error"),
        (ProviderFault("no", kind="http_401", phase="head", status=401), 502, "api_error"),
        (CallerFault("the gateway has no key for it", kind="bad_key"), 502, "api_error"),
    ],
)
def test_refusals_in_anthropics_words(fault: Any, status: int, kind: str) -> None:
    no = refusal(fault, "anthropic")
    assert no.status == status
    assert json.loads(no.body)["type"] == "error"
    assert json.loads(no.body)["error"] == {"type": kind, "message": str(fault)}
    assert dict(no.headers).get(b"retry-after") == (b"1" if status == 529 else None)


def test_a_target_without_words_for_the_request_does_not_decide_what_the_client_is_told() -> None:
    unspoken = CallerFault("a conversation cannot be carried over", kind="not_translatable")
    limited = ProviderFault("no", kind="http_429", phase="head", status=429)
    assert refusal(AllFailed([unspoken, limited]), "anthropic").status == 429
    assert refusal(AllFailed([unspoken, unspoken]), "anthropic").status == 400


@pytest.mark.parametrize(
    ("said", "estimated"),
    [
        (b'{"input_tokens":7}', False),
        (ProviderFault("no", kind="http_529", phase="head", status=529), True),
        (NetworkFault("no", kind="refused", phase="connect"), True),
    ],
)
def test_a_count_that_nobody_gives_is_guessed_and_said_to_be(said: Any, estimated: bool) -> None:
    class Counts:
        async def count_tokens(self, call: Call, due_ns: int) -> bytes:
            if isinstance(said, Fault):
                raise said
            return bytes(said)

    asked = Call(id="1", body={"messages": [{"role": "user", "content": "four " * 100}]}, dialect="anthropic")
    body, headers = asyncio.run(count_tokens(cast(Target, Counts()), asked))
    assert bool(headers) == estimated
    assert json.loads(body)["input_tokens"] == (132 if estimated else 7)


def test_a_count_of_what_is_wrong_is_refused() -> None:
    class Refuses:
        async def count_tokens(self, call: Call, due_ns: int) -> bytes:
            raise CallerFault("messages: wrong")

    with pytest.raises(CallerFault, match="wrong"):
        asyncio.run(count_tokens(cast(Target, Refuses()), call("anthropic")))
    with pytest.raises(CallerFault, match="no messages"):
        asyncio.run(count_tokens(None, call("anthropic")))


def test_doors() -> None:
    assert {path: door.dialect for path, door in DOORS.items() if door.dialect != "openai"} == {
        "/v1/responses": "responses",
        "/v1/messages": "anthropic",
        "/v1/messages/count_tokens": "anthropic",
    }
    assert dialect_at("/nowhere") == "openai"
