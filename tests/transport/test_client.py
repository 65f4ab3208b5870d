"""The client against servers on the loopback, on both event loops: requests, pool, failures,
times."""

import asyncio
import gzip
import os
import socket
import struct
import sys
from collections.abc import Callable, Sequence

import pytest
from tests.transport.conftest import Run
from tests.transport.peers import GET, HELLO, Closer, Peer, Recorder, chunked, close, stay

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault, Fault, NetworkFault, TimedOut
from splitsecond.core.observation import ArrivalClock
from splitsecond.core.transport import Client, Exchange, Origin, Request

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CLOSE = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
LINUX = sys.platform == "linux"
WHOLE_HELLO = [("head", 200), b"hello", "ended"]


async def asked(
    client: Client, origin: Origin, request: Request = GET
) -> tuple[Exchange, Recorder]:
    """Send, and wait for the end."""
    receiver = Recorder()
    exchange = await client.send(origin, request, receiver)
    await receiver.over.wait()
    return exchange, receiver


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition is true that has no event."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came about")


def reset(writer: asyncio.StreamWriter) -> None:
    """Have the next close send a RST."""
    writer.get_extra_info("socket").setsockopt(
        socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
    )


class TestPool:
    def test_connection_is_reused(self, run: Run) -> None:
        async def story() -> None:
            async with Peer(stay(*[HELLO] * 3)) as peer:
                client = Client(proxies={})
                assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"
                receiver = Recorder()
                first = await client.send(peer.origin, GET, receiver)
                assert repr(client) == "[origins: 1 | connections: 0 idle, 1 active]"
                await receiver.over.wait()
                assert repr(client) == "[origins: 1 | connections: 1 idle, 0 active]"
                second, answer = await asked(client, peer.origin)
                assert receiver.story == answer.story == WHOLE_HELLO
                assert peer.connections == 1
                assert not first.connection.reused
                assert first.connection.tcp_ns > 0
                assert first.connection.tls_ns == 0
                assert first.connection.peer == f"127.0.0.1:{peer.port}"
                assert second.connection.reused
                assert second.connection.id == first.connection.id
                assert second.connection.dns_ns == second.connection.tcp_ns == 0
                client.close()
                assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"

        run(story())

    def test_last_freed_connection_is_used_first(self, run: Run) -> None:
        go = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await go.wait()
            await stay(*[HELLO] * 3)(reader, writer)

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                one, two = Recorder(), Recorder()
                first = await client.send(peer.origin, GET, one)
                second = await client.send(peer.origin, GET, two)
                assert repr(client) == "[origins: 1 | connections: 0 idle, 2 active]"
                go.set()
                await one.over.wait()
                await two.over.wait()
                third, _ = await asked(client, peer.origin)
                assert third.connection.id in (first.connection.id, second.connection.id)
                fourth, _ = await asked(client, peer.origin)
                assert fourth.connection.id == third.connection.id
                client.close()

        run(story())

    @pytest.mark.parametrize(
        "answer",
        [
            CLOSE,
            HELLO.replace(b"HTTP/1.1", b"HTTP/1.0"),
            HELLO.replace(b"OK\r\n", b"OK\r\nKeep-Alive: timeout=5, max=0\r\n"),
            HELLO + b"stray",
        ],
        ids=["close", "1.0", "max=0", "surplus"],
    )
    def test_connection_is_not_reused_if_the_response_forbids_it(
        self, run: Run, answer: bytes
    ) -> None:
        async def story() -> None:
            async with Peer(stay(answer)) as peer:
                client = Client(proxies={})
                _, receiver = await asked(client, peer.origin)
                assert receiver.story == WHOLE_HELLO
                assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"

        run(story())

    @pytest.mark.parametrize("idle_s", [0.0, 60.0])
    def test_idle_connection_closes_after_the_shorter_limit(self, run: Run, idle_s: float) -> None:
        """After our own limit, or the server's promise, whichever is shorter."""

        async def story() -> None:
            closed = asyncio.Event()
            hint = b"" if idle_s == 0 else b"Keep-Alive: timeout=0\r\n"

            async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await stay(HELLO.replace(b"OK\r\n", b"OK\r\n" + hint))(reader, writer)
                closed.set()

            async with Peer(script) as peer:
                client = Client(proxies={}, idle_s=idle_s)
                await asked(client, peer.origin)
                await closed.wait()
                assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"

        run(story())

    @pytest.mark.parametrize("goodbye", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
    def test_a_connection_that_ends_while_idle_is_dropped_at_once(
        self, run: Run, goodbye: bytes
    ) -> None:
        async def story() -> None:
            may_close = asyncio.Event()

            async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await close(HELLO)(reader, writer)
                await may_close.wait()
                writer.write(goodbye)

            async with Peer(script) as peer:
                client = Client(proxies={})
                await asked(client, peer.origin)
                assert client.statistics().idle == 1
                may_close.set()
                await turns_until(lambda: client.statistics().idle == 0)
                client.close()

        run(story())

    def test_connection_closed_before_the_loop_knows_is_not_used(self, run: Run) -> None:
        async def story() -> None:
            with socket.create_server(("127.0.0.1", 0)) as server:
                origin = Origin("http", "127.0.0.1", server.getsockname()[1])
                client = Client(proxies={})
                assert await client.warm(origin, 1) == 1
                server.accept()[0].close()
                receiver = Recorder()
                exchange = await client.send(origin, GET, receiver)
                assert not exchange.connection.reused
                assert not exchange.resent
                client.close()

        run(story())

    def test_warm_opens_the_missing_connections(self, run: Run) -> None:
        async def story() -> None:
            async with Peer(stay(HELLO)) as peer:
                client = Client(proxies={})
                assert await client.warm(peer.origin, 2) == 2
                assert await client.warm(peer.origin, 40) == 40
                assert await client.warm(peer.origin, 3) == 40
                assert repr(client) == "[origins: 1 | connections: 40 idle, 0 active]"
                exchange, _ = await asked(client, peer.origin)
                assert exchange.connection.reused
                client.close()

        run(story())

    def test_warm_raises_the_reason_if_none_opens(self, run: Run, refused: Origin) -> None:
        async def story() -> None:
            client = Client(proxies={})
            with pytest.raises(NetworkFault) as caught:
                await client.warm(refused, 2)
            assert caught.value.kind == "refused"

        run(story())


@pytest.fixture
def refused() -> Origin:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return Origin("http", "127.0.0.1", port)


class TestResending:
    @pytest.mark.parametrize("with_reset", [False, True])
    def test_request_lost_on_a_dead_connection_is_resent(self, run: Run, with_reset: bool) -> None:
        async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await close(HELLO)(reader, writer)
            await reader.readuntil(b"\r\n\r\n")
            if with_reset:
                reset(writer)

        async def story() -> None:
            async with Peer(dies, stay(HELLO)) as peer:
                client = Client(proxies={})
                await asked(client, peer.origin)
                receiver = Recorder()
                begin = clock.now_ns()
                exchange = await client.send(peer.origin, GET, receiver)
                first_sent, dead = exchange.sent_ns, exchange.connection
                assert dead.reused
                await receiver.over.wait()
                assert receiver.story == WHOLE_HELLO
                assert exchange.resent
                assert not exchange.connection.reused
                assert exchange.connection.id != dead.id
                assert exchange.connection.tcp_ns > 0
                assert begin < first_sent < exchange.sent_ns <= receiver.at[0]
                assert peer.connections == 2
                client.close()

        run(story())

    def test_one_dead_connection_closes_the_other_idle_ones(self, run: Run) -> None:
        """Each of them would cost a request that the server gets twice."""

        async def story() -> None:
            async with Peer(close(HELLO, b""), close(HELLO, b""), stay(HELLO, HELLO)) as peer:
                client = Client(proxies={})
                first, second = Recorder(), Recorder()
                for receiver in (first, second):
                    await client.send(peer.origin, GET, receiver)
                await first.over.wait()
                await second.over.wait()
                assert repr(client) == "[origins: 1 | connections: 2 idle, 0 active]"
                exchange, receiver = await asked(client, peer.origin)
                assert exchange.resent
                assert receiver.story == WHOLE_HELLO
                assert repr(client) == "[origins: 1 | connections: 1 idle, 0 active]"
                exchange, receiver = await asked(client, peer.origin)
                assert not exchange.resent
                assert peer.connections == 3
                client.close()

        run(story())

    def test_request_is_resent_only_once(self, run: Run) -> None:
        async def story() -> None:
            async with Peer(close(HELLO, b""), close(b"")) as peer:
                client = Client(proxies={})
                await asked(client, peer.origin)
                exchange, receiver = await asked(client, peer.origin)
                assert receiver.story == ["closed"]
                assert exchange.resent
                assert peer.connections == 2

        run(story())

    def test_request_is_not_resent_if_a_byte_was_answered(self, run: Run) -> None:
        async def story() -> None:
            async with Peer(close(HELLO, b"H")) as peer:
                client = Client(proxies={})
                await asked(client, peer.origin)
                exchange, receiver = await asked(client, peer.origin)
                assert receiver.story == ["truncated"]
                assert not exchange.resent
                assert peer.connections == 1

        run(story())

    def test_request_is_not_resent_on_a_fresh_connection(self, run: Run) -> None:
        async def story() -> None:
            async with Peer(close(b"")) as peer:
                client = Client(proxies={})
                exchange, receiver = await asked(client, peer.origin)
                assert receiver.story == ["closed"]
                assert receiver.fault is not None
                assert receiver.fault.phase == "head"
                assert str(peer.origin) in str(receiver.fault)
                assert not exchange.resent

        run(story())

    @pytest.mark.parametrize("who", ["exchange", "client"])
    def test_close_during_a_reconnect_ends_the_exchange(self, run: Run, who: str) -> None:
        async def story() -> None:
            async with Peer(close(HELLO, b""), stay(HELLO)) as peer:
                client = Client(proxies={})
                await asked(client, peer.origin)
                receiver = Recorder()
                exchange = await client.send(peer.origin, GET, receiver)
                await turns_until(lambda: exchange.resent)
                exchange.pause()
                (exchange if who == "exchange" else client).close()
                await asyncio.sleep(0)
                assert receiver.story == ([] if who == "exchange" else ["closed"])
                assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"

        run(story())

    def test_failed_reconnect_fails_the_exchange(self, run: Run) -> None:
        async def story() -> None:
            async with Peer(close(HELLO, b"")) as peer:
                client = Client(proxies={})
                await asked(client, peer.origin)
                peer.stop_listening()
                exchange, receiver = await asked(client, peer.origin)
                assert receiver.story == ["refused"]
                assert exchange.resent

        run(story())


class TestAnswers:
    @pytest.mark.parametrize(
        ("wire", "story"),
        [
            (CHUNKED + chunked([b"hel", b"lo"]), WHOLE_HELLO),
            (b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO, WHOLE_HELLO),
            (b"HTTP/1.1 200 OK\r\n\r\nhello", WHOLE_HELLO),
            (b"HTTP/1.1 204 No Content\r\n\r\n", [("head", 204), "ended"]),
            (b"<html>", ["not_http"]),
            (HELLO[:-1], [("head", 200), b"hell", "truncated"]),
            (HELLO[:9], ["truncated"]),
            (CHUNKED + b"5\r\nhello\r\nX", [("head", 200), b"hello", "malformed"]),
            (CHUNKED + b"5\r\nhello\r\n", [("head", 200), b"hello", "truncated"]),
            (
                b"HTTP/1.1 500 Oh\r\nContent-Encoding: gzip\r\n\r\n"
                + gzip.compress(b"an error page", mtime=0),
                [("head", 500), b"an error page", "ended"],
            ),
        ],
    )
    def test_each_read_gives_one_piece(
        self, run: Run, wire: bytes, story: Sequence[object]
    ) -> None:
        async def play() -> None:
            async with Peer(close(wire)) as peer:
                client = Client(proxies={})
                _, receiver = await asked(client, peer.origin)
                assert receiver.story == story
                client.close()

        run(play())

    def test_reset_in_a_response_fails_the_exchange(self, run: Run) -> None:
        received = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HELLO[:-1])
            await received.wait()
            reset(writer)

        class Telling(Recorder):
            def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
                super().body_received(at, lag, source, data)
                received.set()

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                receiver = Telling()
                await client.send(peer.origin, GET, receiver)
                await receiver.over.wait()
                assert receiver.story == [("head", 200), b"hell", "reset"]
                assert receiver.fault is not None
                assert receiver.fault.phase == "between tokens"

        run(story())

    def test_a_large_request_goes_out_in_parts(self, run: Run) -> None:
        body = bytes(range(256)) * 40_000
        got = bytearray()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            got.extend(await reader.readexactly(len(body)))
            writer.write(HELLO)
            await reader.readuntil(b"hi")
            writer.write(HELLO)
            await reader.read()

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                exchange, receiver = await asked(
                    client, peer.origin, Request("POST", "/", (), body)
                )
                assert receiver.story == WHOLE_HELLO
                assert got == body
                assert exchange.sent_ns < exchange.written_ns <= clock.now_ns()
                small, _ = await asked(client, peer.origin, Request("POST", "/", (), b"hi"))
                assert small.written_ns == 0
                assert client.statistics().idle == 1
                client.close()

        run(story())

    def test_early_response_to_an_unread_request_is_delivered(self, run: Run) -> None:
        """413 and a close, with most of the request unread: the reason must not be lost in the
        reset."""
        refusal = b"HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\nmuch"

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(refusal)
            await writer.drain()
            writer.write_eof()

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                _, receiver = await asked(
                    client, peer.origin, Request("POST", "/", (), bytes(20_000_000))
                )
                assert receiver.story == [("head", 413), b"much", "ended"]
                assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"

        run(story())

    def test_reset_while_sending_has_the_phase_send(self, run: Run) -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            reset(writer)

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                _, receiver = await asked(
                    client, peer.origin, Request("POST", "/", (), bytes(20_000_000))
                )
                assert receiver.story == ["reset"]
                assert receiver.fault is not None
                assert receiver.fault.phase == "send"

        run(story())


