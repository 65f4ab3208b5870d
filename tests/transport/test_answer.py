"""The response parser: every framing, every refusal, in any split."""

import gzip
import zlib
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.transport.peers import chunked
from tests.transport.test_decoding import raw_deflate

from splitsecond.core.transport.response_parser import MAX_HEAD_BYTES, MAX_HEADERS, ResponseParser

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
TEXT = b"data: one token\n\n" * 40


def sized(body: bytes, headers: bytes = b"") -> bytes:
    return OK + headers + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def taken(answer: ResponseParser, pieces: list[bytes]) -> bytes:
    """Feed `pieces` up to the end or a failure; the body that came out."""
    body = b""
    for piece in pieces:
        body += answer.feed(piece)
        if answer.complete or answer.fault:
            break
    return body


WHOLE = {
    "sized": (sized(b"hello"), b"hello"),
    "empty": (sized(b""), b""),
    "no reason phrase": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    "chunked": (CHUNKED + chunked([b"a", b"bc", b"def"]), b"abcdef"),
    "chunk extensions": (CHUNKED + b'3;a=b;c="d"\r\nabc\r\n0;e\r\n\r\n', b"abc"),
    "trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n", b"abc"),
    "interim responses": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        + sized(b"hello"),
        b"hello",
    ),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b""),
    "gzip": (sized(gzip.compress(TEXT, mtime=0), b"Content-Encoding: gzip\r\n"), TEXT),
    "gzip in chunks": (
        OK
        + b"Transfer-Encoding: chunked\r\nContent-Encoding: GZIP\r\n\r\n"
        + chunked([gzip.compress(TEXT, mtime=0)]),
        TEXT,
    ),
    "gzip of nothing at all": (sized(b"", b"Content-Encoding: gzip\r\n"), b""),
    "deflate": (sized(zlib.compress(TEXT), b"Content-Encoding: deflate\r\n"), TEXT),
    "bare deflate": (sized(raw_deflate(TEXT), b"Content-Encoding: deflate\r\n"), TEXT),
    "identity": (sized(b"hello", b"Content-Encoding: identity\r\n"), b"hello"),
}

