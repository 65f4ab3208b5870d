"""Interface of the transport: `Origin`, `Request`, `Receiver` and the `Exchange` between them.

The response is pushed: the read callback itself calls the `Receiver`, so nothing waits in a queue
between the socket and the code that takes the times. The `Exchange` is the handle in the other
direction: pause, resume and close.

An exchange stays the same object when its request is sent again: a pooled connection may have been
closed by the server before any response, which is no failure of the provider.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from splitsecond.core.errors import CallerFault, Fault
from splitsecond.core.observation import ArrivalClock

DEFAULT_PORTS = {"http": 80, "https": 443}
_NOT_IN_HOST = re.compile(r"[^A-Za-z0-9._:%-]")
_NOT_IN_TARGET = re.compile(r"[^\x21-\x7e]")


class Origin(Struct, frozen=True):
    """Scheme, host and port. Requests with equal origins may share a connection."""

    scheme: str
    host: str
    port: int

    @staticmethod
    def parse(url: str) -> "tuple[Origin, str]":
        """Return the origin of `url`, and its path with the query. Raises `CallerFault` for an
        unusable URL."""
        try:
            parts = urlsplit(url.strip())
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError as error:
            raise _bad_url(url, str(error)) from error
        if parts.scheme not in DEFAULT_PORTS:
            raise _bad_url(url, f"got scheme {parts.scheme!r}, expected http or https")
        if not host:
            raise _bad_url(url, "it names no host")
        if match := _NOT_IN_HOST.search(host):
            raise _bad_url(url, f"a host cannot have {match.group()!r}")
        if parts.username is not None:
            raise CallerFault(
                f"the URL of {host} holds credentials",
                kind="bad_url",
                hint="Send them in an Authorization header.",
            )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        check_target(path)
        return Origin(
            parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port
        ), path

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


def check_target(path: str) -> None:
    """Raise `CallerFault` unless `path` can be a part of a request line."""
    if not path.startswith("/"):
        raise CallerFault(f"got the path {path!r}, expected one that begins with /", kind="bad_url")
    if match := _NOT_IN_TARGET.search(path):
        raise CallerFault(
            f"the path {path!r} holds {match.group()!r} at position {match.start()}",
            kind="bad_url",
            hint="Percent-encode it.",
        )


def _bad_url(url: str, why: str) -> CallerFault:
    return CallerFault(
        f"cannot use the URL {url!r}: {why}", kind="bad_url", hint="Try https://HOST/v1."
    )


class Request(Struct, frozen=True):
    """One HTTP request. The transport adds Host, Content-Length and Accept-Encoding.

    `headers` are shared with other requests and checked once for all of them; `fresh` are this
    request's own.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    fresh: tuple[tuple[str, str], ...] = ()


class Receiver(Protocol):
    """Receives a response as it arrives. Called from the read callback, in order; must not raise,
    and must be quick.

    `at` is the arrival of the read that completed the reported part, in monotonic nanoseconds. It
    never decreases on a connection, is never before the request was sent and never in the future.
    """

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        """Take the final status and headers: names in lower case, repeated ones joined with ",
        "."""
        ...

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        """Take the body bytes of one read, with chunking and compression undone.

        `source`: what `at` was taken from. `lag`: nanoseconds that the bytes lay in the kernel
        before the read, 0 if that is unknown.
        """
        ...

    def ended(self, at: int) -> None: ...

    def failed(self, at: int, fault: Fault) -> None: ...


TakePackets = Callable[[list[bytes], list[int], int], None]
"""Takes the body bytes of consecutive packets of one read, their arrivals, and the time of the
read. Like `Receiver.body_received`, it must not raise."""


TimeLeft = Callable[[], int | None]
"""Returns in how many ns the last token of a response is expected; None: that is unknown."""


class Connected(Struct, frozen=True):
    """Opening of a connection. Durations are nanoseconds, all 0 for a reused connection.

    `tcp_ns` includes opening a proxy's tunnel. `peer` is the address of the socket.
    """

    id: int
    reused: bool
    dns_ns: int
    tcp_ns: int
    tls_ns: int
    peer: str


