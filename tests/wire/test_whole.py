"""Answers asked for whole: a request that says so in each API format, and a decoder that reads them
in any split."""

import json
from types import ModuleType
from typing import Any

import pytest
from tests.wire.conformance import check_decoder, repeated_at_places

from splitsecond.core.events import Done, Event, Finish, Token, Usage
from splitsecond.core.finish_reasons import openai_reason
from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, responses
from splitsecond.core.wire.api_format import CalledTool, Quirks, ServerAnswer
from splitsecond.core.wire.streaming import Decoder

API_FORMATS = (anthropic, cohere, gemini, ollama, openai, responses)
WHOLE = Quirks(stream_whole=False)
BODY = {"messages": [{"role": "user", "content": "Hello"}]}
ANSWER = ServerAnswer(
    text="Yes “you” 😀",
    reasoning="Hm",
    calls=(CalledTool("c1", "now", '{"a":1}'),),
    finish="tool_calls",
)

api_formats = pytest.mark.parametrize(
    "api_format", API_FORMATS, ids=lambda api_format: api_format.__name__.rpartition(".")[2]
)


def sent(
    api_format: ModuleType, *, stream: bool, quirks: Quirks
) -> tuple[bool, dict[str, str], dict[str, Any], str]:
    encoded = api_format.encode(Call(id="1", body=BODY, stream=stream), "m", quirks)
    return encoded.streamed, dict(encoded.headers), json.loads(encoded.body), encoded.path


@api_formats
def test_whole_response_needs_an_unstreamed_call_and_the_quirk(api_format: ModuleType) -> None:
    streams = [
        sent(api_format, stream=stream, quirks=quirks)
        for stream, quirks in [(True, Quirks()), (False, Quirks()), (True, WHOLE)]
    ]
    assert streams[0] == streams[1] == streams[2]
    assert streams[0][0]
    streamed, headers, fields, path = sent(api_format, stream=False, quirks=WHOLE)
    assert not streamed
    assert headers["accept"] == "application/json"
    assert "stream_options" not in fields
    assert fields.get("stream", False) is False
    assert "stream" not in path


@repeated_at_places
@api_formats
def test_a_whole_answer_is_read_in_any_split(api_format: ModuleType, repeats: int) -> None:
    body = api_format.StreamWriter("chat", "m", id="x", created=1).whole([ANSWER], Usage(0, 5, 7))

    def make() -> Decoder:
        decoder: Decoder = api_format.decoder("chat")
        return decoder

    check_decoder(make, [body], whole=True, places=repeats)
    decoder = make()
    assert decoder.feed(body[:-1], 1) == decoder.feed(body[-1:], 2) == []
    events: list[Event] = decoder.close(3)
    tokens = [event for event in events if isinstance(event, Token)]
    assert [(token.kind, token.text) for token in tokens][:2] == [
        ("reasoning", "Hm"),
        ("text", "Yes “you” 😀"),
    ]
    assert {token.at for token in tokens} == {2}
    (finish,) = [event for event in events if isinstance(event, Finish)]
    assert openai_reason(finish.reason, called=True) == "tool_calls"
    (usage,) = [event for event in events if isinstance(event, Usage)]
    assert (usage.input_tokens, usage.output_tokens) == (5, 7)
    assert isinstance(events[-1], Done)
