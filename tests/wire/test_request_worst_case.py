"""Requests of every client format, read and translated for every target format: linear time,
whatever they hold."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from msgspec import Raw
from tests.cases import each_case, sampled_cases
from tests.worst_case import (
    JSON_KINDS,
    Make,
    check_cheap,
    check_linear,
    deepest_json,
    nested,
    numbered,
    repeated,
)

from splitsecond.core.errors import LONGEST_MESSAGE, CallerFault
from splitsecond.core.service import Call, Spoken
from splitsecond.core.upstream import transcoding
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.wire import openai
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.translation import MAX_LEFT_OUT, MAX_NAME_CHARACTERS
from splitsecond.routing.requests import parsed_request
from splitsecond.simulator import parsing
from splitsecond.simulator.parsing import parse_openai

MESSAGES, INPUT = b'{"model":"m","messages":[', b'{"model":"m","input":['
USER = b'{"role":"user","content":"a"}'
PARTS, PARTS_END = MESSAGES + b'{"role":"user","content":[', b'{"type":"text","text":"a"}]}]}'
URL, URL_END = PARTS + b'{"type":"image_url","image_url":{"url":"data:', b'"}}]}]}'
CALL = (
    b'{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f",'
    b'"arguments":"{}"}}]},'
)
RESULT = b'{"role":"tool","tool_call_id":"%d","content":"a"},'
USE = b'{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{}}]},'
IMAGE = b'{"type":"image","source":{"type":"base64","media_type":"a/b","data":"AA"}}'
OUTPUT = b'{"type":"function_call_output","call_id":"1","output":"a"},'
WORDS = b"It was the best of times, it was the worst of times"

KINDS: dict[Spoken, dict[str, Make]] = {
    "openai": {
        "messages": repeated(USER + b",", MESSAGES, USER + b"]}"),
        "assistant messages": repeated(
            b'{"role":"assistant","content":"a"},', MESSAGES, USER + b"]}"
        ),
        "system messages": repeated(b'{"role":"system","content":"a"},', MESSAGES, USER + b"]}"),
        "reasoning_parts": repeated(
            b'{"role":"assistant","content":"a","reasoning":"b"},', MESSAGES, USER + b"]}"
        ),
        "own fields": numbered(
            lambda n: b'{"role":"user","content":"a","f%d":1},' % n,
            before=MESSAGES,
            after=USER + b"]}",
        ),
        "parts": repeated(b'{"type":"text","text":"a"},', PARTS, PARTS_END),
        "pictures": repeated(
            b'{"type":"image_url","image_url":{"url":"data:a/b;base64,AA"}},', PARTS, PARTS_END
        ),
        "data URL of parameters": repeated(b";base64", URL + b"a/b", URL_END),
        "data URL of a long type": repeated(b"a", URL, URL_END),
        "data URL of slashes": repeated(b"a/", URL, URL_END),
        "tool calls": numbered(
            lambda n: (
                b'{"id":"%d","type":"function","function":{"name":"f","arguments":"{}"}},' % n
            ),
            before=MESSAGES + b'{"role":"assistant","tool_calls":[',
            after=b'{"id":"x","type":"function","function":{"name":"f","arguments":"{}"}}]}]}',
        ),
        "calls and results": numbered(
            lambda n: CALL.replace(b'"1"', b'"%d"' % n) + RESULT % n,
            before=MESSAGES,
            after=USER + b"]}",
        ),
        "failed results": repeated(
            RESULT.replace(b'"%d"', b'"1","is_error":true') % (), MESSAGES + CALL, USER + b"]}"
        ),
        "results with pictures": repeated(
            b'{"role":"tool","tool_call_id":"1","content":[{"type":"image_url","image_url":{"url":"data:a/b;base64,AA"}}]},',
            MESSAGES + CALL,
            USER + b"]}",
        ),
        "tools": repeated(
            b'{"type":"function","function":{"name":"f"}},',
            MESSAGES + USER + b'],"tools":[',
            b'{"type":"function","function":{"name":"f"}}]}',
        ),
        "fields": numbered(lambda n: b'"f%d":1,' % n, "random", MESSAGES + USER + b"],", b'"z":1}'),
        "a refused message": repeated(
            USER + b",", MESSAGES, b'{"role":"user","content":[{"type":"no"}]}]}'
        ),
        "a long type": repeated(b"a", PARTS + b'{"type":"', b'"}]}]}'),
        "a long role": repeated(b"a", MESSAGES + b'{"role":"', b'","content":""}]}'),
    },
    "anthropic": {
        "messages": repeated(USER + b",", MESSAGES, USER + b"]}"),
        "blocks": repeated(b'{"type":"text","text":"a"},', PARTS, PARTS_END),
        "unsigned reasoning_parts": repeated(
            b'{"type":"thinking","thinking":"a","signature":""},',
            MESSAGES + b'{"role":"assistant","content":[',
            b'{"type":"text","text":"a"}]}]}',
        ),
        "spaces in a signature": repeated(
            b" ", MESSAGES + b'{"signature"', b':"a","role":"user","content":"a"}]}'
        ),
        "tool uses": numbered(
            lambda n: b'{"type":"tool_use","id":"%d","name":"f","input":{}},' % n,
            before=MESSAGES + b'{"role":"assistant","content":[',
            after=b'{"type":"text","text":"a"}]}]}',
        ),
        "results": repeated(
            b'{"type":"tool_result","tool_use_id":"1","content":[%b]},' % IMAGE,
            MESSAGES + USE + b'{"role":"user","content":[',
            b'{"type":"text","text":"a"}]}]}',
        ),
        "output settings": numbered(
            lambda n: b'"f%d":1,' % n,
            "random",
            MESSAGES + USER + b'],"output_config":{',
            b'"z":1}}',
        ),
        "documents in documents": nested(
            b'{"type":"document","source":{"type":"content","content":[',
            b"",
            b"]}}",
            PARTS,
            b"]}]}",
        ),
        "system blocks": repeated(
            b'{"type":"text","text":"a"},',
            b'{"model":"m","system":[',
            b'{"type":"text","text":"a"}],"messages":[%b]}' % USER,
        ),
        "tools": repeated(
            b'{"name":"f","input_schema":{}},',
            MESSAGES + USER + b'],"tools":[',
            b'{"name":"f","input_schema":{}}]}',
        ),
        "a refused message": repeated(
            USER + b",",
            MESSAGES,
            b'{"role":"user","content":[%b]}]}' % IMAGE.replace(b"image", b"video"),
        ),
    },
    "responses": {
        "messages": repeated(USER + b",", INPUT, USER + b"]}"),
        "assistant messages": repeated(
            b'{"role":"assistant","content":"%b"},' % WORDS, INPUT, USER + b"]}"
        ),
        "reasoning_parts": repeated(
            b'{"type":"reasoning","summary":[{"text":"%b"}]},' % WORDS, INPUT, USER + b"]}"
        ),
        "calls": repeated(
            b'{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},',
            INPUT,
            USER + b"]}",
        ),
        "results": repeated(
            OUTPUT,
            INPUT + b'{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},',
            USER + b"]}",
        ),
        "reasoning settings": numbered(
            lambda n: b'"f%d":1,' % n, "random", INPUT + USER + b'],"reasoning":{', b'"z":1}}'
        ),
        "a long id": repeated(b"a", INPUT + b'{"id":"', b'","role":"user","content":"a"}]}'),
        "ids of other targets": repeated(
            b'{"id":"a_resp_1","role":"user","content":"a"},', INPUT, USER + b"]}"
        ),
        "a refused item": repeated(USER + b",", INPUT, b'{"type":"web_search_call"}]}'),
    },
}
REQUESTS = [
    (api_format, kind, target)
    for api_format, kinds in KINDS.items()
    for kind in kinds
    for target in API_FORMATS
]
DEEP: dict[Spoken, tuple[bytes, ...]] = {
    "openai": (
        MESSAGES + USER + b'],"own":%b}',
        MESSAGES
        + USER
        + b'],"tools":[{"type":"function","function":{"name":"f","parameters":{"a":%b}}}]}',
        MESSAGES + b'{"role":"user","content":"a","own":%b}]}',
        MESSAGES + USER + b'],"tool_choice":%b}',
        MESSAGES + USER + b'],"stream_options":{"own":%b}}',
    ),
    "anthropic": (
        MESSAGES + b'{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f",'
        b'"input":{"a":%b}}]}]}',
        MESSAGES + USER + b'],"tools":[{"name":"f","input_schema":{"a":%b}}]}',
        MESSAGES
        + b'{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"",'
        b'"own":%b}]},'
        b'{"role":"user","content":"a"}]}',
    ),
    "responses": (
        INPUT + USER + b'],"tools":[{"type":"function","name":"f","parameters":{"a":%b}}]}',
        INPUT + b'{"id":"a_resp_1","role":"user","content":"a","own":%b}]}',
    ),
}
SERVERS: dict[str, tuple[str, ...]] = {
    "openai": (),
    "anthropic": (),
    "responses": (),
    "gemini": ("/models/m:generateContent",),
    "cohere": (),
    "ollama": (),
    "replicate": ("/models/o/m/predictions",),
}


def call_of(api_format: Spoken, body: bytes) -> Call:
    return Call(id="req-1", api_format=api_format, body=parsed_request.read(body).body)


def written(call: Call, target: str) -> bytes:
    return transcoding.request(
        call, target, API_FORMATS[target].encode, "o/m", Quirks(), target="t"
    ).body


@sampled_cases(16)
@each_case("api_format, kind, target", REQUESTS)
def test_a_request_is_translated_in_linear_time(api_format: Spoken, kind: str, target: str) -> None:
    slow = kind in (
        "assistant messages",
        "reasoning_parts",
        "output settings",
        "reasoning settings",
    )
    size = 1 << 20 if slow and target == "openai" else 1 << 16
    check_linear(
        lambda body: written(call_of(api_format, body), target), KINDS[api_format][kind], size=size
    )


def test_tools_are_left_out_in_linear_time() -> None:
    """Each tool that is kept was compared with each that is left out."""
    tools = numbered(
        lambda n: (
            b'{"type":"web_search","n":%d},{"type":"function","name":"f%d","parameters":{}},'
            % (n, n)
        ),
        before=INPUT + USER + b'],"tools":[',
        after=b'{"type":"web_search"}]}',
    )
    quirks = Quirks(drop_tools=("web_search",))
    check_linear(
        lambda body: (
            transcoding.request(
                call_of("responses", body), "openai", openai.encode, "m", quirks, target="t"
            ).body
        ),
        tools,
        size=1 << 17,
    )


@sampled_cases(10)
@each_case("target", API_FORMATS)
@each_case(
    "api_format, form", [(api_format, form) for api_format, forms in DEEP.items() for form in forms]
)
def test_a_request_that_is_nested_deeply_is_written_or_refused(
    api_format: Spoken, form: bytes, target: str
) -> None:
    """To read a value takes a little less room than to write what was made of it."""
    deepest = deepest_json()
    for depth in range(deepest - 60, deepest):
        with suppress(CallerFault):
            written(call_of(api_format, form % (b"[" * depth + b"]" * depth)), target)


@each_case("form", DEEP["anthropic"])
def test_a_request_that_is_nested_deeply_is_counted_or_refused(form: bytes) -> None:
    deepest = deepest_json()
    for depth in range(deepest - 60, deepest):
        with suppress(CallerFault):
            transcoding.count(call_of("anthropic", form % (b"[" * depth + b"]" * depth)), "m")


@each_case("api_format", ["anthropic", "responses"])
def test_a_request_is_refused_in_linear_time(api_format: Spoken) -> None:
    """Naming the client's own message translated all messages before it again each time."""
    kinds = KINDS[api_format]
    last = {
        "anthropic": b'{"role":"user","content":[{"type":"document","source":%b}]}' % IMAGE[25:-1],
        "responses": b'{"role":"user","content":[{"type":"input_file","file_data":"data:a/'
        b'b;base64,AA"}]}',
    }[api_format]

    def feed(body: bytes) -> None:
        with pytest.raises(CallerFault, match=r"^(messages|input)\[\d\d\d+\]"):
            written(call_of(api_format, body[: -len(USER + b"]}")] + last + b"]}"), "cohere")

    check_linear(feed, kinds["messages"], size=1 << 18)


