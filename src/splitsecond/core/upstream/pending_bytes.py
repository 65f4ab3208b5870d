"""The bytes of an answer between the provider's socket and the caller who reads them.

A caller that is slower than the provider slows the provider down, so that memory stays bounded.
"""

from msgspec import Struct

from splitsecond.core.large_bodies import LARGE_BYTES, HeldAnswer
from splitsecond.core.transport.exchange import Exchange
from splitsecond.core.wire.sse import MAX_EVENT_BYTES

FULL_BYTES = 256 * 1024
"""Many seconds of an answer, at about 5 bytes a character and a hundred tokens a second."""
HELD_BYTES = 2 * MAX_EVENT_BYTES
"""The most bytes before the first token. An answer that is not streamed has its only token at its
end."""


class PendingBytes(Struct, eq=False):
    """Bytes of an answer that arrived and were not read yet: `size` of them, if possible at most
    `limit`.

    Nothing is read before the first token, so everything up to it is kept. After it a reader that
    is slower than the provider slows the provider down: above `limit` the socket is not read until
    the reader has taken everything. `paused`: the socket is not read now. `resumed_ns`: when
    reading was last resumed, 0 if never.
    """

    limit: int = FULL_BYTES
    size: int = 0
    paused: bool = False
    resumed_ns: int = 0
    _parts: list[bytes] = []
    _held: HeldAnswer | None = None  # of a large answer

    @property
    def full(self) -> bool:
        return self.size > self.limit

    def put(self, data: bytes) -> None:
        """Add bytes that arrived. Raises `Overloaded`: see `HeldAnswer`."""
        self._parts.append(data)
        self.size += len(data)
        if self.size > LARGE_BYTES:
            self._held = self._held or HeldAnswer()
            self._held.hold(self.size)

    def take(self) -> bytes:
        data = b"".join(self._parts)  # does not copy a single part
        self._parts.clear()
        self.size = 0
        self._held = None
        return data

    def pause(self, exchange: Exchange) -> None:
        if not self.paused:
            self.paused = True
            exchange.pause()

    def resume(self, exchange: Exchange, now_ns: int) -> None:
        self.paused = False
        self.resumed_ns = now_ns
        exchange.resume()
