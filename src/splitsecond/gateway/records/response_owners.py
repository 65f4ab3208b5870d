"""Which client a stored response belongs to, and which target has stored it.

A request that continues a response (``previous_response_id``) goes to the target that has it, and
is refused if the response is another client's. The same holds for conversations, and the items of a
response are refused as well. An id belongs to the first client that got an answer with it.

Each entry holds the hashes of an id, of its client and of the target's name, and the session of the
call; a new entry replaces the one in its place. An id whose entry is lost or half written is not
known, and then the route's policy chooses.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from splitsecond.gateway.records.shared_memory import create_memory, mapped

SLOTS = 131_072
"""Ids that are remembered. A response has one, and each of its items."""
_HASH_BYTES = 8
_SLOT_BYTES = 4 * _HASH_BYTES
_NOBODY = bytes(_HASH_BYTES)
"""Stands for the client of a gateway without keys."""
_NO_SESSION = _NOBODY.hex()


class ResponseOwners:
    """The table in shared memory. `memory`: the descriptor that `create` returned; None: memory of
    this process."""

    def __init__(self, memory: int | None = None) -> None:
        self._table = mapped(memory, SLOTS * _SLOT_BYTES)

    @staticmethod
    def create() -> int:
        return create_memory(SLOTS * _SLOT_BYTES)

    def note(self, client: str, identity: str, target: str, session: str = "") -> None:
        """Note the client and the target of an id, and the session of the call (a hash in
        hexadecimal digits)."""
        key = _hash(identity)
        if not self.is_of_another(client, identity):
            at = _place(key)
            self._table[at : at + _SLOT_BYTES] = (
                key
                + _of_client(client)
                + _of_target(target)
                + bytes.fromhex(session or _NO_SESSION)
            )

    def is_of_another(self, client: str, identity: str) -> bool:
        owner = self._entry(identity)[:_HASH_BYTES]
        return _NOBODY not in (owner, _of_client(client)) and owner not in (b"", _of_client(client))

    def target(self, identity: str, targets: Sequence[str]) -> str | None:
        stored = self._entry(identity)[_HASH_BYTES : 2 * _HASH_BYTES]
        return next((target for target in targets if _of_target(target) == stored), None)

    def session(self, identity: str) -> str:
        """Return the session of the call whose answer has this id; "" if it is not known."""
        session = self._entry(identity)[2 * _HASH_BYTES :].hex()
        return "" if session == _NO_SESSION else session

    def _entry(self, identity: str) -> bytes:
        key = _hash(identity)
        at = _place(key)
        entry = bytes(self._table[at : at + _SLOT_BYTES])
        return entry[_HASH_BYTES:] if entry.startswith(key) else b""


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=_HASH_BYTES).digest()


_of_target = lru_cache(maxsize=256)(_hash)


@lru_cache(maxsize=256)
def _of_client(name: str) -> bytes:
    return _hash(name) if name else _NOBODY


def _place(key: bytes) -> int:
    return int.from_bytes(key, "big") % SLOTS * _SLOT_BYTES
