"""A request with known headers is read as the parser reads it, and nothing else counts as known."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each_case
from tests.examples import examples
from tests.serving.fake_client import Transport, connected

from splitsecond.core.serving.known_heads import LONGEST_HEAD, MAX_HEADS, KnownHeads
from splitsecond.core.serving.request_cycle import ClientLeft, RequestCycle
from splitsecond.testing.virtual_time import run_virtual

Seen = tuple[str, str, bytes, dict[bytes, bytes], bool, bytes]


def responses(*reads: bytes, known: bool = True) -> tuple[list[Seen], list[bytes]]:
    """Return the requests in `reads` of one connection, and the status lines that it has sent."""
    seen: list[Seen] = []
    transport = Transport()

    async def application(cycle: RequestCycle) -> None:
        body = await cycle.body(1 << 20)
        seen.append(
            (cycle.method, cycle.path, cycle.query, dict(cycle.headers), cycle.keep_alive, body)
        )
        if transport.closed:  # what follows the request is invalid
            raise ClientLeft
        await cycle.answer(200, b"")

    async def main() -> None:
        connection = connected(application, transport)
        if not known:
            connection.state.known_heads.learn = lambda data, url, headers: None  # type: ignore[method-assign]
        for data in reads:
            if not transport.closed:
                connection.data_received(data)
            await asyncio.sleep(0.01)
        connection.connection_lost(None)

    run_virtual(main())
    return seen, [line for line in transport.written.split(b"\r\n") if line.startswith(b"HTTP/")]


def post(body: bytes, *lines: bytes, length: bytes | None = None) -> bytes:
    size = b"%d" % len(body) if length is None else length
    return b"\r\n".join(
        (b"POST /a%20b?q=1 HTTP/1.1", b"Host: x", *lines, b"Content-Length: " + size, b"", body)
    )


BODIES = (b"{}", b'{"model":"m"}', b"", b"x" * 300)


@each_case(
    "lines",
    [
        (),
        (b"Connection: keep-alive", b"Accept: */*"),
        (b"Connection: close",),
        (b"Expect: 100-continue",),
        (b"Upgrade: h2c", b"Connection: upgrade"),
        (b"X-Twice: a", b"x-twice: b"),
        (b"X-Long: " + b"a" * LONGEST_HEAD,),
    ],
)
def test_requests_are_the_same_with_and_without_known_heads(lines: tuple[bytes, ...]) -> None:
    reads = [post(body, *lines) for body in BODIES]
    reads += [
        reads[0][:30],
        reads[0][30:],
        reads[1] + reads[0],
        reads[0] + reads[1][:50],
        reads[1][50:],
    ]
    assert responses(*reads) == responses(*reads, known=False)


PIECES = st.sampled_from(
    [b"Content-Length: ", b"content-length: ", b"CONTENT-length: ",
     b"\r\n", b"\n", b" ", b"2", b"+2", b"02", b"\r\n\r\n",
     b"Transfer-Encoding: chunked", b"X: y", b"Host: z", b"POST / HTTP/1.1", b"{}", b"\x00", b"\t"]
)  # fmt: skip


@settings(examples(1200), deadline=None)
@given(st.lists(PIECES, max_size=8), st.integers(0, 60))
def test_similar_headers_are_read_as_the_parser_reads_them(pieces: list[bytes], place: int) -> None:
    known = post(b"{}", b"Accept: */*")
    near = known[:place] + b"".join(pieces) + known[place:]
    assert responses(known, near, known) == responses(known, near, known, known=False)


def test_only_complete_requests_match_known_headers() -> None:
    heads = KnownHeads()
    data = post(b"{}")
    heads.learn(data, ("/a b", b"q=1"), {b"host": b"x", b"content-length": b"2"})
    assert heads.request(data) == (
        ("/a b", b"q=1"),
        {b"host": b"x", b"content-length": b"2"},
        b"{}",
    )
    assert heads.request(post(b"[1]")) == (
        ("/a b", b"q=1"),
        {b"host": b"x", b"content-length": b"3"},
        b"[1]",
    )
    for other in (
        data[:-1],
        data + b"P",
        post(b"{}", length=b"3"),
        post(b"{}", b"A: b"),
        data.replace(b"/a", b"/b"),
    ):
        assert heads.request(other) is None


def test_number_of_known_headers_is_bounded() -> None:
    heads = KnownHeads()
    for number in range(2 * MAX_HEADS):
        heads.learn(
            post(b"{}", b"X: %d" % number),
            ("/", b""),
            {b"host": b"x", b"x": b"", b"content-length": b"2"},
        )
    assert len(heads._heads) <= MAX_HEADS
    assert heads.request(post(b"{}", b"X: %d" % (2 * MAX_HEADS - 1))) is not None
