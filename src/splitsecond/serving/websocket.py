"""A client's WebSocket, and its messages as requests.

The library `websockets` checks the handshake and parses and writes the frames, without I/O of its own; the bytes
pass through the connection of `serving`. Pings and the closing handshake are answered at once, also while the
application is busy.

Memory for one client is bounded: a message and the messages that wait have `max_bytes` each, nothing is read while the
client leaves answers to its pings unread, and very small frames are counted. A message must arrive within `MESSAGE_S`,
and a client that is silent for `SILENT_S`, although it is pinged, counts as gone.
"""

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any

from websockets.datastructures import Headers as HandshakeHeaders
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.serving.request_cycle import ClientLeft, Headers, RequestCycle

TICK_S = 10.0
"""How often a WebSocket is checked for what is overdue."""
PING_S = 30.0
"""Silence of the client after which it is pinged."""
SILENT_S = 300.0
"""Silence of the client after which the connection is closed. Some clients answer pings only while they wait."""
MESSAGE_S = 60.0
"""How long a client may take to send a message, from its first byte on."""
CLOSE_S = 10.0
"""How long a client may take to answer the end of the WebSocket."""
MAX_WAITING = 64
"""How many messages may wait for the application."""
SMALL_BYTES = 1024
MAX_SMALL_FRAMES = 1000
"""How many frames of up to `SMALL_BYTES` a client may send in `TICK_S`. One takes some 6 µs, as long as 10 KB in a long
frame."""
_SLICE_BYTES = 16 * 1024
"""Bytes that are parsed before the frames in them are counted."""
_HANDSHAKE = (b"connection", b"upgrade", b"sec-websocket-key", b"sec-websocket-version")
_JSON = {b"content-type": b"application/json"}


def upgrade_to(protocol: bytes) -> Headers:
    """Return the headers that name the protocol to use, which every response with status 426 must have (RFC 9110)."""
    return ((b"upgrade", protocol), (b"connection", b"upgrade"))


