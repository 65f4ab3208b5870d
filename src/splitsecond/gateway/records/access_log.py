"""The access log: one line of JSON for each request, for tools that read log files.

A line is appended in one write when its call has ended, so several workers share a file, and a
process that is killed loses no line. A file that is renamed or removed, as by logrotate, is opened
anew within `CHECK_S`. The lines contain no prompt, no answer and no key.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from splitsecond.core import clock
from splitsecond.core.errors import file_faults
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.configuration.settings import STANDARD_OUTPUT

CHECK_S = 1.0
"""How often the file is checked for having been renamed."""
MODE = 0o600
"""Of a new file. An existing one keeps its mode."""
_LINE_END = ord("\n")


class AccessLine(Struct, frozen=True, kw_only=True):
    """One line. A request that was refused has its `path`, one that became a call its `route`."""

    time: str
    call: str
    client: str
    method: str = "POST"
    path: str | UnsetType = UNSET
    route: str = ""
    status: int
    outcome: str = "ok"
    fault: str = ""
    stream: bool = False
    target: str = ""
    attempts: int = 0
    cache: str = ""
    ms: float | None = None
    ttft_ms: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class AccessLog:
    def __init__(self, path: str, say: Callable[[str], None]) -> None:
        """Open the file at `path`, or standard output for "-". Raises `CallerFault` if it cannot be
        written."""
        self._path = None if path == STANDARD_OUTPUT else Path(path)
        self._say = say
        self._encoder = msgspec.json.Encoder()
        self._lost = 0  # lines since the last one that was written
        self._torn = False  # the file ends in a part of a line of this process
        with file_faults(f"the access log {path} cannot be written", kind="bad_config"):
            self._descriptor = os.dup(1) if self._path is None else _opened(self._path)
        self._check_ns = clock.now_ns() + int(CHECK_S * clock.NS_PER_S)

    def add(self, record: CallRecord) -> None:
        winner = next((each for each in reversed(record.attempts) if each.role == "winner"), None)
        first_ns = record.first_token_ns
        self._write(
            AccessLine(
                time=_now(),
                call=record.call,
                client=record.client,
                route=record.route,
                status=record.status,
                outcome=record.outcome,
                fault=record.fault,
                stream=record.stream,
                target=record.target,
                attempts=len(record.attempts),
                cache=record.cache,
                ms=_ms(record.end_ns - record.start_ns),
                ttft_ms=None if first_ns is None else _ms(first_ns - record.start_ns),
                input_tokens=None if winner is None else winner.input_tokens,
                output_tokens=None if winner is None else winner.output_tokens,
            )
        )

    def refused(
        self, *, call: str, client: str, method: str, path: str, status: int, fault: str
    ) -> None:
        self._write(
            AccessLine(
                time=_now(),
                call=call,
                client=client,
                method=method,
                path=path,
                status=status,
                outcome="refused",
                fault=fault,
            )
        )

    def close(self) -> None:
        self._report_lost()
        os.close(self._descriptor)

    def _write(self, line: AccessLine) -> None:
        try:
            if self._path is not None and clock.now_ns() >= self._check_ns:
                self._reopen(self._path)
            self._append(self._encoder.encode(line) + b"\n")
        except OSError as error:
            if not self._lost:
                self._say(
                    f"The access log cannot be written: {error.strerror}. Requests are served "
                    f"without it."
                )
            self._lost += 1
        else:
            self._report_lost()

    def _append(self, line: bytes) -> None:
        left = memoryview(b"\n" + line if self._torn else line)
        while left:
            written = os.write(self._descriptor, left)
            self._torn = left[written - 1] != _LINE_END
            left = left[written:]

    def _report_lost(self) -> None:
        if self._lost:
            self._say(f"Lines that the access log has lost: {self._lost:,}.")
            self._lost = 0

    def _reopen(self, path: Path) -> None:
        self._check_ns = clock.now_ns() + int(CHECK_S * clock.NS_PER_S)
        try:
            same = os.path.samestat(os.stat(path), os.fstat(self._descriptor))
        except FileNotFoundError:
            same = False
        if not same:
            opened = _opened(path)
            os.close(self._descriptor)
            self._descriptor, self._torn = opened, False


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)


def _now() -> str:
    return clock.wall_time().isoformat(timespec="milliseconds")


def _ms(ns: int) -> float:
    return round(ns / clock.NS_PER_MS, 3)
