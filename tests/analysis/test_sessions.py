"""Sessions: critical paths, figures of a row with known truth, and reasons not to trust it."""

import msgspec
import pytest
from tests.analysis.made import MS, S, asked, failure, request
from tests.analysis.simulated_sessions import Server, simulated

from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS, ended
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.row_fields import SessionFindings
from splitsecond.benchmark.rows.sessions import session_findings
from splitsecond.benchmark.rows.slo import Slo
from splitsecond.benchmark.statistics.sessions import critical_path, session_times, sessions_of
from splitsecond.core.catalog.price import Price
from splitsecond.core.observation import Observation, SessionTurn

PRICE = Price(input_usd=1.0, output_usd=5.0, cached_usd=0.1)
QUIET = Server(of_session=0.0, of_minute=0.0, of_turn=0.0, miss=0.0)
"""A server whose times do not scatter and whose cache never misses."""


def turn(
    name: str,
    at_ms: float,
    *,
    session: str = "s",
    number: int = 1,
    branch: str = "",
    wait_ms: float = 0.0,
    last: bool = False,
    **changes: object,
) -> Observation:
    """A turn of 100 ms until its first token and 100 ms of tokens."""
    place = SessionTurn(
        session=session, branch=branch, turn=number, wait_ns=round(wait_ms * MS), last=last
    )
    return msgspec.structs.replace(
        request(at_ms, name=name), turn=place, due_ns=round(at_ms * MS), **changes
    )


def row_of(
    observations: list[Observation], concurrency: int = 4, **wanted: object
) -> ConditionFindings:
    (row,) = condition_rows([asked(concurrency)], observations, [], **wanted)  # type: ignore[arg-type]
    return row


def session_of(row: ConditionFindings) -> SessionFindings:
    assert row.session is not None
    return row.session


def spent(turns: list[Observation]) -> tuple[float, float, float]:
    """Seconds of the only session: waiting, generating and in tools."""
    (found,) = session_times(turns)
    return found.waiting_s, found.generating_s, found.tools_s


# Critical paths.


def test_turns_of_one_branch_follow_each_other() -> None:
    turns = [turn("1", 1000), turn("2", 1700, number=2, wait_ms=500)]
    (session,) = sessions_of(turns)
    assert [o.id for o in critical_path(session.turns)] == ["1", "2"]
    assert spent(turns) == pytest.approx((0.2, 0.2, 0.5))


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
    assert spent(turns) == pytest.approx((0.4, 0.4, 0.5))


def test_a_sub_agent_that_nobody_waits_for_is_not_on_the_path() -> None:
    turns = [turn("1", 1000), turn("a1", 1500, branch="a"), turn("2", 2200, number=2, wait_ms=1000)]
    (session,) = sessions_of(turns)
    assert [o.id for o in critical_path(session.turns)] == ["1", "2"]


# Time of sessions.


def test_session_time_is_the_time_of_all_per_finished_session() -> None:
    first = [turn("1", 1000), turn("2", 1700, number=2, wait_ms=500, last=True)]
    second = [turn("3", 1900, session="t"), turn("4", 2800, session="t", number=2, wait_ms=700)]
    found = session_of(row_of([*first, *second], 1))
    assert (found.sessions, found.finished, found.broken) == (2, 1, 0)
    assert found.session_s.value == pytest.approx(2.0)
    assert found.waiting_share.value == pytest.approx(0.2)
    assert found.generating_share.value == pytest.approx(0.2)
    assert found.tools_share.value == pytest.approx(0.6)


def test_a_session_that_was_joined_counts_from_there() -> None:
    place = SessionTurn(session="s", turn=4, primes=True)
    priming = msgspec.structs.replace(request(700, name="p", tokens=1), turn=place, role="warmup")
    turns = [
        priming,
        turn("5", 1000, number=5, wait_ms=100),
        turn("6", 1300, number=6, wait_ms=100, last=True),
    ]
    found = session_of(row_of(turns, 1))
    assert found.session_s.value == pytest.approx(0.5)
    assert found.finished == 1


def test_turns_after_the_measured_ones_do_not_count() -> None:
    turns = [turn("1", 1000), turn("2", 1300, number=2, wait_ms=100, last=True)]
    beside = [
        turn("3", 1000, session="t"),
        turn("4", 1450, session="t", number=2, wait_ms=250, role="cooldown"),
    ]
    found = session_of(row_of([*turns, *beside], 2))
    assert (found.turns, found.finished) == (3, 1)
    # two sessions of half a second each, one of them finished
    assert found.session_s.value == pytest.approx(1.0)
    assert found.waiting_share.value == pytest.approx(0.35)


