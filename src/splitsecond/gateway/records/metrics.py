"""Counters of the gateway for `/metrics`: plain dictionaries while it serves, merged over all
workers when read.

`MetricCounts` and `ProcessMetrics` are the list of all metrics: each field declares the name, help
and labels that `/metrics` shows. Adding a metric is adding a field, and the line that counts it.

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
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from msgspec import Struct, field

from splitsecond.core import clock, internal_errors
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import printable
from splitsecond.core.money.closed_early import Billing, attempt_cost
from splitsecond.core.observation import Observation
from splitsecond.core.upstream.prompt_size import USUAL_OUTPUT_TOKENS
from splitsecond.gateway.records.extra_attempts import extra_attempts
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.hub_connection import HubConnection

MAX_TARGETS = 1000
OTHER = "other"
"""The label of all targets without counts of their own. It is no target's name, because those
contain a slash."""
BUCKETS_S = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
"""Bounds of the histograms: dense where times to first token are compared, up to a timeout."""
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


class Family(Struct, frozen=True):
    """Form of a field in `/metrics`: its name without the prefix, help, labels and kind.

    The keys of a field's dictionary are its labels. A label "" is not shown; values that differ
    only there are added. For a field of `ProcessMetrics`, no labels mean the sum over all
    processes, "pid" the value of each process, and any other label the mean over the processes that
    have a value.

    `across`: what to do with the values of several gateways. "sum": add them. "avg": their mean.
    "min": all of them report the same thing, so never add them. "": each gateway reports about
    itself only.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "counter"
    across: Literal["sum", "avg", "min", ""] = "sum"


class Histogram(Struct):
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    total_s: float = 0.0

    def add(self, ns: int) -> None:
        seconds = ns / NS_PER_S
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds

    def __iadd__(self, other: "Histogram") -> Self:
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total_s += other.total_s
        return self


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, text, labels)


def _gauge(
    name: str, text: str, *labels: str, across: Literal["sum", "avg", "min", ""] = "sum"
) -> Family:
    return Family(name, text, labels, "gauge", across)


def _histogram(name: str, text: str, *labels: str) -> Family:
    return Family(name, text, labels, "histogram")


class ProcessMetrics(Struct, frozen=True, kw_only=True):
    """Gauges of one process. `began_ns`: its start, on the clock that all processes of a machine
    share."""

    pid: int
    available: Annotated[
        dict[str, bool],
        _gauge(
            "target_available",
            "Share of workers that use this target (0: none, 1: all).",
            "target",
            across="avg",
        ),
    ] = {}
    escalated: Annotated[
        dict[str, float],
        _gauge(
            "cascade_escalated",
            "Share of recent answers of the small model that were rejected.",
            "policy",
            across="avg",
        ),
    ] = {}
    dearer: Annotated[
        dict[str, bool],
        _gauge(
            "cascade_dearer",
            "Share of workers that use only the large model, because that is cheaper.",
            "policy",
            across="avg",
        ),
    ] = {}
    in_flight: Annotated[int, _gauge("requests_in_flight", "Requests in flight.")] = 0
    dropped: Annotated[int, _counter("log_dropped", "Records that the log has lost.")] = 0
    waiting: Annotated[
        int, _gauge("log_waiting", "Records that wait to be written to the log.")
    ] = 0
    failing: Annotated[
        int, _gauge("log_failing", "Workers whose records wait because the log cannot be written.")
    ] = 0
    journal_missing: Annotated[
        int,
        _counter(
            "journal_missing",
            "Calls of keys with a spending limit that the journal of "
            "calls in flight could not take.",
        ),
    ] = 0
    cpu_s: Annotated[float, _counter("process_cpu_seconds", "CPU time used.", "pid")]
    resident_bytes: Annotated[
        int, _gauge("process_resident_memory_bytes", "Resident memory in use.", "pid")
    ]
    began_ns: int = 0
    fleet_connected: Annotated[
        dict[str, bool],
        _gauge(
            "fleet_connected",
            "Whether the database of the fleet answers this gateway.",
            "gateway",
            across="",
        ),
    ] = {}
    fleet_gateway_up: Annotated[
        dict[str, bool],
        _gauge(
            "fleet_gateway_up",
            "Gateways of the fleet; 0: it has been silent for 10 s.",
            "gateway",
            across="min",
        ),
    ] = {}
    fleet_answer_age_s: Annotated[
        dict[str, float],
        _gauge(
            "fleet_answer_age_seconds",
            "Time since the database of the fleet answered.",
            "gateway",
            across="",
        ),
    ] = {}
    fleet_failures: Annotated[
        dict[str, int],
        _counter(
            "fleet_failures", "Exchanges with the database of the fleet that failed.", "gateway"
        ),
    ] = {}
    fleet_reports_invalid: Annotated[
        dict[str, int],
        _counter(
            "fleet_reports_invalid",
            "Reports of other gateways that were invalid and not used.",
            "gateway",
        ),
    ] = {}
    fleet_turns: Annotated[
        dict[str, int],
        _gauge("fleet_turns", "Targets that are down and that this gateway may probe.", "gateway"),
    ] = {}
    fleet_ceilings: Annotated[
        dict[tuple[str, str], float],
        _gauge(
            "fleet_ceiling",
            "This gateway's part of a limit: `requests` per minute, `usd` per day or "
            "`usd_per_month`. A team is `team NAME`.",
            "limit",
            "client",
        ),
    ] = {}


