"""The data of the dashboard: each figure, and what is left out if there are too many targets or
clients."""

from typing import Any

import pytest
from msgspec import structs
from tests.cases import each_case
from tests.gateway.limits import key_limits
from tests.gateway.test_metrics import attempt, record
from tests.noon import noon as noon  # a fixture
from tests.policies.attempts import answered

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS as MS
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.money.closed_early import Billing
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.service import RoutingChoice
from splitsecond.gateway.dashboard import client_data, data
from splitsecond.gateway.dashboard.client_data import (
    Requests,
    client_overviews,
    requests_by,
    team_overviews,
)
from splitsecond.gateway.dashboard.data import (
    calls_by_cache_result,
    fleet_overview,
    recent_calls,
    recent_failures,
    route_overviews,
    target_overviews,
    worker_overviews,
)
from splitsecond.gateway.dashboard.spending import Spending
from splitsecond.gateway.fleet.view import FleetView, GatewayStatus
from splitsecond.gateway.records.metric_fields import BUCKETS_S, MetricCounts, ProcessMetrics
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.gateway.records.recent_calls import RecentCalls
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.construction.preview import PreviewedChoice
from splitsecond.routing.router.settings import ClientKey, Team
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates

POLICIES = {"fast": parse('race("a/x", "b/x")'), "safe": parse('fallback("a/x", "c/x")')}


def counts(*records: CallRecord, **settings: Any) -> MetricCounts:
    metrics = Metrics(**settings)
    for each in records:
        metrics.add(each)
    return metrics.counts


def process(pid: int = 7, **fields: Any) -> ProcessMetrics:
    given = {
        "cpu_s": 1.5,
        "resident_bytes": 50,
        "in_flight": 2,
        "dropped": 0,
        "waiting": 0,
        "failing": 0,
        "available": {},
    }
    return ProcessMetrics(pid=pid, **{**given, **fields})


def failure(kind: str, target: str = "a/x") -> Observation:
    fault = FaultRecord(type="ProviderFault", kind=kind, phase="head", message="no")
    return attempt(target, ttft_ns=None, role="loser", outcome="failed", fault=fault)


@each_case(
    ("status", "field"),
    [
        (200, ""),
        (400, "refused"),
        (404, "refused"),
        (429, "failed"),
        (499, "left"),
        (500, "failed"),
        (504, "failed"),
    ],
)
def test_status_codes_count_as_refused_failed_or_left(status: int, field: str) -> None:
    found = requests_by(
        counts(record(status=status), record(status=status)), lambda route, client: route
    )
    assert found == {"fast": Requests(all=2, **({field: 2} if field else {}))}


def test_rejected_requests_are_left_out() -> None:
    metrics = Metrics()
    metrics.refused(401)
    assert requests_by(metrics.counts, lambda route, client: route) == {}


