"""The bytes of an answer that have come and have not been read yet.

Nobody reads before the first token: what came until then is kept whole. After it a reader that is slower than the
provider holds the provider back: above `FULL_BYTES` the socket is not read until the reader has taken everything.
"""

from msgspec import Struct

from splitsecond.transport.exchange import Exchange
from splitsecond.wire.sse import MAX_EVENT_BYTES

FULL_BYTES = 256 * 1024
"""At the usual 5 bytes a character and some hundred tokens a second, many seconds of an answer."""
HELD_BYTES = 2 * MAX_EVENT_BYTES
"""The most that may come before the first token. An answer that is not streamed has its only token at its end."""


class Unread(Struct, eq=False):
    """`size` bytes, at best `most`. `held`: the provider is held back now; `released_ns`: until when, 0 if never."""

    most: int = FULL_BYTES
    size: int = 0
    held: bool = False
    released_ns: int = 0
    _parts: list[bytes] = []

    @property
    def full(self) -> bool:
        """More is not to be read for now."""
        return self.size > self.most

    def put(self, data: bytes) -> None:
        """Add what came."""
        if data:
            self._parts.append(data)
            self.size += len(data)

    def take(self) -> bytes:
        """All of it."""
        data = b"".join(self._parts)  # of one it makes no copy
        self._parts.clear()
        self.size = 0
        return data

    def hold(self, exchange: Exchange) -> None:
        """Stop reading the provider's socket."""
        if not self.held:
            self.held = True
            exchange.pause()

    def release(self, exchange: Exchange, now_ns: int) -> None:
        """Read it again."""
        self.held = False
        self.released_ns = now_ns
        exchange.resume()
