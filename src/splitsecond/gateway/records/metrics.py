"""Counters of the gateway for `/metrics`: plain dictionaries while it serves, merged over all
workers when read.

Clients cannot make up labels: a route is counted by its name, and a call whose client named a
target as "direct". Targets of routes have their own counts, and so have the first `MAX_TARGETS`
others; the rest are counted as `OTHER`.

Workers share a port, and one of them answers `/metrics`. Each worker sends its counters to the hub,
one second after the first change since the last time, so the answer covers all workers and is at
most a second old for the others. A worker that replaces another inherits its counts, so they
remain; its gauges (requests in flight, memory) do not.
"""

import asyncio
import os
import resource
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from splitsecond.core import clock, internal_errors
from splitsecond.core.errors import printable
from splitsecond.core.money.closed_early import Billing, attempt_cost
from splitsecond.core.observation import Observation
from splitsecond.core.upstream.prompt_size import USUAL_OUTPUT_TOKENS
from splitsecond.gateway.records.extra_attempts import extra_attempts
from splitsecond.gateway.records.metric_fields import MetricCounts, ProcessMetrics
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.hub_connection import HubConnection

MAX_TARGETS = 1000
OTHER = "other"
"""The label of all targets without counts of their own. It is no target's name, because those
contain a slash."""
SEND_S = 1.0
ASK_S = 1.0
"""How long `/metrics` waits for the metrics of other workers. Without them it has those of one
worker."""


class LogState(Struct, frozen=True):
    """Records that the log has lost, records that wait for it, and whether they wait because it
    cannot be written."""

    dropped: int = 0
    waiting: int = 0
    failing: bool = False


class WorkerMetrics(Struct, frozen=True, tag=True):
    """Metrics of one process. `process`: None: it has ended, or its gauges are of no interest."""

    process: ProcessMetrics | None
    counts: MetricCounts


class AskMetrics(Struct, frozen=True, tag=True):
    """Question of a worker to the hub: the metrics of all other processes."""


class AllMetrics(Struct, frozen=True, tag=True):
    others: list[WorkerMetrics]


class Inherited(Struct, frozen=True, tag=True):
    """Counts of the dead worker that a new one replaces."""

    counts: MetricCounts


