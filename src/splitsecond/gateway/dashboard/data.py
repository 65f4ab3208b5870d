"""The data of the dashboard, computed from the counters, the target states and the key limits that
are passed in.

Counts cover all workers since the gateway started.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.gateway.dashboard.client_data import (
    ClientOverview,
    Requests,
    TeamOverview,
    requests_by,
)
from splitsecond.gateway.records.extra_attempts import begun_ns
from splitsecond.gateway.records.metric_fields import BUCKETS_S, MetricCounts, ProcessMetrics
from splitsecond.gateway.records.recent_calls import RecentCalls
from splitsecond.log.store.call_record import DIRECT, CallRecord
from splitsecond.routing.construction.expression import Expression, targets
from splitsecond.routing.construction.preview import PreviewedChoice
from splitsecond.routing.targets.target_states import TargetStates

if TYPE_CHECKING:
    from splitsecond.gateway.fleet.view import FleetView  # loaded in a fleet only

MAX_SHOWN = 100
"""Targets that clients named directly: the most in the data, by number of attempts."""
SILENT_S = 10.0
"""Time without a report after which a gateway of the fleet counts as silent, as in
`fleet/shared_limit`."""
LONGEST_MESSAGE = 300
"""Characters of a failure's message in the data."""


class RouteOverview(Struct, frozen=True, kw_only=True):
    """A route. `now`: where its next calls would go; None: not previewed yet.

    `extra`: attempts beyond the first of a call, by kind; `extra_won`: those that delivered the
    response. `answers`: successful attempts by target. `ttft`: first tokens by bucket of
    `Overview.ttft_within_s`, then those above all buckets. `cache`: calls by result of the cache.
    """

    name: str
    policy: str
    now: list[PreviewedChoice] | None
    requests: Requests
    answers: dict[str, int]
    ttft: list[int]
    cache: dict[str, int]
    extra: dict[str, int] = {}
    extra_won: dict[str, int] = {}


class TargetOverview(Struct, frozen=True, kw_only=True):
    """A target. `state`, `why`, `again_s`: see `TargetStatus`. `available_share`: share of workers
    that send to it.

    `attempts`: by outcome. `faults`: of failed attempts, by kind. `lost`: attempts that lost a
    race. `lost_usd`: their expected cost; the two other figures are its bounds. `priced`: whether
    its price per token is known; `free`: whether that is nothing.
    """

    name: str
    state: str
    why: str
    again_s: float | None
    available_share: float
    in_flight: int
    ttft_p50_ms: float | None
    ttft_p95_ms: float | None
    tps: float | None
    requests_left: int | None
    tokens_left: int | None
    attempts: dict[str, int]
    faults: dict[str, int]
    lost: int
    input_tokens: int
    output_tokens: int
    usd: float
    lost_usd: float
    lost_low_usd: float
    lost_high_usd: float
    priced: bool
    free: bool
    per_hour_usd: float | None


class WorkerOverview(Struct, frozen=True, kw_only=True):
    """A worker process that has served a request. `dropped`: records missing in its log."""

    pid: int
    up_s: float
    in_flight: int
    cpu_s: float
    resident_bytes: int
    dropped: int


class GatewayOverview(Struct, frozen=True, kw_only=True):
    """A gateway of the fleet, as the database knows it. `silent_s`: time since its last report.
    `sees`: the gateways that reported lately, as far as it knows. `down`: targets that its workers
    have found to be down."""

    name: str
    version: str
    workers: int
    silent_s: float
    silent: bool
    sees: list[str]
    down: list[str]


class FleetOverview(Struct, frozen=True, kw_only=True):
    """The fleet of the gateway `name`. `answered_s`: time since its database answered; None: it has
    not yet."""

    name: str
    answered_s: float | None
    away: bool
    gateways: list[GatewayOverview]


class AttemptOverview(Struct, frozen=True, kw_only=True):
    target: str
    role: str
    outcome: str
    begin_ms: float
    first_token_ms: float | None
    end_ms: float
    why: str


class CallOverview(Struct, frozen=True, kw_only=True):
    """One of the last calls. `at_s`: its arrival, seconds since 1970. `why`: the kind of its fault,
    or "". `choice`: the place, from 1, of the branch that a policy chose for it; 0 without a
    choice. `odds`: the probability of this choice; 0 where it is unknown."""

    call: str
    at_s: float
    route: str
    client: str
    status: int
    cache: str
    why: str
    choice: int
    odds: float
    first_token_ms: float | None
    end_ms: float
    attempts: list[AttemptOverview]


