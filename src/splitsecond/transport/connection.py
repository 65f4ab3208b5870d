"""One ready connection: idle, or carrying one exchange. Its read callback is where the product takes its times.

The strategy: the event loop (or a `Gatherer`) calls `_readable` when the socket has bytes (no transport, no stream, no
task between), one `recvmsg` takes them into a buffer shared by all connections, the kernel's stamp is turned into a
time, and the parser and the receiver are called on the spot. Nothing is copied until the parser cuts the body out, and
nothing runs later. With one token a read this is the cost of a token; whatever is rare (the head, the end, a failure,
an idle connection) leaves the path at one test.

A receiver may close its exchange from inside any call. So after each call that tells it something, `exchange` is
looked at again.

The reader stays registered while the connection is idle: a close or a stray byte drops it at once, before a request
could be lost on it.
"""

import asyncio
import re
import select
import socket
from typing import Protocol

from splitsecond import clock
from splitsecond.clock import NS_PER_S, arrival
from splitsecond.errors import NetworkFault, Phase
from splitsecond.transport.answer import Answer
from splitsecond.transport.exchange import Connected, Exchange, Origin
from splitsecond.transport.kernel import ANCILLARY_BYTES, STAMP, rtt_ns
from splitsecond.transport.tls import TlsSession
from splitsecond.transport.watching import Watching

READ_BYTES = 64 * 1024
"""Most bytes for one read. A merged read carries its last packet's time, so more would only blur it."""

RTT_LASTS_NS = NS_PER_S // 2
"""The kernel's round-trip time is an average over many packets: it is not asked for anew with each request."""

_unpack_stamp = STAMP.unpack
_TIMEOUT = re.compile(r"(?:^|[,;\s])timeout\s*=\s*(\d{1,6})", re.IGNORECASE)
_LAST_ONE = re.compile(r"(?:^|[,;\s])max\s*=\s*0+(?:$|[,;\s])", re.IGNORECASE)


class ReadBuffer:
    """Where reads go. One serves all connections of a loop: its content is used up before the callback returns."""

    __slots__ = ("targets", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(READ_BYTES))
        self.targets = [self.view]


class Home(Protocol):
    """Where a connection belongs: told when it is free for another exchange, and when it is gone."""

    def came_free(self, connection: "Connection") -> None: ...
    def gone(self, connection: "Connection") -> None: ...


