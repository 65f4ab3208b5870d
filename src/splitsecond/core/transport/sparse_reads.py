"""Sparse reads: a stream that has begun is left unread for a while, and then one read takes several
packets.

With hundreds of streams, reading each packet by itself is most of what a measurement costs. The
packet clock knows the time of each packet however late it is read, so there sparse reads change no
figure. With the kernel's timestamps, all tokens of a read have the time of its last packet. TTFT,
TPS and E2E need only the first and the last token, whose reads are prompt; the gaps in between
(ITL) are not measured, and the observation says so.

Sparse reads must not slow down the server. The kernel acknowledges small packets when they are
read, or after 40 ms (Linux, TCP_DELACK_MIN). A server without TCP_NODELAY sends its next token only
after that. So each server has a trial: one of its streams is not read for the time of a few
packets. If they come although nothing was acknowledged, the server does not wait, and its streams
are read sparsely from then on. If they do not, its streams are read promptly.
"""

import socket
from collections.abc import Callable

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.transport.exchange import Origin, TimeLeft
from splitsecond.core.transport.kernel import packets_received

MIN_REST_NS = 50 * NS_PER_MS
REST_NS = 240 * NS_PER_MS
REST_BY_PACKETS_NS = 480 * NS_PER_MS
"""The longest time for which a stream is not read, by the kernel's timestamps and by the packet
clock."""
UNKNOWN_END_REST_NS = 120 * NS_PER_MS
"""The longest time for which a stream is not read that can end at any time."""
REST_PACKETS = 48
"""Packets for whose time a stream is not read, within these bounds."""
REST_BYTES = 32 * 1024
"""Bytes for whose time a stream is not read at most: half of the receive window of a new connection
(Linux, tcp_rmem). A server that fills the window has to wait."""
SLOWEST_GAP_NS = 20 * NS_PER_MS
"""Mean time between the packets of the slowest streams that are read sparsely. Slower ones cost
little anyway."""
OBSERVED_READS = 4
"""Prompt reads after the first token and before the first rest, from which the pace of a stream is
taken."""
READS_BEFORE_TRIAL = 24
"""The same before a trial. They outlast the 16 packets that Linux acknowledges at once when a
connection begins (TCP_MAX_QUICKACKS), during which no server would wait."""
TRIAL_PACKETS = 8
"""Packets for whose time a stream is not read in a trial."""
PASSED_PACKETS = 6
"""Packets of a trial that must come. A server that waits sends one every 40 ms, at most 5 in the
longest trial."""
MAX_REFUSALS = 3
"""Failed trials after which no further one follows: packets can also be late by chance."""

STREAMS_BY_PACKETS = 32
STREAMS_BY_READS = 100
"""The number of streams from which reads are sparse: by the packet clock, and by the kernel's
timestamps, with which they cost the ITL."""


class ServerTrial:
    __slots__ = ("_refusals", "_until_ns", "passed")

    def __init__(self) -> None:
        self.passed = False
        self._refusals = 0
        self._until_ns = 0

    def begin(self, now_ns: int) -> bool:
        if self._refusals >= MAX_REFUSALS or now_ns < self._until_ns:
            return False
        self._until_ns = now_ns + NS_PER_S  # in case its stream ends before that
        return True

    def end(self, packets: int) -> None:
        self._until_ns = 0
        if packets >= PASSED_PACKETS:
            self.passed = True
        else:
            self._refusals += 1


class ReadPace:
    __slots__ = (
        "_begun_ns",
        "_by_packets",
        "_bytes",
        "_packets",
        "_reads",
        "_rest_ns",
        "_sock",
        "_streams",
        "_time_left",
        "_trial",
        "_usual_rest_ns",
        "resting",
    )

    def __init__(
        self,
        sock: socket.socket,
        trial: ServerTrial,
        streams: Callable[[], int],
        time_left: TimeLeft,
        *,
        by_packets: bool,
    ) -> None:
        self._sock, self._trial, self._streams, self._time_left = sock, trial, streams, time_left
        self._by_packets = by_packets
        self._begun_ns = clock.now_ns()
        self._packets = self._bytes = self._rest_ns = self._usual_rest_ns = 0
        # the read of the first token, after which `rest_ns` is called too, ends no gap
        self._reads = -1
        self.resting = False
        """Whether reading the stream had paused before this read."""

    def rest_ns(self, size: int) -> int:
        if not self.resting:
            self._reads += 1
            self._bytes += size
            needed = OBSERVED_READS if self._trial.passed else READS_BEFORE_TRIAL
            return self._first_rest_ns() if self._reads >= needed else 0
        now_ns = clock.now_ns()
        rested_ns = now_ns - self._begun_ns
        on_time = rested_ns < 2 * self._rest_ns
        # else a deadline cut the trial short
        if not self._trial.passed and on_time and rested_ns >= self._rest_ns:
            self._trial.end(packets_received(self._sock) - self._packets)
        self._begun_ns = now_ns
        # otherwise the stream has paused, or its server waits
        self._rest_ns = self._bounded(self._usual_rest_ns) if on_time and self._trial.passed else 0
        if not self._rest_ns:
            self._reads, self._bytes, self.resting = 0, 0, False
        return self._rest_ns

    def _first_rest_ns(self) -> int:
        now_ns = clock.now_ns()
        passed_ns = now_ns - self._begun_ns
        gap_ns, full_ns = passed_ns // self._reads, passed_ns * REST_BYTES // self._bytes
        self._begun_ns, self._reads, self._bytes = now_ns, 0, 0
        if gap_ns > SLOWEST_GAP_NS or self._streams() < (
            STREAMS_BY_PACKETS if self._by_packets else STREAMS_BY_READS
        ):
            return 0
        most_ns = min(REST_BY_PACKETS_NS if self._by_packets else REST_NS, full_ns)
        self._usual_rest_ns = min(max(REST_PACKETS * gap_ns, MIN_REST_NS), most_ns)
        self._rest_ns = self._bounded(self._usual_rest_ns)
        if not self._trial.passed:
            trial_ns = TRIAL_PACKETS * gap_ns
            near_end = self._rest_ns < min(trial_ns, UNKNOWN_END_REST_NS)
            if near_end or not self._trial.begin(now_ns):
                return 0
            self._packets = packets_received(self._sock)
            self._rest_ns = trial_ns
        self.resting = self._rest_ns > 0
        return self._rest_ns

    def _bounded(self, rest_ns: int) -> int:
        """Return how long the stream can rest, at most `rest_ns`, in view of its expected end; 0:
        not at all.

        With the kernel's timestamps at most half of the time left, in case the stream becomes
        faster.
        """
        left_ns = self._time_left()
        if self._by_packets:
            return min(
                rest_ns, UNKNOWN_END_REST_NS if left_ns is None else max(left_ns, MIN_REST_NS)
            )
        if left_ns is None or left_ns < 2 * MIN_REST_NS:
            return 0
        return min(rest_ns, left_ns // 2)


class SparseReads:
    """The sparse reads of a client. `exact`: only where the packet clock gives the times, so that
    ITL stays exact."""

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._trials: dict[Origin, ServerTrial] = {}

    def pace(
        self,
        sock: socket.socket,
        origin: Origin,
        streams: Callable[[], int],
        time_left: TimeLeft,
        *,
        by_packets: bool,
    ) -> ReadPace | None:
        if self._exact and not by_packets:
            return None
        trial = self._trials.setdefault(origin, ServerTrial())
        return ReadPace(sock, trial, streams, time_left, by_packets=by_packets)
