"""Two runs of sessions: what is compared, and gates on it."""

from functools import cache

import pytest
from msgspec.structs import replace
from tests.analysis.made import asked
from tests.analysis.simulated_sessions import Server, simulated

from splitsecond.benchmark.findings.compare import Comparison, RunData, compare
from splitsecond.benchmark.findings.gate import check_changes, parse_equivalence, parse_gate
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import FigureChange, Run
from splitsecond.core.catalog.price import Price
from splitsecond.core.wording import LINE

PRICE = Price(input_usd=1.0, output_usd=5.0, cached_usd=0.1)
CALM = Server(of_session=0.1, of_minute=0.05, of_turn=0.1, miss=0.02)
FORGETFUL = Server(of_session=0.1, of_minute=0.05, of_turn=0.1, miss=0.5)
TESTED = ("session_s", "session_waiting_s", "cached_of_ideal", "usd_per_session")


@cache
def run(server: Server, seed: int, *, rate: float | None = None, turns: int = 480) -> RunData:
    observations = simulated(server, seed, turns=turns, rounds=8)
    rows = condition_rows(
        [asked(None if rate else 4, rate=rate)], observations, [], prices={"a/x": PRICE}
    )
    return RunData(
        Run(id=str(seed), began="2026-11-26T00:00:00Z", began_ns=0, conditions=rows), observations
    )


@pytest.fixture(scope="module")
def forgets() -> Comparison:
    """A server that keeps prompts in its cache, and then loses half of them."""
    return compare([run(CALM, 1)], [run(FORGETFUL, 2)])


def totals(of: Comparison) -> dict[str, FigureChange]:
    return {each.figure: each for each in of.conditions[0].totals}


def test_a_cache_that_loses_prompts_makes_sessions_worse(forgets: Comparison) -> None:
    found = totals(forgets)
    assert {name: (found[name].real, found[name].better) for name in TESTED} == dict.fromkeys(
        TESTED, (True, False)
    )
    for name in TESTED:
        low, high = found[name].ci95 or (0.0, 0.0)
        assert low <= (found[name].change or 0.0) <= high
    words = [
        each
        for each in forgets.statements
        if "cached, of the ideal" in each or "cost of a session" in each
    ]
    assert len(words) == 2
    assert all("went from" in each and "worse" in each for each in words)
    assert "% to " in words[0]
    assert "$" in words[1]
    short = [line for each in forgets.short_statements for line in each.split("\n")]
    assert max(map(len, short)) <= LINE + 20


def test_equal_servers_have_equal_sessions() -> None:
    found = totals(compare([run(CALM, 3)], [run(CALM, 4)]))
    assert not any(found[name].real for name in TESTED)
    assert all(found[name].ci95 for name in TESTED)


def test_runs_without_sessions_have_no_figures_of_sessions() -> None:
    alone = [
        replace(each, turn=None) for each in run(CALM, 3).observations if each.role == "measured"
    ]
    rows = condition_rows([asked(4)], alone, [])
    data = RunData(Run(id="p", began="2026-11-26T00:00:00Z", began_ns=0, conditions=rows), alone)
    assert not totals(compare([data], [data])).keys() & set(TESTED)


@pytest.mark.parametrize(
    ("text", "breach"),
    [
        ("session_s > +1%", True),
        ("session_s > +1000%", False),
        ("cached_of_ideal < -10%", True),
        ("usd_per_session > +10%", True),
        ("session_waiting_s > +10%", True),
    ],
)
def test_gates_judge_changes_of_sessions(forgets: Comparison, text: str, breach: bool) -> None:
    assert bool(check_changes([parse_gate(text)], forgets)) == breach


@pytest.mark.parametrize(
    ("text", "breach"),
    [
        ("session_s > 5", True),
        ("session_s > 500", False),
        ("cache_miss_share > 0.1", True),
        ("ttft_later_turns_ms.p50 > 100", True),
        ("sessions_ok_share < 0.5", False),
    ],
)
def test_gates_judge_figures_of_sessions(text: str, breach: bool) -> None:
    assert bool(parse_gate(text).check(run(FORGETFUL, 2).run.conditions)) == breach


def test_equal_sessions_are_shown_to_be_equivalent(forgets: Comparison) -> None:
    equal = compare([run(CALM, 3)], [run(CALM, 4)])
    wide = parse_equivalence("cached_of_ideal ±50%")
    assert wide.check(equal) == []
    (reason,) = parse_equivalence("cached_of_ideal ±10%").check(forgets)
    assert "differs by more than 10%" in reason


def test_a_rate_of_sessions_is_not_one_of_requests() -> None:
    found = compare([run(CALM, 1, rate=0.1, turns=160)], [run(FORGETFUL, 2, rate=0.1, turns=160)])
    words = " ".join(found.statements)
    assert "at 0.1 sessions/s" in words
    assert "requests/s" not in words
