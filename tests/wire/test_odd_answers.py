"""Odd answers have one meaning, however they are read: in pieces, assembled, or transcoded to any
client's format."""

import json
from collections import Counter
from functools import partial
from typing import Any

from msgspec import structs
from tests.cases import each_case, sampled_cases
from tests.wire.odd import Meaning, OddAnswer, others
from tests.wire.odd import anthropic as odd_anthropic
from tests.wire.odd import cohere as odd_cohere
from tests.wire.odd import gemini as odd_gemini
from tests.wire.odd import ollama as odd_ollama
from tests.wire.odd import openai as odd_openai
from tests.wire.odd import responses as odd_responses

from splitsecond.core.events import Broken, Done, Event, Finish, Token, Usage
from splitsecond.core.finish_reasons import openai_reason
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.timing.timeline import Sending, Timeline
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.core.wire.client_format import CLIENT_FORMATS, GEMINI, OLLAMA_CHAT, ClientFormat

DECODERS: dict[str, Any] = {
    "openai": partial(openai.decoder, "chat"),
    "completions": partial(openai.decoder, "completions"),
    "anthropic": anthropic.decoder,
    "responses": responses.decoder,
    "gemini": gemini.decoder,
    "ollama": ollama.decoder,
    "cohere": cohere.decoder,
    "replicate": replicate.decoder,
}
CHATS = [
    case
    for module in (odd_openai, odd_anthropic, odd_responses, odd_gemini, odd_ollama, odd_cohere)
    for case in module.CASES
]
CLIENTS: dict[str, ClientFormat] = {"gemini": GEMINI, "ollama": OLLAMA_CHAT}
CLIENTS.update({str(name): form for name, form in CLIENT_FORMATS.items()})
CALL = Call(id="req-1", body={}, stream=True)
MAX_CUTS = 40


def named(answer: OddAnswer) -> str:
    return f"{answer.api_format}: {answer.name}"


def read(name: str, *pieces: bytes) -> list[Event]:
    """Return the events of a body in format `name`, which comes in these pieces."""
    decoder = DECODERS[name]()
    events = [event for piece in pieces for event in decoder.feed(piece, 1)]
    return [*events, *decoder.close(1)]


def meaning(events: list[Event]) -> Meaning:
    """Return what `events` say. Each call has a name, and arguments that are an object."""
    assert not [event.fault for event in events if isinstance(event, Broken)]
    assert isinstance(events[-1], Done)
    calls: dict[int, list[str]] = {}
    said = {"text": "", "reasoning": ""}
    reason, usage = "stop", Usage(0)
    for event in events:
        match event:
            case Token(kind="tool", tool=None):
                pass  # the provider answers it itself
            case Token(tool=tool) if tool is not None:
                call = calls.setdefault(tool.number, ["", ""])
                call[0] += tool.name
                call[1] += event.arguments
            case Token():
                said[event.kind] += event.text
            case Finish():
                reason = event.reason
            case Usage():
                usage = event
    named = tuple((name, json.loads(text or "{}")) for _, (name, text) in sorted(calls.items()))
    counts = (usage.input_tokens or 0, usage.output_tokens or 0)
    return full(
        Meaning(**said, calls=named, end=openai_reason(reason, called=bool(calls)), usage=counts)
    )


def full(given: Meaning) -> Meaning:
    """Return a meaning with its usual end."""
    end = given.end or ("tool_calls" if given.calls else "stop")
    return structs.replace(given, end=end)


def test_every_format_has_many() -> None:
    found = Counter(case.api_format for case in CHATS)
    assert all(number >= 40 for number in found.values()), found
    assert len(found) == 6
    assert len({named(case) for case in CHATS if not case.body.startswith(b"{")}) > 200


@each_case("answer", [*CHATS, *others.CASES], ids=named)
def test_it_is_read(answer: OddAnswer) -> None:
    assert meaning(read(answer.api_format, answer.body)) == full(answer.meaning)


