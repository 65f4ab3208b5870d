"""Reading Gemini's answers: streams as its documentation and its client library's types describe
them, and properties over all of these."""

import json
from typing import Any

import pytest
from tests.cases import each_case, sampled_cases
from tests.wire import conformance
from tests.wire.conformance import check_any_bytes, check_decoder, fault_of, repeated_at_places

from splitsecond.core.events import Done, Event, Finish, Quiet, Token, ToolPart, Usage
from splitsecond.core.wire import gemini
from splitsecond.core.wire.sse import MAX_EVENT_BYTES
from splitsecond.core.wire.streaming import Decoder


def candidate(*parts: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    ended = {"finishReason": finish} if finish else {}
    return {"content": {"parts": list(parts), "role": "model"}, **ended, "index": 0, **fields}


def chunk(*candidates: dict[str, Any], **fields: Any) -> bytes:
    whole = {
        "candidates": list(candidates),
        **fields,
        "modelVersion": "gemini-2.5-flash",
        "responseId": "x",
    }
    return b"data: " + json.dumps(whole, ensure_ascii=False).encode() + b"\r\n\r\n"


def counts(
    prompt: int, candidates: int | None, thought_tokens: int | None = None, **more: int
) -> dict[str, Any]:
    named = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": candidates,
        "thoughtsTokenCount": thought_tokens,
        **more,
    }
    total = (
        prompt + (candidates or 0) + (thought_tokens or 0) + more.get("toolUsePromptTokenCount", 0)
    )
    return {
        name: count
        for name, count in {**named, "totalTokenCount": total}.items()
        if count is not None
    }


STREAMS: dict[str, list[bytes]] = {
    "text": [
        chunk(candidate({"text": "It"}), usageMetadata=counts(7, 1)),
        chunk(candidate({"text": " is “blue” 😀.\n"}), usageMetadata=counts(7, 9)),
        chunk(candidate({"text": ""}, finish="STOP"), usageMetadata=counts(7, 9)),
    ],
    "thinking": [
        chunk(
            candidate({"text": "**Weighing**", "thought": True}), usageMetadata=counts(7, None, 40)
        ),
        chunk(candidate({"text": " it", "thought": True}), usageMetadata=counts(7, None, 90)),
        chunk(
            candidate({"text": "Yes."}, finish="STOP"),
            usageMetadata=counts(7, 2, 90, cachedContentTokenCount=5),
        ),
    ],
    "tool": [
        chunk(
            candidate(
                {
                    "functionCall": {"name": "weather", "args": {"city": "Genève"}, "id": "c1"},
                    "thoughtSignature": "Qw==",
                },
                {"functionCall": {"name": "time"}},
            ),
            usageMetadata=counts(50, 20),
        ),
        chunk(candidate({"text": ""}, finish="STOP"), usageMetadata=counts(50, 20)),
    ],
    "two candidates": [
        chunk(candidate({"text": "a"})),
        chunk(candidate({"text": "b"}, index=1)),
        chunk(candidate(finish="MAX_TOKENS", index=1)),
        chunk(candidate(finish="STOP"), usageMetadata=counts(3, 2)),
    ],
    "blocked": [
        chunk(promptFeedback={"blockReason": "PROHIBITED_CONTENT"}, usageMetadata=counts(9, None))
    ],
    "plain": [
        json.dumps({"candidates": [candidate({"text": "Hi"}, finish="STOP")]}, indent=2).encode()
    ],
    "list": [
        b"[" + json.dumps({"candidates": [candidate({"text": "Hi"})]}, indent=2).encode(),
        b"\n,\r\n"
        + json.dumps({"candidates": [candidate({"text": "!"}, finish="STOP")]}).encode()
        + b"\n]\n",
    ],
}
BROKEN: dict[str, list[bytes]] = {
    "error event": [
        *STREAMS["text"][:1],
        b'data: {"error":{"code":503,"message":"overloaded"}}\r\n\r\n',
    ],
    "bare error": [
        *STREAMS["text"][:1],
        b'{\n  "error": {\n    "code": 503,\n    "message": "overloaded"\n  }\n}\n',
    ],
    "bare error in a list": [
        *STREAMS["text"][:1],
        b'[{\n  "error": {\n    "message": "overloaded"\n  }\n}\n]',
    ],
    "unfinished": STREAMS["text"][:2],
    "plain error": [b'{"error":{"code":429,"message":"overloaded","status":"RESOURCE_EXHAUSTED"}}'],
}
ALL = STREAMS | BROKEN


def make() -> Decoder:
    return gemini.decoder("chat")


def events_of(parts: list[bytes]) -> list[Event]:
    return conformance.events_of(make, parts)


def said(name: str) -> list[Event]:
    decoder = gemini.decoder("chat")
    events = [event for at, part in enumerate(STREAMS[name]) for event in decoder.feed(part, at)]
    return events + decoder.close(9)


