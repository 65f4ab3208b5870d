"""What the end of an answer means: only known good reasons are success, in every API format."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from splitsecond.core.errors import ProviderFault
from splitsecond.core.events import Broken, Done, Event, Finish
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses

FORMATS: dict[str, Any] = {
    "openai": openai,
    "anthropic": anthropic,
    "responses": responses,
    "gemini": gemini,
    "ollama": ollama,
    "cohere": cohere,
}


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def chat(text: str, reason: str) -> tuple[bytes, bytes]:
    choice = {"index": 0, "finish_reason": reason}
    stream = sse(
        {"choices": [{"delta": {"content": text}}]}, {"choices": [{**choice, "delta": {}}]}
    )
    return stream, json.dumps({"choices": [{**choice, "message": {"content": text}}]}).encode()


def messages(text: str, reason: str) -> tuple[bytes, bytes]:
    stream = sse(
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": text},
        },
        {"type": "message_delta", "delta": {"stop_reason": reason}},
        {"type": "message_stop"},
    )
    return stream, json.dumps(
        {"content": [{"type": "text", "text": text}], "stop_reason": reason}
    ).encode()


def response(text: str, reason: str) -> tuple[bytes, bytes]:
    output = [{"type": "message", "content": [{"type": "output_text", "text": text}]}]
    fields = {"status": "incomplete", "incomplete_details": {"reason": reason}, "output": output}
    return sse({"type": "response.incomplete", "response": fields}), json.dumps(fields).encode()


def candidates(text: str, reason: str) -> tuple[bytes, bytes]:
    chunk = {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": reason}]}
    return sse(chunk), json.dumps(chunk).encode()


def lines(text: str, reason: str) -> tuple[bytes, bytes]:
    line = json.dumps({"message": {"content": text}, "done": True, "done_reason": reason}).encode()
    return line + b"\n", line


def cohere_events(text: str, reason: str) -> tuple[bytes, bytes]:
    stream = sse(
        {"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": text}}}},
        {"type": "message-end", "delta": {"finish_reason": reason}},
    )
    return stream, json.dumps(
        {"message": {"content": [{"text": text}]}, "finish_reason": reason}
    ).encode()


ENDINGS: dict[str, Callable[[str, str], tuple[bytes, bytes]]] = {
    "openai": chat,
    "anthropic": messages,
    "responses": response,
    "gemini": candidates,
    "ollama": lines,
    "cohere": cohere_events,
}
FAILURES = {"openai": "abort", "gemini": "MALFORMED_FUNCTION_CALL", "cohere": "ERROR_LIMIT"}


def read(name: str, body: bytes) -> tuple[Any, list[Event]]:
    decoder = FORMATS[name].decoder("chat")
    return decoder, [*decoder.feed(body, 1), *decoder.close(1)]


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", ENDINGS)
def test_a_reason_for_a_failure_breaks_the_answer(name: str, whole: bool) -> None:
    for reason in {"error", FAILURES.get(name, "abort")}:
        _, events = read(name, ENDINGS[name]("Half an ans", reason)[whole])
        (broken,) = [event for event in events if isinstance(event, Broken)]
        assert isinstance(broken.fault, ProviderFault)
        assert f"finish_reason is {reason}" in broken.fault.message
        assert broken.fault.phase == "between tokens"
        assert not any(isinstance(event, Finish | Done) for event in events)


@pytest.mark.parametrize("whole", [False, True], ids=["streamed", "whole"])
@pytest.mark.parametrize("name", [name for name in ENDINGS if name != "responses"])
def test_an_unknown_reason_is_success_only_with_content(name: str, whole: bool) -> None:
    decoder, events = read(name, ENDINGS[name]("Yes", "odd")[whole])
    assert [event.reason for event in events if isinstance(event, Finish)] == ["odd"]
    assert isinstance(events[-1], Done)
    assert "finish_reason" in decoder.odd_fields
    _, events = read(name, ENDINGS[name]("", "odd")[whole])
    assert isinstance(events[-1], Broken)


@pytest.mark.parametrize("details", [None, {}, {"reason": None}, {"reason": "odd"}])
def test_an_incomplete_response_without_a_known_reason_is_broken(details: Any) -> None:
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Half an ans"}]}]
    fields = {"status": "incomplete", "incomplete_details": details, "output": output}
    for body in (
        sse({"type": "response.incomplete", "response": fields}),
        json.dumps(fields).encode(),
    ):
        _, events = read("responses", body)
        assert isinstance(events[-1], Broken)
        assert "finish_reason is incomplete" in events[-1].fault.message


def test_a_prediction_that_was_canceled_is_a_failure() -> None:
    decoder = replicate.decoder("chat")
    decoder.feed(b'{"status": "canceled", "output": ["Half"]}', 1)
    assert isinstance(decoder.close(1)[-1], Broken)
