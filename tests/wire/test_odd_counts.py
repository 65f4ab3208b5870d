"""Token counts that are no counts: they fail no answer, and a `Usage` says that they cannot be
true."""

from types import ModuleType
from typing import Any

import pytest
from tests.cases import each_case
from tests.wire.conformance import events_of, without_quiet
from tests.wire.counted_answers import BODIES, FORMATS, INPUT, ODD, OUTPUT, short_id, whole

from splitsecond.core.events import Done, Event, Token, Usage
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.core.wire.streaming import Decoder, repair_json

REPORTS = [b"7", b'"none"', b"[]", b"true", b"1e400"]
"""Anything in the place of the object with the counts."""


def events(api_format: ModuleType, body: bytes) -> list[Event]:
    def make() -> Decoder:
        decoder: Decoder = api_format.decoder("chat")
        return decoder

    return without_quiet(events_of(make, [body]))


def counts(found: list[Event]) -> list[Usage]:
    return [event for event in found if isinstance(event, Usage)]


def numbers(found: list[Event]) -> tuple[int | None, int | None]:
    last = counts(found)[-1]
    return last.input_tokens, last.output_tokens


@each_case("odd", ODD)
@each_case("number", [INPUT, OUTPUT])
@each_case("name", BODIES)
def test_invalid_count_does_not_break_a_response(name: str, number: int, odd: bytes) -> None:
    api_format, body = FORMATS[name.partition("-")[0]], BODIES[name]
    good, found = (
        events(api_format, body),
        events(api_format, body.replace(str(number).encode(), odd)),
    )
    assert isinstance(found[-1], Done)
    assert [each for each in found if not isinstance(each, Usage)] == [
        each for each in good if not isinstance(each, Usage)
    ]
    assert numbers(good) == (INPUT, OUTPUT)
    assert counts(found)[-1] == Usage(0, implausible=True)


@each_case("form", [b'"%d"', b"%d.0"])
@each_case("name", BODIES)
def test_a_count_written_otherwise_is_read(name: str, form: bytes) -> None:
    api_format, body = FORMATS[name.partition("-")[0]], BODIES[name]
    for number in (INPUT, OUTPUT):
        body = body.replace(str(number).encode(), form % number)
    assert numbers(events(api_format, body)) == (INPUT, OUTPUT)


@each_case("number", [INPUT, OUTPUT])
@each_case("name", BODIES)
def test_a_count_that_is_null_is_not_reported(name: str, number: int) -> None:
    api_format, body = FORMATS[name.partition("-")[0]], BODIES[name]
    found = events(api_format, body.replace(str(number).encode(), b"null"))
    assert isinstance(found[-1], Done)
    assert not counts(found)[-1].implausible
    assert numbers(found) == ((None, OUTPUT) if number == INPUT else (INPUT, None))


@each_case("report", REPORTS)
@each_case(
    "api_format, body",
    [
        (openai, b'{"choices":[{"message":{"content":"Yes"},"finish_reason":"stop"}],"usage":%b}'),
        (openai, b'{"choices":[{"message":{"content":"Yes"},"finish_reason":"stop","usage":%b}]}'),
        (
            openai,
            b'{"choices":[{"message":{"content":"Yes"},"finish_reason":"stop"}],"x_groq":{"usage":%b}}',
        ),
        (
            openai,
            b"data: "
            b'{"choices":[{"delta":{"content":"Yes"},"finish_reason":"stop"}],"usage":%b}\n\n',
        ),
        (
            anthropic,
            b'{"content":[{"type":"text","text":"Yes"}],"stop_reason":"end_turn","usage":%b}',
        ),
        (
            responses,
            b'{"output":[{"type":"message","content":[{"text":"Yes"}]}],"status":"completed","usage":%b}',
        ),
        (
            gemini,
            b'{"candidates":[{"content":{"parts":[{"text":"Yes"}]},"finishReason":"STOP"}],"usageMetadata":%b}',
        ),
        (cohere, b'{"message":{"content":[{"text":"Yes"}]},"finish_reason":"COMPLETE","usage":%b}'),
        (replicate, b'{"status":"succeeded","output":["Yes"],"metrics":%b}'),
    ],
)
def test_usage_that_is_no_object_does_not_break_a_response(
    api_format: ModuleType, body: bytes, report: bytes
) -> None:
    found = events(api_format, body % report)
    assert isinstance(found[-1], Done)
    assert [event.text for event in found if isinstance(event, Token)] == ["Yes"]
    assert counts(found) == [Usage(0, implausible=True)]


