"""Reading any request takes linear time and bounded memory, before its key is checked and after."""

import asyncio
import hashlib
from collections.abc import Callable

from tests.cases import each_case, sampled_cases
from tests.gateway.test_app import fake
from tests.gateway.visitor import visitor
from tests.serving.fake_client import Transport, connected
from tests.worst_case import Make, check_bounded, check_linear, in_pieces, numbered, repeated

from splitsecond.gateway.http.app import Gateway
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.virtual_time import run_virtual

KEY = "a-key-of-a-client-of-ours"
READ_BYTES = 256 * 1024
"""What uvloop reads at once."""
PIECES = (100, READ_BYTES)
MAX_TURNS = 2_000
"""Turns of the loop that a connection may take until it reads again: for the answers to all
pipelined requests."""
GET = b"GET /v1/models HTTP/1.1\r\nhost: x\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
ALLOWED = b"authorization: Bearer %b\r\n" % KEY.encode()
CHUNKED = b"transfer-encoding: chunked\r\n"
UPGRADE = b"connection: upgrade\r\nupgrade: h2c\r\n"

HEADS: dict[str, Make] = {
    "a method that does not end": repeated(b"A"),
    "a path that does not end": repeated(b"a", b"GET /"),
    "a long path": repeated(b"%ff", b"GET /", b" HTTP/1.1\r\nhost: x\r\n\r\n"),
    "a long query": repeated(b"a=b&", b"GET /explain?", b" HTTP/1.1\r\nhost: x\r\n\r\n"),
    "empty lines": repeated(b"\r\n"),
    "many headers": repeated(b"a: b\r\n", GET, b"\r\n"),
    "different headers": numbered(lambda index: b"h%d: b\r\n" % index, "random", GET, b"\r\n"),
    "one long header": repeated(b"a", GET + b"a: ", b"\r\n\r\n"),
    "one long header name": repeated(b"a", GET, b": b\r\n\r\n"),
    "continued headers": repeated(b" a\r\n", GET + b"a: b\r\n", b"\r\n"),
    "one long key": repeated(b"a", GET + b"authorization: Bearer ", b"\r\n\r\n"),
    "bytes of TLS": repeated(b"\x16\x03\x01\x02"),
}
BODIES: dict[str, Make] = {
    "tiny chunks": repeated(b"1\r\na\r\n", after=b"0\r\n\r\n"),
    "chunks of two bytes": repeated(b"2\r\nab\r\n", after=b"0\r\n\r\n"),
    "chunk extensions": repeated(b"1;a=b;c=d\r\na\r\n", after=b"0\r\n\r\n"),
    "one long chunk extension": repeated(b";a=b", b"1", b"\r\na\r\n0\r\n\r\n"),
    "a quoted chunk extension": repeated(rb"\"", b'1;a="', b'"\r\na\r\n0\r\n\r\n'),
    "zeros before a chunk size": repeated(b"0", after=b"1\r\na\r\n0\r\n\r\n"),
    "many trailers": repeated(b"a: b\r\n", b"1\r\na\r\n0\r\n", b"\r\n"),
    "different trailers": numbered(
        lambda index: b"t%d: b\r\n" % index, "random", b"1\r\na\r\n0\r\n", b"\r\n"
    ),
    "one long trailer": repeated(b"a", b"1\r\na\r\n0\r\na: ", b"\r\n\r\n"),
    "one long trailer name": repeated(b"a", b"1\r\na\r\n0\r\n", b": b\r\n\r\n"),
}
REQUESTS: dict[str, Make] = {
    "pipelined requests": repeated(GET + b"\r\n"),
    "pipelined requests with a key": repeated(GET + ALLOWED + b"\r\n"),
    "pipelined requests for an upgrade": repeated(GET + UPGRADE + b"\r\n"),
    "pipelined bodies for an upgrade": repeated(POST + UPGRADE + b"content-length: 1\r\n\r\na"),
    "pipelined bodies": repeated(POST + b"content-length: 1\r\n\r\na"),
    "pipelined trailers": repeated(POST + CHUNKED + b"\r\n0\r\na: b\r\n\r\n"),
}


def after(before: bytes, make: Make) -> Make:
    return lambda size: before + make(size)


KINDS: dict[str, Make] = {
    **HEADS,
    **REQUESTS,
    **{f"{name}, no key": after(POST + CHUNKED + b"\r\n", make) for name, make in BODIES.items()},
    **{
        f"{name}, a key": after(POST + CHUNKED + ALLOWED + b"\r\n", make)
        for name, make in BODIES.items()
    },
    **{
        f"{name}, an upgrade": after(POST + CHUNKED + UPGRADE + b"\r\n", make)
        for name, make in BODIES.items()
    },
}


def guarded() -> Gateway:
    key = ClientKey(name="web", digest=hashlib.sha256(KEY.encode()).digest(), routes=("*",))
    return visitor(fake(), key).gateway


def reader(piece_bytes: int) -> Callable[[bytes], None]:
    """Return what feeds a new connection with a text in pieces, as long as the connection reads
    them."""

    def feed(text: bytes) -> None:
        async def main() -> None:
            transport = Transport("192.0.2.1")
            connection = connected(gateway, transport)
            for piece in in_pieces(text, piece_bytes):
                for _ in range(MAX_TURNS):
                    if transport.closed or not transport.reading_paused:
                        break
                    await asyncio.sleep(0)
                if transport.closed or transport.reading_paused:
                    break
                connection.data_received(piece)
                await asyncio.sleep(0)
            connection.connection_lost(None)
            while connection.state.tasks:
                await asyncio.wait(connection.state.tasks)

        gateway = guarded()
        run_virtual(main())

    return feed


@sampled_cases(30)
@each_case("piece_bytes", PIECES)
@each_case("kind", KINDS)
def test_reading_requests_takes_linear_time(kind: str, piece_bytes: int) -> None:
    size = 1 << 18 if kind in REQUESTS else 1 << 20
    check_linear(reader(piece_bytes), KINDS[kind], size=size, allowed=())


@sampled_cases(12)
@each_case("kind", KINDS)
def test_reading_requests_takes_bounded_memory(kind: str) -> None:
    check_bounded(reader(READ_BYTES), KINDS[kind], size=2 << 20, allowed=(), bytes_per_byte=3)
