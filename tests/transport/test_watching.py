"""Reading many connections in one go gives the same answers as reading each as it comes."""

import asyncio
import select
import socket
from collections.abc import Callable

import pytest
from tests.transport.conftest import Run
from tests.transport.peers import GET, Peer, Recorder, stay

from splitsecond import clock
from splitsecond.transport import Client
from splitsecond.transport.watching import GATHERS_FROM, MOST_NS, ByLoop, Gatherer, Watching, watching

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"


@pytest.mark.parametrize("gather", [True, False])
def test_a_socket_is_called_back_until_it_is_let_go(run: Run, gather: bool) -> None:
    async def story() -> None:
        watcher = watching(asyncio.get_running_loop(), gather=gather)
        assert isinstance(watcher, Gatherer if gather else ByLoop)
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


def test_one_callback_may_let_go_of_another(run: Run) -> None:
    async def story() -> None:
        gatherer = Gatherer(asyncio.get_running_loop())
        pairs = [socket.socketpair() for _ in range(2)]
        called: list[int] = []
        one_called = asyncio.Event()

        def let_go_of(other: int, me: int) -> Callable[[], None]:
            def readable() -> None:
                called.append(me)
                one_called.set()
                gatherer.unwatch(pairs[me][0].fileno())
                gatherer.unwatch(pairs[other][0].fileno())

            return readable

        for me, (near, far) in enumerate(pairs):
            gatherer.watch(near.fileno(), let_go_of(1 - me, me))
            far.send(b"x")
        await one_called.wait()
        assert len(called) == 1
        gatherer.close()
        gatherer.unwatch(pairs[0][0].fileno())
        for near, far in pairs:
            near.close()
            far.close()

    run(story())


def test_many_streams_are_gathered_and_whole(run: Run) -> None:
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


def test_without_epoll_the_loop_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(select, "epoll")
    loop = asyncio.new_event_loop()
    watcher: Watching = watching(loop, gather=True)
    assert isinstance(watcher, ByLoop)
    watcher.close()
    loop.close()


def test_blocking_lasts_until_the_moment_and_not_in_virtual_time() -> None:
    due_ns = clock.now_ns() + MOST_NS
    clock.block_until(due_ns)
    assert clock.now_ns() >= due_ns
    with clock.using(lambda: 0):
        clock.block_until(10**18)