class FailureOverview(Struct, frozen=True, kw_only=True):
    """One of the last failures of an attempt, or of a call without one (`target` ""). `answered`:
    whether the client still got a response."""

    call: str
    at_s: float
    route: str
    target: str
    kind: str
    phase: str
    message: str
    answered: bool


class Overview(Struct, frozen=True, kw_only=True):
    """The data of the dashboard.

    `rejected`: requests without a call (wrong key, path or body, or over a limit). `direct`: calls
    whose client named a target. `usd_today`: None if unknown, as the gateway started on another day
    and has no log. `logged`: it has a log. `escalated`: by cascade, the share of answers that were
    not accepted. `fleet`: None if the gateway is in none, or its hub does not answer.
    """

    version: str
    at_s: float
    pid: int
    slots: int
    workers: list[WorkerOverview]
    requests: Requests
    rejected: int
    direct: Requests
    in_flight: int
    attempts: int
    lost: int
    lost_usd: float
    lost_low_usd: float
    lost_high_usd: float
    input_tokens: int
    output_tokens: int
    usd: float
    usd_today: float | None
    cache: dict[str, int]
    routes: list[RouteOverview]
    targets: list[TargetOverview]
    clients: list[ClientOverview]
    teams: list[TeamOverview]
    escalated: dict[str, float]
    more_targets: int
    more_clients: int
    logged: bool = False
    calls: list[CallOverview] = []
    failures: list[FailureOverview] = []
    fleet: FleetOverview | None = None
    ttft_within_s: tuple[float, ...] = BUCKETS_S


def route_overviews(
    counts: MetricCounts,
    policies: Mapping[str, Expression],
    now: Mapping[str, list[PreviewedChoice]],
) -> list[RouteOverview]:
    requests = requests_by(counts, lambda route, client: route)
    answers: dict[str, Counter[str]] = {}
    for (route, target, outcome, _), number in counts.attempts.items():
        if outcome == "ok":
            answers.setdefault(route, Counter())[target] += number
    return [
        RouteOverview(
            name=name,
            policy=repr(policy),
            now=now.get(name),
            requests=requests.get(name, Requests()),
            answers=answers.get(name, {}),
            ttft=counts.route_ttft[name].counts if name in counts.route_ttft else [],
            cache=calls_by_cache_result(counts, name),
            extra=_extra(counts, name, ("won", "lost")),
            extra_won=_extra(counts, name, ("won",)),
        )
        for name, policy in policies.items()
    ]


def _extra(counts: MetricCounts, route: str, results: Collection[str]) -> dict[str, int]:
    by_kind: Counter[str] = Counter()
    for (name, kind, result), number in counts.extra.items():
        if name == route and result in results:
            by_kind[kind] += number
    return by_kind


def recent_calls(recent: RecentCalls) -> list[CallOverview]:
    return [
        CallOverview(
            call=record.call,
            at_s=_wall_s(record),
            route=record.route,
            client=record.client,
            status=record.status,
            cache=record.cache,
            why=record.fault,
            choice=0 if record.choice is None else record.choice.place + 1,
            odds=0.0 if record.choice is None else record.choice.odds,
            first_token_ms=_after_ms(record, record.first_token_ns),
            end_ms=(record.end_ns - record.start_ns) / NS_PER_MS,
            attempts=[
                AttemptOverview(
                    target=attempt.target,
                    role=attempt.role,
                    outcome=attempt.outcome,
                    begin_ms=_after_ms(record, begun_ns(attempt)) or 0.0,
                    first_token_ms=_after_ms(record, attempt.first_token_ns),
                    end_ms=_after_ms(record, attempt.end_ns) or 0.0,
                    why="" if attempt.fault is None else attempt.fault.kind,
                )
                for attempt in sorted(record.attempts, key=begun_ns)
            ],
        )
        for record in reversed(recent.calls)
    ]


def recent_failures(recent: RecentCalls) -> list[FailureOverview]:
    failures = []
    for record, attempt in reversed(recent.failures):
        fault = attempt.fault if attempt is not None else None
        failures.append(
            FailureOverview(
                call=record.call,
                at_s=_wall_s(record),
                route=record.route,
                target=attempt.target if attempt is not None else "",
                kind=fault.kind if fault is not None else record.fault,
                phase=fault.phase if fault is not None else "",
                message=fault.message[:LONGEST_MESSAGE] if fault is not None else "",
                answered=record.outcome == "ok",
            )
        )
    return failures


def _wall_s(record: CallRecord) -> float:
    return (record.start_ns / 1000 + clock.wall_offset_us()) / 1e6


