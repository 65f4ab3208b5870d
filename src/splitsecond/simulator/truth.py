"""What each request was promised and what it got: the figures that an instrument is checked against.

A record is made when a request ends, kept in memory for ``GET /truth``, and written as a line of JSON where a log was
asked for. Memory is bounded by the number of time stamps: the oldest records leave first.
"""

import sys
from array import array
from collections import deque
from pathlib import Path
from typing import IO, Any

import msgspec

from splitsecond.errors import CallerFault

MAX_STAMPS = 4_000_000
"""Of 8 bytes each, so 32 MB: about 4,000 answers of 512 tokens."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One request. All times are monotonic nanoseconds.

    `in_flight` counts the requests being answered when it arrived, itself included. `began_ns` is when the provider
    began with its prompt, 0 where it never did. `planned_ns` holds when each
    token was due, `actual_ns` when each was handed to the kernel, taken right before the write; tokens that left
    together have the same. An answer that was cut short has fewer of both, one that was held back and never sent has
    none in `actual_ns`. `fault` is the kind of fault that struck, or "". Of the `prompt_tokens`, `cached_tokens` were
    in the provider's prompt cache, and `cache_write_tokens` were put there for a mark of the client's.
    """

    request_id: str
    profile: str
    in_flight: int
    arrived_ns: int
    began_ns: int
    planned_ns: "array[int]"
    actual_ns: "array[int]"
    prompt_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    fault: str
    ended_ns: int
    closed_by_client: bool


class Truth:
    """The records of one process. `log` is the file to append to, or None. Raises `CallerFault` if that fails."""

    def __init__(self, log: Path | None = None, max_stamps: int = MAX_STAMPS) -> None:
        self._kept: deque[Record] = deque()
        self._stamps = 0
        self._max_stamps = max_stamps
        self._file: IO[bytes] | None = None
        self._encoder = msgspec.json.Encoder(enc_hook=_stamps_as_list)
        if log is not None:
            try:
                self._file = log.open("ab", buffering=0)
            except OSError as error:
                raise CallerFault(
                    f"cannot write the log {log}: {error.strerror or error}", kind="unwritable_log"
                ) from error

    def keep(self, record: Record) -> None:
        """File a record. A log that cannot be written any more is said so on stderr, once, and given up."""
        self._kept.append(record)
        self._stamps += _size(record)
        while self._stamps > self._max_stamps:
            self._stamps -= _size(self._kept.popleft())
        if self._file is not None:
            try:
                self._file.write(self._encoder.encode(record) + b"\n")
            except OSError as error:
                print(f"splitsecond simulate: the log ends here: {error}", file=sys.stderr, flush=True)
                self.close()

    def kept(self) -> list[Record]:
        """The records that are still in memory, oldest first."""
        return list(self._kept)

    def as_json(self, profile: str) -> bytes:
        """Those of one profile, as a JSON list."""
        return self._encoder.encode([record for record in self._kept if record.profile == profile])

    def clear(self, profile: str) -> None:
        """Forget the records of one profile. The log keeps them."""
        self._kept = deque(record for record in self._kept if record.profile != profile)
        self._stamps = sum(map(_size, self._kept))

    def close(self) -> None:
        """Close the log."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _size(record: Record) -> int:
    return 1 + len(record.planned_ns) + len(record.actual_ns)


def _stamps_as_list(value: Any) -> Any:
    if isinstance(value, array):
        return value.tolist()
    raise NotImplementedError(f"cannot write {type(value)} to the log")
