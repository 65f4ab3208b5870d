"""A connection that is idle or carries one exchange. Its read callback takes the arrival times.

The event loop (or a `BatchedPoller`) calls `_readable` when the socket has bytes: no asyncio
transport, stream or task between. One `recvmsg` reads into a buffer shared by all connections, the
kernel's stamp becomes a time, and the parser and the receiver run in the same callback. With one
token per read this is the cost of a token, so everything rare (headers, the end, a failure, an idle
connection) costs the common path one test each.

A receiver may close its exchange inside any call, so `exchange` is read again after each call to
it.

The reader stays registered while the connection is idle: a close or a stray byte closes it at once,
before a request could be lost on it.
"""

import asyncio
import contextlib
import re
import select
import socket
from typing import NamedTuple, Protocol

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S, arrival
from splitsecond.core.errors import NetworkFault, Phase
from splitsecond.core.observation import ArrivalClock
from splitsecond.core.transport.exchange import Connected, Exchange, Origin, TimeLeft
from splitsecond.core.transport.kernel import ANCILLARY_BYTES, STAMP, packets_received, rtt_ns
from splitsecond.core.transport.packets import PacketRing, key_of
from splitsecond.core.transport.polling import SocketPoller
from splitsecond.core.transport.response_parser import ResponseParser
from splitsecond.core.transport.sparse_reads import ReadPace, SparseReads
from splitsecond.core.transport.stream_times import StreamTimes, monotonic
from splitsecond.core.transport.tls import TlsSession

READ_BYTES = 64 * 1024
MSG_MORE = getattr(socket, "MSG_MORE", 0)
"""Most bytes of one read. A merged read has the time of its last packet, so a larger one would blur
the times."""

RTT_LASTS_NS = NS_PER_S // 2
"""How long a round-trip time is reused: the kernel's is an average over many packets."""

_unpack_stamp = STAMP.unpack
_TIMEOUT = re.compile(r"(?:^|[,;\s])timeout\s*=\s*(\d{1,6})", re.IGNORECASE)
_LAST_ONE = re.compile(r"(?:^|[,;\s])max\s*=\s*0+(?:$|[,;\s])", re.IGNORECASE)


class ReadBuffer:
    """Buffer for reads, shared by all connections of a loop: its content is used up before the
    callback returns."""

    __slots__ = ("targets", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))
        self.targets = [self.view]


class ReadContext(NamedTuple):
    """What all connections of a client read with.

    `arrival_clock`: the best clock for arrival times, `ring`: for "packets". `sparse`: decides
    which responses are read sparsely; None: none.
    """

    loop: asyncio.AbstractEventLoop
    poller: SocketPoller
    buffer: ReadBuffer
    arrival_clock: ArrivalClock = "kernel"
    ring: PacketRing | None = None
    sparse: SparseReads | None = None


class ConnectionOwner(Protocol):
    def released(self, connection: "HttpConnection") -> None: ...
    def closed(self, connection: "HttpConnection") -> None: ...


