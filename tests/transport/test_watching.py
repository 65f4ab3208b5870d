"""Reading many connections in one go gives the same answers as reading each as it comes."""

import asyncio
import select
import socket
import threading
from collections.abc import Callable

import pytest
from tests.transport.conftest import Run
from tests.transport.peers import GET, Peer, Recorder, stay

from splitsecond.core import clock
from splitsecond.core.observation import ArrivalClock
from splitsecond.core.transport import Client, Exchange
from splitsecond.core.transport.polling import (
    GATHERS_FROM,
    READS_AT_ONCE,
    BatchedPoller,
    LoopPoller,
    SocketPoller,
    make_poller,
)

CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
)


@pytest.mark.parametrize("gather", [True, False])
def test_socket_is_called_back_until_it_is_unwatched(run: Run, gather: bool) -> None:
    async def story() -> None:
        watcher = make_poller(asyncio.get_running_loop(), gather=gather)
        assert isinstance(watcher, BatchedPoller if gather else LoopPoller)
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            heard: asyncio.Queue[bytes] = asyncio.Queue()
            watcher.watch(near.fileno(), lambda: heard.put_nowait(near.recv(10)))
            far.send(b"one")
            assert await heard.get() == b"one"
            watcher.watch(near.fileno(), lambda: heard.put_nowait(near.recv(10).upper()))
            far.send(b"two")
            assert await heard.get() == b"TWO"
            watcher.unwatch(near.fileno())
            watcher.unwatch(near.fileno())
            far.send(b"three")
            for _ in range(3):
                await asyncio.sleep(0)
            assert heard.empty()
        watcher.close()
        watcher.close()

    run(story())


def test_callback_may_unwatch_another_socket(run: Run) -> None:
    async def story() -> None:
        batched_poller = BatchedPoller(asyncio.get_running_loop())
        pairs = [socket.socketpair() for _ in range(2)]
        called: list[int] = []
        one_called = asyncio.Event()

        def let_go_of(other: int, me: int) -> Callable[[], None]:
            def readable() -> None:
                called.append(me)
                one_called.set()
                batched_poller.unwatch(pairs[me][0].fileno())
                batched_poller.unwatch(pairs[other][0].fileno())

            return readable

        for me, (near, far) in enumerate(pairs):
            batched_poller.watch(near.fileno(), let_go_of(1 - me, me))
            far.send(b"x")
        await one_called.wait()
        assert len(called) == 1
        batched_poller.close()
        batched_poller.unwatch(pairs[0][0].fileno())
        for near, far in pairs:
            near.close()
            far.close()

    run(story())


def test_many_gathered_streams_are_complete(run: Run) -> None:
    many = GATHERS_FROM + 8

    async def story() -> None:
        async with Peer(stay(*[CHUNKED] * 100)) as peer:
            client = Client(proxies={}, gather=True)
            assert await client.warm(peer.origin, many) == many
            for _ in range(2):
                receivers = [Recorder() for _ in range(many)]
                for receiver in receivers:
                    await client.send(peer.origin, GET, receiver)
                for receiver in receivers:
                    await receiver.over.wait()
                    assert receiver.body == b"hello world"
                    assert all(late >= 0 for late in receiver.late)
            assert peer.connections == many
            client.close()

    run(story())


def test_first_tokens_are_read_between_gathered_sockets(run: Run) -> None:
    async def story() -> None:
        poller = BatchedPoller(asyncio.get_running_loop())
        pairs = [socket.socketpair() for _ in range(3 * READS_AT_ONCE)]
        waiting, begins = socket.socketpair()
        order: list[str] = []
        done = asyncio.Event()

        def gathered(near: socket.socket) -> Callable[[], None]:
            def readable() -> None:
                near.recv(10)
                order.append("gathered")
                if len(order) == READS_AT_ONCE:
                    begins.send(b"first token")  # it comes while the others are read
                if len(order) > len(pairs):
                    done.set()

            return readable

        def first() -> None:
            waiting.recv(20)
            order.append("first")

        for near, far in pairs:
            poller.watch(near.fileno(), gathered(near))
            poller.gather(near.fileno())
            far.send(b"token")
        poller.watch(waiting.fileno(), first)
        await done.wait()
        assert order.index("first") == READS_AT_ONCE
        poller.close()
        for near, far in [*pairs, (waiting, begins)]:
            near.close()
            far.close()

    run(story())


def test_last_poll_bounds_the_arrival_time_from_below(run: Run) -> None:
    async def story() -> None:
        poller = BatchedPoller(asyncio.get_running_loop())
        near, far = socket.socketpair()
        heard: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        looks: list[tuple[int, int]] = []

        def readable() -> None:
            near.recv(10)
            heard.put_nowait((poller.looked_ns, clock.now_ns()))

        poller.watch(near.fileno(), readable)
        for _ in range(3):
            far.send(b"token")
            looks.append(await heard.get())
        assert looks[0][0] == 0
        # the look that took one token began before it
        assert looks[0][0] < looks[1][0] < looks[0][1] < looks[1][1]
        assert looks[1][0] < looks[2][0] < looks[1][1]
        poller.close()
        near.close()
        far.close()

    run(story())


def test_first_token_ends_the_wait_of_gathered_sockets(run: Run) -> None:
    async def story() -> None:
        poller = BatchedPoller(asyncio.get_running_loop())
        pairs = [socket.socketpair() for _ in range(GATHERS_FROM)]
        waiting, begins = socket.socketpair()
        order: list[str] = []
        done = asyncio.Event()

        def gathered(near: socket.socket) -> Callable[[], None]:
            def readable() -> None:
                near.recv(10)
                order.append("gathered")
                done.set()

            return readable

        def first() -> None:
            waiting.recv(20)
            order.append("first")

        for near, _ in pairs:
            poller.watch(near.fileno(), gathered(near))
            poller.gather(near.fileno())
        poller.watch(waiting.fileno(), first)
        poller._polled_ns = clock.now_ns() + clock.NS_PER_S  # so that gathering takes a second
        pairs[0][1].send(b"token")
        threading.Timer(0.01, begins.send, [b"first token"]).start()
        await done.wait()
        assert order == ["first", "gathered"]
        poller.close()
        for near, far in [*pairs, (waiting, begins)]:
            near.close()
            far.close()

    run(story())


def test_connection_gathers_from_first_token_to_next_request(run: Run) -> None:
    class Gathers(Recorder):
        exchange: Exchange

        def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
            super().body_received(at, lag, source, data)
            self.packets.append(self.exchange.packets_read()[0])
            self.exchange.gather()

        def __init__(self) -> None:
            super().__init__()
            self.packets: list[int] = []

    async def story() -> None:
        async with Peer(stay(*[CHUNKED] * 2)) as peer:
            client = Client(proxies={}, gather=True)
            for _ in range(2):
                receiver = Gathers()
                receiver.exchange = await client.send(peer.origin, GET, receiver)
                await receiver.over.wait()
                assert receiver.body == b"hello world"
                assert receiver.packets[0] == 1
            assert peer.connections == 1
            client.close()

    run(story())


def test_loop_poller_is_used_without_epoll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll")
    loop = asyncio.new_event_loop()
    watcher: SocketPoller = make_poller(loop, gather=True)
    assert isinstance(watcher, LoopPoller)
    watcher.close()
    loop.close()
