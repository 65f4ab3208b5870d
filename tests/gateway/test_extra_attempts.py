"""Attempts beyond the first of a call: what each was for."""

from msgspec.structs import replace
from tests.cases import each_case
from tests.gateway.test_metrics import record

from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.observation import Observation, Outcome, Role
from splitsecond.gateway.records.extra_attempts import extra_attempts
from splitsecond.gateway.records.metrics import Metrics
from splitsecond.routing.construction.expression import hedge_targets, parse


def sent(
    target: str,
    begin_ms: float,
    end_ms: float,
    *,
    outcome: Outcome = "ok",
    role: Role = "loser",
    connecting_ms: int = 0,
) -> Observation:
    """An attempt that began to connect `begin_ms` after its call arrived."""
    return Observation(
        id="r.1", call="r", target=target, role=role, outcome=outcome, start_ns=0,
        tcp_ns=connecting_ms * NS_PER_MS,
        sent_ns=round((begin_ms + connecting_ms) * NS_PER_MS), end_ns=round(end_ms * NS_PER_MS),
    )  # fmt: skip


FAILED = sent("a/x", 0, 90, outcome="failed")
UNSENT = replace(sent("b/x", 0, 91, outcome="cancelled"), sent_ns=None)


@each_case(
    ("attempts", "found"),
    [
        ([sent("a/x", 0, 90, role="winner")], []),
        ([FAILED, sent("b/x", 91, 200, role="winner")], [("fallback", True)]),
        ([FAILED, sent("a/x", 120, 200, role="winner")], [("retry", True)]),
        (
            [FAILED, sent("b/x", 91, 95, outcome="failed"), sent("c/x", 96, 99)],
            [("fallback", False)] * 2,
        ),
        ([sent("a/x", 0, 90), sent("b/x", 95, 300, role="winner")], [("escalation", True)]),
        ([sent("a/x", 0, 300), sent("b/x", 80, 200, role="winner")], [("hedge", True)]),
        (
            [sent("a/x", 0, 90, role="winner"), sent("b/x", 0.4, 60, outcome="cancelled")],
            [("race", False)],
        ),
        ([sent("a/x", 0, 90), sent("b/x", 0, 60, connecting_ms=30)], [("race", False)]),
        (
            [sent("a/x", 0, 90, role="winner"), sent("b/x", 15, 60, outcome="cancelled")],
            [("race", False)],
        ),
        ([sent("a/x", 0, 90, role="winner"), UNSENT], [("race", False)]),
        (
            [sent("b/x", 80, 200, role="winner"), sent("a/x", 0, 200, outcome="cancelled")],
            [("hedge", True)],
        ),
    ],
)
def test_the_kind_of_each_attempt(
    attempts: list[Observation], found: list[tuple[str, bool]]
) -> None:
    assert list(extra_attempts(record(*attempts))) == found


@each_case(
    ("policy", "targets"),
    [
        ("a/x", set()),
        ('race("a/x", "b/x")', set()),
        ('fallback(hedge("a/x", "b/x"), "c/x")', {"b/x"}),
        ('race("a/x", hedge("b/x", "c/x"))', {"c/x"}),
        ('hedge(hedge("a/x", "b/x"), race("c/x", "d/x"))', {"b/x", "c/x", "d/x"}),
        ('by_complexity(simple="a/x", complex=hedge("b/x", "c/x"))', {"c/x"}),
    ],
)
def test_hedge_targets_are_the_second_branches_of_hedge(policy: str, targets: set[str]) -> None:
    assert hedge_targets(parse(policy)) == targets


def test_only_attempts_at_hedge_targets_count_as_hedges() -> None:
    late = record(sent("a/x", 0, 300), sent("b/x", 80, 200, role="winner"), sent("c/x", 90, 200))
    assert list(extra_attempts(late, hedged=())) == [("race", True), ("race", False)]
    assert list(extra_attempts(late, hedged={"c/x"})) == [("race", True), ("hedge", False)]
    metrics = Metrics(hedged=lambda route: {"c/x"} if route == "fast" else None)
    for route in ("fast", "other"):
        metrics.add(record(*late.attempts, route=route))
    assert metrics.counts.extra == {
        ("fast", "race", "won"): 1, ("fast", "hedge", "lost"): 1,
        ("other", "hedge", "won"): 1, ("other", "hedge", "lost"): 1,
    }  # fmt: skip


def test_extra_attempts_are_counted_by_route() -> None:
    metrics = Metrics()
    for route in ("fast", "fast", "safe"):
        metrics.add(record(FAILED, sent("b/x", 91, 200, role="winner"), route=route))
    assert metrics.counts.extra == {("fast", "fallback", "won"): 2, ("safe", "fallback", "won"): 1}
