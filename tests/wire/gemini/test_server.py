"""The server role: requests read, and answers that our own decoder reads back the same."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Broken, Done, Event, Finish, Token, TokenKind, ToolPart, Usage
from splitsecond.core.service import Call
from splitsecond.core.wire import gemini
from splitsecond.core.wire.api_format import Quirks, ServerAnswer
from splitsecond.core.wire.gemini import StreamWriter
from splitsecond.simulator.parsing import parse_gemini

TEXT = st.text(st.characters(codec="utf-8"), min_size=1)
PATH = "/v1beta/models/gemini-2.5-flash:streamGenerateContent"


def decoded(data: bytes) -> list[Event]:
    decoder = gemini.decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


def writer() -> StreamWriter:
    return StreamWriter("chat", 'a "model"', id="x-1", created=1_795_000_000)


def test_a_streamed_answer_reads_back() -> None:
    write = writer()
    usage = Usage(1, 5, 9, 7, 3)
    data = b"".join(
        [
            write.opening(),
            write.token("Hm", "reasoning"),
            write.token('He said "hi"\n'),
            write.token(" 😀\0"),
            write.finish("stop"),
            write.usage(usage),
            write.done(),
        ]
    )
    tokens: list[Event] = [
        Token(1, "Hm", "reasoning"),
        Token(1, 'He said "hi"\n'),
        Token(1, " 😀\0"),
    ]
    assert decoded(data) == [*tokens, Finish(1, "STOP"), usage, Done(1, False)]


KINDS: tuple[TokenKind, ...] = ("text", "reasoning", "audio")


@given(
    st.lists(st.tuples(TEXT, st.sampled_from(KINDS), st.integers(0, 3)), min_size=1),
    st.lists(st.integers(0, 900)),
)
def test_any_tokens_read_back_in_any_split(
    parts: list[tuple[str, TokenKind, int]], cuts: list[int]
) -> None:
    write = writer()
    tokens = [Token(1, text, kind, index) for text, kind, index in parts]
    data = b"".join(write.token(token.text, token.kind, token.index) for token in tokens)
    finishes = [
        Finish(1, "MAX_TOKENS", index) for index in sorted({token.index for token in tokens})
    ]
    data += b"".join(write.finish("length", finish.index) for finish in finishes) + write.done()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    decoder = gemini.decoder("chat")
    events = [event for start, end in pairwise(edges) for event in decoder.feed(data[start:end], 1)]
    assert [*events, *decoder.close(1)] == [*tokens, *finishes, Done(1, False)]


def test_a_refusal_is_text() -> None:
    write = writer()
    assert decoded(write.token("No.", "refusal") + write.finish("content_filter") + write.done())[
        :2
    ] == [
        Token(1, "No."),
        Finish(1, "SAFETY"),
    ]


@pytest.mark.parametrize("url", ["data:image/png;base64,iVBO", "https://x.test/a.png"])
def test_an_image(url: str) -> None:
    data = writer().token(url, "image")
    assert (b"inlineData" in data) == url.startswith("data:")
    assert [event.text for event in decoded(data) if isinstance(event, Token)] == (
        [url] if "data:" in url else []
    )


def test_function_calls_are_written_whole() -> None:
    write = writer()
    assert (
        write.tool_call("weather", "call_1")
        + write.token('{"city":', "tool")
        + write.token('"x"}', "tool")
        == b""
    )
    data = write.tool_call("time", "call_2") + write.finish("tool_calls") + write.done()
    assert decoded(data) == [
        Token(1, 'weather{"city":"x"}', "tool", tool=ToolPart(0, "call_1", "weather")),
        Token(1, "time{}", "tool", tool=ToolPart(1, "call_2", "time")),
        Finish(1, "STOP"),
        Done(1, False),
    ]
    event = json.loads(data.splitlines()[0].removeprefix(b"data: "))
    assert event["candidates"][0]["content"]["parts"] == [
        {"functionCall": {"id": "call_1", "name": "weather", "args": {"city": "x"}}}
    ]


def test_an_error_inside_a_stream() -> None:
    write = writer()
    (token, end) = decoded(
        write.token("a") + write.error("broken", "server_error", 503) + write.done()
    )
    assert token == Token(1, "a")
    assert isinstance(end, Broken)
    assert (end.fault.kind, end.fault.phase) == ("in_band_error", "between tokens")


def test_a_chunk_looks_like_geminis() -> None:
    data = writer().token("a")
    assert data.endswith(b"\r\n\r\n")
    assert json.loads(data.removeprefix(b"data: ")) == {
        "candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}, "index": 0}],
        "modelVersion": 'a "model"',
        "responseId": "x-1",
    }


def test_a_whole_answer_reads_back() -> None:
    answers = [
        ServerAnswer(text="Yes", reasoning="Hm"),
        ServerAnswer(refusal="No", finish="length"),
    ]
    data = gemini.StreamWriter("chat", "m", id="x", created=1).whole(answers, Usage(0, 5, 4, 2))
    assert decoded(data) == [
        Token(1, "Hm", "reasoning"),
        Token(1, "Yes"),
        Finish(1, "STOP"),
        Token(1, "No", index=1),
        Finish(1, "MAX_TOKENS", 1),
        Usage(1, 5, 4, 2),
        Done(1, False),
    ]


def test_counts_are_geminis_own() -> None:
    data = json.loads(writer().usage(Usage(0, 5, 9, 7, 3)).removeprefix(b"data: "))
    assert data["usageMetadata"] == {
        "promptTokenCount": 5,
        "cachedContentTokenCount": 3,
        "candidatesTokenCount": 2,
        "thoughtsTokenCount": 7,
        "totalTokenCount": 14,
    }
    assert json.loads(writer().usage(Usage(0)).removeprefix(b"data: "))["usageMetadata"] == {
        "totalTokenCount": 0
    }


def test_error_body_is_read_back() -> None:
    body = gemini.error_body(404, "no such model", "not_found_error")
    assert json.loads(body) == {
        "error": {"code": 404, "message": "no such model", "status": "NOT_FOUND"}
    }
    assert gemini.fault_from_response(404, {}, body).message == "HTTP 404: no such model"
    assert json.loads(gemini.error_body(418, "tea"))["error"]["status"] == "UNKNOWN"


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


USER = [{"role": "user", "parts": [{"text": "Hello"}]}]


def test_a_request_of_our_own_is_read() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
                {"type": "text", "text": "this?"},
            ],
        },
    ]
    call = Call(id="1", body={"messages": messages, "max_tokens": 7, "n": 2, "safetySettings": []})
    encoded = gemini.encode(call, "gemini-2.5-flash", Quirks())
    request = parse_gemini("chat", encoded.body, "/v1beta" + encoded.path)
    assert (request.operation, request.model, request.stream) == ("chat", "gemini-2.5-flash", True)
    assert (request.max_tokens, request.n, request.include_usage) == (7, 2, True)
    assert request.prompt_text == "Be brief.\nWhat is\nthis?"
    assert bytes(request.fields["safetySettings"]) == b"[]"


@pytest.mark.parametrize(
    ("path", "model", "stream"),
    [
        (PATH, "gemini-2.5-flash", True),
        (PATH + "?alt=sse&key=k", "gemini-2.5-flash", True),
        ("/models/m:generateContent", "m", False),
        ("/v1beta/tunedModels/my%20own:generateContent", "my own", False),
        (
            "/v1/projects/p/locations/l/publishers/google/models/m:streamGenerateContent?alt=sse",
            "m",
            True,
        ),
    ],
)
def test_path_determines_the_model_and_streaming(path: str, model: str, stream: bool) -> None:
    request = parse_gemini("chat", body(contents=USER), path)
    assert (request.model, request.stream) == (model, stream)
    assert (request.max_tokens, request.n) == (None, 1)


@pytest.mark.parametrize(
    "path", ["/", "/v1/chat/completions", "/v1beta/models/m:countTokens", "/v1beta/models/m"]
)
def test_unknown_path_is_404(path: str) -> None:
    with pytest.raises(CallerFault, match="unknown path /") as caught:
        parse_gemini("chat", body(contents=USER), path)
    assert caught.value.status == 404


@each_case(
    "raw, words",
    [
        (b"", "truncated"),
        (b"[]", "Expected `object`"),
        (b'{"a":' * 100_000, "recursion|truncated"),
        (body(), "`contents`"),
        (body(contents=[]), r"\$.contents"),
        (body(contents=[{"parts": [{"text": 7}]}]), r"\$.contents\[0\].parts\[0\].text"),
        (body(contents=USER, generationConfig={"maxOutputTokens": -5}), r"maxOutputTokens"),
        (body(contents=USER, generationConfig={"candidateCount": 0}), r"candidateCount"),
    ],
)
def test_invalid_request_is_refused_with_the_reason(raw: bytes, words: str) -> None:
    with pytest.raises(CallerFault, match=words) as caught:
        parse_gemini("chat", raw, PATH)
    assert (caught.value.kind, caught.value.status) == ("bad_request", 400)


@given(st.binary())
def test_any_bytes_that_are_no_request_are_the_callers_fault(raw: bytes) -> None:
    with pytest.raises(CallerFault):
        parse_gemini("chat", raw, PATH)


@pytest.mark.parametrize("counts", [True, False])
def test_the_last_event_has_candidates(counts: bool) -> None:
    write = writer()
    data = (
        write.token("a")
        + write.token("b", index=1)
        + write.end("stop", Usage(1, 5, 2), choices=2, counts=counts)
    )
    events = [msgspec.json.decode(line[6:]) for line in data.split(b"\r\n\r\n") if line]
    assert all(event["candidates"] for event in events)
    assert [each["finishReason"] for each in events[-1]["candidates"]] == ["STOP", "STOP"]
    assert ("usageMetadata" in events[-1]) is counts
