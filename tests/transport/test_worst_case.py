"""Parsing any HTTP response takes linear time and bounded memory, and raises nothing."""

import zlib

from tests.cases import each_case
from tests.worst_case import (
    HTTP_KINDS,
    LINE_KINDS,
    check_bounded,
    check_linear,
    in_pieces,
    repeated,
)

from splitsecond.core.transport.decoding import FREE_BYTES, MAX_RATIO
from splitsecond.core.transport.response_parser import ResponseParser

NONE: tuple[type[BaseException], ...] = ()


def parsed(text: bytes, size: int) -> None:
    answer = ResponseParser("POST")
    taken = 0
    for piece in in_pieces(text, size):
        taken += len(answer.feed(piece))
        answer.changed = False
        if answer.fault is not None or answer.complete:
            break
    else:
        answer.end_of_stream(clean=True)
    assert taken <= len(text)
    answer.drop()


@each_case("size", [10, 1_400, 1 << 18])
@each_case("kind", [*HTTP_KINDS, *LINE_KINDS])
def test_parsing_responses_takes_linear_time(kind: str, size: int) -> None:
    make = (HTTP_KINDS | LINE_KINDS)[kind]
    check_linear(lambda text: parsed(text, size), make, allowed=NONE)


@each_case("kind", HTTP_KINDS)
def test_parsing_responses_takes_bounded_memory(kind: str) -> None:
    check_bounded(lambda text: parsed(text, 1 << 18), HTTP_KINDS[kind], allowed=NONE)


def test_a_compressed_body_in_small_pieces() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n"

    def feed(text: bytes) -> None:
        packer = zlib.compressobj(wbits=31)
        body = packer.compress(text) + packer.flush()
        answer = ResponseParser("POST")
        answer.feed(head)
        size = sum(len(answer.feed(piece)) for piece in in_pieces(body, 7))
        assert size <= FREE_BYTES + MAX_RATIO * len(body)
        answer.drop()

    check_linear(feed, repeated(bytes(range(256))), allowed=NONE)
    check_linear(feed, repeated(b"a"), allowed=NONE)
