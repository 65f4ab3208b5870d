"""Odd answers have one meaning, however they are read: in pieces, assembled, or transcoded to any client's format."""

import json
from typing import Any

import pytest
from tests.wire.odd_answers import ODD_ANSWERS, Meaning, OddAnswer

from splitsecond.core.events import Broken, Done, Event, Token
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, responses
from splitsecond.core.wire.client_format import CLIENT_FORMATS, GEMINI, OLLAMA_CHAT, ClientFormat

FORMATS: dict[str, Any] = {
    "openai": openai,
    "anthropic": anthropic,
    "responses": responses,
    "gemini": gemini,
    "ollama": ollama,
    "cohere": cohere,
}
CLIENTS: dict[str, ClientFormat] = {"gemini": GEMINI, "ollama": OLLAMA_CHAT}
CLIENTS.update({str(name): form for name, form in CLIENT_FORMATS.items()})
CALL = Call(id="req-1", body={}, stream=True)


def answers_in(*formats: str) -> pytest.MarkDecorator:
    """Run a test with each odd answer in these formats."""
    found = [each for each in ODD_ANSWERS if each.api_format in formats]
    return pytest.mark.parametrize("answer", found, ids=lambda each: f"{each.api_format}: {each.name}")


def read(name: str, body: bytes, size: int = 1 << 20) -> list[Event]:
    """Return the events of `body` in format `name`, in pieces of `size` bytes."""
    decoder = FORMATS[name].decoder("chat")
    events = [event for at in range(0, len(body), size) for event in decoder.feed(body[at : at + size], 1)]
    return [*events, *decoder.close(1)]


def meaning(events: list[Event]) -> Meaning:
    """Return what `events` say. Each call has a name, and arguments that are an object."""
    assert not [event.fault for event in events if isinstance(event, Broken)]
    assert isinstance(events[-1], Done)
    tokens = [event for event in events if isinstance(event, Token)]
    calls: dict[int, list[str]] = {}
    for token in tokens:
        if token.kind == "tool":
            assert token.tool is not None
            call = calls.setdefault(token.tool.number, ["", ""])
            call[0] += token.tool.name
            call[1] += token.arguments
    said = {kind: "".join(token.text for token in tokens if token.kind == kind) for kind in ("text", "reasoning")}
    return Meaning(**said, calls=tuple((name, json.loads(text or "{}")) for _, (name, text) in sorted(calls.items())))


@answers_in(*FORMATS)
def test_it_is_read_in_any_pieces(answer: OddAnswer) -> None:
    for size in (1 << 20, 7, 1):
        assert meaning(read(answer.api_format, answer.body, size)) == answer.meaning


@answers_in(*FORMATS)
@pytest.mark.parametrize("client", CLIENT_FORMATS)
def test_it_is_transcoded_to_each_format(answer: OddAnswer, client: str) -> None:
    transcoder = CLIENTS[client].transcoder(CALL, "m")
    assert meaning(read(client, transcoder.encode(read(answer.api_format, answer.body)))) == answer.meaning


@answers_in(*CLIENT_FORMATS)
@pytest.mark.parametrize("size", [1 << 20, 7])
def test_it_is_assembled(answer: OddAnswer, size: int) -> None:
    assembly = CLIENTS[answer.api_format].assembly()
    for at in range(0, len(answer.body), size):
        assembly.feed(answer.body[at : at + size])
    body = assembly.answer()
    assert meaning(read(answer.api_format, body)) == answer.meaning
    assert answer.api_format != "openai" or len(json.loads(body)["choices"]) == 1


@answers_in("openai")
@pytest.mark.parametrize("client", ["gemini", "ollama"])
def test_it_is_translated_whole_and_streamed(answer: OddAnswer, client: str) -> None:
    assembly = CLIENTS[client].assembly()
    assembly.feed(answer.body)
    assert meaning(read(client, assembly.answer())) == answer.meaning
    relay = CLIENTS[client].relay(CALL, "m", usage=True)
    assert meaning(read(client, relay.feed(answer.body) + relay.rest())) == answer.meaning