class Metrics:
    """The counters of one process.

    `available` tells which targets are used; `cascades` returns the share of answers that escalate
    and whether only the large model is used, by policy; `log` gives the state of the log; `missing`
    counts the calls that are not in the journal. `hub` connects it to the other workers; None:
    there are none. `hedged` returns the targets that a route may send hedges to, None if they are
    not known.
    """

    def __init__(
        self,
        *,
        hub: HubConnection | None = None,
        available: Callable[[], dict[str, bool]] = dict,
        cascades: Callable[[], Mapping[str, tuple[float, bool]]] = dict,
        log: Callable[[], LogState] = lambda: LogState(),
        missing: Callable[[], int] = lambda: 0,
        billing: Billing | None = None,
        hedged: Callable[[str], Collection[str] | None] = lambda route: None,
    ) -> None:
        self.counts = MetricCounts(internal_errors=internal_errors.counts)
        self.in_flight = 0
        self._hub = hub
        self._asking: asyncio.Future[list[WorkerMetrics]] | None = None
        self._available = available
        self._cascades = cascades
        self._log = log
        self._missing = missing
        self._billing = billing or Billing()
        self._hedged = hedged
        self._timer: asyncio.TimerHandle | None = None
        self._targets: dict[str, str] = {}
        self._began_ns = clock.now_ns()
        if hub is not None:
            hub.handlers[AllMetrics] = self._answered
            hub.handlers[Inherited] = self._inherit
            hub.on_open.append(self.changed)
            hub.on_lost.append(self.changed)

    def add(self, record: CallRecord) -> None:
        counts = self.counts
        route = record.route_label
        counts.requests[route, record.client, record.status] += 1
        if record.cache:
            counts.cached[route, record.cache] += 1
        streamed, attempts = True, record.attempts
        if len(attempts) > 1:
            for kind, won in extra_attempts(record, hedged=self._hedged(record.route)):
                counts.extra[route, kind, "won" if won else "lost"] += 1
        for attempt in attempts:
            streamed = streamed and attempt.streamed
            self._count_attempt(attempt, route, record)
        if streamed and record.first_token_ns is not None:
            counts.route_ttft[route].add(record.first_token_ns - record.start_ns)
        self.changed()

    def refused(self, status: int, client: str = "") -> None:
        self.counts.requests["", client, status] += 1
        self.changed()

    def changed(self) -> None:
        if self._timer is None and self._hub is not None:
            self._timer = asyncio.get_running_loop().call_later(SEND_S, self._send)

    async def others(self) -> list[WorkerMetrics]:
        """Return the metrics of the other processes of this gateway; none if the hub does not
        answer."""
        if self._hub is None:
            return []
        if self._asking is None:
            if not self._hub.post(AskMetrics()):
                return []
            self._asking = asyncio.get_running_loop().create_future()
        asking = self._asking
        await asyncio.wait([asking], timeout=ASK_S)
        if self._asking is asking:
            self._asking = None
        return asking.result() if asking.done() else []

    def collected(
        self, others: Iterable[WorkerMetrics] = ()
    ) -> tuple[MetricCounts, list[ProcessMetrics]]:
        merged, processes = MetricCounts(), [self._process()]
        merged.merge(self.counts)
        for each in others:
            merged.merge(each.counts)
            if each.process is not None:
                processes.append(each.process)
        return merged, processes

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._hub = None

    def _count_attempt(self, attempt: Observation, route: str, record: CallRecord) -> None:
        counts = self.counts
        target = self._targets.get(attempt.target) or self._known(attempt.target)
        fault = attempt.fault
        counts.attempts[route, target, attempt.outcome, "" if fault is None else fault.kind] += 1
        if attempt.streamed and (ttft_ns := attempt.ttft_ns) is not None:
            counts.target_ttft[target].add(ttft_ns)
        if attempt.input_tokens:
            counts.tokens[target, "input"] += attempt.input_tokens
        if attempt.output_tokens:
            counts.tokens[target, "output"] += attempt.output_tokens
        for name in attempt.odd_fields:
            counts.odd_fields[target, name] += 1
        if attempt.role == "loser" and record.target and attempt.outcome == "cancelled":
            usd = self._lost(attempt, target, record)
        else:
            usd = self._billing.usd(attempt)
        if usd:
            counts.cost_usd[record.client, target] += usd

    def _lost(self, attempt: Observation, target: str, record: CallRecord) -> float | None:
        counts = self.counts
        counts.lost[target] += 1
        if attempt.sent_ns is None:
            return None
        usd = attempt_cost(
            attempt,
            record.attempts,
            self._billing,
            usual_tokens=USUAL_OUTPUT_TOKENS,
            output_limit=record.output_limit,
        )
        if usd is None:
            return None
        counts.lost_usd[target] += usd.expected
        counts.lost_low_usd[target] += usd.low
        counts.lost_high_usd[target] += usd.high
        return usd.expected

    def _known(self, target: str) -> str:
        if len(self._targets) >= MAX_TARGETS and target not in self._available():
            return OTHER
        label = self._targets[target] = printable(target)
        return label

    def _send(self) -> None:
        self._timer = None
        if self._hub is None:
            return
        process = self._process()
        sent = self._hub.post(WorkerMetrics(process, self.counts))
        if not sent or process.waiting or process.failing:  # these change without further requests
            self.changed()

    def _answered(self, answer: AllMetrics) -> None:
        if self._asking is not None and not self._asking.done():
            self._asking.set_result(answer.others)

    def _inherit(self, inherited: Inherited) -> None:
        self.counts.merge(inherited.counts)

    def _process(self) -> ProcessMetrics:
        log, cascades = self._log(), self._cascades()
        return process_metrics(
            in_flight=self.in_flight,
            dropped=log.dropped,
            waiting=log.waiting,
            failing=int(log.failing),
            journal_missing=self._missing(),
            available=self._available(),
            escalated={policy: share for policy, (share, _) in cascades.items()},
            dearer={policy: dearer for policy, (_, dearer) in cascades.items()},
            began_ns=self._began_ns,
        )


def process_metrics(**gauges: Any) -> ProcessMetrics:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessMetrics(
        pid=os.getpid(),
        cpu_s=usage.ru_utime + usage.ru_stime,
        resident_bytes=_resident_bytes(usage.ru_maxrss),
        **gauges,
    )


def _resident_bytes(most: int) -> int:
    """Return the memory in use; if the system does not tell, the maximum so far (`most`, in the
    system's unit)."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()