class TestClosing:
    @pytest.mark.parametrize("on", ["head", "body", "ended"])
    def test_close_from_a_callback_ends_the_exchange(self, run: Run, on: str) -> None:
        async def story() -> None:
            async with Peer(stay(HELLO)) as peer:
                client = Client(proxies={})
                receiver = Closer(on)
                receiver.exchange = await client.send(peer.origin, GET, receiver)
                await receiver.begun.wait()
                assert receiver.story == WHOLE_HELLO[: {"head": 1, "body": 2, "ended": 3}[on]]
                assert client.statistics().active == 0
                assert client.statistics().idle == (on == "ended")
                client.close()

        run(story())

    def test_early_close_closes_the_connection_silently(self, run: Run) -> None:
        closed = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.read() == b""
            closed.set()

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                receiver = Recorder()
                exchange = await client.send(peer.origin, GET, receiver)
                exchange.close()
                exchange.close()
                await closed.wait()
                assert receiver.story == []
                assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"

        run(story())

    def test_close_of_the_client_fails_exchanges_in_flight(self, run: Run) -> None:
        async def story() -> None:
            async with Peer(stay()) as peer:
                client = Client(proxies={})
                receiver = Recorder()
                await client.send(peer.origin, GET, receiver)
                client.close()
                assert receiver.story == ["closed"]
                with pytest.raises(CallerFault):
                    await client.send(peer.origin, GET, receiver)

        run(story())

    def test_cancelling_a_send_closes_what_it_opened(self, run: Run) -> None:
        """The server takes the connection and never speaks TLS."""

        async def story() -> None:
            with socket.create_server(("127.0.0.1", 0)) as server:
                server.setblocking(False)
                loop = asyncio.get_running_loop()
                client = Client(proxies={})
                origin = Origin("https", "127.0.0.1", server.getsockname()[1])
                sending = loop.create_task(client.send(origin, GET, Recorder()))
                accepted, _ = await loop.sock_accept(server)
                assert await loop.sock_recv(accepted, 1)
                sending.cancel()
                await asyncio.wait([sending])
                assert sending.cancelled()
                while await loop.sock_recv(accepted, 65536):
                    pass
                accepted.close()

        run(story())