class WebSocket:
    """The WebSocket that the request in `cycle` asks for.

    Raises `CallerFault` if the request is not a valid handshake; otherwise it is accepted.
    """

    def __init__(self, cycle: RequestCycle, max_bytes: int) -> None:
        headers = HandshakeHeaders()
        for name in _HANDSHAKE:
            if name in cycle.headers:
                headers[name.decode()] = cycle.headers[name].decode("latin-1")
        response = ServerProtocol().accept(Request(cycle.path, headers))
        if response.status_code != HTTPStatus.SWITCHING_PROTOCOLS:
            why = (response.body or b"").decode().partition("\n")[0]
            if response.status_code == HTTPStatus.UPGRADE_REQUIRED:
                cycle.extra = [*cycle.extra, *upgrade_to(b"websocket")]
            raise CallerFault(why.rstrip("."), kind="invalid_handshake", status=response.status_code)
        if not cycle.connection.can_switch:
            raise CallerFault("a WebSocket's handshake is HTTP/1.1 and has no body", kind="invalid_handshake")
        self._connection: Any = cycle.connection
        self._loop = asyncio.get_running_loop()
        self._protocol = ServerProtocol(state=State.OPEN, max_size=max_bytes)
        self._max_bytes = max_bytes
        self._part = bytearray()  # the beginning of the message that is arriving
        self._part_since: float | None = None  # the time at which the message began to arrive
        self._messages: deque[bytes] = deque()
        self._message_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ending = self._released = False
        self._small_frames = 0
        self._heard_at = self._loop.time()
        answer = [(n.lower().encode(), v.encode()) for n, v in response.headers.raw_items() if n.lower() != "date"]
        cycle.switch(answer, self)
        self._timer = self._loop.call_later(TICK_S, self._tick)

    @property
    def open(self) -> bool:
        """Whether messages can be sent."""
        return self._protocol.state is State.OPEN

    # Called by the application.

    async def message(self) -> bytes | None:
        """Return the next message, or None if the server shuts down."""
        while not self._messages and not self._ending:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if self._ending:
            return None
        message = self._messages.popleft()
        self._message_bytes -= len(message)
        return message

    async def send(self, *texts: bytes) -> None:
        """Send messages as soon as the client has read enough of the previous ones."""
        if self._connection.write_paused:
            await self._connection.drain()  # the connection aborts itself if the client does not read
        if not self.open:
            raise ClientLeft
        for text in texts:
            self._protocol.send_text(text)
        self._flush()

    async def end(self, code: CloseCode, reason: str = "") -> None:
        """Close the WebSocket, and wait for the client to do so for up to `CLOSE_S`."""
        if self.open:
            self._protocol.send_close(code, reason)
            self._flush()
            await asyncio.sleep(CLOSE_S)  # cancelled when the connection is lost

    def release(self) -> None:
        """Release what is kept, because the application is done with the WebSocket."""
        self._timer.cancel()
        self._released = True
        self._protocol.parser.close()  # it and the protocol refer to each other, with all that has arrived

    # Called by the connection.

    def receive(self, data: bytes) -> None:
        """Parse what the client has sent."""
        if self._released:
            return
        self._heard_at = self._loop.time()
        for start in range(0, len(data), _SLICE_BYTES):
            self._protocol.receive_data(data[start : start + _SLICE_BYTES])
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame):
                    self._take(frame)
            if not self.open:
                break
        if not (self._part or self._protocol.reader.buffer):
            self._part_since = None
        elif self._part_since is None:
            self._part_since = self._heard_at
        self._flush()
        if self._connection.write_paused:
            self._connection.pause_reading()

    def shut_down(self) -> None:
        """End after the message that the application works on, because the server shuts down."""
        self._ending = True
        self._wake()

    def _take(self, frame: Frame) -> None:
        if len(frame.data) <= SMALL_BYTES:
            self._small_frames += 1
            if self._small_frames > MAX_SMALL_FRAMES:
                return self._fail(CloseCode.POLICY_VIOLATION, "too many small frames")
        if frame.opcode is Opcode.BINARY:
            return self._fail(CloseCode.UNSUPPORTED_DATA, "send text messages")
        if frame.opcode in (Opcode.TEXT, Opcode.CONT):
            self._part += frame.data
            if frame.fin:
                message, self._part, self._part_since = bytes(self._part), bytearray(), None
                self._add(message)
        return None

    def _add(self, message: bytes) -> None:
        if self._messages and self._message_bytes + len(message) > self._max_bytes:
            return self._fail(CloseCode.MESSAGE_TOO_BIG, f"more than {self._max_bytes:,} bytes wait for answers")
        if len(self._messages) >= MAX_WAITING:
            return self._fail(CloseCode.POLICY_VIOLATION, f"more than {MAX_WAITING} messages wait for answers")
        self._messages.append(message)
        self._message_bytes += len(message)
        return self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, code: CloseCode, reason: str) -> None:
        if self.open:
            self._protocol.fail(code, reason)

    def _flush(self) -> None:
        """Write what the protocol has to send, and close the connection at the end of the closing handshake."""
        writes = self._protocol.data_to_send()
        if data := b"".join(writes):
            if self._connection.transport.is_closing():
                return
            self._connection.transport.write(data)
        if SEND_EOF in writes:
            self._connection.close()

    def _tick(self) -> None:
        """Ping a client that is silent, and close the connection if something is overdue."""
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self._small_frames = 0
        now = self._loop.time()
        if not self.open:
            return
        if self._part_since is not None and now - self._part_since > MESSAGE_S:
            self._fail(CloseCode.POLICY_VIOLATION, f"the message did not arrive within {MESSAGE_S:.0f} s")
        elif now - self._heard_at >= SILENT_S:
            self._fail(CloseCode.GOING_AWAY, f"silent for {SILENT_S:.0f} s")
        elif now - self._heard_at >= PING_S:
            self._protocol.send_ping(b"")
        self._flush()


class MessageCycle(RequestCycle):
    """A message of a WebSocket as a request, with the headers of the handshake in `upgrade`.

    A subclass returns the body and sends the response: `body`, `begin`, `send` and `refuse`.
    """

    def __init__(self, upgrade: RequestCycle) -> None:
        super().__init__(
            upgrade.connection,
            "POST",
            (upgrade.path, upgrade.query),
            {**upgrade.headers, **_JSON},
            arrived_ns=clock.now_ns(),
            http_1_1=True,
            keep_alive=True,
        )
        self.start_ns = self.arrived_ns
        self.client = upgrade.client

    @property
    def ready(self) -> bool:
        """False, because a message is sent as a whole, when the client has read the one before."""
        return False

    def lost(self) -> None:
        """Note that the client has disconnected."""
        self._break_off()
