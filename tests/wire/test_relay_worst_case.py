"""Passing a hostile stream on takes linear time, however it is cut."""

import pytest
from tests.cases import each_case, sampled_cases
from tests.worst_case import LINE_KINDS, check_linear, in_pieces, repeated

from splitsecond.core.service import Call
from splitsecond.core.wire.anthropic.client_side import MessageRelay
from splitsecond.core.wire.openai.client_side import ChunkRelay

CALL = Call(id="c", body={})


def passed_on(text: bytes, size: int, *, usage: bool = False) -> None:
    relay = ChunkRelay(CALL, "a/x", usage=usage)
    for piece in in_pieces(text, size):
        relay.feed(piece)
    relay.rest()


@sampled_cases(8)
@each_case("size", [20, 1_400])
@each_case("kind", LINE_KINDS)
def test_relay_of_hostile_lines_takes_linear_time(kind: str, size: int) -> None:
    check_linear(lambda text: passed_on(text, size), LINE_KINDS[kind])


@each_case("end", [b"\n\n", b"\r\n\r\n", b"\r\r", b"\r\n\r\n\n\n"])
@each_case("unit", [b'"usage" ', b'"usage","choices":[ ],', b'data: {"usage":1}%s'])
def test_many_words_of_usage(unit: bytes, end: bytes) -> None:
    make = repeated(unit.replace(b"%s", end), b"data: ", end)
    check_linear(lambda text: passed_on(text, len(text)), make)


def test_one_long_event_of_messages() -> None:
    def feed(text: bytes) -> None:
        relay = MessageRelay(CALL, "a/x", usage=False)
        for piece in in_pieces(text, 20):
            relay.feed(piece)
        relay.rest()

    check_linear(feed, LINE_KINDS["one long field"])


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_usage_chunk_is_removed_for_any_line_end(end: bytes) -> None:
    said = [
        b'data: {"choices":[{"index":0,"usage":1}]}',
        b'data: {"choices":[],"usage":{"usage":1}}',
        b"data: {}",
    ]
    relay = ChunkRelay(CALL, "a/x", usage=False)
    assert relay.feed(b"".join(each + end for each in said)) == said[0] + end + said[2] + end
