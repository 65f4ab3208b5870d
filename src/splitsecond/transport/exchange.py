"""What passes between the transport and who uses it: where to (Origin), what (Request), and the answer as it arrives.

The answer is pushed, not pulled: a `Receiver` is called from the read callback itself, so nothing waits in a queue
between the socket and whoever takes the time. An `Exchange` is the handle on the way back, and the only thing that
flows backwards through it is holding (pause, resume) and closing.

An exchange stays the same object when its request is sent a second time: a connection from the pool may turn out to
have died before anything was answered, which is no fault of the provider. The rule for that lives here (`over`).
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from splitsecond.errors import CallerFault, Fault

DEFAULT_PORTS = {"http": 80, "https": 443}
_NOT_IN_TARGET = re.compile(r"[^\x21-\x7e]")


class Origin(Struct, frozen=True):
    """Where requests go. Two requests with equal origins may share a connection."""

    scheme: str
    host: str
    port: int

    @staticmethod
    def parse(url: str) -> "tuple[Origin, str]":
        """The origin of `url`, and the path with its query. Raises `CallerFault` where the URL cannot be used."""
        try:
            parts = urlsplit(url.strip())
            host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        except ValueError as error:
            raise _bad_url(url, str(error)) from error
        if parts.scheme not in DEFAULT_PORTS:
            raise _bad_url(url, f"got scheme {parts.scheme!r}, expected http or https")
        if not host:
            raise _bad_url(url, "it names no host")
        if parts.username is not None:
            raise CallerFault(
                f"the URL of {host} holds credentials", kind="bad_url", hint="Send them in an Authorization header."
            )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        check_target(path)
        return Origin(parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port), path

    @property
    def authority(self) -> str:
        """Host and port as a Host header says them: no default port, brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"


def check_target(path: str) -> None:
    """Raise `CallerFault` unless `path` can stand in a request line."""
    if not path.startswith("/"):
        raise CallerFault(f"got the path {path!r}, expected one that begins with /", kind="bad_url")
    if found := _NOT_IN_TARGET.search(path):
        raise CallerFault(
            f"the path {path!r} holds {found.group()!r} at position {found.start()}",
            kind="bad_url",
            hint="Percent-encode it.",
        )


def _bad_url(url: str, why: str) -> CallerFault:
    return CallerFault(f"cannot use the URL {url!r}: {why}", kind="bad_url", hint="Try https://HOST/v1.")


class Request(Struct, frozen=True):
    """One request. The transport adds Host, Content-Length and Accept-Encoding.

    `headers` are those that other requests have too, and are checked once for all of them; `fresh` its own.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    fresh: tuple[tuple[str, str], ...] = ()


class Receiver(Protocol):
    """Takes an answer as it arrives. Called from the read callback, in order; must not raise, and must be quick.

    `at` is the arrival of the read that completed what is told, in monotonic nanoseconds; it never runs backwards
    on a connection and is never before the request was sent or after now.
    """

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        """The final status line and headers: names in lower case, repeated ones joined with ", "."""
        ...

    def body_received(self, at: int, lag: int, kernel_time: bool, data: bytes) -> None:
        """All body bytes that one read of the socket completed, with chunking and compression undone.

        `lag`: nanoseconds that they lay in the kernel before we looked. `kernel_time`: `at` is the kernel's own
        stamp; otherwise the clock right after the read, and `lag` is unknown (0).
        """
        ...

    def ended(self, at: int) -> None:
        """The whole body has arrived. Nothing follows."""
        ...

    def failed(self, at: int, fault: Fault) -> None:
        """The answer will not come whole. Nothing follows."""
        ...


class Connected(Struct, frozen=True):
    """The connection that carries an exchange. Durations are nanoseconds, all 0 when it came ready from the pool.

    `tcp_ns` includes opening the tunnel where a proxy stands between. `peer` is the address we are connected to.
    """

    id: int
    reused: bool
    dns_ns: int
    tcp_ns: int
    tls_ns: int
    peer: str


class Line(Protocol):
    """What an exchange needs of the connection that carries it."""

    def rtt_ns(self) -> int | None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


class Exchange(Struct, eq=False):
    """One request under way. Exactly one of the receiver's `ended` and `failed` is called, neither after `close`.

    `connection`: that which carries it; another one once it was re-sent. `again` sends it once more, which is a task.
    `sent_ns`: the clock right before the first byte was written; of the second sending if it was `resent`.
    """

    receiver: Receiver
    connection: Connected
    again: "Callable[[Exchange], asyncio.Task[None]]"
    sent_ns: int = 0
    resent: bool = False
    _line: Line | None = None
    _redial: asyncio.Task[None] | None = None
    _rtt_ns: int | None = None
    _paused: bool = False
    _over: bool = False

    def rtt_ns(self) -> int | None:
        """The kernel's smoothed round-trip time of the connection, as of now or of the exchange's end; None: unknown.

        Through a proxy it is the round trip to the proxy.
        """
        if self._line is not None:
            self._rtt_ns = self._line.rtt_ns()
        return self._rtt_ns

    def pause(self) -> None:
        """Stop reading the socket; the kernel's buffer fills and the sender is held back."""
        self._paused = True
        if self._line is not None:
            self._line.pause()

    def resume(self) -> None:
        """Read again. What arrived meanwhile keeps its kernel time, and its lag shows the pause."""
        self._paused = False
        if self._line is not None:
            self._line.resume()

    def close(self) -> None:
        """Done with it. Before the end this closes the connection at once; after the end it does nothing."""
        if self._over:
            return
        self._over = True
        if self._redial is not None:
            self._redial.cancel()
        if self._line is not None:
            line = self._line
            self.leave()
            line.close()

    # From here on: for the connection and the client.

    def enter(self, line: Line, connection: Connected, sent_ns: int) -> None:
        """The request has been written to `line`."""
        self._redial = None
        self._line, self.connection, self.sent_ns = line, connection, sent_ns
        if self._paused:
            line.pause()

    def leave(self) -> None:
        """The line is about to be given back or closed."""
        if self._line is not None:
            self._rtt_ns = self._line.rtt_ns()
            self._line = None

    def over(self, at: int, fault: Fault | None, *, answered: bool) -> None:
        """The line has ended: well, or with `fault`. `answered`: at least one byte of an answer had come.

        A server may close an idle connection at the very moment at which we use it. Where that may be what happened
        (the connection was reused, and nothing was answered) the request goes out again, once.
        """
        self._redial = None
        if self._over:
            return
        if fault is not None and self.connection.reused and not answered and not self.resent:
            self.resent = True
            self._redial = self.again(self)
            return
        self._over = True
        if fault is None:
            self.receiver.ended(at)
        else:
            self.receiver.failed(at, fault)

    def abandon(self, at: int, fault: Fault) -> None:
        """Close it, and say why to a receiver that still waits."""
        if not self._over:
            self.close()
            self.receiver.failed(at, fault)
