"""What the dashboard says of a gateway that runs. Pure: everything is given.

Counts are of all workers together, since the gateway began. Whoever reads them twice knows what has happened in
between, so no history is kept here; the page does that. How a target stands, how fast it is and what is under way there
is what one worker sees, the one that was asked. Times have their unit in their name.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct

from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.gateway.configuration.settings import ClientKey
from splitsecond.gateway.records.allowance import Allowance
from splitsecond.gateway.records.metrics import BUCKETS_S, Counts, Process
from splitsecond.policy.expression import Expression, targets
from splitsecond.policy.preview import Choice
from splitsecond.policy.targets.standing import Standing

MOST_SHOWN = 100
"""Targets that clients named themselves, and clients: those with the most to show. More fit on no screen."""
_TOO_MANY = 429
_LEFT = 499
_SERVER_ERROR = 500


class Requests(Struct, kw_only=True):
    """How requests ended. `failed`: for no fault of the client's; `refused`: for one; `left`: it did not wait."""

    all: int = 0
    failed: int = 0
    refused: int = 0
    left: int = 0

    def add(self, status: int, number: int) -> None:
        """So many more were told `status`."""
        self.all += number
        if status == _LEFT:
            self.left += number
        elif status >= _SERVER_ERROR or status == _TOO_MANY:  # here it is the provider's, as ours becomes no call
            self.failed += number
        elif status >= 400:
            self.refused += number


class RouteSeen(Struct, frozen=True, kw_only=True):
    """A route. `now`: what would become of its next calls, None where that has not been looked into yet.

    `answers`: whole ones, by target. `ttft`: how many first tokens came within each of `Overview.ttft_within_s`, and
    beyond all of them. `cache`: calls by what the cache said.
    """

    name: str
    policy: str
    now: list[Choice] | None
    requests: Requests
    answers: dict[str, int]
    ttft: list[int]
    cache: dict[str, int]


class TargetSeen(Struct, frozen=True, kw_only=True):
    """A target. `state`, `why` and `again_s`: see `Described`. `asked_by`: the share of workers that ask it.

    `attempts` by how they ended, `faults` of those that failed by kind; `lost`: another was faster.
    `priced`: whether what it costs by the token is known.
    """

    name: str
    state: str
    why: str
    again_s: float | None
    asked_by: float
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
    priced: bool
    per_hour_usd: float | None


class ClientSeen(Struct, frozen=True, kw_only=True):
    """A client's key. What it has used of a limit is None where there is no limit. `held_usd`: for calls under way."""

    name: str
    requests: Requests
    usd: float
    requests_per_minute: int | None
    requests_used: float | None
    usd_per_day: float | None
    spent_usd: float | None
    held_usd: float | None


class WorkerSeen(Struct, frozen=True, kw_only=True):
    """A process that serves, and has served something. `dropped`: records that its log has lost."""

    pid: int
    up_s: float
    in_flight: int
    cpu_s: float
    resident_bytes: int
    dropped: int


class Overview(Struct, frozen=True, kw_only=True):
    """All of it. `at_s`: when, on a clock that only differences make sense of. `asked`: the process that says so.

    `seats`: how many workers there should be. `no_calls`: requests that became none, as their key, path or limit was
    wrong. `direct`: calls whose client named a target itself. `usd_today`: None where it is not known, as the gateway
    began on another day and keeps no log. `escalated`: of each cascade, the share of answers that were not accepted.
    `more_targets`, `more_clients`: such as are not shown.
    """

    version: str
    at_s: float
    asked: int
    seats: int
    workers: list[WorkerSeen]
    requests: Requests
    no_calls: int
    direct: Requests
    in_flight: int
    attempts: int
    lost: int
    lost_usd: float
    input_tokens: int
    output_tokens: int
    usd: float
    usd_today: float | None
    cache: dict[str, int]
    routes: list[RouteSeen]
    targets: list[TargetSeen]
    clients: list[ClientSeen]
    escalated: dict[str, float]
    more_targets: int
    more_clients: int
    ttft_within_s: tuple[float, ...] = BUCKETS_S


def requests_by(counts: Counts, label: Callable[[str, str], str]) -> dict[str, Requests]:
    """Calls by what `label` makes of their route and client. What became no call is left out."""
    found: dict[str, Requests] = {}
    for (route, client, status), number in counts.requests.items():
        if route:
            found.setdefault(label(route, client), Requests()).add(status, number)
    return found


def routes_seen(counts: Counts, policies: Mapping[str, Expression], now: Mapping[str, list[Choice]]) -> list[RouteSeen]:
    """Each route. `now`: of those that were tried out."""
    requests = requests_by(counts, lambda route, client: route)
    answers: dict[str, Counter[str]] = {}
    for (route, target, outcome, _), number in counts.attempts.items():
        if outcome == "ok":
            answers.setdefault(route, Counter())[target] += number
    return [
        RouteSeen(
            name=name,
            policy=repr(policy),
            now=now.get(name),
            requests=requests.get(name, Requests()),
            answers=answers.get(name, {}),
            ttft=counts.route_ttft[name].counts if name in counts.route_ttft else [],
            cache=cached(counts, name),
        )
        for name, policy in policies.items()
    ]


