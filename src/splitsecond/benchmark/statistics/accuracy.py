"""Error of the instrument: our times compared with those that a server on the same machine reports.

All timestamps come from the same clock, so their difference is the error, including delivery
through the kernel's loopback. The true TTFT runs from when the server's kernel received the request
until right before the server wrote the first token. Ours is longer by an error on the send side
(stamped before it reached the server) and one on the receive side (stamped after it was written). A
long request takes time to leave, which is no error, but a part of TTFT; so here ours counts from
when the kernel had taken the last byte of the request.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from splitsecond.core.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from splitsecond.core.observation import LOAD_ROLES, Observation, PacketCounts
from splitsecond.core.timing.instrument import InstrumentReading, packet_counts
from splitsecond.core.wording import percent
from splitsecond.log.statistics.summary import Floats, Summary, summary_of

TRUSTED_TTFT_MS = 2.0
"""Largest p99 of the error of TTFT at which a load is trusted: 1% of the limit on TTFT of
translation (200 ms)."""
TRUSTED_TPOT_SHARE = 0.02
TRUSTED_PACE = 0.95
"""Least share of its tokens per second that the server must have sent: otherwise the load was a
lighter one."""

INTERRUPTED_NS = 500 * NS_PER_US
"""A write takes 10 to 30 µs, or some 200 if it wakes a process that runs at once. If it took longer
than this, the server did not run in between."""


class Accuracy(Struct, kw_only=True):
    """Error of the instrument with `streams` responses in flight. Errors are absolute values.

    `send_error_ms` and `receive_error_ms` are the parts of `ttft_error_ms`; the former is empty if
    the server's system has no receive timestamps. `token_error_ms`: of every token, without
    responses that were read sparsely. `cpu_ms_per_1000_tokens`: processor time that measuring took.
    `in_flight`: the most at once. `clock`: those that arrival times were taken from. `server_tps`:
    the median tokens/s of a stream, as the server sent them. `interrupted`: requests that look late
    because the server was interrupted in the write. `why_not`: why the load is not `trusted`.
    """

    streams: int
    requests: int
    failed: int
    tokens: int
    ttft_error_ms: Summary
    send_error_ms: Summary
    receive_error_ms: Summary
    token_error_ms: Summary
    tpot_error_share: Summary
    read_lag_ms: Summary
    cpu_ms_per_1000_tokens: float | None
    in_flight: int
    clock: str
    priority: str
    packets: PacketCounts
    interrupted: int
    server_tps: float | None = None
    trusted: bool
    why_not: str = ""


class ServerTruth(Struct, frozen=True):
    """A server's times of one request, in monotonic nanoseconds; the fields are those of the
    simulator's records.

    `received_ns`: when the kernel received the request (0: unknown). `actual_ns`: right before each
    token was written, `first_written_ns`: when the write of the first one had returned (0:
    unknown).
    """

    request_id: str
    received_ns: int
    actual_ns: Sequence[int]
    first_written_ns: int = 0

    def first_late_ns(self, seen_ns: int) -> tuple[int, bool]:
        """Return by how much `seen_ns` is later than the server wrote the first token, and whether
        that is uncertain.

        It is uncertain if the write took more than `INTERRUPTED_NS`. Then any time until it had
        returned counts as right.
        """
        late = seen_ns - self.actual_ns[0]
        if late <= INTERRUPTED_NS or self.first_written_ns - self.actual_ns[0] <= INTERRUPTED_NS:
            return late, False
        return max(seen_ns - self.first_written_ns, 0), True


class _Errors:
    """Absolute errors of the observations that were compared, in ms."""

    def __init__(self) -> None:
        self.compared: list[Observation] = []
        self.ttft: list[float] = []
        self.send: list[float] = []
        self.receive: list[float] = []
        self.token: list[Floats] = [np.empty(0)]
        self.tpot_share: list[float] = []
        self.server_tps: list[float] = []
        self.interrupted = 0

    @classmethod
    def of(cls, measured: Sequence[Observation], truth: Mapping[str, ServerTruth]) -> "_Errors":
        errors = cls()
        for o in measured:
            true = truth.get(o.id)
            if o.ok and true is not None and len(true.actual_ns) == len(o.token_at) > 1:
                errors.add(o, true)
        return errors

    def add(self, o: Observation, true: ServerTruth) -> None:
        self.compared.append(o)
        seen, sent = np.asarray(o.token_at), np.asarray(true.actual_ns)
        send = 0.0
        if true.received_ns and o.sent_ns is not None:
            send = (true.received_ns - max(o.sent_ns, o.written_ns or 0)) / NS_PER_MS
            self.send.append(abs(send))
        late_ns, uncertain = true.first_late_ns(o.token_at[0])
        self.interrupted += uncertain
        self.receive.append(abs(late_ns / NS_PER_MS))
        self.ttft.append(abs(late_ns / NS_PER_MS + send))
        if not o.sparse:
            self.token.append(np.abs((seen - sent) / NS_PER_MS))
        true_span = int(sent[-1] - sent[0])
        self.server_tps.append((len(sent) - 1) * NS_PER_S / true_span)
        self.tpot_share.append(abs(int(seen[-1] - seen[0]) - true_span) / true_span)


def accuracy(
    streams: int,
    observations: Sequence[Observation],
    truth: Mapping[str, ServerTruth],
    readings: Sequence[InstrumentReading],
    *,
    server_tps: float = 0.0,
) -> Accuracy:
    """Compare observations with the server's times. `truth` is by the id of an observation.
    `server_tps`: the tokens/s that each stream should have.

    Warm-ups are not compared, but their tokens count for the processor time, because the readings
    cover them too. An observation that is unknown to the server, or has another number of content
    events than tokens were sent, counts as failed: it cannot be compared, so it must not be
    trusted.
    """
    measured = [o for o in observations if o.role == "measured"]
    errors = _Errors.of(measured, truth)
    tokens = sum(len(o.token_at) for o in observations if o.role in LOAD_ROLES)
    cpu_ns = sum(reading.cpu_ns for reading in readings)
    result = Accuracy(
        streams=streams,
        requests=len(measured),
        failed=len(measured) - len(errors.compared),
        tokens=tokens,
        ttft_error_ms=summary_of(errors.ttft),
        send_error_ms=summary_of(errors.send),
        receive_error_ms=summary_of(errors.receive),
        token_error_ms=summary_of(np.concatenate(errors.token), independent=False),
        tpot_error_share=summary_of(errors.tpot_share),
        read_lag_ms=summary_of([o.lag_max_ns / NS_PER_MS for o in errors.compared]),
        cpu_ms_per_1000_tokens=cpu_ns / NS_PER_MS / tokens * 1000 if tokens and cpu_ns else None,
        in_flight=sum(reading.peak_in_flight for reading in readings),
        clock=", ".join(dict.fromkeys(o.clock for o in errors.compared)),
        priority=", ".join(
            dict.fromkeys(reading.priority for reading in readings if reading.priority)
        ),
        packets=packet_counts(readings),
        interrupted=errors.interrupted,
        server_tps=float(np.median(errors.server_tps)) if errors.server_tps else None,
        trusted=False,
    )
    result.why_not = _doubt(result, server_tps)
    result.trusted = not result.why_not
    return result


def _doubt(result: Accuracy, server_tps: float) -> str:
    ttft, pace = result.ttft_error_ms.p99, result.tpot_error_share.p99
    if ttft is None or pace is None:
        return "nothing could be compared"
    if result.failed:
        return f"{result.failed:,} of {result.requests:,} requests failed or cannot be compared"
    if result.in_flight < result.streams:
        return f"only {result.in_flight:,} of {result.streams:,} responses were in flight at once"
    sent = result.server_tps or 0.0
    if sent < TRUSTED_PACE * server_tps:
        return (
            f"the server sent {sent:.0f} of {server_tps:.0f} tokens/s, as this machine is too busy"
        )
    if ttft > TRUSTED_TTFT_MS:
        return f"the error of TTFT is {ttft:.2f} ms at p99 (allowed: {TRUSTED_TTFT_MS:g} ms)"
    if pace > TRUSTED_TPOT_SHARE:
        return (
            f"the error of TPOT is {percent(pace)} at p99 (allowed: {percent(TRUSTED_TPOT_SHARE)})"
        )
    return ""