class TestDeadlines:
    def test_expired_connect_deadline_raises_timeout_dns(self, run: Run) -> None:
        async def story() -> None:
            client = Client(proxies={})
            with pytest.raises(TimedOut) as caught:
                await client.send(
                    Origin("http", "localhost", 1),
                    GET,
                    Recorder(),
                    connect_deadline_ns=clock.now_ns(),
                )
            assert caught.value.kind == "timeout_dns"

        run(story())

    def test_connect_deadline_covers_the_tls_handshake(self, run: Run) -> None:
        async def story() -> None:
            with socket.create_server(("127.0.0.1", 0)) as server:
                origin = Origin("https", "127.0.0.1", server.getsockname()[1])
                client = Client(proxies={})
                # so that trust is loaded
                await failing(client, Origin("https", "127.0.0.1", 1), "refused")
                # connecting takes long on a busy machine
                deadline_ns = clock.now_ns() + NS_PER_S // 2
                with pytest.raises(TimedOut) as caught:
                    await client.send(origin, GET, Recorder(), connect_deadline_ns=deadline_ns)
                assert caught.value.kind == "timeout_tls"
                assert caught.value.phase == "tls"
                assert caught.value.after_ns > 0

        run(story())


async def failing(client: Client, origin: Origin, kind: str) -> Fault:
    """Send, expecting a failure of `kind`."""
    with pytest.raises(Fault) as caught:
        await client.send(origin, GET, Recorder())
    assert caught.value.kind == kind
    return caught.value


