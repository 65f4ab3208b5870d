"""TLS: trust, the end of a session, records in any shape."""

import asyncio
import socket
import ssl
from contextlib import suppress
from itertools import pairwise

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.transport.conftest import Run
from tests.transport.peers import GET, HELLO, Peer, Recorder, close, stay
from tests.waiting import WITHIN_S

from splitsecond.core.errors import NetworkFault
from splitsecond.core.transport import Client, Origin, Request
from splitsecond.core.transport.tls import TlsSession, prepare_context

AUTHORITY = trustme.CA()
WHOLE_HELLO = [("head", 200), b"hello", "ended"]


def server_side(name: str = "127.0.0.1") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert(name).configure_cert(context)
    return context


def trust() -> ssl.SSLContext:
    """Return a client's context without the system's certificates, which take long to read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    AUTHORITY.configure_trust(context)
    return context


async def asked(client: Client, origin: Origin, request: Request = GET) -> Recorder:
    receiver = Recorder()
    await client.send(origin, request, receiver)
    await receiver.over.wait()
    return receiver


def test_tls_connection_is_reused(run: Run) -> None:
    async def story() -> None:
        server = server_side()
        server.set_alpn_protocols(["h2", "http/1.1"])
        async with Peer(stay(HELLO, HELLO), tls=server) as peer:
            client = Client(trust=trust(), proxies={})
            receiver = Recorder()
            exchange = await client.send(peer.origin, GET, receiver)
            assert exchange.connection.tls_ns > 0
            await receiver.over.wait()
            assert receiver.story == WHOLE_HELLO
            assert (await asked(client, peer.origin)).story == WHOLE_HELLO
            assert peer.connections == 1
            assert repr(client) == "[origins: 1 | connections: 1 idle, 0 active]"
            client.close()

    run(story())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_warm_connection_survives_late_session_tickets(run: Run, version: ssl.TLSVersion) -> None:
    async def story() -> None:
        server = server_side()
        server.maximum_version = version
        async with Peer(stay(HELLO), tls=server) as peer:
            client = Client(trust=trust(), proxies={})
            assert await client.warm(peer.origin, 2) == 2
            receiver = Recorder()
            exchange = await client.send(peer.origin, GET, receiver)
            assert exchange.connection.reused
            await receiver.over.wait()
            assert receiver.story == WHOLE_HELLO
            client.close()

    run(story())


def test_a_large_request_and_a_large_answer(run: Run) -> None:
    body = bytes(range(256)) * 8_000

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        got = await reader.readexactly(len(body))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(got) + got)
        await reader.read()

    async def story() -> None:
        async with Peer(script, tls=server_side()) as peer:
            client = Client(trust=trust(), proxies={})
            receiver = await asked(client, peer.origin, Request("POST", "/", (), body))
            assert receiver.story[-1] == "ended"
            assert receiver.body == body
            client.close()

    run(story())


@pytest.mark.parametrize(
    ("name", "trusted", "why"),
    [("127.0.0.1", False, "unable to get local issuer"), ("other.example", True, "127.0.0.1")],
)
def test_untrusted_certificate_is_refused(run: Run, name: str, trusted: bool, why: str) -> None:
    async def story() -> None:
        async with Peer(stay(HELLO), tls=server_side(name)) as peer:
            client = Client(trust=trust() if trusted else None, proxies={})
            with pytest.raises(NetworkFault, match=why) as caught:
                await client.send(peer.origin, GET, Recorder())
            assert caught.value.kind == "certificate"
            assert caught.value.phase == "tls"
            assert "127.0.0.1" in str(caught.value)
            assert "SSL_CERT_FILE" in str(caught.value)
            assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"

    run(story())


def test_server_without_tls_gets_a_hint_at_plain_http(run: Run) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async def story() -> None:
        async with Peer(plain, silent) as peer:
            client = Client(trust=trust(), proxies={})
            for _ in range(2):
                with pytest.raises(NetworkFault, match="plain http") as caught:
                    await client.send(Origin("https", "127.0.0.1", peer.port), GET, Recorder())
                assert caught.value.kind == "tls"

    run(story())


@pytest.mark.parametrize(("announced", "ends"), [(True, "ended"), (False, "truncated")])
def test_only_an_announced_end_ends_a_body_of_unknown_length(
    run: Run, announced: bool, ends: str
) -> None:
    """Without close_notify anyone on the way could have cut the answer short."""
    wire = b"HTTP/1.1 200 OK\r\n\r\nhello"

    async def story() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as server:
            origin = Origin("https", "127.0.0.1", server.getsockname()[1])

            def serve() -> None:
                accepted, _ = server.accept()
                with server_side().wrap_socket(accepted, server_side=True) as secured:
                    secured.settimeout(WITHIN_S)
                    secured.recv(65536)
                    secured.send(wire)
                    if announced:
                        with suppress(OSError):  # we do not answer a close_notify, but hang up
                            secured.unwrap()

            client = Client(trust=trust(), proxies={})
            serving = loop.run_in_executor(None, serve)
            receiver = await asked(client, origin)
            assert receiver.story == [("head", 200), b"hello", ends]
            assert client.statistics().active == 0
            await serving

    run(story())


def test_connection_closed_while_idle_is_replaced(run: Run) -> None:
    async def story() -> None:
        async with Peer(close(HELLO), tls=server_side()) as peer:
            client = Client(trust=trust(), proxies={})
            assert (await asked(client, peer.origin)).story == WHOLE_HELLO
            assert (await asked(client, peer.origin)).story == WHOLE_HELLO
            assert peer.connections == 2
            client.close()

    run(story())


SERVER_SIDE = server_side()


def in_memory() -> tuple[TlsSession, ssl.SSLObject, ssl.MemoryBIO]:
    """Our side of a session, the server's, and what the server has sent us; shaken hands without a
    socket."""
    to_us, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours_in = ssl.MemoryBIO()
    ours = prepare_context(trust()).wrap_bio(ours_in, to_server, server_hostname="127.0.0.1")
    theirs = SERVER_SIDE.wrap_bio(to_server, to_us, server_side=True)
    for side in (ours, theirs, ours, theirs):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
        if side is theirs:
            ours_in.write(to_us.read())
    return TlsSession(ours, ours_in, to_server), theirs, to_us


@examples(30)
@given(
    plain=st.binary(max_size=40_000),
    cuts=st.lists(st.integers(0, 50_000), max_size=6),
    end=st.booleans(),
)
def test_records_in_any_split_give_the_same_bytes(plain: bytes, cuts: list[int], end: bool) -> None:
    session, server, sent = in_memory()
    rest = memoryview(plain)
    while rest:
        rest = rest[server.write(rest) :]
    if end:
        with suppress(ssl.SSLWantReadError):
            server.unwrap()
    records = sent.read()
    bounds = sorted({0, len(records), *(cut % (len(records) + 1) for cut in cuts)})
    assert b"".join(session.decrypt(memoryview(records)[a:b]) for a, b in pairwise(bounds)) == plain
    assert session.finished is end
    assert session.broken is None


def test_tampered_record_breaks_the_session() -> None:
    session, server, sent = in_memory()
    server.write(b"good")
    good = sent.read()
    server.write(b"bad")
    bad = bytearray(sent.read())
    bad[-1] ^= 1
    assert session.decrypt(memoryview(good + bad)) == b"good"
    assert session.broken is not None
    assert session.pending() != b""
