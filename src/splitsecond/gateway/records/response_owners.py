"""Which target has stored a response, so that a request that continues it (``previous_response_id``) goes there.

All workers share one table in memory of a fixed size. Each entry holds the hash of a client and a response's id, and
the hash of the target's name; a new entry replaces the one in its place. An entry that is lost or half written is not
found, and then the route's policy chooses.
"""

import hashlib
import re
from collections.abc import Sequence

from splitsecond.gateway.records.shared_memory import create_memory, mapped

SLOTS = 65_536
"""Responses that are remembered."""
_HASH_BYTES = 8
_SLOT_BYTES = 2 * _HASH_BYTES
_ID = re.compile(rb'"id"\s{0,8}:\s{0,8}"(resp[^"\\]{1,200})"')


class ResponseOwners:
    """The table in shared memory. `memory`: the descriptor that `create` returned; None: memory of this process."""

    def __init__(self, memory: int | None = None) -> None:
        self._table = mapped(memory, SLOTS * _SLOT_BYTES)

    @staticmethod
    def create() -> int:
        """Return a descriptor of memory for the table, which child processes inherit."""
        return create_memory(SLOTS * _SLOT_BYTES)

    def note(self, client: str, answer: bytes, target: str) -> None:
        """Note that `target` has stored a response for `client`. Its id is the first in `answer`, its first bytes."""
        found = _ID.search(answer)
        if found is not None:
            key = _hash(client, found[1].decode("latin-1"))
            at = _place(key)
            self._table[at : at + _SLOT_BYTES] = key + _hash(target)

    def owner(self, client: str, response_id: str, targets: Sequence[str]) -> str | None:
        """Return which of `targets` has stored that response for `client`; None if it is not known."""
        key = _hash(client, response_id)
        at = _place(key)
        entry = bytes(self._table[at : at + _SLOT_BYTES])
        if entry[:_HASH_BYTES] != key:
            return None
        return next((target for target in targets if _hash(target) == entry[_HASH_BYTES:]), None)


def _hash(*texts: str) -> bytes:
    return hashlib.blake2b("\0".join(texts).encode(), digest_size=_HASH_BYTES).digest()


def _place(key: bytes) -> int:
    return int.from_bytes(key, "big") % SLOTS * _SLOT_BYTES
