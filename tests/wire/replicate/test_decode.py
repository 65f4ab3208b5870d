"""Reading the output of predictions, streamed and whole."""

import json

from tests.cases import each_case
from tests.wire import conformance
from tests.wire.conformance import check_any_bytes, check_decoder, fault_of, repeated_at_places

from splitsecond.core.events import Done, Event, Finish, Quiet, Token, Usage
from splitsecond.core.wire import replicate
from splitsecond.core.wire.streaming import Decoder


def event(name: str, data: str) -> bytes:
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {name}\nid: 1690212292:0\n{lines}\n".encode()


DONE = event("done", "{}")
METRICS = {
    "input_token_count": 5,
    "output_token_count": 3,
    "predict_time": 0.5,
    "time_to_first_token": 0.1,
}
STREAMS: dict[str, list[bytes]] = {
    "text": [
        event("output", "Once"),
        event("output", " “upon”\n\na 😀"),
        event("logs", "x"),
        event("output", ""),
        DONE,
    ],
    "braces": [event("output", '{"a":'), event("output", "1}"), DONE],
    "list": [
        json.dumps(
            {"status": "succeeded", "output": ["On", "ce"], "error": None, "metrics": METRICS}
        ).encode()
    ],
    "string": [b'{"status":"succeeded","output":"Once"}'],
}
BROKEN: dict[str, list[bytes]] = {
    "error": [
        event("output", "a"),
        event("error", '{"detail":"no GPU"}'),
        event("done", '{"reason":"error"}'),
    ],
    "canceled": [event("output", "a"), event("done", '{"reason":"canceled"}')],
    "unfinished": STREAMS["text"][:2],
    "failed": [b'{"status":"failed","output":null,"error":"no GPU"}'],
}
ALL = STREAMS | BROKEN


def make() -> Decoder:
    return replicate.decoder("chat")


def events_of(*parts: bytes) -> list[Event]:
    return conformance.events_of(make, parts)


def test_text() -> None:
    decoder = make()
    assert [
        event for at, part in enumerate(STREAMS["text"]) for event in decoder.feed(part, at)
    ] == [
        Token(0, "Once"),
        Token(1, " “upon”\n\na 😀"),
        Quiet(2, "logs"),
        Quiet(3, "output"),
        Finish(4, "done"),
        Done(4, True),
    ]


def test_a_whole_prediction_arrives_with_its_last_byte() -> None:
    decoder = replicate.decoder("chat")
    (body,) = STREAMS["list"]
    assert decoder.feed(body[:20], 1) == decoder.feed(body[20:], 2) == []
    assert decoder.close(9) == [
        Token(2, "Once"),
        Finish(2, "succeeded"),
        Usage(2, 5, 3),
        Done(2, False),
    ]
    assert decoder.server_timings == {"predict_time": 0.5, "time_to_first_token": 0.1}
    assert events_of(*STREAMS["string"]) == [
        Token(0, "Once"),
        Finish(0, "succeeded"),
        Done(0, False),
    ]


@each_case(
    "body, kind, words",
    [
        (b"".join(BROKEN["error"]), "in_band_error", "no GPU"),
        (b"".join(BROKEN["canceled"]), "in_band_error", "with the reason: canceled"),
        (event("done", "oh no"), "malformed", "the done event is not"),
        (BROKEN["failed"][0], "in_band_error", "no GPU"),
        (b'{"status":"canceled"}', "in_band_error", "canceled"),
        (b'{"detail":"no such model"}', "in_band_error", "no such model"),
        (b'{"status":"processing"}', "truncated", "its status is processing"),
        (b"{}", "malformed", "not a prediction"),
        (b'{"status":7}', "malformed", "status"),
        (b'{"status":', "truncated", "not the JSON"),
        (b"", "empty_answer", "answer is empty"),
        (event("output", "a"), "truncated", "without done after 1 content"),
        (b"<html>", "malformed", "neither"),
    ],
)
def test_invalid_bodies_give_a_fault(body: bytes, kind: str, words: str) -> None:
    fault = fault_of(events_of(body))
    assert fault.kind == kind
    assert words in fault.message


def test_lenient_reading() -> None:
    assert events_of(b"event: output\ndata: \xff\n\n", DONE)[0] == Token(0, "�")
    assert events_of(b'{"status":"succeeded","output":"a\xff","x":NaN}')[0] == Token(0, "a�")
    assert make().feed(b": hi\n\ndata: x\n\n", 5) == [Quiet(5, "comment"), Quiet(5, "empty")]


@repeated_at_places
@each_case("name", ALL)
def test_decoder_handles_any_split_cut_or_wrong_byte(name: str, repeats: int) -> None:
    check_decoder(make, ALL[name], whole=name in STREAMS, places=repeats)


def test_any_bytes_end_once() -> None:
    check_any_bytes(make)