def test_a_session_that_ends_a_round_does_not_count_as_finished() -> None:
    others = [
        turn("1", 1000, last=True),
        turn("2", 1000, session="t"),
        turn("3", 1200, session="t", number=2),
    ]
    alone = session_of(row_of(others, 2))
    ending = msgspec.structs.replace(others[-1], turn=SessionTurn(session="t", turn=2, last=True))
    found = session_of(row_of([*others[:-1], ending], 2))
    assert (alone.finished, found.finished) == (1, 2)
    assert found.session_s.value == alone.session_s.value == pytest.approx(0.6)


def test_a_session_without_a_measured_turn_counts_as_load() -> None:
    first = turn("1", 1000, last=True)
    others = [turn("2", 1000, session="t"), turn("3", 1200, session="t", number=2)]
    cut = turn(
        "4",
        1200,
        session="u",
        role="cooldown",
        outcome="cancelled",
        token_at=[],
        last_token_ns=None,
    )
    row = row_of([first, *others, cut], 2)
    found = session_of(row)
    assert (found.sessions, found.finished, row.instrument.in_flight) == (2, 1, 2.0)
    # two sessions in flight for 0.4 s, in which one was finished
    assert found.session_s.value == pytest.approx(0.8)


def test_a_critical_path_with_requests_of_no_length_ends() -> None:
    cut = [
        msgspec.structs.replace(
            failure(1300, took_ms=0), id=name, turn=SessionTurn(session="s", branch=name, turn=1)
        )
        for name in ("a", "b")
    ]
    assert [o.id for o in critical_path([turn("1", 1000), *cut])] == ["1", "a"]


def test_a_broken_session_has_no_end() -> None:
    turns = [turn("1", 1000, last=True), turn("2", 1000, session="t")]
    failed = SessionTurn(session="t", turn=2)
    broken = msgspec.structs.replace(failure(1300), turn=failed, due_ns=1300 * MS)
    row = row_of([*turns, broken], 2)
    found = session_of(row)
    assert (found.ok_share.value, found.broken, found.finished) == (0.5, 1, 1)
    assert row.ttft_later_turns_ms.n == 0
    assert row.ttft_first_turn_ms.n == 2


def test_mean_time_of_whole_sessions_is_found() -> None:
    made = simulated(QUIET, turns=4_000, rounds=1, slots=16, tokens_listed=False)
    whole = [s for s in sessions_of(made) if s.finished and not s.priming]
    mean = sum(s.last_ns - s.begin_ns for s in whole) / len(whole) / S
    found = session_findings(made, {}, intervals=False)
    assert found is not None
    assert found.session_s.value == pytest.approx(mean, rel=0.06)


# Figures with known truth.


def test_figures_of_a_server_without_scatter_are_exact() -> None:
    found = session_of(row_of(simulated(QUIET)))
    assert found.turns == 400
    assert found.prefill_tokens_per_s.value == pytest.approx(1 / QUIET.new_s, rel=1e-3)
    assert found.ms_per_1000_cached_tokens.value == pytest.approx(1e6 * QUIET.reused_s, rel=1e-2)
    assert found.fixed_ms.value == pytest.approx(1e3 * QUIET.fixed_s, rel=1e-2)
    assert (found.misses, found.unprimed, found.broken) == (0, [], 0)
    # the cache holds whole blocks
    assert found.cached_of_ideal.value == pytest.approx(1.0, abs=0.01)
    assert found.ok_share.value == 1.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reports", [True, False])
def test_cache_misses_are_found_by_usage_and_by_time(reports: bool) -> None:
    server = Server(reports=reports)
    found = session_of(row_of(simulated(server, turns=800, rounds=8)))
    assert found.cache_by == ("usage" if reports else "times")
    low, high = found.miss_share.ci95
    assert low is not None
    assert high is not None
    assert low <= server.miss <= high
    assert found.miss_s.value == pytest.approx(5.8, rel=0.35)
    assert found.miss_waiting_share.value == pytest.approx(0.22, rel=0.35)


def test_shares_of_the_time_of_sessions_add_up() -> None:
    found = session_of(row_of(simulated(Server(agents=3))))
    parts = [
        part.value or 0.0
        for part in (found.waiting_share, found.generating_share, found.tools_share)
    ]
    assert sum(parts) == pytest.approx(1)
    assert found.by_round["session_s"].keys() == {1, 2, 3, 4, 5}


def test_classes_of_turns_add_up() -> None:
    row = row_of(simulated(Server()))
    found = session_of(row)
    for by in ("turn", "new tokens", "cached tokens"):
        assert sum(each.ttft_ms.n for each in found.classes if each.by == by) == found.turns
    first, later = (each.ttft_ms for each in found.classes if each.by == "turn")
    assert (first.p50, later.p50) == (row.ttft_first_turn_ms.p50, row.ttft_later_turns_ms.p50)
    assert first.n + later.n == found.turns


