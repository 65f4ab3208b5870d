"""The truth log: the planned and the actual times of each request, against which an instrument is
checked.

Memory is bounded by the number of timestamps: the oldest records are dropped first.
"""

from array import array
from collections import deque
from pathlib import Path
from typing import IO, Any

import msgspec

from splitsecond.core.errors import file_faults, say

MAX_STAMPS = 4_000_000
"""8 bytes each, so 32 MB: about 4,000 responses of 512 tokens."""


class TruthRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The truth about one request. All times are monotonic nanoseconds.

    `received_ns` is when the kernel received the last bytes of the request (0: the system has no
    such timestamps), and `arrived_ns` when the simulator began to read it. `in_flight` counts the
    requests in flight at its arrival, including itself. `began_ns` is when the provider began with
    the prompt, 0 if it never did. `planned_ns` holds when each token was due, `actual_ns` when each
    was handed to the kernel, read right before the write; tokens of one write have the same time.
    `first_written_ns` is when the write of the first one had returned (0: none was written). A
    response that was cut short has fewer of both; one that was buffered and never sent has none in
    `actual_ns`. `fault` is the kind of the fault that struck, or "". Of the `prompt_tokens`,
    `cached_tokens` were in the prompt cache, and `cache_write_tokens` were stored there because the
    client marked them; `new_tokens` were processed. `evicted_tokens` were dropped from the full
    cache when the prompt was stored. `preemptions`: how often the request lost its place in the
    engine's KV cache. `throttled_ns`: for how long the GPU's power limit slowed the engine down
    from the arrival to the end. `replica` (from 0) served the request, and `session` is the id of
    the client's session, or "".
    """

    request_id: str
    profile: str
    session: str = ""
    replica: int = 0
    in_flight: int
    received_ns: int = 0
    arrived_ns: int
    began_ns: int
    planned_ns: "array[int]"
    actual_ns: "array[int]"
    first_written_ns: int = 0
    prompt_tokens: int
    cached_tokens: int
    new_tokens: int = 0
    evicted_tokens: int = 0
    preemptions: int = 0
    throttled_ns: int = 0
    cache_write_tokens: int
    output_tokens: int
    fault: str
    ended_ns: int
    closed_by_client: bool


class TruthLog:
    """The records of one process, also appended to the file `log`. Raises `CallerFault` if it
    cannot be opened."""

    def __init__(self, log: Path | None = None, max_stamps: int = MAX_STAMPS) -> None:
        self._records: deque[TruthRecord] = deque()
        self._stamps = 0
        self._max_stamps = max_stamps
        self._file: IO[bytes] | None = None
        self._encoder = msgspec.json.Encoder(enc_hook=_stamps_as_list)
        if log is not None:
            with file_faults(f"cannot write the log {log}", kind="unwritable_log"):
                self._file = log.open("ab", buffering=0)

    def add(self, record: TruthRecord) -> None:
        self._records.append(record)
        self._stamps += _size(record)
        while self._stamps > self._max_stamps:
            self._stamps -= _size(self._records.popleft())
        if self._file is not None:
            try:
                self._file.write(self._encoder.encode(record) + b"\n")
            except OSError as error:
                say(f"the log of the simulator cannot be written any more: {error}")
                self.close()

    def records(self) -> list[TruthRecord]:
        return list(self._records)

    def as_json(self, profile: str) -> bytes:
        return self._encoder.encode(
            [record for record in self._records if record.profile == profile]
        )

    def clear(self, profile: str) -> None:
        self._records = deque(record for record in self._records if record.profile != profile)
        self._stamps = sum(map(_size, self._records))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _size(record: TruthRecord) -> int:
    return 1 + len(record.planned_ns) + len(record.actual_ns)


def _stamps_as_list(value: Any) -> Any:
    if isinstance(value, array):
        return value.tolist()
    raise NotImplementedError(f"cannot write {type(value)} to the log")
