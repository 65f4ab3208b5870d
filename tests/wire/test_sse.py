"""The SSE decoder by the rules of its standard, and in any split."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.wire.sse import SseDecoder, SseEvent, encode_event


def decode(data: bytes, *, warm: bool = False) -> list[SseEvent]:
    decoder = SseDecoder()
    if warm:
        decoder.feed(b": first\n\n")
    return decoder.feed(data)


@each_case("warm", [False, True])
@each_case(
    "data, events",
    [
        (b"data: a\n\n", [SseEvent(b"a")]),
        (b"data:a\n\n", [SseEvent(b"a")]),
        (b"data:  a \n\n", [SseEvent(b" a ")]),
        (b"data: a\n\ndata: b\n\n", [SseEvent(b"a"), SseEvent(b"b")]),
        (b"data: a\ndata: b\n\n", [SseEvent(b"a\nb")]),
        (b"data: a\ndata\n\n", [SseEvent(b"a\n")]),
        (b"data:\n\n", [SseEvent(b"")]),
        (b"data: a\r\n\r\n", [SseEvent(b"a")]),
        (b"data: a\r\rdata: b\r\r", [SseEvent(b"a"), SseEvent(b"b")]),
        (b"data: a\n\n\n\ndata: b\n\n", [SseEvent(b"a"), SseEvent(b"b")]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [SseEvent(b"a", "x"), SseEvent(b"b")]),
        (b"event: x\n\ndata: b\n\n", [SseEvent(b"b")]),
        (b"data: a\n\nevent: x", [SseEvent(b"a")]),
        (b"data: a\n\nevent:x\ndata: b\n\n", [SseEvent(b"a"), SseEvent(b"b", "x")]),
        (
            b"event: \xff\ndata: a\n\nevent: x\nevent: y\ndata: b\n\n",
            [SseEvent(b"a", "\ufffd"), SseEvent(b"b", "y")],
        ),
        (b": hello\n\n", [SseEvent(None)]),
        (b":\n", [SseEvent(None)]),
        (b"data: a\n: c\ndata: b\n\n", [SseEvent(None), SseEvent(b"a\nb")]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [SseEvent(b"a")]),
        (b'error: {"code": 500}\n\n', [SseEvent(b'{"code": 500}', "error")]),
        (b"data: a\n", []),
        (b"data: a", []),
        (b"", []),
    ],
)
def test_events(data: bytes, events: list[SseEvent], warm: bool) -> None:
    assert decode(data, warm=warm) == events


def test_a_byte_order_mark_counts_only_at_the_start() -> None:
    mark = b"\xef\xbb\xbf"
    assert decode(mark + b"data: a\n\n") == [SseEvent(b"a")]
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\n" + mark + b"data: b\n\n") == [SseEvent(b"a")]
    assert decoder.junk == mark + b"data: b"


def test_junk_is_kept_up_to_4000_bytes() -> None:
    decoder = SseDecoder()
    decoder.feed(b"<html>\n\nid: 1\n<body>\n")
    assert decoder.junk == b"<html>\n<body>"
    decoder.feed(b"<" * 5000 + b"\nmore\n")
    assert len(decoder.junk) == 4000


def test_rest_returns_the_event_without_its_blank_line() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\n\ndata: b") == [SseEvent(b"a")]
    assert decoder.unfinished
    assert decoder.rest() == [SseEvent(b"b")]
    assert decoder.rest() == []


def test_rest_after_a_carriage_return() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r") == []
    assert decoder.rest() == [SseEvent(b"a")]


@each_case(
    "data",
    [
        b"data: " + b"x" * 100 + b"\n\n",
        b"x" * 101,
        b"data: 0123456789\n" * 10 + b"\n",
        b"data: a\n\n" * 2 + b"x" * 101,
    ],
)
@each_case("step", [1, 7, 10_000])
def test_event_above_the_maximum_overflows(data: bytes, step: int) -> None:
    decoder = SseDecoder(max_bytes=100)
    for start in range(0, len(data), step):
        decoder.feed(data[start : start + step])
    assert decoder.overflow
    assert decoder.feed(b"data: a\n\n") == []
    assert decoder.rest() == []


LINES = st.lists(
    st.sampled_from(
        [
            b"data: a",
            b"data: {}",
            b"data:",
            b"data",
            b": c",
            b"event: x",
            b"id: 1",
            b"junk",
            b"",
            b"",
            b"error: e",
            b"\xff",
        ]
    ).flatmap(lambda line: st.sampled_from([line + b"\n", line + b"\r\n", line + b"\r"]))
)


@given(LINES, st.sampled_from([b"", b"\xef\xbb\xbf"]), st.lists(st.integers(0, 200)))
def test_events_are_the_same_for_any_split(
    lines: list[bytes], mark: bytes, cuts: list[int]
) -> None:
    data = mark + b"".join(lines)
    whole = SseDecoder()
    expected = whole.feed(data) + whole.rest()
    parts = SseDecoder()
    events: list[SseEvent] = []
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for start, end in pairwise(edges):
        events += parts.feed(data[start:end])
    assert events + parts.rest() == expected
    assert parts.junk == whole.junk


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\r")),
    st.sampled_from(["", "ping", "error"]),
)
def test_encoded_events_decode_to_the_same(text: str, name: str) -> None:
    assert decode(encode_event(text.encode(), name)) == [SseEvent(text.encode(), name)]