def test_cost_of_a_session_with_and_without_the_cache() -> None:
    observations = simulated(QUIET)
    found = session_of(row_of(observations, prices={"a/x": PRICE}))
    measured = ended(observations)
    cached = sum(o.cached_tokens or 0 for o in measured)
    assert found.usd.value is not None
    assert found.usd_uncached.value is not None
    finished = sum(size for _, size in found.by_round["usd_per_session"].values())
    assert (found.usd_uncached.value - found.usd.value) * finished == pytest.approx(cached * 0.9e-6)


def test_requests_outside_sessions_have_no_session_figures() -> None:
    row = row_of([request(1000 + 200 * at, name=str(at)) for at in range(10)], 1)
    assert row.session is None
    assert row.ttft_later_turns_ms.n == 0
    assert all(total.value(row) is None for total in TOTALS.values() if total.group == "Sessions")


# Intervals count rounds and sessions.


def test_too_few_sessions_have_no_interval() -> None:
    row = row_of(simulated(Server(), turns=18, slots=2, rounds=2))
    found = session_of(row)
    assert row.ttft_ms.n == 18
    assert (row.ttft_ms.ci95, row.ttft_ms.sessions, row.ttft_ms.rounds) == ({}, 0, 0)
    assert found.prefill_tokens_per_s.value is not None
    for each in (
        found.prefill_tokens_per_s,
        found.waiting_share,
        found.cached_share,
        found.miss_share,
        found.ok_share,
    ):
        assert each.ci95 == (None, None)
    assert (
        f"{found.sessions} sessions are too few for intervals: it takes 8, or 5 rounds."
        in row.notes
    )


def test_few_rounds_leave_the_scatter_of_sessions() -> None:
    row = row_of(simulated(Server(of_session=0.5), turns=240, rounds=2))
    assert (row.ttft_ms.sessions, row.ttft_ms.rounds) == (session_of(row).sessions, 0)
    effective = row.ttft_ms.n_effective
    assert effective is not None
    assert effective < row.ttft_ms.n / 3
    assert session_of(row).prefill_tokens_per_s.ci95 != (None, None)


def test_goodput_of_turns_has_the_interval_of_sessions() -> None:
    slo = Slo(limits={"ttft": 700.0})
    observations = simulated(Server(of_session=0.5), turns=240, rounds=2)
    alone = [msgspec.structs.replace(o, turn=None) for o in observations]
    widths = []
    for each in (observations, alone):
        goodput = row_of(each, slo=slo).goodput
        assert goodput is not None
        assert goodput.ci95[0] is not None
        assert goodput.ci95[1] is not None
        widths.append(goodput.ci95[1] - goodput.ci95[0])
    assert widths[0] > 1.5 * widths[1]


def test_a_sample_of_turns_knows_their_sessions() -> None:
    sample = FIGURES["ttft_later_turns_ms"].sample(ended(simulated(Server())))
    assert sample.spread
    assert sample.clusters is not None
    assert len(sample.clusters) == len(sample.values) < 400


# Validity.


def invalid(row: ConditionFindings) -> str:
    (reason,) = row.invalid
    return reason


def test_a_row_of_healthy_sessions_is_valid() -> None:
    row = row_of(simulated(Server(breaks=0.003)))
    assert row.invalid == []
    assert not any("although each was new" in note for note in row.notes)
    assert row.instrument.in_flight == pytest.approx(4.0, abs=0.05)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reports", [True, False])
def test_badly_primed_sessions_make_a_row_invalid(reports: bool) -> None:
    reason = invalid(row_of(simulated(Server(primes_well=False, reports=reports))))
    assert reason.startswith("the cache was primed badly in ")
    assert " sessions (" in reason
    assert " more): their first turn " in reason
    assert ("reports no cached tokens and takes as long" in reason) == reports


def test_a_cache_that_misses_everywhere_is_the_providers() -> None:
    assert row_of(simulated(Server(miss=0.4))).invalid == []


def test_broken_sessions_make_a_row_invalid() -> None:
    row = row_of(simulated(Server(breaks=0.05)))
    assert "sessions that ended broke (" in invalid(row)
    assert "http_500), so later turns are those of the other sessions only." in invalid(row)


def test_turns_that_leave_late_make_a_row_invalid() -> None:
    late = [
        msgspec.structs.replace(o, due_ns=o.due_ns - 400 * MS) if o.role == "measured" else o
        for o in simulated(QUIET)
    ]
    assert invalid(row_of(late)).startswith(
        "client overloaded: turns were sent 400 ms late on average, so session "
    )
