"""The list of all metrics of the gateway: each field of `MetricCounts` and `ProcessMetrics`
declares the name, help and labels that `/metrics` shows. A new metric is a field here, and the line
in `metrics` that counts it."""

from bisect import bisect_left
from collections import defaultdict
from typing import Annotated, Any, Literal, Self

from msgspec import Struct, field

from splitsecond.core.clock import NS_PER_S

BUCKETS_S = (0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0)
"""Bounds of the histograms: dense where times to first token are compared, up to a timeout."""


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
