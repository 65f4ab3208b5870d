"""The callbacks of a receiver, read by read, with the loop's part played by hand."""

import asyncio
import gzip
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transport.peers import HELLO, Recorder, chunked

from splitsecond.core import clock
from splitsecond.core.transport.connection import HttpConnection, ReadBuffer, ReadContext
from splitsecond.core.transport.exchange import Connected, Exchange, Origin
from splitsecond.core.transport.kernel import STAMP
from splitsecond.core.transport.polling import LoopPoller

TEXT = b"data: a token\n\n" * 5
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"
ANSWERS = {
    "sized": (HELLO, b"hello"),
    "chunked": (CHUNKED + b"\r\n" + chunked([b"one", b"two", b"three"]), b"onetwothree"),
    "interim": (b"HTTP/1.1 100 Continue\r\n\r\n" + HELLO, b"hello"),
    "gzip": (
        CHUNKED + b"Content-Encoding: gzip\r\n\r\n" + chunked([gzip.compress(TEXT, mtime=0)]),
        TEXT,
    ),
    "empty": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
}


class HandLoop:
    """An event loop that calls nothing by itself."""

    def __init__(self) -> None:
        self.readable: Callable[[], None] | None = None
        self.writable: Callable[[], None] | None = None

    def add_reader(self, _fd: int, callback: Callable[[], None]) -> None:
        self.readable = callback

    def remove_reader(self, _fd: int) -> None:
        self.readable = None

    def add_writer(self, _fd: int, callback: Callable[[], None]) -> None:
        self.writable = callback

    def remove_writer(self, _fd: int) -> None:
        self.writable = None


class RecordingOwner:
    """An owner that records its events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def released(self, connection: HttpConnection) -> None:
        self.events.append("released")

    def closed(self, connection: HttpConnection) -> None:
        self.events.append("closed")


class WiredConnection:
    """A connection that carries a request, the far end of its socket, and the receiver's
    callbacks."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        near.setblocking(False)
        self.far, self.loop, self.owner, self.receiver = (
            far,
            HandLoop(),
            RecordingOwner(),
            Recorder(),
        )
        info = Connected(1, False, 1, 2, 3, "here")
        loop = cast(asyncio.AbstractEventLoop, self.loop)
        self.connection = HttpConnection(
            near,
            None,
            origin=Origin("http", "test", 80),
            info=info,
            owner=self.owner,
            reading=ReadContext(loop, LoopPoller(loop), ReadBuffer()),
        )
        self.exchange = Exchange(
            self.receiver, info, lambda _: pytest.fail("nothing to send again")
        )
        self.connection.start(self.exchange, b"request", "POST", reused=False)
        assert far.recv(100) == b"request"

    def receive(self, data: bytes) -> None:
        self.far.sendall(data)
        self.turn()

    def turn(self) -> None:
        if self.loop.readable:
            self.loop.readable()


@contextmanager
def line() -> Iterator[WiredConnection]:
    near, far = socket.socketpair()
    with near, far:
        made = WiredConnection(near, far)
        yield made
        made.connection.close()


@pytest.mark.parametrize("room", [1, 1 << 20])
@pytest.mark.parametrize("waiting", [b"", b"x" * 1_000_000])
def test_long_body_follows_its_head_once(room: int, waiting: bytes) -> None:
    """`waiting`: bytes that the socket has not passed on yet, so that it may take no head, or a
    part of it."""
    head, body = b"POST / HTTP/1.1\r\n" + b"a" * 5_000, bytes(range(256)) * 2_000
    near, far = socket.socketpair()
    with near, far:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        it = WiredConnection(near, far)
        before = 0
        with suppress(BlockingIOError):
            while waiting:
                before += near.send(waiting)
        exchange = Exchange(
            it.receiver, it.connection.info, lambda _: pytest.fail("nothing to send again")
        )
        it.connection.start(exchange, head, "POST", reused=True, body=body)
        far.setblocking(False)
        received = b""
        while it.loop.writable or len(received) < before + len(head) + len(body):
            received += far.recv(1 << 20)
            if it.loop.writable:
                it.loop.writable()
        assert received[before:] == head + body
        it.connection.close()