@sampled_cases(4)
@each_case("answer", [*CHATS, *others.CASES], ids=named)
def test_it_is_read_in_any_pieces(answer: OddAnswer) -> None:
    body, expected = answer.body, full(answer.meaning)
    assert (
        meaning(read(answer.api_format, *(body[at : at + 1] for at in range(len(body)))))
        == expected
    )
    for at in range(1, len(body), 1 + len(body) // MAX_CUTS):
        assert meaning(read(answer.api_format, body[:at], body[at:])) == expected


def observed(answer: OddAnswer, size: int, *, in_runs: bool) -> Observation:
    decoder, timeline = DECODERS[answer.api_format](), Timeline(attempt="a", call="c", target="t")
    decoder.in_runs = in_runs
    for at in range(0, len(answer.body), size):
        data = answer.body[at : at + size]
        if lengths := decoder.feed_texts(data):
            timeline.record_texts(at, lengths)
        else:
            timeline.record_events(decoder.feed(data, at))
    timeline.record_events(decoder.close(len(answer.body)))
    return timeline.observe(end_ns=1 << 20, sending=Sending())


@sampled_cases(4)
@each_case("answer", CHATS, ids=named)
def test_its_observation_is_the_same_in_runs(answer: OddAnswer) -> None:
    event = max(1, answer.body.find(b"\n\n") + 2)
    for size in (len(answer.body), event, 1):
        assert observed(answer, size, in_runs=True) == observed(answer, size, in_runs=False)


@sampled_cases(3)
@each_case("client", CLIENT_FORMATS)
@each_case("answer", CHATS, ids=named)
def test_it_is_transcoded_to_each_format(answer: OddAnswer, client: str) -> None:
    transcoder = CLIENTS[client].transcoder(CALL, "m")
    assert meaning(read(client, transcoder.encode(read(answer.api_format, answer.body)))) == full(
        answer.meaning
    )


@each_case("pieces", [1, 2, 50])
@each_case("answer", [case for case in CHATS if case.api_format in CLIENT_FORMATS], ids=named)
def test_it_is_assembled(answer: OddAnswer, pieces: int) -> None:
    assembly, size = CLIENTS[answer.api_format].assembly(), 1 + len(answer.body) // pieces
    for at in range(0, len(answer.body), size):
        assembly.feed(answer.body[at : at + size])
    body = assembly.answer()
    assert meaning(read(answer.api_format, body)) == full(answer.meaning)


@sampled_cases(3)
@each_case("client", CLIENT_FORMATS)
@each_case("answer", CHATS, ids=named)
def test_it_is_assembled_from_what_was_transcoded(answer: OddAnswer, client: str) -> None:
    assembly = CLIENTS[client].assembly()
    assembly.feed(
        CLIENTS[client].transcoder(CALL, "m").encode(read(answer.api_format, answer.body))
    )
    assert meaning(read(client, assembly.answer())) == full(answer.meaning)


@each_case("answer", [case for case in CHATS if case.api_format in CLIENT_FORMATS], ids=named)
def test_it_is_passed_on(answer: OddAnswer) -> None:
    relay = CLIENTS[answer.api_format].relay(CALL, "m", usage=True)
    assert meaning(read(answer.api_format, relay.feed(answer.body) + relay.rest())) == full(
        answer.meaning
    )


@sampled_cases(3)
@each_case("client", ["gemini", "ollama"])
@each_case("answer", CHATS, ids=named)
def test_clients_whose_requests_are_translated_read_it(answer: OddAnswer, client: str) -> None:
    body, form = answer.body, CLIENTS[client]
    if answer.api_format != "openai":
        body = CLIENTS["openai"].transcoder(CALL, "m").encode(read(answer.api_format, body))
    expected = full(answer.meaning)
    if client == "ollama" and expected.end == "content_filter":  # the format has no word for it
        expected = full(structs.replace(expected, end="stop"))
    assembly = form.assembly()
    assembly.feed(body)
    assert meaning(read(client, assembly.answer())) == expected
    relay = form.relay(CALL, "m", usage=True)
    assert meaning(read(client, relay.feed(body) + relay.rest())) == expected