@pytest.mark.parametrize(
    ("api_format", "kind"), [("anthropic", "output settings"), ("responses", "reasoning settings")]
)
def test_notes_of_dropped_fields_are_bounded(api_format: Spoken, kind: str) -> None:
    body = KINDS[api_format][kind](1 << 16).replace(b'"f1"', b'"%b"' % (b"f" * 10_000))
    call = call_of(api_format, body)
    written(call, "openai")
    names = call.notes.left_out["t"]
    assert len(names) == MAX_LEFT_OUT + 1
    assert names[-1] == "and more"
    assert max(map(len, names)) <= MAX_NAME_CHARACTERS


@each_case(
    "kind, target",
    [
        ("a long role", "anthropic"),
        ("a long role", "gemini"),
        ("a long type", "responses"),
        ("a long type", "gemini"),
        ("a long type", "cohere"),
        ("a long type", "ollama"),
        ("a long type", "replicate"),
    ],
)
def test_a_refusal_does_not_repeat_all_that_it_refuses(kind: str, target: str) -> None:
    with pytest.raises(CallerFault) as caught:
        written(call_of("openai", KINDS["openai"][kind](1 << 16)), target)
    assert len(caught.value.message) <= LONGEST_MESSAGE


@each_case("value", [b"[1]", b'{"a":1}', b"5", b'["a",null]', b"true"])
@each_case("target", API_FORMATS)
def test_a_stop_of_the_wrong_type_is_passed_on_or_refused(target: str, value: bytes) -> None:
    with suppress(CallerFault):
        written(call_of("openai", MESSAGES + USER + b'],"stop":%b}' % value), target)