def test_a_route_has_its_own_answers_times_and_cache() -> None:
    lost = attempt("b/x", ttft_ns=None, role="loser", outcome="cancelled")
    found = counts(
        record(attempt(role="winner"), lost, first_token_ns=NS_PER_S // 10),
        record(attempt("b/x", role="winner"), first_token_ns=100 * NS_PER_S),
        record(attempt("c/x", role="winner"), failure("http_500"), route="safe", cache="miss"),
        record(route="safe", cache="hit"),
    )
    choices = [PreviewedChoice(calls=10, targets=("a/x", "b/x"))]
    fast, safe = route_overviews(found, POLICIES, {"fast": choices})
    assert (fast.name, fast.policy, fast.now) == ("fast", 'race("a/x", "b/x")', choices)
    assert (fast.answers, fast.requests.all, fast.cache) == ({"a/x": 1, "b/x": 1}, 2, {})
    assert {bound: n for bound, n in zip([*BUCKETS_S, None], fast.ttft, strict=True) if n} == {
        0.1: 1,
        None: 1,
    }
    assert (safe.now, safe.answers, safe.cache) == (None, {"c/x": 1}, {"miss": 1, "hit": 1})
    assert calls_by_cache_result(found) == {"miss": 1, "hit": 1}


def test_route_without_calls_has_empty_figures() -> None:
    (fast, _) = route_overviews(MetricCounts(), POLICIES, {})
    assert (fast.requests, fast.answers, fast.ttft) == (Requests(), {}, [])


def test_a_target_is_summed_over_routes_and_clients() -> None:
    tokens: dict[str, Any] = {"input_tokens": 7, "output_tokens": 5}
    lost = attempt("b/x", ttft_ns=None, role="loser", outcome="cancelled", **tokens)
    found = counts(
        record(attempt(role="winner", **tokens), lost),
        record(attempt(role="winner", **tokens), route="safe", client="other"),
        record(failure("http_500"), failure("http_500"), failure("stalled"), status=502, target=""),
        billing=Billing(lambda each: 0.25 * (each.output_tokens or 0)),
    )
    facts = {
        "a/x": TargetInfo(price=Price(input_usd=1, output_usd=1)),
        "b/x": TargetInfo(price=Price(input_usd=0, output_usd=0, per_hour_usd=2.5)),
    }
    (a, b, c), more = target_overviews(found, [process()], POLICIES.values(), TargetStates(facts))
    assert ([a.name, b.name, c.name], more) == (["a/x", "b/x", "c/x"], 0)
    assert (a.attempts, a.faults) == ({"ok": 2, "failed": 3}, {"http_500": 2, "stalled": 1})
    assert (a.input_tokens, a.output_tokens, a.usd, a.lost_usd) == (14, 10, 2.5, 0)
    assert (b.attempts, b.lost, b.usd, b.lost_usd) == ({"cancelled": 1}, 1, 1.25, 1.25)
    assert [each.priced for each in (a, b, c)] == [True, True, False]
    assert [each.per_hour_usd for each in (a, b, c)] == [None, 2.5, None]
    assert (c.attempts, c.state, c.ttft_p50_ms, c.tps) == ({}, "untested", None, None)


def test_target_has_its_state_and_its_share_of_workers() -> None:
    states = TargetStates()
    for _ in range(30):
        states.observe(answered(200, tpot_ms=10, target="a/x"))
    fault = FaultRecord(
        type="ProviderFault", kind="key_refused", phase="head", message="no", status=401
    )
    now = clock.now_ns()
    states.observe(
        Observation(
            id="1",
            call="c",
            target="b/x",
            sent_ns=now,
            end_ns=now,
            outcome="failed",
            fault=fault,
            status=401,
        )
    )
    processes = [
        process(available={"a/x": True, "b/x": False}),
        process(8, available={"a/x": False, "b/x": False}),
    ]
    (a, b, c), _ = target_overviews(MetricCounts(), processes, POLICIES.values(), states)
    assert (a.state, a.why, a.available_share, a.again_s) == ("up", "", 0.5, None)
    assert a.ttft_p50_ms == pytest.approx(200, rel=0.05)
    assert a.tps == pytest.approx(100, rel=0.05)
    assert (b.state, b.available_share, b.again_s) == ("locked", 0, None)
    assert "key_refused" in b.why
    assert c.available_share == 1


def test_most_called_targets_are_shown_if_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(data, "MAX_SHOWN", 2)
    asked = {"<b>bold</b>/m": 3, "x/rare": 1, "x/often": 5, "a/x": 1}
    found = counts(
        *(record(attempt(name), route=name) for name, times in asked.items() for _ in range(times))
    )
    seen, more = target_overviews(found, [process()], [parse('"a/x"')], TargetStates())
    assert ([each.name for each in seen], more) == (["a/x", "x/often", "<b>bold</b>/m"], 1)


def test_keys_have_their_remaining_limits(noon: None) -> None:
    keys = [
        ClientKey("web", b"1", requests_per_minute=60, usd_per_day=2),
        ClientKey("free", b"2"),
    ]
    limits = key_limits(keys, lambda each: 0.5)
    for _ in range(3):
        limits.admit(keys[0])
    limits.charge("web", attempt())
    found = counts(
        record(attempt()),
        record(attempt(), client="free", status=502),
        record(client="gone"),
        billing=Billing(lambda each: 0.5),
    )
    known = {"free": Spending(0.75, 1.5), "web": Spending(0.25, 2.25)}
    (web, free), more = client_overviews(found, keys, limits, known)
    assert more == 0
    assert (web.requests.all, web.usd, web.requests_per_minute, web.usd_per_day) == (1, 0.5, 60, 2)
    assert (web.requests_used, web.usd_today, web.usd_month, web.reserved_usd) == (3, 0.5, 2.5, 0)
    assert (web.priced, free.priced) == (True, True)
    unpriced, _ = client_overviews(counts(record()), keys, limits, {})
    assert not unpriced[0].priced, "without a price, a cost of 0 is not known"
    assert (free.requests.failed, free.usd, free.requests_per_minute, free.usd_per_day) == (
        1,
        0.5,
        None,
        None,
    )
    assert (free.requests_used, free.usd_today, free.usd_month) == (None, 0.75, 1.5)
    assert free.reserved_usd is None


def test_a_team_has_what_its_clients_spent_and_its_limits(noon: None) -> None:
    team = Team("research", usd_per_month=2)
    keys = [
        ClientKey("alice", b"1", team=team),
        ClientKey("bob", b"2", team=team),
        ClientKey("web", b"3"),
    ]
    limits = key_limits(keys, lambda each: 0.5)
    limits.charge("alice", attempt())
    limits.charge("bob", attempt())
    found = counts(*(record(attempt(), client=each) for each in ("alice", "bob", "bob", "web")))
    (seen,) = team_overviews(found, keys, limits, {team.counter: Spending(0.25, 9)})
    assert (seen.name, seen.clients, seen.requests.all) == ("research", ["alice", "bob"], 3)
    assert (seen.usd_today, seen.usd_month, seen.usd_per_month) == (0.25, 1.0, 2)


def test_targets_that_left_the_configuration_are_not_shown() -> None:
    found = counts(
        record(attempt("a/x"), route="fast"),
        record(attempt("old/x"), route="fast"),
        record(attempt("old/y"), route="old/y"),
        record(attempt("b/y"), route="b/y"),
    )
    seen, more = target_overviews(
        found, [process()], [parse('"a/x"')], TargetStates(), lambda name: name[0] != "o"
    )
    assert ([each.name for each in seen], more) == (["a/x", "b/y"], 0)


def test_most_active_clients_are_shown_if_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_data, "MAX_SHOWN", 2)
    keys = [ClientKey(name, name.encode()) for name in "abcd"]
    found = counts(record(client="d"), record(client="b"), record(client="b"))
    seen, more = client_overviews(found, keys, key_limits(keys, lambda each: None), {})
    assert ([each.name for each in seen], more) == (["b", "d"], 2)