def _after_ms(record: CallRecord, at_ns: int | None) -> float | None:
    return None if at_ns is None else (at_ns - record.start_ns) / NS_PER_MS


def target_overviews(
    counts: MetricCounts,
    processes: Collection[ProcessMetrics],
    policies: Iterable[Expression],
    states: TargetStates,
    usable: Callable[[str], bool] = lambda target: True,
) -> tuple[list[TargetOverview], int]:
    """Return the targets of the policies, and those that clients named directly and that are still
    `usable`; the latter up to a number, and how many there are beyond it."""
    attempts: dict[str, Counter[str]] = {}
    faults: dict[str, Counter[str]] = {}
    direct: set[str] = set()
    for (route, target, outcome, fault), number in counts.attempts.items():
        attempts.setdefault(target, Counter())[outcome] += number
        if route == DIRECT:
            direct.add(target)
        if outcome == "failed":
            faults.setdefault(target, Counter())[fault] += number
    usd: dict[str, float] = {}
    for (_, target), cost in counts.cost_usd.items():
        usd[target] = usd.get(target, 0.0) + cost
    routed = dict.fromkeys(name for policy in policies for name in targets(policy))
    direct_targets = sorted(
        filter(usable, direct - routed.keys()), key=lambda name: (-attempts[name].total(), name)
    )
    seen = [
        _target(
            name,
            counts,
            processes,
            states,
            attempts.get(name, {}),
            faults.get(name, {}),
            usd.get(name, 0.0),
        )
        for name in [*routed, *direct_targets[:MAX_SHOWN]]
    ]
    return seen, len(direct_targets[MAX_SHOWN:])


def _target(
    name: str,
    counts: MetricCounts,
    processes: Collection[ProcessMetrics],
    states: TargetStates,
    attempts: dict[str, int],
    faults: dict[str, int],
    usd: float,
) -> TargetOverview:
    status, info = states.status(name), states.info(name)
    available = [process.available.get(name, True) for process in processes]
    return TargetOverview(
        name=name,
        state=status.state,
        why=status.reason,
        again_s=None if status.until_ns is None else status.until_ns / NS_PER_S,
        available_share=sum(available) / len(available),
        in_flight=status.in_flight,
        ttft_p50_ms=None if status.ttft_p50_ns is None else status.ttft_p50_ns / NS_PER_MS,
        ttft_p95_ms=None if status.ttft_p95_ns is None else status.ttft_p95_ns / NS_PER_MS,
        tps=NS_PER_S / status.tpot_ns if status.tpot_ns else None,
        requests_left=status.requests_left,
        tokens_left=status.tokens_left,
        attempts=attempts,
        faults=faults,
        lost=counts.lost.get(name, 0),
        input_tokens=counts.tokens.get((name, "input"), 0),
        output_tokens=counts.tokens.get((name, "output"), 0),
        usd=usd,
        lost_usd=counts.lost_usd.get(name, 0.0),
        lost_low_usd=counts.lost_low_usd.get(name, 0.0),
        lost_high_usd=counts.lost_high_usd.get(name, 0.0),
        priced=info.price is not None,
        free=info.price is not None and info.price.free,
        per_hour_usd=info.price.per_hour_usd if info.price else None,
    )


def fleet_overview(view: "FleetView", now_ns: int) -> FleetOverview:
    since_s = max(now_ns - view.at_ns, 0) / NS_PER_S
    answered_s = None if view.answered_s is None else view.answered_s + since_s
    return FleetOverview(
        name=view.name,
        answered_s=answered_s,
        away=answered_s is None or answered_s >= SILENT_S,
        gateways=[
            GatewayOverview(
                name=each.name,
                version=each.version,
                workers=each.workers,
                silent_s=each.silent_s + since_s,
                silent=each.silent_s + since_s >= SILENT_S,
                sees=list(each.sees),
                down=list(each.down),
            )
            for each in view.gateways
        ],
    )


def worker_overviews(processes: Iterable[ProcessMetrics], now_ns: int) -> list[WorkerOverview]:
    return [
        WorkerOverview(
            pid=process.pid,
            up_s=max(now_ns - process.began_ns, 0) / NS_PER_S,
            in_flight=process.in_flight,
            cpu_s=process.cpu_s,
            resident_bytes=process.resident_bytes,
            dropped=process.dropped,
        )
        for process in processes
    ]


def calls_by_cache_result(counts: MetricCounts, route: str = "") -> dict[str, int]:
    calls: Counter[str] = Counter()
    for (name, result), number in counts.cached.items():
        if route in ("", name):
            calls[result] += number
    return calls
