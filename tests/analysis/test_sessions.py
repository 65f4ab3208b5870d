"""Sessions: critical paths, figures of a row with known truth, and reasons not to trust it."""

import msgspec
import pytest
from tests.analysis.made import MS, S, asked, failure, request
from tests.analysis.simulated_sessions import Server, simulated

from splitsecond.benchmark.findings.condition import condition_rows
from splitsecond.benchmark.findings.figures import FIGURES, TOTALS, ended
from splitsecond.benchmark.findings.findings import ConditionFindings
from splitsecond.benchmark.findings.row_fields import SessionFindings
from splitsecond.benchmark.findings.slo import Slo
from splitsecond.benchmark.statistics.sessions import critical_path, sessions_of, split
from splitsecond.core.catalog.price import Price
from splitsecond.core.observation import Observation, SessionTurn

PRICE = Price(input_usd=1.0, output_usd=5.0, cached_usd=0.1)
QUIET = Server(of_session=0.0, of_minute=0.0, of_turn=0.0, miss=0.0)
"""A server whose times do not scatter and whose cache never misses."""


def turn(name: str, at_ms: float, *, session: str = "s", number: int = 1, branch: str = "", wait_ms: float = 0.0,
         turns: int = 0, **changes: object) -> Observation:  # fmt: skip
    """A turn of 100 ms until its first token and 100 ms of tokens."""
    place = SessionTurn(session=session, branch=branch, turn=number, wait_ns=round(wait_ms * MS), turns=turns)
    sent = round(at_ms * MS)
    return msgspec.structs.replace(request(at_ms, name=name), turn=place, due_ns=sent, **changes)


def row_of(observations: list[Observation], concurrency: int = 4, **wanted: object) -> ConditionFindings:
    (row,) = condition_rows([asked(concurrency)], observations, [], **wanted)  # type: ignore[arg-type]
    return row


def session_of(row: ConditionFindings) -> SessionFindings:
    assert row.session is not None
    return row.session


# Critical paths.


def test_turns_of_one_branch_follow_each_other() -> None:
    turns = [turn("1", 1000), turn("2", 1700, number=2, wait_ms=500)]
    (session,) = sessions_of(turns)
    assert [o.id for o in critical_path(session.turns)] == ["1", "2"]
    found = split(session)
    assert (found.waiting_s, found.generating_s, found.tools_s) == pytest.approx((0.2, 0.2, 0.5))


def test_sub_agents_in_parallel_count_once() -> None:
    turns = [
        turn("1", 1000),
        turn("a1", 1200, branch="a"),
        turn("b1", 1200, branch="b"),
        turn("b2", 1900, branch="b", number=2, wait_ms=500),
        turn("2", 2100, number=2),
    ]
    (session,) = sessions_of(turns)
    assert [o.id for o in critical_path(session.turns)] == ["1", "b1", "b2", "2"]
    found = split(session)
    assert (found.waiting_s, found.generating_s, found.tools_s) == pytest.approx((0.4, 0.4, 0.5))
    assert session.end_ns - session.begin_ns == pytest.approx(1.3 * S)


def test_a_sub_agent_that_nobody_waits_for_is_not_on_the_path() -> None:
    turns = [turn("1", 1000), turn("a1", 1500, branch="a"), turn("2", 2200, number=2, wait_ms=1000)]
    (session,) = sessions_of(turns)
    assert [o.id for o in critical_path(session.turns)] == ["1", "2"]


# Figures with known truth.


def test_figures_of_a_server_without_scatter_are_exact() -> None:
    found = session_of(row_of(simulated(QUIET)))
    assert found.sessions == 40
    assert found.prefill_tokens_per_s.value == pytest.approx(1 / QUIET.new_s, rel=1e-3)
    assert found.ms_per_1000_cached_tokens.value == pytest.approx(1e6 * QUIET.reused_s, rel=1e-2)
    assert found.fixed_ms.value == pytest.approx(1e3 * QUIET.fixed_s, rel=1e-2)
    assert (found.misses, found.unprimed, found.broken) == (0, [], 0)
    assert found.cached_of_ideal.value == pytest.approx(1.0, abs=0.01)  # the cache holds whole blocks
    assert found.ok_share.value == 1.0


@pytest.mark.parametrize("reports", [True, False])
def test_cache_misses_are_found_by_usage_and_by_time(reports: bool) -> None:
    server = Server(reports=reports)
    found = session_of(row_of(simulated(server, sessions=80, rounds=8)))
    assert found.cache_by == ("usage" if reports else "times")
    low, high = found.miss_share.ci95
    assert low is not None
    assert high is not None
    assert low <= server.miss <= high
    assert found.miss_s.value == pytest.approx(7.4, rel=0.3)
    assert found.miss_waiting_share.value == pytest.approx(0.39, rel=0.3)


def test_time_of_a_session_is_the_sum_of_its_parts() -> None:
    row = row_of(simulated(Server(agents=3)))
    found = session_of(row)
    parts = [part.value or 0.0 for part in (found.waiting_s, found.generating_s, found.tools_s)]
    assert sum(parts) == pytest.approx(row.session_s.mean)


def test_classes_of_turns_add_up() -> None:
    row = row_of(simulated(Server()))
    found = session_of(row)
    for by in ("turn", "new tokens", "cached tokens"):
        assert sum(each.ttft_ms.n for each in found.classes if each.by == by) == found.turns
    first, later = (each.ttft_ms for each in found.classes if each.by == "turn")
    assert (first.p50, later.p50) == (row.ttft_first_turn_ms.p50, row.ttft_later_turns_ms.p50)
    assert first.n == found.sessions