def test_text() -> None:
    assert said("text") == [
        Token(0, "It", tokens_so_far=1),
        Usage(0, 7, 1),
        Token(1, " is “blue” 😀.\n", tokens_so_far=9),
        Usage(1, 7, 9),
        Finish(2, "STOP"),
        Usage(2, 7, 9),
        Done(9, False),
    ]


def test_thought_parts_are_reasoning_and_count_as_output() -> None:
    assert said("thinking") == [
        Token(0, "**Weighing**", "reasoning", tokens_so_far=40),
        Usage(0, 7, 40, 40),
        Token(1, " it", "reasoning", tokens_so_far=90),
        Usage(1, 7, 90, 90),
        Token(2, "Yes.", tokens_so_far=92),
        Finish(2, "STOP"),
        Usage(2, 7, 92, 90, 5),
        Done(9, False),
    ]


def test_function_calls_are_their_name_and_arguments() -> None:
    assert said("tool") == [
        Token(
            0,
            'weather{"city": "Genève"}',
            "tool",
            tokens_so_far=20,
            tool=ToolPart(0, "c1", "weather"),
        ),
        Quiet(0, "signature", "Qw=="),
        Token(0, "time", "tool", tokens_so_far=20, tool=ToolPart(1, "", "time")),
        Usage(0, 50, 20),
        Finish(1, "STOP"),
        Usage(1, 50, 20),
        Done(9, False),
    ]


def test_each_candidate_has_its_own_end() -> None:
    assert said("two candidates") == [
        Token(0, "a"),
        Token(1, "b", index=1),
        Finish(2, "MAX_TOKENS", 1),
        Finish(3, "STOP"),
        Usage(3, 3, 2),
        Done(9, False),
    ]
    assert fault_of(events_of(STREAMS["two candidates"][:3])).kind == "truncated"


def test_blocked_prompt_is_an_empty_response_that_ended() -> None:
    assert said("blocked") == [Finish(0, "PROHIBITED_CONTENT"), Usage(0, 9), Done(9, False)]


def test_plain_json_arrives_with_its_last_byte() -> None:
    assert said("plain") == [Token(0, "Hi"), Finish(0, "STOP"), Done(9, False)]
    assert said("list") == [Token(1, "Hi"), Token(1, "!"), Finish(1, "STOP"), Done(9, False)]
    counted = json.dumps(
        {"candidates": [candidate({"text": "Hi"}, finish="STOP")], "usageMetadata": counts(1, 1)}
    )
    assert events_of([counted.encode()])[0] == Token(0, "Hi")


@each_case(
    "body, kind",
    [
        (b"{}", "empty_answer"),
        (b"[]", "empty_answer"),
        (b'{"candidates":[]}', "empty_answer"),
        (b'{"candidates":7}', "malformed"),
        (b'{"candidates":[', "truncated"),
        (b'{"candidates":[{"content":{"parts":[{"text":"a"}]}}]}', "truncated"),
        (b'[{"error":{"message":"no"}}]', "in_band_error"),
        (b"<html>hello</html>", "malformed"),
        (b"", "empty_answer"),
        (b": ping\n\n", "empty_answer"),
        (b'data: {"candidates":', "truncated"),
        (b'data: {"candidates":7}\n\n', "malformed"),
        (b"event: error\ndata: no\n\n", "in_band_error"),
    ],
)
def test_invalid_bodies_give_a_fault(body: bytes, kind: str) -> None:
    assert fault_of(events_of([body])).kind == kind


@pytest.mark.parametrize("name", ["error event", "bare error", "bare error in a list"])
def test_an_error_in_the_middle(name: str) -> None:
    fault = fault_of(events_of(BROKEN[name]))
    assert (fault.kind, fault.phase) == ("in_band_error", "between tokens")
    assert fault.message.endswith("overloaded")


def test_output_tokens_include_reasoning() -> None:
    def usage(**fields: int) -> Event:
        (event,) = gemini.decoder("chat").feed(chunk(usageMetadata=fields), 1)
        return event

    assert usage(promptTokenCount=5, thoughtsTokenCount=30) == Usage(1, 5, 30, 30)
    assert usage(
        promptTokenCount=5, candidatesTokenCount=2, thoughtsTokenCount=30, totalTokenCount=37
    ) == Usage(1, 5, 32, 30)
    assert usage(
        promptTokenCount=5, candidatesTokenCount=32, thoughtsTokenCount=30, totalTokenCount=37
    ) == Usage(1, 5, 32, 30), "a preview that counts the reasoning among the candidates"
    assert usage(promptTokenCount=5, toolUsePromptTokenCount=100, candidatesTokenCount=3) == Usage(
        1, 105, 3
    )
    assert usage(totalTokenCount=5) == Quiet(1, "no candidates")


def test_hidden_reasoning_does_not_count_as_running_output() -> None:
    events = events_of([chunk(candidate({"text": "a"}), usageMetadata=counts(7, 3, 200))])
    assert events[:2] == [Token(0, "a", tokens_so_far=3), Usage(0, 7, 203, 200)]