REFUSED = {
    "not HTTP": (b"SSH-2.0-OpenSSH_9.9\r\n", "not_http"),
    "HTML": (b"<html><body>hello</body></html>", "not_http"),
    "TLS alert": (b"\x15\x03\x01\x00\x02\x02\x46", "not_http"),
    "HTTP/2": (b"HTTP/2.0 200 OK\r\n\r\n", "malformed"),
    "status 099": (b"HTTP/1.1 099 Low\r\n\r\n", "malformed"),
    "101": (
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "malformed",
    ),
    "101 without Upgrade": (b"HTTP/1.1 101 Switching Protocols\r\n\r\nabc", "malformed"),
    "folded header": (OK + b"A: x\r\n y\r\nContent-Length: 0\r\n\r\n", "malformed"),
    "bare line feeds": (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "malformed"),
    "length and chunked": (
        OK + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "malformed",
    ),
    "chunked and length": (
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        "malformed",
    ),
    "negative length": (OK + b"Content-Length: -3\r\n\r\n", "malformed"),
    "two lengths": (OK + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n", "malformed"),
    "negative chunk": (CHUNKED + b"-3\r\nabc\r\n", "malformed"),
    "endless chunk size": (CHUNKED + b"f" * 20 + b"\r\n", "malformed"),
    "chunk longer than it said": (CHUNKED + b"3\r\nabcX", "malformed"),
    "NUL in a header": (OK + b"A: x\0y\r\n\r\n", "malformed"),
    "space before the colon": (OK + b"A : x\r\n\r\n", "malformed"),
    "gzip as transfer coding": (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "malformed"),
    "unknown content coding": (sized(b"hello", b"Content-Encoding: br\r\n"), "malformed"),
    "no gzip at all": (sized(b"hello", b"Content-Encoding: gzip\r\n"), "malformed"),
    "gzip cut off": (
        sized(gzip.compress(TEXT, mtime=0)[:-9], b"Content-Encoding: gzip\r\n"),
        "malformed",
    ),
    "gzip and more": (
        sized(gzip.compress(TEXT, mtime=0) + b"more", b"Content-Encoding: gzip\r\n"),
        "malformed",
    ),
    "gzip bomb": (
        sized(gzip.compress(bytes(20_000_000)), b"Content-Encoding: gzip\r\n"),
        "malformed",
    ),
    "one endless header": (OK + b"A: " + b"x" * (MAX_HEAD_BYTES + 1), "malformed"),
    "one large header": (OK + b"A: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", "malformed"),
    "too many headers": (OK + b"A: x\r\n" * (MAX_HEADERS + 1) + b"\r\n", "malformed"),
    "endless chunk extension": (CHUNKED + b"3;" + b"x" * (MAX_HEAD_BYTES + 1), "malformed"),
    "endless trailer": (CHUNKED + b"0\r\nA: " + b"x" * (MAX_HEAD_BYTES + 1), "malformed"),
    "too many trailers": (CHUNKED + b"0\r\n" + b"A: x\r\n" * MAX_HEADERS + b"\r\n", "malformed"),
}


@each_case("name", WHOLE)
def test_complete_response_is_parsed(name: str) -> None:
    wire, body = WHOLE[name]
    answer = ResponseParser("POST")
    assert answer.feed(wire) == body
    assert answer.complete
    assert answer.fault is None
    assert answer.changed
    assert not answer.surplus


@each_case("name", REFUSED)
def test_invalid_response_is_refused(name: str) -> None:
    wire, kind = REFUSED[name]
    answer = ResponseParser("POST")
    for start in range(0, len(wire), 16384):
        answer.feed(wire[start : start + 16384])
    assert not answer.complete
    assert answer.fault is not None
    assert answer.fault.kind == kind
    assert answer.fault.phase == ("between tokens" if answer.status else "head")


@given(name=st.sampled_from(sorted(WHOLE)), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_response_is_the_same_for_any_split(name: str, cuts: list[int]) -> None:
    wire, body = WHOLE[name]
    bounds = sorted({0, len(wire), *(cut % len(wire) for cut in cuts)})
    answer = ResponseParser("POST")
    pieces = [wire[a:b] for a, b in pairwise(bounds)]
    assert taken(answer, pieces) == body
    assert answer.complete
    assert answer.status == int(wire[9:12]) or wire.startswith(b"HTTP/1.1 100")


@each_case("name", WHOLE)
def test_response_is_the_same_byte_by_byte(name: str) -> None:
    wire, body = WHOLE[name]
    answer = ResponseParser("POST")
    assert taken(answer, [wire[i : i + 1] for i in range(len(wire))]) == body
    assert answer.complete


@each_case("name", REFUSED)
def test_invalid_response_is_refused_byte_by_byte(name: str) -> None:
    wire, kind = REFUSED[name]
    answer = ResponseParser("POST")
    taken(answer, [wire[i : i + 1] for i in range(len(wire))])
    assert answer.fault is not None
    assert answer.fault.kind == kind


@given(name=st.sampled_from(sorted(WHOLE)), cut=st.integers(0, 400), clean=st.booleans())
def test_response_cut_anywhere_is_never_complete(name: str, cut: int, clean: bool) -> None:
    wire, body = WHOLE[name]
    cut = 1 + cut % (len(wire) - 1)
    answer = ResponseParser("POST")
    got = answer.feed(wire[:cut])
    if not answer.complete:
        answer.end_of_stream(clean=clean)
    assert body.startswith(got)
    if answer.complete:
        assert got == body
    else:
        assert answer.fault is not None
        assert answer.fault.kind == "truncated"


@given(st.binary(max_size=300))
def test_random_bytes_never_raise(data: bytes) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", CHUNKED, OK + b"Content-Encoding: gzip\r\n\r\n"):
        answer = ResponseParser("POST")
        answer.feed(start + data)
        answer.feed(data)
        answer.end_of_stream(clean=True)
        assert answer.complete != bool(answer.fault)


def test_body_may_end_with_the_connection() -> None:
    answer = ResponseParser("GET")
    assert answer.feed(OK + b"\r\nabc") == b"abc"
    assert answer.feed(b"def") == b"def"
    before = answer.complete
    answer.end_of_stream(clean=True)
    assert (before, answer.complete, answer.keep_alive) == (False, True, False)


def test_unannounced_end_of_the_connection_is_truncation() -> None:
    answer = ResponseParser("GET")
    answer.feed(OK + b"\r\nabc")
    answer.end_of_stream(clean=False)
    assert answer.fault is not None
    assert answer.fault.kind == "truncated"


def test_a_compressed_body_that_the_end_of_the_connection_cuts() -> None:
    answer = ResponseParser("GET")
    answer.feed(OK + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(TEXT, mtime=0)[:-4])
    answer.end_of_stream(clean=True)
    assert answer.fault is not None
    assert answer.fault.kind == "truncated"


def test_head_has_no_body() -> None:
    answer = ResponseParser("HEAD")
    assert answer.feed(OK + b"Content-Length: 5\r\n\r\n") == b""
    assert answer.complete
    assert answer.keep_alive


@pytest.mark.parametrize(
    ("wire", "keep"),
    [
        (sized(b"a"), True),
        (sized(b"a", b"Connection: close\r\n"), False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
    ],
)
def test_keep_alive(wire: bytes, keep: bool) -> None:
    answer = ResponseParser("GET")
    answer.feed(wire)
    assert answer.keep_alive is keep


@each_case("more", [sized(b"second"), b"junk", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
@each_case("first", [sized(b"first"), CHUNKED + chunked([b"first"])])
def test_bytes_after_the_end_are_not_the_body(first: bytes, more: bytes) -> None:
    answer = ResponseParser("GET")
    assert answer.feed(first + more) == b"first"
    assert answer.complete
    assert answer.fault is None
    assert answer.surplus


def test_headers_are_lower_case_and_joined() -> None:
    answer = ResponseParser("GET")
    answer.feed(sized(b"", b"X-A: 1\r\nx-a: 2 \r\nX-Empty:\r\nX-Latin: \xe9\r\n"))
    assert answer.headers == {"x-a": "1, 2", "x-empty": "", "x-latin": "é", "content-length": "0"}


def test_interim_headers_and_trailers_are_not_headers() -> None:
    answer = ResponseParser("GET")
    answer.feed(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + CHUNKED + b"0\r\nX-Sum: 1\r\n\r\n")
    assert answer.headers == {"transfer-encoding": "chunked"}


def test_plain_chunks_do_not_set_changed() -> None:
    answer = ResponseParser("GET")
    answer.feed(CHUNKED)
    assert answer.changed
    answer.changed = False
    assert answer.feed(b"1\r\na\r\n1\r\nb\r\n") == b"ab"
    assert not answer.changed


def test_a_long_stream_of_small_chunks_is_no_endless_header() -> None:
    answer = ResponseParser("GET")
    answer.feed(CHUNKED)
    for _ in range(30_000):
        answer.feed(b"1;x=y\r\na\r\n")
    assert answer.fault is None


def test_first_fault_of_a_response_is_kept() -> None:
    answer = ResponseParser("GET")
    answer.feed(sized(b"hello", b"Content-Encoding: br\r\n"))
    first = answer.fault
    answer.end_of_stream(clean=True)
    assert answer.fault is first


@pytest.mark.parametrize(
    "before", ["sized", "chunked", "trailers", "interim responses", "204", "gzip", "empty"]
)
@given(st.sampled_from(sorted(WHOLE)), st.integers(1, 400))
def test_response_after_another_is_parsed_as_if_alone(before: str, after: str, cut: int) -> None:
    first = ResponseParser("POST")
    taken(first, [WHOLE[before][0]])
    assert first.keep_alive
    second, (wire, body) = first.followed_by("POST"), WHOLE[after]
    assert (second.answered, second.complete, second.status, second.headers) == (
        False,
        False,
        0,
        {},
    )
    assert taken(second, [wire[:cut], wire[cut:]]) == body
    alone = ResponseParser("POST")
    taken(alone, [wire])
    assert (second.complete, second.fault, second.headers) == (True, None, alone.headers)
    assert (second.status, second.keep_alive) == (alone.status, alone.keep_alive)


def test_response_after_head_gets_a_new_parser() -> None:
    first = ResponseParser("HEAD")
    taken(first, [OK + b"Content-Length: 5\r\n\r\n"])
    assert first.complete
    second = first.followed_by("POST")
    assert second is not first
    assert taken(second, [sized(b"hello")]) == b"hello"


# Packets that are one whole chunk each.

TRICKY = st.sampled_from(
    [b"a", b"\r\n", b"5\r\nhello\r\n", b"0\r\n\r\n", b"x" * 15, b"x" * 16, b"x" * 255, b"x" * 256]
)
HEADS = st.sampled_from([*[b"%x\r\n"] * 6, b"%X\r\n", b"0%x\r\n", b"%x;x=y\r\n"])


@given(
    st.lists(st.tuples(TRICKY, HEADS), min_size=6, max_size=16),
    st.lists(st.integers(1, 2400), max_size=2),
    st.lists(st.integers(1, 3), max_size=16),
)
def test_whole_chunks_agree_with_llhttp(
    chunks: list[tuple[bytes, bytes]], cuts: list[int], reads: list[int]
) -> None:
    """Packets end where chunks do, and at a few other places."""
    pieces = [
        CHUNKED,
        *((head % len(body)) + body + b"\r\n" for body, head in chunks),
        b"0\r\n\r\n",
    ]
    wire = b"".join(pieces)
    ends = sorted({*accumulate(map(len, pieces)), *(cut for cut in cuts if cut < len(wire))})
    packets = [wire[begin:end] for begin, end in pairwise([0, *ends])]
    by_chunks, by_feed = ResponseParser("POST"), ResponseParser("POST")
    while packets:
        count = reads.pop() if reads else 2
        read, packets = packets[:count], packets[count:]
        expected = [by_feed.feed(packet) for packet in read]
        bodies = by_chunks.whole_chunks(b"".join(read), list(map(len, read)))
        if bodies is None:
            by_chunks.changed = False
            bodies = [by_chunks.feed(packet) for packet in read]
            by_chunks.note_chunk(read[-1], bodies[-1])
        assert bodies == expected
        assert (by_chunks.complete, by_chunks.surplus, by_chunks.fault) == (
            by_feed.complete,
            False,
            None,
        )
    assert by_chunks.complete


def noted(before: bytes) -> ResponseParser:
    """Return a parser that has read the headers, `before`, and a whole chunk after it."""
    answer = ResponseParser("POST")
    answer.feed(CHUNKED + before)
    answer.changed = False
    answer.note_chunk(b"3\r\nabc\r\n", answer.feed(b"3\r\nabc\r\n"))
    return answer


def test_packets_of_one_whole_chunk_bypass_the_parser() -> None:
    whole = b"3\r\nabc\r\n", b"A\r\n0123456789\r\n"
    answer = noted(b"")
    for _ in range(2):
        assert answer.whole_chunks(b"".join(whole), list(map(len, whole))) == [
            b"abc",
            b"0123456789",
        ]
    for other in (
        b"0\r\n\r\n",
        b"03\r\nabc\r\n",
        b"3;x\r\nabc\r\n",
        b"3\r\nab",
        b"1\r\na\r\n1\r\nb\r\n",
        b"\r\n",
    ):
        assert answer.whole_chunks(whole[0] + other, [len(whole[0]), len(other)]) is None
    # what was refused was not parsed
    assert answer.whole_chunks(whole[0], [len(whole[0])]) == [b"abc"]
    answer.feed(b"1")
    assert answer.whole_chunks(whole[0], [len(whole[0])]) is None


def test_packet_inside_a_chunk_is_no_whole_chunk() -> None:
    answer = noted(b"20\r\n")
    assert answer.whole_chunks(b"3\r\nabc\r\n", [8]) is None
