"""Limits on responses that clients leave unread: on the time, and on the bytes that all of them
hold together."""

import asyncio

UNREAD_S = 60.0
MIN_READ_BYTES = 64 * 1024
"""A client with an unread response must read that many bytes in `UNREAD_S`, or all of it; otherwise
the connection is aborted."""


MAX_UNREAD_BYTES = 256 << 20
"""Bytes of all responses of a process that their clients have not read. The kernel's buffers do not
count."""


class UnreadResponses:
    """The connections whose clients are behind with reading, each with what it holds.

    If all of them hold too much, those are aborted whose clients have been behind for the longest
    time: others read what they got in milliseconds.
    """

    def __init__(self) -> None:
        self._held: dict[asyncio.Transport, int] = {}  # by the time at which the client fell behind
        self._bytes = 0

    def add(self, transport: asyncio.Transport) -> None:
        self.remove(transport)
        self._held[transport] = size = transport.get_write_buffer_size()
        self._bytes += size
        while self._bytes > MAX_UNREAD_BYTES:
            longest = next(iter(self._held))
            self.remove(longest)
            longest.abort()

    def remove(self, transport: asyncio.Transport) -> None:
        self._bytes -= self._held.pop(transport, 0)


class SlowReaderLimit:
    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unread_bytes = 0  # when the timer was set
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._timer is None:
            self._unread_bytes = self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(UNREAD_S, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() > self._unread_bytes - MIN_READ_BYTES:
            self._transport.abort()  # `close` would wait for the client to read
        else:
            self.start()
