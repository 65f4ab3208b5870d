"""Counters of the gateway, for `/metrics`: plain dictionaries while it serves, merged and put into words when read.

A call is counted once, when it is over, from the same record that goes into the log. Labels that clients could make up
are not taken: a route is counted by its name, a target that a client named itself as "direct", and of targets only the
first `MOST_TARGETS` each have their own counts.

Where several processes share the port, one of them is asked. Each writes its counters to a file in a folder of theirs,
a second after the first change since the last time, so the answer adds up all, at most a second old for the others. The
counts of a process that is gone stay; what only holds while it lives (requests under way, memory) does not.
"""

import asyncio
import os
import resource
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from splitsecond import clock
from splitsecond.clock import NS_PER_S
from splitsecond.store.served import Served
from splitsecond.timing.observation import Observation

MOST_TARGETS = 1000
BUCKETS_S = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
"""Bounds of the histograms: close together where times to first token are compared, from a fast one's to a time-out."""
WRITE_S = 1.0
_SUFFIX = ".counts"


class Histogram(Struct):
    """How many were up to each of `BUCKETS_S`, beyond all of them, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0

    def add(self, ns: int) -> None:
        """One more."""
        seconds = ns / NS_PER_S
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds

    def merge(self, other: "Histogram") -> None:
        """All of `other` too."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total_s += other.total_s


class Process(Struct, frozen=True):
    """What one process uses: `cpu_s` since it began, `resident_bytes` of memory; `in_flight` requests.

    `began_ns`: when it did, on the clock that all processes of a machine share.
    `cascades`: of each, by how it is written, the share that escalates, and whether it steps aside as it is dearer.
    """

    pid: int
    cpu_s: float
    resident_bytes: int
    in_flight: int
    dropped: int
    available: dict[str, bool]
    cascades: dict[str, tuple[float, bool]] = {}
    began_ns: int = 0


def _numbers() -> Any:
    return field(default_factory=lambda: defaultdict(int))


def _histograms() -> Any:
    return field(default_factory=lambda: defaultdict(Histogram))


class Counts(Struct):
    """What is counted; keys are the labels. `lost`: attempts that another was faster than, by target.

    `cost_usd`: of all attempts whose price is known, by client and target; `lost_usd`: of those that lost, by target.
    """

    requests: dict[tuple[str, str, int], int] = _numbers()
    attempts: dict[tuple[str, str, str, str], int] = _numbers()
    """By route, target, how it ended, and the kind of its fault."""
    lost: dict[str, int] = _numbers()
    lost_usd: dict[str, float] = _numbers()
    cached: dict[tuple[str, str], int] = _numbers()
    input_tokens: dict[str, int] = _numbers()
    output_tokens: dict[str, int] = _numbers()
    cost_usd: dict[tuple[str, str], float] = _numbers()
    target_ttft: dict[str, Histogram] = _histograms()
    route_ttft: dict[str, Histogram] = _histograms()

    def merge(self, other: "Counts") -> None:
        """All of `other` too."""
        for name in (
            "requests", "attempts", "lost", "lost_usd", "cached", "input_tokens", "output_tokens", "cost_usd",
        ):  # fmt: skip
            mine = getattr(self, name)
            for label, number in getattr(other, name).items():
                mine[label] += number
        for name in ("target_ttft", "route_ttft"):
            mine = getattr(self, name)
            for label, histogram in getattr(other, name).items():
                mine[label].merge(histogram)


class _File(Struct):
    process: Process
    counts: Counts