class PooledConnection(Protocol):
    def rtt_ns(self) -> int | None: ...
    def packets_read(self) -> tuple[int, int]: ...
    def gather(self, time_left: TimeLeft) -> None: ...
    def read_resting(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Exchange(Struct, eq=False):
    """One request in flight. Exactly one of the receiver's `ended` and `failed` is called, neither
    after `close`.

    `connection`: the one that carries it; a new one after a resend. `resend` starts a task that
    sends the request again. `sent_ns`: the clock right before the first byte was written; that of
    the second sending if it was `resent`. `written_ns`: the clock when the kernel had taken the
    last byte, if it did not take all bytes at once; otherwise 0. By then all but
    `kernel.UNSENT_BYTES` had been sent, on systems that can limit them. `sparse`: several packets
    were read at once on purpose, without the packet clock (see `sparse_reads`). `take_packets`:
    takes several packets of the body at once in place of the receiver; None: the receiver gets
    each.
    """

    receiver: Receiver
    connection: Connected
    resend: "Callable[[Exchange], asyncio.Task[None]]"
    sent_ns: int = 0
    written_ns: int = 0
    resent: bool = False
    sparse: bool = False
    take_packets: "TakePackets | None" = None
    _pooled: PooledConnection | None = None
    _reconnect: asyncio.Task[None] | None = None
    _rtt_ns: int | None = None
    _paused: bool = False
    _finished: bool = False

    def rtt_ns(self) -> int | None:
        if self._pooled is not None:
            self._rtt_ns = self._pooled.rtt_ns()
        return self._rtt_ns

    def packets_read(self) -> tuple[int, int]:
        """Return how many packets brought the bytes of the current read, at least 1, and after
        which time they came.

        The time is 0 if it is unknown. Call this before `gather`.
        """
        return (1, 0) if self._pooled is None else self._pooled.packets_read()

    def gather(self, time_left: TimeLeft = lambda: None) -> None:
        """Read the rest of this response sparsely: its exact times matter less from now on.

        `time_left` is called before each pause in reading, because the time of the last token
        matters.
        """
        if self._pooled is not None:
            self._pooled.gather(time_left)

    def read_resting(self) -> None:
        """Read what the socket has, if reading pauses on purpose. Do not call this from the
        receiver."""
        if self._pooled is not None:
            self._pooled.read_resting()

    def pause(self) -> None:
        self._paused = True
        if self._pooled is not None:
            self._pooled.pause()

    def resume(self) -> None:
        """Read again. What arrived in the pause keeps its kernel time; the pause shows in its
        lag."""
        self._paused = False
        if self._pooled is not None:
            self._pooled.resume()

    def close(self) -> None:
        """Close the connection at once if the exchange has not ended. Does nothing after the
        end."""
        if self._finished:
            return
        self._finished = True
        self.take_packets = None
        if self._reconnect is not None:
            self._reconnect.cancel()
        if self._pooled is not None:
            pooled = self._pooled
            self.detach()
            pooled.close()

    # Called by the connection and the client:

    def attach(self, pooled: PooledConnection, connection: Connected, sent_ns: int) -> None:
        self._reconnect = None
        self._pooled, self.connection, self.sent_ns, self.written_ns = (
            pooled,
            connection,
            sent_ns,
            0,
        )
        if self._paused:
            pooled.pause()

    def detach(self) -> None:
        if self._pooled is not None:
            self._rtt_ns = self._pooled.rtt_ns()
            self._pooled = None

    def finish(self, at: int, fault: Fault | None, *, answered: bool) -> None:
        """End the exchange: completely, or with `fault`. `answered`: at least one byte of a
        response had come.

        A server may close an idle connection at the moment when we use it. If that may have
        happened (the connection was reused, and no byte of a response came), the request is sent
        again, once.
        """
        self._reconnect = None
        if self._finished:
            return
        if fault is not None and self.connection.reused and not answered and not self.resent:
            self.resent = True
            self._reconnect = self.resend(self)
            return
        self._finished = True
        self.take_packets = None
        if fault is None:
            self.receiver.ended(at)
        else:
            self.receiver.failed(at, fault)

    def abort(self, at: int, fault: Fault) -> None:
        if not self._finished:
            self.close()
            self.receiver.failed(at, fault)
