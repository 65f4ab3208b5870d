"""Log-probabilities: read from what vLLM and llama.cpp sent, and taken out of it again."""

from pathlib import Path

import msgspec
import pytest
from tests.cases import each_case
from tests.wire.test_transcripts import parse

from splitsecond.core.events import Done, Event, Token
from splitsecond.core.wire import openai
from splitsecond.core.wire.openai.client_side import without_logprobs

TRANSCRIPTS = Path(__file__).parent / "transcripts"
RECORDED = ["vllm-logprobs.http", "xllamacpp-logprobs.http"]


def recorded(name: str) -> bytes:
    return b"".join(parse((TRANSCRIPTS / name).read_bytes())[2])


def events_of(body: bytes) -> list[Event]:
    decoder = openai.decoder("chat")
    return [*decoder.feed(body, 1), *decoder.close(2)]


def stripped(events: list[Event]) -> list[Event]:
    return [
        msgspec.structs.replace(e, logprobs=None) if isinstance(e, Token) else e for e in events
    ]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_responses_have_log_probabilities_per_token(name: str) -> None:
    events = events_of(recorded(name))
    tokens = [event for event in events if isinstance(event, Token)]
    assert isinstance(events[-1], Done)
    assert tokens
    assert all(
        token.logprobs and all(-50 < each <= 0 for each in token.logprobs) for token in tokens
    )


@pytest.mark.parametrize("name", RECORDED)
def test_removing_log_probabilities_changes_nothing_else(name: str) -> None:
    body = recorded(name)
    clean = without_logprobs(body)
    assert b'"logprob"' not in clean
    assert b'"token"' not in clean
    assert events_of(clean) == stripped(events_of(body))
    assert clean.count(b"\n\n") == body.count(b"\n\n")
    assert without_logprobs(clean) == clean


def test_a_whole_answer_and_a_completion() -> None:
    body = (
        b'{"x":1,"choices":[{"index":0,"text":"a '
        b'b","logprobs":{"token_logprobs":[null,-1.5]},"finish_reason":"stop"}]}'
    )
    (token,) = [event for event in events_of(body) if isinstance(event, Token)]
    assert token.logprobs == (-1.5,)
    assert msgspec.json.decode(without_logprobs(body)) == {
        "x": 1,
        "choices": [{"index": 0, "text": "a b", "logprobs": None, "finish_reason": "stop"}],
    }


@each_case(
    "odd", [b"null", b"[]", b'"much"', b'{"content":[{"logprob":"x"}]}', b"{}", b'{"content":null}']
)
def test_invalid_log_probabilities_do_not_break_a_response(odd: bytes) -> None:
    body = (
        b"data: "
        b'{"choices":[{"index":0,"delta":{"content":"hi"},"logprobs":%s,"finish_reason":"stop"}]}\n\n'
        % odd
    )
    events = events_of(body)
    assert [event.logprobs for event in events if isinstance(event, Token)] == [None]
    assert isinstance(events[-1], Done)


def test_invalid_json_is_not_changed() -> None:
    assert without_logprobs(b'data: {"logprobs"\n\n') == b'data: {"logprobs"\n\n'
