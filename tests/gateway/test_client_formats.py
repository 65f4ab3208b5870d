"""Relay and assembly of streams of Messages and Responses, error responses, and token counts."""

import asyncio
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

import splitsecond
from splitsecond.core.errors import (
    AllFailed,
    CallerFault,
    Fault,
    NetworkFault,
    Overloaded,
    ProviderFault,
)
from splitsecond.core.events import Broken, Done, Event, Token, Usage
from splitsecond.core.service import Call, Spoken
from splitsecond.core.upstream.target import Target
from splitsecond.core.wire import anthropic, responses
from splitsecond.core.wire.api_format import CalledTool, ServerAnswer
from splitsecond.core.wire.assembly import Assembly
from splitsecond.core.wire.client_format import (
    ANTHROPIC_MESSAGES,
    CLIENT_FORMATS,
    GEMINI,
    OLLAMA_CHAT,
    OPENAI_RESPONSES,
)
from splitsecond.core.wire.relay import StreamRelay
from splitsecond.gateway.http.counting import count_tokens
from splitsecond.routing.requests.endpoints import ENDPOINTS, Endpoint, endpoint_at, format_at
from splitsecond.routing.requests.error_response import error_response

WIRES: dict[Spoken, Any] = {"anthropic": anthropic, "responses": responses}
ANSWER = ServerAnswer(
    text="It snows.",
    reasoning="Hm.",
    calls=(CalledTool("call_1", "f", '{"x":1}'),),
    finish="tool_calls",
)
COUNTS = Usage(0, 9, 5)
END = {"stop_reason": "max_tokens"}


def call(api_format: Spoken) -> Call:
    return Call(id="req-1", body={}, api_format=api_format)


def new_relay(api_format: Spoken) -> StreamRelay:
    return CLIENT_FORMATS[api_format].relay(call(api_format), "x/m", usage=False)


def new_assembly(api_format: Spoken) -> Assembly:
    return CLIENT_FORMATS[api_format].assembly()


def streamed(api_format: Spoken) -> bytes:
    writer = WIRES[api_format].StreamWriter("chat", "m", id="id_1", created=1)
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


def whole(api_format: Spoken) -> bytes:
    data: bytes = (
        WIRES[api_format].StreamWriter("chat", "m", id="id_1", created=1).whole([ANSWER], COUNTS)
    )
    return data


def events(api_format: Spoken, data: bytes) -> list[Event]:
    decoder = WIRES[api_format].decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in cuts} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(places)]


def without_ids(value: Any) -> Any:
    """Remove ids and times: the writer of a stream numbers its items differently from that of a
    whole answer."""
    if isinstance(value, dict):
        return {
            name: without_ids(each)
            for name, each in value.items()
            if name not in ("id", "completed_at")
        }
    return [without_ids(each) for each in value] if isinstance(value, list) else value


@given(st.lists(st.integers(0, 4000)), st.sampled_from(["anthropic", "responses"]))
def test_an_assembled_stream_is_the_whole_answer(cuts: list[int], api_format: Spoken) -> None:
    made = new_assembly(api_format)
    for piece in cut(streamed(api_format), cuts):
        made.feed(piece)
    assert without_ids(json.loads(made.answer())) == without_ids(json.loads(whole(api_format)))


@pytest.mark.parametrize("api_format", WIRES)
def test_unstreamed_json_response_is_not_changed(api_format: Spoken) -> None:
    made = new_assembly(api_format)
    data = b' {"odd": 1.50}'
    made.feed(data)
    assert made.answer() == data.strip()