def test_count_in_the_last_chunk_only_is_no_running_count() -> None:
    first = chunk(candidate({"text": "a"}), usageMetadata=counts(7, None))
    last = chunk(candidate({"text": "b"}, finish="STOP"), usageMetadata=counts(7, 2))
    tokens = [event for event in events_of([first, last]) if isinstance(event, Token)]
    assert tokens == [Token(0, "a"), Token(0, "b")]


@each_case(
    "part",
    [
        {"text": ""},
        {"text": None},
        {},
        {"inlineData": {"mimeType": "image/png", "data": ""}},
        {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}},
        {"inlineData": {"mimeType": "audio/pcm"}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://x.test/a.pdf"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "4"}},
        {"functionCall": {}},
    ],
)
def test_parts_without_content_are_quiet(part: dict[str, Any]) -> None:
    assert gemini.decoder("chat").feed(chunk(candidate(part)), 5) == [Quiet(5, "empty")]


@each_case(
    "part, token",
    [
        ({"executableCode": {"language": "PYTHON", "code": "2+2"}}, Token(5, "2+2", "tool")),
        (
            {"inlineData": {"mimeType": "audio/pcm;rate=24000", "data": "AAAA"}},
            Token(5, "AAAA", "audio"),
        ),
        (
            {"functionCall": {"name": "f", "args": None}},
            Token(5, "f", "tool", tool=ToolPart(0, "", "f")),
        ),
        (
            {
                "functionCall": {
                    "partialArgs": [{"jsonPath": "$.city", "stringValue": "Gen"}],
                    "willContinue": True,
                }
            },
            Token(5, "Gen", "tool"),
        ),
        (
            {"functionCall": {"partialArgs": [{"numberValue": 2.5}, {"boolValue": True}]}},
            Token(5, "2.5True", "tool"),
        ),
        (
            {"inlineData": {"mimeType": "image/png", "data": "iVBO"}},
            Token(5, "data:image/png;base64,iVBO", "image"),
        ),
        (
            {"fileData": {"mimeType": "image/png", "fileUri": "https://x.test/a.png"}},
            Token(5, "https://x.test/a.png", "image"),
        ),
        ({"text": "a", "thought": False}, Token(5, "a")),
    ],
)
def test_parts_that_are_content(part: dict[str, Any], token: Token) -> None:
    assert gemini.decoder("chat").feed(chunk(candidate(part)), 5) == [token]


def test_signature_without_text_is_kept() -> None:
    part = {"text": "", "thoughtSignature": "Qw=="}
    assert gemini.decoder("chat").feed(chunk(candidate(part)), 5) == [Quiet(5, "signature", "Qw==")]


@pytest.mark.parametrize(
    "fields",
    [
        b'{"candidates":[{"content":{"role":"model"}}]}',
        b'{"candidates":[{"content":null,"index":null,"finishReason":"FINISH_REASON_UNSPECIFIED"}]}',
        b'{"candidates":[{"finishReason":""}]}',
    ],
)
def test_candidates_without_content_are_quiet(fields: bytes) -> None:
    assert gemini.decoder("chat").feed(b"data: " + fields + b"\n\n", 5) == [Quiet(5, "empty")]


def test_comments_blank_events_and_openais_end_mark_are_quiet() -> None:
    events = gemini.decoder("chat").feed(b": ping\n\ndata: \n\ndata: [DONE]\n\n", 5)
    assert events == [Quiet(5, "comment"), Quiet(5, "empty"), Quiet(5, "empty")]


def test_lenient_json_is_read() -> None:
    assert events_of(
        [b'data: {"candidates":[{"content":{"parts":[{"text":"\\ude00"}]},"avgLogprobs":NaN}]}\n\n']
    )[0] == Token(0, "?")
    body = b'{"candidates":[{"content":{"parts":[{"text":"a\xff"}]},"finishReason":"STOP"}]}'
    assert events_of([body])[0] == Token(0, "a�")


def test_nothing_grows_without_bound() -> None:
    for begin in (b"{", b"data: "):
        decoder = gemini.decoder("chat")
        assert decoder.feed(begin + b" " * (MAX_EVENT_BYTES - len(begin)), 0) == []
        assert fault_of(decoder.feed(b" ", 0)).kind == "malformed"
        assert decoder.feed(b"x", 0) == []
        assert decoder.close(0) == []


def test_json_nested_without_end() -> None:
    assert fault_of(events_of([b"data: " + b'{"a":' * 100_000 + b"\n\n"])).kind == "malformed"
    assert fault_of(events_of([b'{"a":' * 100_000])).kind == "truncated"


@repeated_at_places
@sampled_cases(8)
@each_case("name", ALL)
def test_decoder_handles_any_split_cut_or_wrong_byte(name: str, repeats: int) -> None:
    check_decoder(make, ALL[name], whole=name in STREAMS, places=repeats)


def test_any_bytes_end_once() -> None:
    check_any_bytes(make)