class TestTimes:
    def test_arrivals_are_in_order_and_never_later_than_seen(self, run: Run) -> None:
        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(CHUNKED)
            for _ in range(200):
                writer.write(b"1\r\nx\r\n")
                await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")
            await reader.read()

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                exchange, receiver = await asked(client, peer.origin)
                assert receiver.body == b"x" * 200
                times = [exchange.sent_ns, *receiver.at, clock.now_ns()]
                assert times == sorted(times)
                assert min(receiver.late) >= 0
                client.close()

        run(story())

    def test_linux_timestamps_unread_bytes(self, run: Run) -> None:
        """What lay unread while we were busy keeps the time at which it came, and its lag says how
        long it lay."""
        go = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HELLO[:-5])
            await go.wait()
            os.write(writer.get_extra_info("socket").fileno(), b"hello")
            sent = clock.now_ns()
            while clock.now_ns() < sent + 5_000_000:
                pass
            await reader.read()

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                receiver = Recorder()
                await client.send(peer.origin, GET, receiver)
                await receiver.begun.wait()
                go.set()
                await receiver.over.wait()
                assert receiver.clocks == ["kernel" if LINUX else "process"]
                assert (clock.now_ns() - receiver.at[-1] >= 5_000_000) is LINUX
                client.close()

        run(story())

    def test_the_round_trip_is_known_during_and_after(self, run: Run) -> None:
        async def story() -> None:
            async with Peer(stay(CLOSE)) as peer:
                client = Client(proxies={})
                receiver = Recorder()
                exchange = await client.send(peer.origin, GET, receiver)
                assert ((exchange.rtt_ns() or 0) > 0) is LINUX
                await receiver.over.wait()
                assert ((exchange.rtt_ns() or 0) > 0) is LINUX

        run(story())


