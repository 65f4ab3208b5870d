"""Bound on the bytes of large answers that this process holds: until they are complete, or for several readers.

The size of one answer is limited, but many calls at once, for embeddings for instance, can have large ones.
"""

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Overloaded

MAX_BYTES = 512 << 20
LARGE_BYTES = 1 << 20
"""An answer with fewer bytes need not be counted."""


class HeldAnswer:
    """The bytes of an answer that one object holds. They are released with the object."""

    __slots__ = ("_size",)
    _total = 0  # of all

    def __init__(self) -> None:
        self._size = 0

    def hold(self, size: int) -> None:
        """Hold `size` bytes in all. Raises `Overloaded` if all answers together take too much; then it holds none."""
        HeldAnswer._total += size - self._size
        self._size = size
        if HeldAnswer._total > MAX_BYTES:
            self.release()
            message = f"the answers that are held take more than {MAX_BYTES:,} bytes"
            raise Overloaded(message, hint="Request fewer large answers at once.", retry_after_ns=NS_PER_S)

    def release(self) -> None:
        HeldAnswer._total -= self._size
        self._size = 0

    def __del__(self) -> None:
        self.release()