def test_unknown_fields_of_a_message_are_kept() -> None:
    def event(**fields: Any) -> bytes:
        return b"data: " + json.dumps(fields).encode() + b"\n\n"

    made = new_assembly("anthropic")
    message = {
        "id": "x",
        "new": 1,
        "usage": {"input_tokens": 3, "output_tokens": 1, "speed": "fast"},
    }
    text: dict[str, Any] = {"type": "text", "text": "", "citations": None}
    for part in (
        event(type="message_start", message=message),
        event(type="ping"),
        event(type="content_block_start", index=0, content_block=text),
        event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "a"}),
        event(
            type="content_block_delta",
            index=0,
            delta={"type": "citations_delta", "citation": {"n": 1}},
        ),
        event(
            type="content_block_start",
            index=1,
            content_block={"type": "thinking", "thinking": "", "signature": ""},
        ),
        event(
            type="content_block_delta",
            index=1,
            delta={"type": "signature_delta", "signature": "xx"},
        ),
        event(
            type="content_block_start",
            index=2,
            content_block={"type": "tool_use", "id": "t", "input": {}},
        ),
        event(
            type="content_block_delta",
            index=2,
            delta={"type": "input_json_delta", "partial_json": '{"cut'},
        ),
        event(
            type="message_delta",
            delta={"stop_reason": "max_tokens"},
            usage={"output_tokens": 7},
            container={"c": 1},
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
    st.none()
    | st.integers(0, 2)
    | st.sampled_from(["message_start", "content_block_start", "text", "response"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "index",
                    "delta",
                    "content_block",
                    "message",
                    "usage",
                    "text",
                    "citation",
                    "response",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=10,
)
TYPES = st.sampled_from(
    [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "message_delta",
        "response.completed",
    ]
)


@given(
    st.lists(
        st.tuples(
            TYPES, st.dictionaries(st.sampled_from(["index", "delta", "usage", "message"]), JSON)
        )
    ),
    JSON,
)
def test_any_events_are_assembled_or_refused(happened: list[Any], odd: Any) -> None:
    for api_format in WIRES:
        made = new_assembly(api_format)
        for kind, fields in happened:
            data = {
                "content_block": {"text": odd, "citations": odd},
                "response": {"a": odd},
                "index": 0,
                **fields,
            }
            made.feed(b"data: " + json.dumps({**data, "type": kind}).encode() + b"\n\n")
        try:
            assert isinstance(json.loads(made.answer()), dict)
        except ProviderFault as fault:
            assert fault.kind == "malformed"  # noqa: PT017 - either will do


def test_a_response_without_its_last_event_is_refused() -> None:
    made = new_assembly("responses")
    made.feed(b'data: {"type":"response.created","response":{"id":"x"}}\n\n')
    with pytest.raises(ProviderFault, match="no event with the whole response"):
        made.answer()


@given(st.lists(st.integers(0, 4000)), st.sampled_from(["anthropic", "responses"]), st.booleans())
def test_bytes_pass_unchanged_in_any_split(
    cuts: list[int], api_format: Spoken, ended: bool
) -> None:
    data = streamed(api_format)
    data = data if ended else data.rstrip(b"\n")
    relay = new_relay(api_format)
    assert b"".join([*map(relay.feed, cut(data, cuts)), relay.rest()]) == streamed(api_format)


@pytest.mark.parametrize("api_format", WIRES)
def test_a_json_answer_becomes_a_stream(api_format: Spoken) -> None:
    relay = new_relay(api_format)
    assert not relay.feed(b" \n")
    assert not relay.feed(whole(api_format)[:20])
    assert not relay.feed(whole(api_format)[20:])
    found = events(api_format, relay.rest())
    assert [(event.kind, event.text) for event in found if isinstance(event, Token)][:2] == [
        ("reasoning", "Hm."),
        ("text", "It snows."),
    ]
    assert isinstance(found[-1], Done)
    broken = new_relay(api_format)
    broken.feed(b'{"error":{"message":"no"}}')
    with pytest.raises(ProviderFault, match="no"):
        broken.rest()


@each_case("api_format", WIRES)
@each_case("size", [0, 300, 900])
def test_error_in_a_stream_is_a_separate_event(api_format: Spoken, size: int) -> None:
    relay = new_relay(api_format)
    no = error_response(
        ProviderFault("it broke", kind="reset", phase="between tokens"), CLIENT_FORMATS[api_format]
    )
    found = events(api_format, relay.feed(streamed(api_format)[:size]) + relay.error(no.body))
    assert isinstance(found[-1], Broken)
    assert "it broke" in found[-1].fault.message


def test_a_rest_that_is_no_event_follows_geminis_error() -> None:
    broken = GEMINI.relay(call("openai"), "x/m", usage=False).error(b'{"error":{"code":502}}')
    event, _, rest = broken.partition(b"\r\n\r\n")
    assert event == b'data: {"error":{"code":502}}'
    assert rest.startswith(b":")  # a comment
    assert not rest.endswith(b"\n")


def test_error_event_continues_the_sequence_numbers() -> None:
    relay = new_relay("responses")
    relay.feed(streamed("responses")[:1500])
    said = relay.error(
        error_response(ProviderFault("it broke", kind="reset", phase="head"), OPENAI_RESPONSES).body
    )
    assert said.startswith(b"event: error\ndata: ")
    error = json.loads(said.partition(b"data: ")[2])
    assert error["type"] == "error"
    assert error["code"] == error["error"]["code"] == "reset"
    assert error["sequence_number"] > 2


@each_case(
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
def test_errors_in_anthropics_format(fault: Any, status: int, kind: str) -> None:
    no = error_response(fault, ANTHROPIC_MESSAGES)
    assert no.status == status
    assert json.loads(no.body)["type"] == "error"
    assert json.loads(no.body)["error"] == {"type": kind, "message": str(fault)}
    assert dict(no.headers).get(b"retry-after") == (b"1" if status == 529 else None)


def test_untranslatable_target_does_not_decide_the_status() -> None:
    unspoken = CallerFault("a conversation cannot be translated", kind="not_translatable")
    limited = ProviderFault("no", kind="http_429", phase="head", status=429)
    assert error_response(AllFailed([unspoken, limited]), ANTHROPIC_MESSAGES).status == 429
    assert error_response(AllFailed([unspoken, unspoken]), ANTHROPIC_MESSAGES).status == 400


@pytest.mark.parametrize(
    ("said", "estimated"),
    [
        (b'{"input_tokens":7}', False),
        (ProviderFault("no", kind="http_529", phase="head", status=529), True),
        (NetworkFault("no", kind="refused", phase="connect"), True),
        (CallerFault("no such path", kind="http_404", status=404), True),
    ],
)
def test_token_count_is_estimated_and_marked_if_a_target_fails(said: Any, estimated: bool) -> None:
    class Counts:
        async def count_tokens(self, call: Call, due_ns: int) -> bytes:
            if isinstance(said, Fault):
                raise said
            return bytes(said)

    asked = Call(
        id="1",
        body={"messages": [{"role": "user", "content": "four " * 100}]},
        api_format="anthropic",
    )
    body, headers = asyncio.run(count_tokens(cast(Target, Counts()), asked, ANTHROPIC_MESSAGES))
    assert bool(headers) == estimated
    assert json.loads(body)["input_tokens"] == (132 if estimated else 7)


def test_token_count_for_responses_has_the_responses_format() -> None:
    asked = Call(id="1", body={"input": "four " * 100}, api_format="responses")
    body, headers = asyncio.run(count_tokens(None, asked, OPENAI_RESPONSES))
    assert json.loads(body) == {"object": "response.input_tokens", "input_tokens": 125}
    assert headers


def test_token_count_of_an_invalid_request_is_refused() -> None:
    class Refuses:
        async def count_tokens(self, call: Call, due_ns: int) -> bytes:
            raise CallerFault("messages: wrong")

    with pytest.raises(CallerFault, match="wrong"):
        asyncio.run(count_tokens(cast(Target, Refuses()), call("anthropic"), ANTHROPIC_MESSAGES))
    with pytest.raises(CallerFault, match="no messages"):
        asyncio.run(count_tokens(None, call("anthropic"), ANTHROPIC_MESSAGES))


def test_path_and_headers_determine_the_api_format() -> None:
    assert {
        path: each.format.name for path, each in ENDPOINTS.items() if each.format.name != "openai"
    } == {
        "/v1/responses": "responses",
        "/v1/responses/input_tokens": "responses",
        "/v1/messages": "anthropic",
        "/v1/messages/count_tokens": "anthropic",
        "/messages": "anthropic",  # opencode leaves out the version
        "/messages/count_tokens": "anthropic",
    }
    assert format_at("/nowhere", {}).name == "openai"
    assert format_at("/v1/messages/batches", {}).name == "anthropic"
    assert (
        format_at("/v1beta/models/x", {}) is format_at("/v1/models/x:generateContent", {}) is GEMINI
    )
    assert format_at("/v1/models", {b"x-goog-api-client": b"x"}) is GEMINI
    assert format_at("/api/tags", {}) is format_at("/api/show", {}) is OLLAMA_CHAT
    assert (
        endpoint_at("/v1beta/models/:generateContent")
        is endpoint_at("/v1beta/models/x:embed")
        is None
    )
    streamed = Endpoint("chat", GEMINI, model="a/b:c", stream=True)
    assert endpoint_at("/v1beta/models/a/b:c:streamGenerateContent") == streamed
    assert endpoint_at("/v1beta/a/b:c:streamGenerateContent") == streamed


def test_paths_of_groqs_and_azures_clients_are_those_of_chats() -> None:
    assert (
        endpoint_at("/openai/v1/chat/completions")
        is endpoint_at("/v1/chat/completions")
        is not None
    )
    assert endpoint_at("/openai/v1/messages") is None
    assert format_at("/v1/models/x", {}).name == "openai"
    assert format_at("/v1/models/x", {b"anthropic-version": b"2023-06-01"}).name == "anthropic"


def test_gateway_and_policies_compare_no_format_names() -> None:
    comparison = re.compile(
        r'api_format\s*(==|!=|in|not in)\s*[("\[{]|case "(openai|anthropic|responses)"'
    )
    source = Path(splitsecond.__file__).parent
    files = [
        path
        for room in ("gateway", "router", "policy")
        for path in source.joinpath(room).rglob("*.py")
    ]
    assert files
    assert not [path for path in files if comparison.search(path.read_text())]