@pytest.mark.parametrize(
    "value", [b'{"a":"\xff"}', b'{"a":%b}' % (b"[" * 100_000 + b"]" * 100_000), b"[]", b"1"]
)
def test_invalid_stream_options_are_refused(value: bytes) -> None:
    call = Call(id="1", body={"messages": Raw(b"[]"), "stream_options": Raw(value)})
    with pytest.raises(CallerFault, match="stream_options"):
        openai.encode(call, "m", Quirks())


def read(server: str, body: bytes) -> object:
    parse: Callable[..., object] = getattr(parsing, f"parse_{server}")
    return parse("chat", body, *SERVERS[server])


@each_case("kind", JSON_KINDS)
@each_case("server", SERVERS)
def test_servers_read_any_request_in_linear_time(server: str, kind: str) -> None:
    """The text is the whole request, and the content of one."""

    def feed(body: bytes) -> None:
        for form in (
            b"%b",
            MESSAGES + b'{"role":"user","content":%b}],"max_tokens":1}',
            INPUT + b"%b]}",
        ):
            with suppress(CallerFault):
                read(server, form % body)

    check_linear(feed, JSON_KINDS[kind], size=1 << 16)


@pytest.mark.parametrize(
    ("server", "form"),
    [
        ("anthropic", MESSAGES + b'{"role":"user","content":%b}],"max_tokens":1}'),
        ("responses", INPUT + b'{"content":%b}]}'),
    ],
)
def test_servers_read_nested_content_or_refuse_it(server: str, form: bytes) -> None:
    opening, closing = (b'[{"type":"tool_result","content":', b"}]")
    deepest = deepest_json() // 2
    for depth in range(deepest - 60, deepest):
        with suppress(CallerFault):
            read(server, form % (opening * depth + b'"a"' + closing * depth))


def test_nested_prompts_are_read_as_fast_as_flat_ones() -> None:
    """A text inside of many lists was copied for each of them."""
    depth = deepest_json() - 100
    text = nested(b"[", b'"%b"' % (b"a" * (1 << 22)), b"]")(2 * depth)
    flat, deep = (
        b'{"model":"m","prompt":["%b"]}' % (b"a" * (1 << 22)),
        b'{"model":"m","prompt":%b}' % text,
    )
    assert parse_openai("completions", deep).prompt_text == "a" * (1 << 22)
    check_cheap(
        lambda: parse_openai("completions", deep),
        lambda: parse_openai("completions", flat),
        times=20,
    )