class TestHoldingBack:
    def test_a_paused_exchange_is_not_read(self, run: Run) -> None:
        go = asyncio.Event()
        written = asyncio.Event()

        async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await go.wait()
            writer.write(HELLO)
            written.set()
            await stay(b"", HELLO)(reader, writer)

        async def story() -> None:
            async with Peer(script) as peer:
                client = Client(proxies={})
                receiver = Recorder()
                exchange = await client.send(peer.origin, GET, receiver)
                exchange.pause()
                exchange.pause()
                go.set()
                await written.wait()
                for _ in range(5):
                    await asyncio.sleep(0)
                assert receiver.story == []
                exchange.resume()
                await receiver.over.wait()
                assert receiver.story == WHOLE_HELLO
                again, answer = await asked(client, peer.origin)
                assert again.connection.reused
                assert answer.story == WHOLE_HELLO
                again.pause()
                client.close()

        run(story())

    def test_pause_in_the_last_callback_keeps_the_connection(self, run: Run) -> None:
        class Pausing(Recorder):
            exchange: Exchange

            def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
                super().body_received(at, lag, source, data)
                self.exchange.pause()

        async def story() -> None:
            async with Peer(stay(HELLO, HELLO)) as peer:
                client = Client(proxies={})
                receiver = Pausing()
                receiver.exchange = await client.send(peer.origin, GET, receiver)
                await receiver.over.wait()
                again, answer = await asked(client, peer.origin)
                assert again.connection.reused
                assert answer.story == WHOLE_HELLO
                client.close()

        run(story())


def test_failure_to_connect_has_phase_and_hint(run: Run, refused: Origin) -> None:
    async def story() -> None:
        client = Client(proxies={})
        fault = await failing(client, refused, "refused")
        assert str(refused.port) in str(fault)
        assert fault.phase == "connect"
        assert fault.hint
        fault = await failing(client, Origin("http", "no-such-host.invalid", 80), "dns")
        assert fault.phase == "dns"
        assert repr(client) == "[origins: 0 | connections: 0 idle, 0 active]"

    run(story())