def targets_seen(
    counts: Counts, processes: Collection[Process], policies: Iterable[Expression], standing: Standing
) -> tuple[list[TargetSeen], int]:
    """The targets of all routes, then those that clients named, the most asked first; and how many are left out."""
    attempts: dict[str, Counter[str]] = {}
    faults: dict[str, Counter[str]] = {}
    for (_, target, outcome, fault), number in counts.attempts.items():
        attempts.setdefault(target, Counter())[outcome] += number
        if outcome == "failed":
            faults.setdefault(target, Counter())[fault] += number
    usd: dict[str, float] = {}
    for (_, target), cost in counts.cost_usd.items():
        usd[target] = usd.get(target, 0.0) + cost
    routed = dict.fromkeys(name for policy in policies for name in targets(policy))
    named = sorted(attempts.keys() - routed.keys(), key=lambda name: (-attempts[name].total(), name))
    seen = [
        _target(name, counts, processes, standing, attempts.get(name, {}), faults.get(name, {}), usd.get(name, 0.0))
        for name in [*routed, *named[:MOST_SHOWN]]
    ]
    return seen, len(named[MOST_SHOWN:])


def _target(
    name: str,
    counts: Counts,
    processes: Collection[Process],
    standing: Standing,
    attempts: dict[str, int],
    faults: dict[str, int],
    usd: float,
) -> TargetSeen:
    stands, facts = standing.describe(name), standing.facts(name)
    asking = [process.available.get(name, True) for process in processes]
    return TargetSeen(
        name=name,
        state=stands.state,
        why=stands.reason,
        again_s=None if stands.until_ns is None else stands.until_ns / NS_PER_S,
        asked_by=sum(asking) / len(asking),
        in_flight=stands.in_flight,
        ttft_p50_ms=None if stands.ttft_p50_ns is None else stands.ttft_p50_ns / NS_PER_MS,
        ttft_p95_ms=None if stands.ttft_p95_ns is None else stands.ttft_p95_ns / NS_PER_MS,
        tps=NS_PER_S / stands.tpot_ns if stands.tpot_ns else None,
        requests_left=stands.requests_left,
        tokens_left=stands.tokens_left,
        attempts=attempts,
        faults=faults,
        lost=counts.lost.get(name, 0),
        input_tokens=counts.input_tokens.get(name, 0),
        output_tokens=counts.output_tokens.get(name, 0),
        usd=usd,
        lost_usd=counts.lost_usd.get(name, 0.0),
        priced=facts.cost_usd(1, 1) is not None,
        per_hour_usd=facts.per_hour_usd,
    )


def clients_seen(counts: Counts, keys: Collection[ClientKey], allowance: Allowance) -> tuple[list[ClientSeen], int]:
    """The clients of the configuration, in its order, and how many are left out: those that have asked least."""
    requests = requests_by(counts, lambda route, client: client)
    usd: dict[str, float] = {}
    for (client, _), cost in counts.cost_usd.items():
        usd[client] = usd.get(client, 0.0) + cost
    asked = {key.name: requests.get(key.name, Requests()) for key in keys}
    shown = set(sorted(asked, key=lambda name: -asked[name].all)[:MOST_SHOWN])
    seen = [_client(key, asked[key.name], usd.get(key.name, 0.0), allowance) for key in keys if key.name in shown]
    return seen, len(asked) - len(shown)


def _client(key: ClientKey, requests: Requests, usd: float, allowance: Allowance) -> ClientSeen:
    by_minute, by_day = key.requests_per_minute is not None, key.usd_per_day is not None
    return ClientSeen(
        name=key.name,
        requests=requests,
        usd=usd,
        requests_per_minute=key.requests_per_minute,
        requests_used=allowance.requests_used(key.name) if by_minute else None,
        usd_per_day=key.usd_per_day,
        spent_usd=allowance.spent_usd(key.name) if by_day else None,
        held_usd=allowance.held_usd(key.name) if by_day else None,
    )


def workers_seen(processes: Iterable[Process], now_ns: int) -> list[WorkerSeen]:
    """Each process that has left its counters."""
    return [
        WorkerSeen(
            pid=process.pid,
            up_s=max(now_ns - process.began_ns, 0) / NS_PER_S,
            in_flight=process.in_flight,
            cpu_s=process.cpu_s,
            resident_bytes=process.resident_bytes,
            dropped=process.dropped,
        )
        for process in processes
    ]


def cached(counts: Counts, route: str = "") -> dict[str, int]:
    """Calls by what the cache said; of all routes, where none is named."""
    found: Counter[str] = Counter()
    for (name, said), number in counts.cached.items():
        if route in ("", name):
            found[said] += number
    return found