class HttpConnection:
    __slots__ = (
        "_buffer",
        "_closed",
        "_emptied_ns",
        "_gathering",
        "_head_reported",
        "_key",
        "_last_at",
        "_loop",
        "_owner",
        "_pace",
        "_packets",
        "_packets_read",
        "_parser",
        "_paused",
        "_poll",
        "_poller",
        "_recvmsg_into",
        "_ring",
        "_rtt_ns",
        "_rtt_until_ns",
        "_send",
        "_sock",
        "_sparse",
        "_timed",
        "_times",
        "_tls",
        "_unsent",
        "_write_error",
        "_writing",
        "exchange",
        "idle_limit_s",
        "info",
        "origin",
    )

    def __init__(
        self,
        sock: socket.socket,
        tls: TlsSession | None,
        *,
        origin: Origin,
        info: Connected,
        owner: ConnectionOwner,
        reading: ReadContext,
    ) -> None:
        self.origin, self.info = origin, info
        self.exchange: Exchange | None = None
        """The exchange in flight; None: the connection is idle."""
        self.idle_limit_s: float | None = None
        """How long the peer keeps it when idle, from its Keep-Alive header; None: not given."""
        self._sock, self._tls, self._owner = sock, tls, owner
        self._loop, self._poller, self._buffer = reading.loop, reading.poller, reading.buffer
        self._recvmsg_into, self._send = sock.recvmsg_into, sock.send
        read_poll = select.poll()
        read_poll.register(sock.fileno(), select.POLLIN)
        self._poll = read_poll.poll
        self._parser: ResponseParser | None = None
        self._head_reported = False
        self._last_at = self._rtt_until_ns = 0
        self._rtt_ns: int | None = None
        self._unsent: bytes | memoryview = b""
        self._write_error: OSError | None = None
        self._writing = self._paused = self._closed = self._gathering = False
        self._packets = self._packets_read = 0
        self._timed = reading.arrival_clock != "process"
        self._sparse = reading.sparse
        self._pace: ReadPace | None = None
        self._emptied_ns = 0  # when the pause in reading began that the current read ends
        self._ring, self._key = reading.ring, b""
        self._times: StreamTimes | None = None
        if (ring := reading.ring) is not None:
            # the peer has reset it already, which the first read reports
            with contextlib.suppress(OSError):
                self._key, self._times = key_of(sock), ring.claim(sock)
        self._poller.watch(sock.fileno(), self._readable)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "idle" if self.exchange is None else "active"
        return f"<HttpConnection {self.info.id} to {self.origin} at {self.info.peer}, {state}>"

    # For the client.

    def start(
        self, exchange: Exchange, request: bytes, method: str, *, reused: bool, body: bytes = b""
    ) -> None:
        """Write `request`, and a long `body` that follows it."""
        self._parser = (
            ResponseParser(method) if self._parser is None else self._parser.followed_by(method)
        )
        self.exchange, self._head_reported = exchange, False
        self._unsent = request if self._tls is None else self._tls.encrypt(request + body)
        if reused and not self.info.reused:
            self.info = Connected(self.info.id, True, 0, 0, 0, self.info.peer)
        if self._poller.gathers:
            self._packets = packets_received(self._sock)
            if self._gathering:
                self._gathering = False
                self._poller.watch(self._sock.fileno(), self._readable)
        self._last_at = clock.now_ns()
        exchange.attach(self, self.info, self._last_at)
        if body and self._tls is None:
            self._send_ahead(request, body)
        self._write()

    def _send_ahead(self, head: bytes, body: bytes) -> None:
        """Give the kernel the head, which waits there for the body. So the body need not be copied
        behind it."""
        sent = 0
        with contextlib.suppress(OSError):  # the write that follows meets the same one
            sent = self._send(head, MSG_MORE)
        self._unsent = body if sent == len(head) else head[sent:] + body

    def is_alive(self) -> bool:
        """Return whether it can carry a request. Reads what came since the last poll, which may be
        the peer's close.

        Usually nothing came, and polling first is cheaper than an exception.
        """
        if not self._closed and self._poll(0):
            self._readable()
        return not self._closed

    # For the exchange.

    def rtt_ns(self) -> int | None:
        if self._last_at >= self._rtt_until_ns:
            self._rtt_until_ns = self._last_at + RTT_LASTS_NS
            self._rtt_ns = rtt_ns(self._sock)
        return self._rtt_ns

    def packets_read(self) -> tuple[int, int]:
        if self._emptied_ns:
            return max(packets_received(self._sock) - self._packets, 1), self._emptied_ns
        return (1, 0) if self._gathering else (max(self._packets_read, 1), self._poller.looked_ns)

    def gather(self, time_left: TimeLeft) -> None:
        if self._poller.gathers and not (self._closed or self._paused or self._gathering):
            self._gathering = True
            self._poller.gather(self._sock.fileno())
            if self._sparse is not None and self._timed:
                self._pace = self._sparse.pace(
                    self._sock,
                    self.origin,
                    lambda: self._poller.gathered,
                    time_left,
                    by_packets=self._times is not None,
                )

    def read_resting(self) -> None:
        if self._emptied_ns and not (self._closed or self._paused):
            self._readable()

    def pause(self) -> None:
        if not self._paused and not self._closed:
            self._paused, self._gathering, self._pace = True, False, None
            self._poller.unwatch(self._sock.fileno())

    def resume(self) -> None:
        if self._paused and not self._closed:
            self._paused = False
            self._poller.watch(self._sock.fileno(), self._readable)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.exchange = self._pace = None
        if self._parser is not None:
            self._parser.drop()
            self._parser = None
        self._poller.unwatch(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        if self._ring is not None:
            self._ring.streams.release(self._key)
        self._sock.close()
        self._owner.closed(self)

    # Reading.

    def _readable(self) -> None:
        if self._times is not None and self._ring is not None:
            if self._times.arrived == self._times.read:
                self._ring.drain()  # a readable byte's packet is in the ring, unless it was lost
            if self._times.arrived > self._times.read:
                self._read_packets(self._times)
                return
        self._read()

    def _read_packets(self, times: StreamTimes) -> None:
        try:
            data = self._sock.recv(min(times.arrived - times.read, READ_BYTES))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(clock.now_ns(), error)
            return
        if not data:
            self._stream_ended(clock.now_ns(), clean=self._tls is None)
            return
        self._packets_read = 1
        sizes, arrivals = times.take(len(data))
        now = clock.now_ns()
        arrivals = monotonic(arrivals, self._last_at, now)
        if len(sizes) == 1:
            at = self._last_at = arrivals[0]
            self._dispatch(at, now - at, "packets", data)
        else:
            self._dispatch_packets(sizes, arrivals, now, data)
        if self._pace is not None:
            self._rest(self._pace, len(data))

    def _dispatch_packets(
        self, sizes: list[int], arrivals: list[int], now: int, data: bytes
    ) -> None:
        begin = taken = 0
        exchange, response = self.exchange, self._parser
        if (
            exchange is not None
            and response is not None
            and exchange.take_packets is not None
            and self._tls is None
        ):
            bodies = response.whole_chunks(data, sizes)
            if bodies is not None:
                self._last_at = arrivals[-1]
                exchange.take_packets(bodies, arrivals, now)
                return
            bodies, times = [], []
            body = piece = b""
            for size, at in zip(sizes, arrivals, strict=True):
                piece = data[begin : begin + size]
                body = response.feed(piece)
                begin += size
                taken += 1
                self._last_at = at
                if response.changed:
                    break
                if body:
                    bodies.append(body)
                    times.append(at)
            response.note_chunk(piece, body)
            if bodies:
                exchange.take_packets(bodies, times, now)
            if response.changed and self.exchange is exchange:
                self._report(
                    exchange, response, self._last_at, now - self._last_at, "packets", body
                )
        for size, arrived in zip(sizes[taken:], arrivals[taken:], strict=True):
            if self._closed:
                return
            at = self._last_at = min(max(arrived, self._last_at), now)
            self._dispatch(at, now - at, "packets", data[begin : begin + size])
            begin += size

    def _read(self) -> None:
        buffer = self._buffer
        try:
            count, ancillary, _, _ = self._recvmsg_into(buffer.targets, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(clock.now_ns(), error)
            return
        if ancillary:
            seconds, nanoseconds = _unpack_stamp(ancillary[0][2])
            at, lag = arrival(seconds * NS_PER_S + nanoseconds)
            source: ArrivalClock = "kernel"
            if not self._timed:
                at, source = at + lag, "process"
        else:
            at, lag, source = clock.now_ns(), 0, "process"
        if self._times is not None:
            self._skip_times(self._times, count, at)
        if self._poller.gathers and not self._gathering:
            packets = packets_received(self._sock)
            self._packets_read, self._packets = packets - self._packets, packets
        if at < self._last_at:
            at, lag = self._last_at, max(lag - (self._last_at - at), 0)
        self._last_at = at
        if not count:
            self._stream_ended(at, clean=self._tls is None)
        else:
            if self._emptied_ns and self.exchange is not None:
                self.exchange.sparse = True
            self._dispatch(at, lag, source, buffer.view[:count])
            if self._pace is not None or self._emptied_ns:
                self._rest(self._pace, count)

    def _skip_times(self, times: StreamTimes, count: int, at: int) -> None:
        if count and self._ring is not None:
            self._ring.streams.count_missed()
            times.skip(count, at)

    def _rest(self, pace: ReadPace | None, size: int) -> None:
        rested, self._emptied_ns = self._emptied_ns, 0
        if pace is not None and (rest_ns := pace.rest_ns(size)):
            self._emptied_ns = clock.now_ns()
            if self._times is None:
                self._packets = packets_received(self._sock)
            self._poller.rest(self._sock.fileno(), rest_ns)
        elif (
            rested and self._gathering and not self._closed
        ):  # else the poller has no socket that could rest
            self._poller.gather(self._sock.fileno())

    def _dispatch(self, at: int, lag: int, source: ArrivalClock, data: bytes | memoryview) -> None:
        if self._tls is None:
            self._take(at, lag, source, data)
        else:
            self._take_records(self._tls, at, lag, source, data)

    def _take_records(
        self, tls: TlsSession, at: int, lag: int, source: ArrivalClock, records: bytes | memoryview
    ) -> None:
        plain = tls.decrypt(records)
        if reply := tls.pending():
            self._unsent = bytes(self._unsent) + reply
            self._write()
        if plain:
            self._take(at, lag, source, plain)
        if tls.broken is not None:
            self._lost(at, tls.broken)
        elif tls.finished:
            self._stream_ended(at, clean=True)

    def _take(self, at: int, lag: int, source: ArrivalClock, data: bytes | memoryview) -> None:
        exchange, response = self.exchange, self._parser
        if exchange is None or response is None:
            # no request is in flight, so it is unknown which response the next bytes belong to
            self.close()
            return
        body = response.feed(data)
        if response.changed:
            self._report(exchange, response, at, lag, source, body)
        elif body:
            exchange.receiver.body_received(at, lag, source, body)

    def _report(
        self,
        exchange: Exchange,
        response: ResponseParser,
        at: int,
        lag: int,
        source: ArrivalClock,
        body: bytes,
    ) -> None:
        response.changed = False
        receiver = exchange.receiver
        if response.status and not self._head_reported:
            self._head_reported = True
            receiver.head_received(at, response.status, response.headers)
        if body and self.exchange is exchange:
            receiver.body_received(at, lag, source, body)
        if self.exchange is exchange and (response.complete or response.fault is not None):
            self._finish(exchange, response, at)

    def _stream_ended(self, at: int, *, clean: bool) -> None:
        """Handle the end of the stream. `clean`: the peer announced it; over TLS a bare end may be
        an attack."""
        exchange, response = self.exchange, self._parser
        if exchange is None or response is None:
            self.close()
        elif response.answered:
            response.end_of_stream(clean=clean)
            self._report(exchange, response, at, 0, "process", b"")
        elif self._write_error is not None:
            self._lost(at, self._write_error)
        else:
            response.fail(
                NetworkFault(
                    f"{self._name()} closed before any response",
                    kind="closed",
                    phase=self._phase(response),
                )
            )
            self._finish(exchange, response, at)

    def _lost(self, at: int, error: OSError) -> None:
        exchange, response = self.exchange, self._parser
        if exchange is None or response is None:
            self.close()
            return
        kind = (
            "reset" if isinstance(error, ConnectionError) else "tls" if self._tls else "unreachable"
        )
        why = error.strerror or str(error)
        response.fail(
            NetworkFault(f"{self._name()} broke: {why}", kind=kind, phase=self._phase(response))
        )
        self._finish(exchange, response, at)

    def _finish(self, exchange: Exchange, response: ResponseParser, at: int) -> None:
        complete, answered = response.complete, response.answered
        fault = None if complete else response.fault
        reusable = complete and response.keep_alive and not response.surplus and not self._unsent
        self.idle_limit_s = None
        hint = response.headers.get("keep-alive")
        if hint:
            limit = _TIMEOUT.search(hint)
            self.idle_limit_s = int(limit[1]) if limit else None
            reusable = reusable and not _LAST_ONE.search(hint)
        exchange.detach()
        self._pace, self._emptied_ns = None, 0
        if reusable:
            self.exchange = None
            if self._paused:
                self.resume()
            self._owner.released(self)
        else:
            self.close()
        exchange.finish(at, fault, answered=answered)

    def _name(self) -> str:
        return f"the connection to {self.origin} ({self.info.peer})"

    def _phase(self, response: ResponseParser) -> Phase:
        return "send" if self._unsent and not response.answered else response.phase

    # Writing.

    def _write(self) -> None:
        """Write as much as the socket takes, and register for the rest.

        A write error is kept for later: a server may refuse a large request and close while its
        response is still in our receive buffer. Reading finds that response, or the end.
        """
        unsent = self._unsent
        try:
            sent = self._send(unsent)
            self._unsent = b"" if sent == len(unsent) else memoryview(unsent)[sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._write_error = error
        has_rest = bool(self._unsent) and self._write_error is None
        if has_rest != self._writing:
            self._writing = has_rest
            if has_rest:
                self._loop.add_writer(self._sock.fileno(), self._write)
            else:
                self._loop.remove_writer(self._sock.fileno())
                if self.exchange is not None and self._write_error is None:
                    self.exchange.written_ns = clock.now_ns()