@each_case(
    "usage",
    [
        b'{"prompt_tokens":5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":6}}',
        b'{"prompt_tokens":5,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":3,"cache_write_tokens":3}}',
        b'{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"completion_tokens_details":{"reasoning_tokens":4}}',
        b'{"completion_tokens":3,"cached_tokens":1}',
        b'{"prompt_tokens":3,"completion_tokens_details":{"reasoning_tokens":1}}',
    ],
)
@each_case("in_runs", [False, True])
def test_parts_that_exceed_the_whole_are_implausible(usage: bytes, in_runs: bool) -> None:
    decoder = openai.decoder("chat")
    decoder.in_runs = in_runs
    body = b'{"choices":[{"message":{"content":"Yes"},"finish_reason":"stop"}],"usage":%b}' % usage
    found = decoder.feed(body, 0) + decoder.close(0)
    assert counts(found) == [Usage(0, implausible=True)]
    assert decoder.counted == Usage(0, implausible=True)


def test_valid_usage_after_an_invalid_one_is_not_trusted() -> None:
    chunk = (
        b"data: "
        b'{"choices":[{"delta":{"content":"Yes"}}],"usage":{"prompt_tokens":5,"completion_tokens":%b}}\n\n'
    )
    end = b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    contradictory = chunk.replace(b'_tokens":%b', b'_tokens":1,"cached_tokens":9')
    for odd in (chunk % b"-1", contradictory):
        found = events(openai, chunk % b"1" + odd + chunk % b"3" + end)
        assert counts(found) == [Usage(0, 5, 1), *[Usage(0, implausible=True)] * 2]


@each_case("odd", [*ODD, *REPORTS])
@each_case("place", ["timings", "time_info"])
def test_invalid_times_do_not_break_a_response(place: str, odd: bytes) -> None:
    body = (
        b'{"choices":[{"message":{"content":"Yes"},"finish_reason":"stop"}],"%b":{"prompt_ms":%b}}'
    )
    found = events(openai, body % (place.encode(), odd))
    assert isinstance(found[-1], Done)


@pytest.mark.parametrize(
    ("api_format", "name"), [(ollama, b"eval_duration"), (replicate, b"predict_time")]
)
def test_wrong_times_leave_the_counts_alone(api_format: ModuleType, name: bytes) -> None:
    body = whole(api_format)
    place = body.index(b'"metrics":{') + len(b'"metrics":{') if api_format is replicate else 1
    found = events(api_format, body[:place] + b'"%b":"long",' % name + body[place:])
    assert numbers(found) == (INPUT, OUTPUT)


@each_case("odd", ODD)
def test_invalid_count_of_embeddings_does_not_break_them(odd: bytes) -> None:
    decoder = openai.decoder("embeddings")
    body = b'{"data":[{"index":0,"embedding":[0.5]}],"usage":{"prompt_tokens":%b}}' % odd
    found = decoder.feed(body, 0) + decoder.close(0)
    assert isinstance(found[-1], Done)
    assert counts(found)[-1].implausible


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"1" + b"0" * 5000], ids=short_id)
def test_repair_reads_numbers_beyond_all_bounds_as_null(number: bytes) -> None:
    assert repair_json(b'{"a":[%b,1]}' % number) == b'{"a": [null, 1]}'


def test_implausible_usage_is_written_without_negative_counts() -> None:
    """An implausible report has no counts, so nothing is subtracted from a smaller number."""
    for api_format in (anthropic, gemini, responses, openai, ollama):
        written: Any = api_format.counts(Usage(0, implausible=True))
        assert b"-" not in str(written).encode()
