"""Bound on the bytes of request bodies that this process holds, while they arrive and until their
calls have ended.

The size of one body is limited, but a client can send many at once, and leave them unfinished. So
the bodies of one client may take half of the memory that all of them may take.
"""

from collections import Counter

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Overloaded
from splitsecond.core.serving.request_cycle import RequestCycle

MAX_BYTES = 512 << 20
MAX_OF_CLIENT = MAX_BYTES // 2
_RETRY_NS = NS_PER_S
_HINT = "Send fewer large requests at once."


class HeldBodies:
    def __init__(self) -> None:
        self._by_client: Counter[str] = Counter()

    def take(self, cycle: RequestCycle, size: int) -> None:
        """Hold `size` bytes more for a request. Raises `Overloaded` if its client, or all clients,
        hold too much."""
        client = cycle.client
        if client and self._by_client[client] + size > MAX_OF_CLIENT:
            raise _full(
                f"the bodies of this key's requests take more than {MAX_OF_CLIENT:,} bytes", 429
            )
        if self._by_client.total() + size > MAX_BYTES:
            raise _full(f"the bodies of all requests take more than {MAX_BYTES:,} bytes", 503)
        self._by_client[client] += size
        cycle.held_bytes += size

    def release(self, cycle: RequestCycle) -> None:
        self._by_client[cycle.client] -= cycle.held_bytes
        cycle.held_bytes = 0
        if not self._by_client[cycle.client]:
            del self._by_client[cycle.client]


def _full(message: str, status: int) -> Overloaded:
    return Overloaded(message, hint=_HINT, retry_after_ns=_RETRY_NS, status=status)