def test_cost_of_a_session_with_and_without_the_cache() -> None:
    observations = simulated(QUIET)
    found = session_of(row_of(observations, prices={"a/x": PRICE}))
    measured = ended(observations)
    cached = sum(o.cached_tokens or 0 for o in measured)
    assert found.usd.value is not None
    assert found.usd_uncached.value is not None
    assert (found.usd_uncached.value - found.usd.value) * 40 == pytest.approx(cached * 0.9e-6)


def test_a_broken_session_is_slower_than_all_others() -> None:
    turns = [turn("1", 1000), turn("2", 1000, session="t")]
    broken = msgspec.structs.replace(failure(1300), turn=SessionTurn(session="t", turn=2), due_ns=1300 * MS)
    row = row_of([*turns, broken], 2)
    assert (row.session_s.n, row.session_s.failed, row.session_s.max) == (2, 1, 0.2)
    assert session_of(row).ok_share.value == 0.5


def test_a_session_that_was_cut_off_counts_by_its_turns_only() -> None:
    turns = [turn("1", 1000, turns=1), turn("2", 1000, session="t", turns=2)]
    row = row_of(turns, 2)
    found = session_of(row)
    assert (row.session_s.n, row.ttft_ms.n, found.sessions, found.cut_off, found.broken) == (1, 2, 2, 1, 0)


def test_requests_outside_sessions_have_no_session_figures() -> None:
    row = row_of([request(1000 + 200 * at, name=str(at)) for at in range(10)], 1)
    assert row.session is None
    assert row.session_s.n == 0
    assert all(total.value(row) is None for total in TOTALS.values() if total.group == "Sessions")


# Intervals count rounds and sessions.


def test_too_few_sessions_have_no_interval() -> None:
    row = row_of(simulated(Server(), sessions=6, rounds=2))
    found = session_of(row)
    assert row.ttft_ms.n > 40
    assert (row.ttft_ms.ci95, row.ttft_ms.sessions, row.ttft_ms.rounds) == ({}, 0, 0)
    assert found.prefill_tokens_per_s.value is not None
    for each in (found.prefill_tokens_per_s, found.waiting_s, found.cached_share, found.miss_share, found.ok_share):
        assert each.ci95 == (None, None)
    assert "6 sessions are too few for intervals: it takes 8, or 5 rounds." in row.notes


def test_sessions_in_few_rounds_have_intervals_of_their_own_scatter() -> None:
    row = row_of(simulated(Server(of_session=0.5), sessions=24, rounds=2))
    assert (row.ttft_ms.sessions, row.ttft_ms.rounds) == (24, 0)
    effective = row.ttft_ms.n_effective
    assert effective is not None
    assert effective < row.ttft_ms.n / 3
    assert session_of(row).prefill_tokens_per_s.ci95 != (None, None)


def test_goodput_of_turns_has_the_interval_of_sessions() -> None:
    slo = Slo(limits={"ttft": 700.0})
    observations = simulated(Server(of_session=0.5), sessions=24, rounds=2)
    alone = [msgspec.structs.replace(o, turn=None) for o in observations]
    widths = []
    for each in (observations, alone):
        goodput = row_of(each, slo=slo).goodput
        assert goodput is not None
        assert goodput.ci95[0] is not None
        assert goodput.ci95[1] is not None
        widths.append(goodput.ci95[1] - goodput.ci95[0])
    assert widths[0] > 1.5 * widths[1]


def test_figures_of_sessions_are_compared_by_session() -> None:
    sample = FIGURES["session_s"].sample(ended(simulated(Server())))
    assert len(sample.values) == 40
    assert sample.spread
    assert FIGURES["ttft_later_turns_ms"].sample(ended(simulated(Server()))).clusters is not None


# Validity.


def invalid(row: ConditionFindings) -> str:
    (reason,) = row.invalid
    return reason


def test_a_row_of_healthy_sessions_is_valid() -> None:
    row = row_of(simulated(Server(breaks=0.03)))
    assert row.invalid == []
    assert not any("although each was new" in note for note in row.notes)
    assert row.instrument.in_flight == pytest.approx(4.0, abs=0.05)


@pytest.mark.parametrize("reports", [True, False])
def test_badly_primed_sessions_make_a_row_invalid(reports: bool) -> None:
    reason = invalid(row_of(simulated(Server(primes_well=False, reports=reports))))
    assert reason.startswith("the cache was primed badly in ")
    assert " sessions (s" in reason
    assert " more): their first turn " in reason
    assert ("reports no cached tokens and takes as long" in reason) == reports


def test_a_cache_that_misses_everywhere_is_the_providers() -> None:
    assert row_of(simulated(Server(miss=0.4))).invalid == []


def test_broken_sessions_make_a_row_invalid() -> None:
    row = row_of(simulated(Server(breaks=0.4)))
    assert "sessions broke (" in invalid(row)
    assert "http_500), so later turns are those of the other sessions only." in invalid(row)


def test_turns_that_leave_late_make_a_row_invalid() -> None:
    late = [
        msgspec.structs.replace(o, due_ns=o.due_ns - 400 * MS) if o.role == "measured" else o for o in simulated(QUIET)
    ]
    assert invalid(row_of(late)).startswith("client overloaded: turns were sent 400 ms late on average, so session ")