def test_workers_have_their_uptime_and_resources() -> None:
    processes = [process(7, began_ns=NS_PER_S, dropped=3), process(8, began_ns=5 * NS_PER_S)]
    first, second = worker_overviews(processes, 6 * NS_PER_S)
    assert (first.pid, first.up_s, first.in_flight) == (7, 5, 2)
    assert (first.cpu_s, first.resident_bytes, first.dropped) == (1.5, 50, 3)
    assert (second.pid, second.up_s, second.dropped) == (8, 1, 0)


def test_recent_calls_and_failures_are_listed_newest_first() -> None:
    began = 100 * NS_PER_S
    failed = structs.replace(
        failure("http_503"), start_ns=began, sent_ns=began + 5 * MS, end_ns=began + 90 * MS
    )
    won = structs.replace(
        attempt("b/x", role="winner"),
        start_ns=began,
        sent_ns=began + 100 * MS,
        tcp_ns=8 * MS,
        first_token_ns=began + 200 * MS,
        end_ns=began + 400 * MS,
    )
    times: dict[str, Any] = {
        "start_ns": began,
        "first_token_ns": began + 200 * MS,
        "end_ns": began + 401 * MS,
    }
    recent = RecentCalls()
    recent.add(record(won, failed, call="saved", **times))
    recent.add(
        record(call="lost", status=502, target="", outcome="failed", fault="no_target", **times)
    )
    with clock.using(lambda: began, lambda: 1_790_000_000 * NS_PER_S):
        last, first = recent_calls(recent)
        none, refused = recent_failures(recent)
    assert (last.call, last.attempts, last.why) == ("lost", [], "no_target")
    assert first.at_s == pytest.approx(1_790_000_000)
    assert (first.call, first.status, first.first_token_ms, first.end_ms) == (
        "saved",
        200,
        200,
        401,
    )
    assert [
        (a.target, a.outcome, a.begin_ms, a.first_token_ms, a.end_ms, a.why) for a in first.attempts
    ] == [
        ("a/x", "failed", 5, None, 90, "http_503"),
        ("b/x", "ok", 92, 200, 400, ""),
    ]
    assert (refused.call, refused.target, refused.kind, refused.phase, refused.message,
    refused.answered) == (
        "saved", "a/x", "http_503", "head", "no", True,
    )  # fmt: skip
    assert (none.call, none.target, none.kind, none.answered) == ("lost", "", "no_target", False)


