"""Limit on the time for which a client may leave a response unread."""

import asyncio

UNREAD_S = 60.0
MIN_READ_BYTES = 64 * 1024
"""A client with an unread response must read that many bytes in `UNREAD_S`, or all of it; otherwise the connection is
aborted."""


class SlowReaderLimit:
    """Timer of one connection, which it aborts if the client reads too slowly."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unread_bytes = 0  # when the timer was set
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check the client's progress from now on, unless that has begun."""
        if self._timer is None:
            self._unread_bytes = self._transport.get_write_buffer_size()
            self._timer = self._loop.call_later(UNREAD_S, self._check)

    def stop(self) -> None:
        """Stop checking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() > self._unread_bytes - MIN_READ_BYTES:
            self._transport.abort()  # `close` would wait for the client to read
        else:
            self.start()
