"""What the dashboard says of counters and targets: each figure, and what is left out where there is too much."""

from typing import Any

import pytest
from tests.gateway.test_metrics import attempt, record
from tests.policy.attempts import answered

from splitsecond import clock
from splitsecond.clock import NS_PER_S
from splitsecond.gateway.configuration.settings import ClientKey
from splitsecond.gateway.dashboard import data
from splitsecond.gateway.dashboard.data import (
    Requests,
    cached,
    clients_seen,
    requests_by,
    routes_seen,
    targets_seen,
    workers_seen,
)
from splitsecond.gateway.records.allowance import Allowance
from splitsecond.gateway.records.metrics import BUCKETS_S, Counts, Metrics, Process
from splitsecond.policy.expression import parse
from splitsecond.policy.preview import Choice
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.standing import Standing
from splitsecond.store.served import Served
from splitsecond.timing.observation import FaultRecord, Observation

POLICIES = {"fast": parse('race("a/x", "b/x")'), "safe": parse('fallback("a/x", "c/x")')}


def counts(*records: Served, cost: Any = None) -> Counts:
    metrics = Metrics(cost=cost)
    for each in records:
        metrics.took(each)
    return metrics.counts


def process(pid: int = 7, **fields: Any) -> Process:
    given = {"cpu_s": 1.5, "resident_bytes": 50, "in_flight": 2, "dropped": 0, "available": {}}
    return Process(pid=pid, **{**given, **fields})


def failure(kind: str, target: str = "a/x") -> Observation:
    fault = FaultRecord(type="ProviderFault", kind=kind, phase="head", message="no")
    return attempt(target, ttft_ns=None, role="loser", outcome="failed", fault=fault)


@pytest.mark.parametrize(
    ("status", "field"),
    [(200, ""), (400, "refused"), (404, "refused"), (429, "failed"), (499, "left"), (500, "failed"), (504, "failed")],
)
def test_whose_fault_an_end_is(status: int, field: str) -> None:
    found = requests_by(counts(record(status=status), record(status=status)), lambda route, client: route)
    assert found == {"fast": Requests(all=2, **({field: 2} if field else {}))}


def test_what_became_no_call_is_nobodys() -> None:
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
    choices = [Choice(calls=10, targets=("a/x", "b/x"))]
    fast, safe = routes_seen(found, POLICIES, {"fast": choices})
    assert (fast.name, fast.policy, fast.now) == ("fast", 'race("a/x", "b/x")', choices)
    assert (fast.answers, fast.requests.all, fast.cache) == ({"a/x": 1, "b/x": 1}, 2, {})
    assert {bound: n for bound, n in zip([*BUCKETS_S, None], fast.ttft, strict=True) if n} == {0.1: 1, None: 1}
    assert (safe.now, safe.answers, safe.cache) == (None, {"c/x": 1}, {"miss": 1, "hit": 1})
    assert cached(found) == {"miss": 1, "hit": 1}


def test_a_route_that_nobody_has_asked() -> None:
    (fast, _) = routes_seen(Counts(), POLICIES, {})
    assert (fast.requests, fast.answers, fast.ttft) == (Requests(), {}, [])


def test_a_target_is_summed_over_routes_and_clients() -> None:
    tokens: dict[str, Any] = {"input_tokens": 7, "output_tokens": 5}
    lost = attempt("b/x", ttft_ns=None, role="loser", outcome="cancelled", **tokens)
    found = counts(
        record(attempt(role="winner", **tokens), lost),
        record(attempt(role="winner", **tokens), route="safe", client="other"),
        record(failure("http_500"), failure("http_500"), failure("stalled"), status=502, target=""),
        cost=lambda each: 0.25 * (each.output_tokens or 0),
    )
    facts = {"a/x": Facts(input_usd=1, output_usd=1), "b/x": Facts(input_usd=0, output_usd=0, per_hour_usd=2.5)}
    (a, b, c), more = targets_seen(found, [process()], POLICIES.values(), Standing(facts))
    assert ([a.name, b.name, c.name], more) == (["a/x", "b/x", "c/x"], 0)
    assert (a.attempts, a.faults) == ({"ok": 2, "failed": 3}, {"http_500": 2, "stalled": 1})
    assert (a.input_tokens, a.output_tokens, a.usd, a.lost_usd) == (14, 10, 2.5, 0)
    assert (b.attempts, b.lost, b.usd, b.lost_usd) == ({"cancelled": 1}, 1, 1.25, 1.25)
    assert [each.priced for each in (a, b, c)] == [True, True, False]
    assert [each.per_hour_usd for each in (a, b, c)] == [None, 2.5, None]
    assert (c.attempts, c.state, c.ttft_p50_ms, c.tps) == ({}, "up", None, None)