def test_a_recent_call_has_the_probability_of_its_choice() -> None:
    recent = RecentCalls()
    recent.add(record(choice=RoutingChoice(1, 3, 0.1)))
    recent.add(record())
    without, chosen = recent_calls(recent)
    assert (chosen.choice, chosen.odds) == (2, 0.1)
    assert (without.choice, without.odds) == (0, 0.0)


def test_only_the_last_calls_are_kept() -> None:
    recent = RecentCalls()
    for number in range(50):
        recent.add(record(failure("http_503"), call=str(number)))
    assert [each.call for each in recent_calls(recent)] == [
        str(number) for number in range(49, 29, -1)
    ]
    assert [each.call for each in recent_failures(recent)] == [
        str(number) for number in range(49, 39, -1)
    ]


def test_a_route_has_its_extra_attempts() -> None:
    second = structs.replace(
        attempt("c/x", role="winner"), sent_ns=2 * NS_PER_S, end_ns=3 * NS_PER_S
    )
    failed = structs.replace(failure("http_503"), end_ns=NS_PER_S)
    found = counts(
        record(failed, second, route="safe"),
        record(failed, structs.replace(second, role="loser"), route="safe"),
    )
    fast, safe = route_overviews(found, POLICIES, {})
    assert (safe.extra, safe.extra_won) == ({"fallback": 2}, {"fallback": 1})
    assert (fast.extra, fast.extra_won) == ({}, {})


def test_fleet_overview_ages_the_status_of_its_gateways() -> None:
    gateways = (
        GatewayStatus(
            name="g1", version="1", workers=2, silent_s=1.0, sees=("g1", "g2"), down=("a/x",)
        ),
        GatewayStatus(name="g2", version="2", workers=4, silent_s=8.5),
    )
    view = FleetView(at_ns=NS_PER_S, name="g1", answered_s=0.5, gateways=gateways)
    shown = fleet_overview(view, 3 * NS_PER_S)
    assert (shown.name, shown.answered_s, shown.away) == ("g1", 2.5, False)
    assert [(each.name, each.silent_s, each.silent) for each in shown.gateways] == [
        ("g1", 3.0, False),
        ("g2", 10.5, True),
    ]
    assert (shown.gateways[0].sees, shown.gateways[0].down) == (["g1", "g2"], ["a/x"])
    assert fleet_overview(FleetView(at_ns=0, name="g1"), 0).away