class Metrics:
    """The counters of one process. `folder`: where those that share the port leave theirs; None: it is alone.

    `available`: of each target, whether it is asked. `cascades`: see `Process`. `dropped`: how many records the log has
    lost. `cost`: what an attempt cost in US dollars, None where that is not known.
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        available: Callable[[], Mapping[str, bool]] | None = None,
        cascades: Callable[[], Mapping[str, tuple[float, bool]]] | None = None,
        dropped: Callable[[], int] | None = None,
        cost: Callable[[Observation], float | None] | None = None,
    ) -> None:
        self.counts = Counts()
        self.in_flight = 0
        self._folder = folder
        self._available = available
        self._cascades = cascades
        self._dropped = dropped
        self._cost = cost
        self._timer: asyncio.TimerHandle | None = None
        self._targets: dict[str, str] = {}
        self._began_ns = clock.now_ns()

    def took(self, record: Served) -> None:
        """A call is over."""
        counts = self.counts
        client = record.client
        route = "direct" if "/" in record.route else record.route
        counts.requests[route, client, record.status] += 1
        if record.cache:
            counts.cached[route, record.cache] += 1
        if record.first_token_ns is not None:
            counts.route_ttft[route].add(record.first_token_ns - record.start_ns)
        for attempt in record.attempts:
            target = self._targets.get(attempt.target) or self._known(attempt.target)
            fault = attempt.fault
            counts.attempts[route, target, attempt.outcome, "" if fault is None else fault.kind] += 1
            if attempt.role == "loser" and record.target and attempt.outcome == "cancelled":
                self._lost(attempt, target, record)
            if (ttft_ns := attempt.ttft_ns) is not None:
                counts.target_ttft[target].add(ttft_ns)
            if attempt.input_tokens:
                counts.input_tokens[target] += attempt.input_tokens
            if attempt.output_tokens:
                counts.output_tokens[target] += attempt.output_tokens
            if self._cost is not None and (usd := self._cost(attempt)):
                counts.cost_usd[client, target] += usd
        if self._folder is not None:
            self._changed()

    def refused(self, status: int, client: str = "") -> None:
        """A request was answered that became no call: a wrong key, a wrong path, a limit."""
        self.counts.requests["", client, status] += 1
        self._changed()

    def collected(self) -> tuple[Counts, list[Process]]:
        """What all processes have counted, and those that live."""
        merged, processes = Counts(), [self._process()]
        merged.merge(self.counts)
        for path in self._folder.glob(f"*{_SUFFIX}") if self._folder is not None else ():
            if path.stem != str(os.getpid()) and (file := _read(path)) is not None:
                merged.merge(file.counts)
                if _lives(file.process.pid):
                    processes.append(file.process)
        return merged, processes

    def close(self) -> None:
        """Leaves the counts for those that go on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._write()

    def _lost(self, attempt: Observation, target: str, record: Served) -> None:
        """Another was faster. Where it was closed before its tokens were counted to us, it is billed for its prompt,
        which is as long as the winner's."""
        counts = self.counts
        counts.lost[target] += 1
        if self._cost is None or attempt.sent_ns is None:
            return
        usd = self._cost(attempt)
        if usd is None:
            prompt = attempt.input_tokens
            if prompt is None:
                prompt = next((each.input_tokens for each in record.attempts if each.role == "winner"), None)
            billed = msgspec.structs.replace(attempt, input_tokens=prompt, output_tokens=attempt.output_tokens or 0)
            if (usd := self._cost(billed)) is None:
                return
            counts.cost_usd[record.client, target] += usd
        counts.lost_usd[target] += usd

    def _known(self, target: str) -> str:
        """The label of a target."""
        if len(self._targets) >= MOST_TARGETS:
            return "other"
        self._targets[target] = target
        return target

    def _changed(self) -> None:
        if self._timer is None and self._folder is not None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_S, self._write)

    def _write(self) -> None:
        self._timer = None
        if self._folder is None:
            return
        data = msgspec.msgpack.encode(_File(self._process(), self.counts))
        path = self._folder / f"{os.getpid()}{_SUFFIX}"
        part = path.with_suffix(".part")
        try:
            part.write_bytes(data)
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)  # a full disk: the next second's counts hold these too

    def _process(self) -> Process:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return Process(
            pid=os.getpid(),
            cpu_s=usage.ru_utime + usage.ru_stime,
            resident_bytes=_resident_bytes(usage.ru_maxrss),
            in_flight=self.in_flight,
            dropped=self._dropped() if self._dropped is not None else 0,
            available=dict(self._available()) if self._available is not None else {},
            cascades=dict(self._cascades()) if self._cascades is not None else {},
            began_ns=self._began_ns,
        )


def _read(path: Path) -> _File | None:
    """What another process has left. None: it is of another version, or just going."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.MsgspecError):
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _resident_bytes(most: int) -> int:
    """Memory in use; where the system does not say, the most that ever was (`most`, in the system's own unit)."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()