def test_how_a_target_stands_and_which_workers_ask_it() -> None:
    standing = Standing()
    for _ in range(30):
        standing.observe(answered(200, tpot_ms=10, target="a/x"))
    fault = FaultRecord(type="ProviderFault", kind="http_401", phase="head", message="no", status=401)
    now = clock.now_ns()
    standing.observe(
        Observation(id="1", call="c", target="b/x", sent_ns=now, end_ns=now, outcome="failed", fault=fault, status=401)
    )
    processes = [process(available={"a/x": True, "b/x": False}), process(8, available={"a/x": False, "b/x": False})]
    (a, b, c), _ = targets_seen(Counts(), processes, POLICIES.values(), standing)
    assert (a.state, a.why, a.asked_by, a.again_s) == ("up", "", 0.5, None)
    assert a.ttft_p50_ms == pytest.approx(200, rel=0.05)
    assert a.tps == pytest.approx(100, rel=0.05)
    assert (b.state, b.asked_by, b.again_s) == ("locked", 0, None)
    assert "http_401" in b.why
    assert c.asked_by == 1


def test_of_targets_that_clients_named_the_most_asked_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MOST_SHOWN", 2)
    asked = {"<b>bold</b>/m": 3, "x/rare": 1, "x/often": 5, "a/x": 1}
    found = counts(*(record(attempt(name), route=name) for name, times in asked.items() for _ in range(times)))
    seen, more = targets_seen(found, [process()], [parse('"a/x"')], Standing())
    assert ([each.name for each in seen], more) == (["a/x", "x/often", "<b>bold</b>/m"], 1)


def test_what_is_left_of_a_keys_limits() -> None:
    keys = [
        ClientKey("web", b"1", requests_per_minute=60, usd_per_day=2),
        ClientKey("free", b"2"),
    ]
    allowance = Allowance(keys, lambda each: 0.5)
    for _ in range(3):
        allowance.admit(keys[0])
    allowance.charge("web", attempt())
    found = counts(record(attempt()), record(client="free", status=502), record(client="gone"), cost=lambda each: 0.5)
    (web, free), more = clients_seen(found, keys, allowance)
    assert more == 0
    assert (web.requests.all, web.usd, web.requests_per_minute, web.usd_per_day) == (1, 0.5, 60, 2)
    assert (web.requests_used, web.spent_usd, web.held_usd) == (3, 0.5, 0)
    assert (free.requests.failed, free.usd, free.requests_per_minute, free.usd_per_day) == (1, 0, None, None)
    assert (free.requests_used, free.spent_usd, free.held_usd) == (None, None, None)


def test_of_many_clients_those_that_ask_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MOST_SHOWN", 2)
    keys = [ClientKey(name, name.encode()) for name in "abcd"]
    found = counts(record(client="d"), record(client="b"), record(client="b"))
    seen, more = clients_seen(found, keys, Allowance(keys, lambda each: None))
    assert ([each.name for each in seen], more) == (["b", "d"], 2)


def test_workers_that_live() -> None:
    processes = [process(7, began_ns=NS_PER_S, dropped=3), process(8, began_ns=5 * NS_PER_S)]
    first, second = workers_seen(processes, 6 * NS_PER_S)
    assert (first.pid, first.up_s, first.in_flight) == (7, 5, 2)
    assert (first.cpu_s, first.resident_bytes, first.dropped) == (1.5, 50, 3)
    assert (second.pid, second.up_s, second.dropped) == (8, 1, 0)