class Connection:
    """A socket on which TCP, tunnel and TLS are done. `facts`: how it came to be, or that it was ready."""

    __slots__ = (
        "_answer",
        "_buffer",
        "_closed",
        "_head_told",
        "_home",
        "_last_at",
        "_look",
        "_loop",
        "_paused",
        "_recvmsg_into",
        "_rtt_ns",
        "_rtt_until_ns",
        "_send",
        "_sock",
        "_tls",
        "_unsent",
        "_watching",
        "_write_error",
        "_writing",
        "exchange",
        "facts",
        "idle_limit_s",
        "origin",
    )

    def __init__(
        self,
        sock: socket.socket,
        tls: TlsSession | None,
        *,
        origin: Origin,
        facts: Connected,
        home: Home,
        buffer: ReadBuffer,
        loop: asyncio.AbstractEventLoop,
        watching: Watching,
    ) -> None:
        self.origin, self.facts = origin, facts
        self.exchange: Exchange | None = None
        """What it carries; None: it is idle."""
        self.idle_limit_s: float | None = None
        """How long the peer keeps it when idle, by its Keep-Alive header; None: it did not say."""
        self._sock, self._tls, self._home, self._buffer, self._loop = sock, tls, home, buffer, loop
        self._watching = watching
        self._recvmsg_into, self._send = sock.recvmsg_into, sock.send
        look = select.poll()
        look.register(sock.fileno(), select.POLLIN)
        self._look = look.poll
        self._answer: Answer | None = None
        self._head_told = False
        self._last_at = self._rtt_until_ns = 0
        self._rtt_ns: int | None = None
        self._unsent: bytes | memoryview = b""
        self._write_error: OSError | None = None
        self._writing = self._paused = self._closed = False
        watching.watch(sock.fileno(), self._readable)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "idle" if self.exchange is None else "active"
        return f"<Connection {self.facts.id} to {self.origin} at {self.facts.peer}, {state}>"

    # For the client.

    def carry(self, exchange: Exchange, request: bytes, method: str, *, reused: bool) -> None:
        """Write `request`, and tell the exchange and its receiver of everything that comes of it."""
        self._answer = Answer(method) if self._answer is None else self._answer.followed_by(method)
        self.exchange, self._head_told = exchange, False
        self._unsent = request if self._tls is None else self._tls.sealed(request)
        if reused and not self.facts.reused:
            self.facts = Connected(self.facts.id, True, 0, 0, 0, self.facts.peer)
        self._last_at = clock.now_ns()
        exchange.enter(self, self.facts, self._last_at)
        self._write()

    def is_alive(self) -> bool:
        """Whether it can take a request. Reads what came since the loop last looked: it may be the peer's goodbye.

        Mostly nothing came. To ask first is cheaper than to be told so by an exception.
        """
        if not self._closed and self._look(0):
            self._readable()
        return not self._closed

    # For the exchange.

    def rtt_ns(self) -> int | None:
        if self._last_at >= self._rtt_until_ns:
            self._rtt_until_ns = self._last_at + RTT_LASTS_NS
            self._rtt_ns = rtt_ns(self._sock)
        return self._rtt_ns

    def pause(self) -> None:
        if not self._paused and not self._closed:
            self._paused = True
            self._watching.unwatch(self._sock.fileno())

    def resume(self) -> None:
        if self._paused and not self._closed:
            self._paused = False
            self._watching.watch(self._sock.fileno(), self._readable)

    def close(self) -> None:
        """Close the socket at once, without a word to the receiver. Again: nothing."""
        if self._closed:
            return
        self._closed = True
        self.exchange = None
        if self._answer is not None:
            self._answer.drop()
            self._answer = None
        self._watching.unwatch(self._sock.fileno())
        self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._home.gone(self)

    # Reading.

    def _readable(self) -> None:
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
            stamped = True
        else:
            at, lag, stamped = clock.now_ns(), 0, False
        if at < self._last_at:
            at, lag = self._last_at, max(lag - (self._last_at - at), 0)
        self._last_at = at
        if not count:
            self._stream_ended(at, clean=self._tls is None)
        elif self._tls is None:
            self._take(at, lag, stamped, buffer.view[:count])
        else:
            self._take_records(self._tls, at, lag, stamped, buffer.view[:count])

    def _take_records(self, tls: TlsSession, at: int, lag: int, stamped: bool, records: memoryview) -> None:
        plain = tls.opened(records)
        if reply := tls.pending():
            self._unsent = bytes(self._unsent) + reply
            self._write()
        if plain:
            self._take(at, lag, stamped, plain)
        if tls.broken is not None:
            self._lost(at, tls.broken)
        elif tls.finished:
            self._stream_ended(at, clean=True)

    def _take(self, at: int, lag: int, stamped: bool, data: bytes | memoryview) -> None:
        exchange, answer = self.exchange, self._answer
        if exchange is None or answer is None:
            self.close()  # idle: nobody asked for these bytes, so nobody knows what the next ones would answer
            return
        body = answer.feed(data)
        if answer.news:
            self._tell(exchange, answer, at, lag, stamped, body)
        elif body:
            exchange.receiver.body_received(at, lag, stamped, body)

    def _tell(self, exchange: Exchange, answer: Answer, at: int, lag: int, stamped: bool, body: bytes) -> None:
        """Say what a read brought, where that was more than another piece of the body."""
        answer.news = False
        receiver = exchange.receiver
        if answer.status and not self._head_told:
            self._head_told = True
            receiver.head_received(at, answer.status, answer.headers)
        if body and self.exchange is exchange:
            receiver.body_received(at, lag, stamped, body)
        if self.exchange is exchange and (answer.complete or answer.fault is not None):
            self._finish(exchange, answer, at)

    def _stream_ended(self, at: int, *, clean: bool) -> None:
        """The peer sends no more. `clean`: it said so; over TLS a bare end may be someone cutting in."""
        exchange, answer = self.exchange, self._answer
        if exchange is None or answer is None:
            self.close()
        elif answer.answered:
            answer.end_of_stream(clean=clean)
            self._tell(exchange, answer, at, 0, False, b"")
        elif self._write_error is not None:
            self._lost(at, self._write_error)
        else:
            answer.fail(
                NetworkFault(f"{self._name()} was closed before any answer", kind="closed", phase=self._phase(answer))
            )
            self._finish(exchange, answer, at)

    def _lost(self, at: int, error: OSError) -> None:
        exchange, answer = self.exchange, self._answer
        if exchange is None or answer is None:
            self.close()
            return
        kind = "reset" if isinstance(error, ConnectionError) else "tls" if self._tls else "unreachable"
        why = error.strerror or str(error)
        answer.fail(NetworkFault(f"{self._name()} broke: {why}", kind=kind, phase=self._phase(answer)))
        self._finish(exchange, answer, at)

    def _finish(self, exchange: Exchange, answer: Answer, at: int) -> None:
        """The exchange is over: decide what becomes of the connection, then let the exchange say so."""
        complete, answered = answer.complete, answer.answered
        fault = None if complete else answer.fault
        reusable = complete and answer.keep_alive and not answer.surplus and not self._unsent
        self.idle_limit_s = None
        hint = answer.headers.get("keep-alive")
        if hint:
            limit = _TIMEOUT.search(hint)
            self.idle_limit_s = int(limit[1]) if limit else None
            reusable = reusable and not _LAST_ONE.search(hint)
        exchange.leave()
        if reusable:
            self.exchange = None
            if self._paused:
                self.resume()
            self._home.came_free(self)
        else:
            self.close()
        exchange.over(at, fault, answered=answered)

    def _name(self) -> str:
        return f"the connection to {self.origin} ({self.facts.peer})"

    def _phase(self, answer: Answer) -> Phase:
        return "send" if self._unsent and not answer.answered else answer.phase

    # Writing.

    def _write(self) -> None:
        """Write what the socket takes, and come back for the rest.

        An error is kept, not told: a server may refuse a large request, close, and have its reason still lie in our
        socket. Reading finds that, or the end.
        """
        unsent = self._unsent
        try:
            sent = self._send(unsent)
            self._unsent = b"" if sent == len(unsent) else memoryview(unsent)[sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._write_error = error
        wanted = bool(self._unsent) and self._write_error is None
        if wanted != self._writing:
            self._writing = wanted
            if wanted:
                self._loop.add_writer(self._sock.fileno(), self._write)
            else:
                self._loop.remove_writer(self._sock.fileno())
