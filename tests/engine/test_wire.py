"""What llama.cpp's server puts on the wire, read by our own decoder: the habits that a client has
to know."""

import urllib.error
import urllib.request
from typing import Any

import pytest
from tests.waiting import WITHIN_S

from splitsecond.core.errors import CallerFault
from splitsecond.core.events import Done, Event, Finish, Quiet, Token, Usage
from splitsecond.core.service import Call, Operation
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.openai import decoder, encode, fault_from_response
from splitsecond.core.wire.streaming import Decoder
from splitsecond.simulator.llama_cpp import EngineProcess

pytestmark = pytest.mark.system

HELLO = [{"role": "user", "content": "tell me about the river"}]
SILENT_ON_USAGE = Quirks(stream_options=False)


def request(
    engine: EngineProcess,
    body: dict[str, Any],
    operation: Operation = "chat",
    quirks: Quirks | None = None,
) -> urllib.request.Request:
    encoded = encode(
        Call(id="test", operation=operation, body=body), engine.model, quirks or Quirks()
    )
    return urllib.request.Request(
        engine.base_url + encoded.path, encoded.body, dict(encoded.headers)
    )


def answer(
    engine: EngineProcess,
    body: dict[str, Any],
    operation: Operation = "chat",
    quirks: Quirks | None = None,
) -> tuple[list[Event], Decoder]:
    """Each read of the body is given to the decoder, with its number as its time."""
    reading, events = decoder(operation), []
    with urllib.request.urlopen(
        request(engine, body, operation, quirks), timeout=WITHIN_S
    ) as response:
        reads = 0
        while data := response.read1():
            events += reading.feed(data, reads)
            reads += 1
    return events + reading.close(reads), reading


def tokens(events: list[Event]) -> list[Token]:
    return [event for event in events if isinstance(event, Token)]


def test_role_arrives_in_one_write_with_the_first_token(engine: EngineProcess) -> None:
    events, _ = answer(engine, {"messages": HELLO, "max_tokens": 8})
    role, first = events[:2]
    assert role == Quiet(0, "role")
    assert isinstance(first, Token)
    assert first.at == 0


def test_chat_has_one_token_per_word_and_a_usage_chunk(engine: EngineProcess) -> None:
    events, reading = answer(engine, {"messages": HELLO, "max_tokens": 40})
    said = tokens(events)
    assert len(said) == 40
    assert all(token.text.startswith(" ") and token.text[1:].isalpha() for token in said)
    finish, usage, done = events[-3:]
    assert isinstance(finish, Finish)
    assert finish.reason == "length"
    assert isinstance(usage, Usage)
    assert (usage.output_tokens, usage.cached_tokens) == (40, 0)
    assert isinstance(done, Done)
    assert done.marker
    assert reading.server_timings["predicted_n"] == 40


def test_usage_is_sent_on_request_and_timings_always(engine: EngineProcess) -> None:
    events, reading = answer(engine, {"messages": HELLO, "max_tokens": 5}, quirks=SILENT_ON_USAGE)
    assert not any(isinstance(event, Usage) for event in events)
    assert isinstance(events[-1], Done)
    assert reading.server_timings.keys() >= {"prompt_n", "prompt_ms", "predicted_n", "predicted_ms"}


def test_completions_carry_usage_on_their_last_chunk(engine: EngineProcess) -> None:
    events, _ = answer(
        engine, {"prompt": "tell me about the river", "max_tokens": 6}, "completions"
    )
    assert len(tokens(events)) == 6
    assert {type(event) for event in events[-3:]} == {Finish, Usage, Done}


def test_usage_of_two_choices_is_summed(engine: EngineProcess) -> None:
    events, _ = answer(engine, {"messages": HELLO, "max_tokens": 7, "n": 2})
    assert sorted(token.index for token in tokens(events)) == [0] * 7 + [1] * 7
    assert [event.output_tokens for event in events if isinstance(event, Usage)] == [7, 14]
    assert isinstance(events[-1], Done)


def test_repeated_prompt_is_not_cached(engine: EngineProcess) -> None:
    for _ in range(2):
        events, _ = answer(engine, {"messages": HELLO, "max_tokens": 1, "id_slot": 0})
        assert [event.cached_tokens for event in events if isinstance(event, Usage)] == [0]


def test_unknown_model_name_is_answered(engine: EngineProcess) -> None:
    encoded = encode(
        Call(id="test", body={"messages": HELLO, "max_tokens": 1}), "no-such-model", Quirks()
    )
    asked = urllib.request.Request(engine.base_url + encoded.path, encoded.body)
    assert urllib.request.urlopen(asked, timeout=WITHIN_S).status == 200


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (
            {"messages": [{"role": "user", "content": "x" * 20_000}]},
            "context_length_exceeded",
            "16384 tokens",
        ),
        ({"max_tokens": 1}, "http_400", "messages"),
        ({"messages": HELLO, "temperature": "hot"}, "http_400", "type"),
    ],
)
def test_invalid_request_is_a_caller_fault(
    engine: EngineProcess, body: dict[str, Any], kind: str, words: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request(engine, body), timeout=WITHIN_S)
    with refused.value as reply:
        fault = fault_from_response(reply.code, dict(reply.headers), reply.read())
    assert isinstance(fault, CallerFault)
    assert fault.kind == kind
    assert words in fault.message


def test_an_unknown_path_is_404_in_json(engine: EngineProcess) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404") as refused:
        urllib.request.urlopen(f"{engine.base_url}/nothing", timeout=WITHIN_S)
    with refused.value as reply:
        assert b'"not_found_error"' in reply.read()