def _numbers() -> Any:
    return field(default_factory=lambda: defaultdict(int))


def _histograms() -> Any:
    return field(default_factory=lambda: defaultdict(Histogram))


class MetricCounts(Struct):
    requests: Annotated[
        dict[tuple[str, str, int], int],
        _counter(
            "requests",
            "Requests by response status (499: the client left).",
            "route",
            "client",
            "status",
        ),
    ] = _numbers()
    attempts: Annotated[
        dict[tuple[str, str, str, str], int],
        _counter(
            "attempts",
            "Requests to targets by outcome and fault.",
            "",
            "target",
            "outcome",
            "fault",
        ),
    ] = _numbers()
    """By route, which `/metrics` does not show, target, outcome, and kind of the fault."""
    lost: Annotated[
        dict[str, int],
        _counter(
            "attempts_lost",
            "Attempts closed because another had its first token earlier.",
            "target",
        ),
    ] = _numbers()
    lost_usd: Annotated[
        dict[str, float],
        _counter(
            "lost_cost_usd",
            "Expected cost of lost attempts in US dollars, by the provider's rule for closed "
            "requests.",
            "target",
        ),
    ] = _numbers()
    lost_low_usd: Annotated[
        dict[str, float],
        _counter(
            "lost_cost_low_usd",
            "Least cost of lost attempts: prompts and the tokens that arrived.",
            "target",
        ),
    ] = _numbers()
    lost_high_usd: Annotated[
        dict[str, float],
        _counter(
            "lost_cost_high_usd",
            "Most that lost attempts may cost, if billed to their end.",
            "target",
        ),
    ] = _numbers()
    cached: Annotated[
        dict[tuple[str, str], int], _counter("cache", "Cache look-ups.", "route", "result")
    ] = _numbers()
    extra: Annotated[
        dict[tuple[str, str, str], int],
        _counter(
            "extra_attempts",
            "Attempts beyond the first of a call, by what they were for and whether they "
            "delivered the response.",
            "",
            "kind",
            "result",
        ),
    ] = _numbers()
    """By route, which `/metrics` does not show, kind, and "won" or "lost"."""
    tokens: Annotated[
        dict[tuple[str, str], int],
        _counter("tokens", "Tokens, as counted by targets, or estimated.", "target", "direction"),
    ] = _numbers()
    cost_usd: Annotated[
        dict[tuple[str, str], float],
        _counter(
            "cost_usd",
            "Cost of all attempts by the token, in US dollars, if prices are known.",
            "client",
            "target",
        ),
    ] = _numbers()
    odd_fields: Annotated[
        dict[tuple[str, str], int],
        _counter(
            "odd_answers",
            "Answers with a field that was not as the API format says and did not matter, or an "
            "unknown finish reason.",
            "target",
            "field",
        ),
    ] = _numbers()
    internal_errors: Annotated[
        dict[str, int],
        _counter(
            "internal_errors",
            "Errors of this program, by where they were caught. It "
            "survives them; please report them.",
            "where",
        ),
    ] = _numbers()
    target_ttft: Annotated[
        dict[str, Histogram],
        _histogram(
            "target_ttft_seconds",
            "From a streamed attempt's first byte to its first token.",
            "target",
        ),
    ] = _histograms()
    route_ttft: Annotated[
        dict[str, Histogram],
        _histogram(
            "route_ttft_seconds", "From a request's arrival to its first streamed token.", "route"
        ),
    ] = _histograms()

    def merge(self, other: "MetricCounts") -> None:
        for name in self.__struct_fields__:
            mine = getattr(self, name)
            for label, value in getattr(other, name).items():
                mine[label] += value


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

    def took(self, record: CallRecord) -> None:
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