def split(wire: bytes, cuts: list[int]) -> list[bytes]:
    bounds = sorted({0, len(wire), *(cut % len(wire) for cut in cuts)})
    return [wire[a:b] for a, b in pairwise(bounds)]


def joined(story: list[object]) -> list[object]:
    """The story with neighbouring pieces of body made one."""
    out: list[object] = []
    for entry in story:
        last = out[-1] if out else None
        if isinstance(entry, bytes) and isinstance(last, bytes):
            out[-1] = last + entry
        else:
            out.append(entry)
    return out


@given(name=st.sampled_from(sorted(ANSWERS)), cuts=st.lists(st.integers(0, 300), max_size=20))
def test_receiver_gets_the_same_for_any_split(name: str, cuts: list[int]) -> None:
    wire, body = ANSWERS[name]
    with line() as it:
        for piece in split(wire, cuts):
            it.receive(piece)
        assert joined(it.receiver.story) == [("head", 200), *([body] if body else []), "ended"]
        assert it.owner.events == ["released"]
        assert it.receiver.at == sorted(it.receiver.at)


@given(
    name=st.sampled_from(sorted(ANSWERS)),
    cut=st.integers(0, 300),
    cuts=st.lists(st.integers(0, 300), max_size=5),
)
def test_response_cut_anywhere_fails_and_never_hangs(name: str, cut: int, cuts: list[int]) -> None:
    wire, body = ANSWERS[name]
    cut %= len(wire)
    with line() as it:
        for piece in split(wire[:cut], cuts) if cut else []:
            it.receive(piece)
        it.far.close()
        it.turn()
        assert it.receiver.story[-1] == ("truncated" if cut else "closed")
        assert body.startswith(it.receiver.body)
        assert it.receiver.fault is not None
        assert it.receiver.fault.phase == (
            "between tokens" if ("head", 200) in it.receiver.story else "head"
        )
        assert it.owner.events == ["closed"]


@given(st.binary(max_size=200), st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n", CHUNKED + b"\r\n"]))
def test_random_bytes_end_the_exchange_once_and_raise_nothing(data: bytes, start: bytes) -> None:
    with line() as it:
        it.receive(start + data)
        it.far.close()
        it.turn()
        assert sum(entry == "ended" or isinstance(entry, str) for entry in it.receiver.story) == 1


def test_kernel_timestamps_become_monotonic_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's wall-clock stamp becomes a monotonic time; time never runs backwards, nor before
    the sending."""
    now = {"mono": 1_000, "wall": 50_000}
    with clock.using(lambda: now["mono"], lambda: now["wall"]), line() as it:
        stamps = iter([49_990, 50_080, 50_060])

        def recvmsg_into(
            targets: list[memoryview], _room: int
        ) -> tuple[int, list[tuple[int, int, bytes]], int, None]:
            data = next(pieces)
            targets[0][: len(data)] = data
            return len(data), [(1, 35, STAMP.pack(0, next(stamps)))], 0, None

        pieces = iter([HELLO[:-5], b"he", b"llo"])
        monkeypatch.setattr(it.connection, "_recvmsg_into", recvmsg_into)
        it.turn()  # stamped 10 ns before the request left: cannot be
        now.update(mono=1_100, wall=50_100)
        it.turn()
        it.turn()  # stamped earlier than the read before it: counts as arriving together with it
        assert it.receiver.at == [1_000, 1_080, 1_080, 1_080]
        assert it.receiver.late == [0, 0]
        assert it.receiver.clocks == ["kernel", "kernel"]


def test_read_without_a_timestamp_has_the_process_clock() -> None:
    with line() as it:
        it.receive(HELLO)
        assert it.receiver.clocks == ["process"]
        assert it.exchange.rtt_ns() is None


def test_stray_bytes_close_an_idle_connection() -> None:
    with line() as it:
        it.receive(HELLO)
        assert it.connection.is_alive()
        it.far.sendall(b"x")
        assert not it.connection.is_alive()
        assert it.owner.events == ["released", "closed"]


def test_repr_shows_the_state_of_the_connection() -> None:
    with line() as it:
        assert repr(it.connection) == "<HttpConnection 1 to http://test at here, active>"
        it.receive(HELLO)
        assert "idle" in repr(it.connection)
        it.connection.close()
        assert "closed" in repr(it.connection)
