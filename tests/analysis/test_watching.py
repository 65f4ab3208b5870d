"""Rounds judged by those before them: the sentence about each, which rounds count, what a gate
compares with."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.analysis.made import row
from tests.cases import each_case

from splitsecond.benchmark.findings.gate import parse_gate
from splitsecond.benchmark.findings.watching import RoundNews, WatchHistory, WatchRound
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.benchmark.statistics.expectation import MIN
from splitsecond.log.statistics.summary import Summary

JITTER = (1.0, 1.03, 0.98, 1.01, 0.96, 1.02, 0.99, 1.04, 0.97, 1.0)


def of(value: float | None, tail: float = 1.5) -> Summary:
    return Summary(n=20, p50=value, p95=None if value is None else value * tail)


def measured(
    ttft_ms: float | None = 200.0, tps: float | None = 80.0, errors: int = 0, **changes: Any
) -> ConditionFindings:
    return row(ttft_ms=of(ttft_ms), tps=of(tps), requests=20, errors=errors, **changes)


def moment(number: int) -> str:
    return f"2026-11-{20 + number // 24:02d}T{number % 24:02d}:00:00.000+00:00"


def watched(
    rows: Sequence[Sequence[ConditionFindings]],
) -> tuple[WatchHistory, list[dict[str, list[RoundNews]]]]:
    history = WatchHistory()
    return history, [
        history.add(WatchRound(at=moment(n), rows=list(each))) for n, each in enumerate(rows)
    ]


def usual(count: int = 60) -> list[list[ConditionFindings]]:
    return [[measured(200 * JITTER[n % 10], 80 * JITTER[n * 3 % 10])] for n in range(count)]


def words(found: dict[str, list[RoundNews]], condition: str = "c") -> str:
    return " ".join(news.text for news in found[condition])


def test_the_first_rounds_are_counted() -> None:
    _, rounds_news = watched(usual(60))
    assert words(rounds_news[0]) == "learning what is usual: round 1 of 8."
    assert words(rounds_news[MIN - 1]).endswith("round 8 of 8.")
    assert {words(each) for each in rounds_news[MIN:48]} == {
        "as usual, by the wide limits of the first days."
    }
    assert words(rounds_news[-1]) == "as usual."


@each_case(
    ("last", "said", "good"),
    [
        ([measured(400)], "TTFT p50 is unusual: 400 ms, usually 187 to 213.", False),
        ([measured(100)], "TTFT p50 is unusual: 100 ms, usually 187 to 213.", True),
        ([measured(tps=40)], "TPS p50 is unusual: 40 tokens/s, usually 74.8 to 85.5.", False),
        ([measured(tps=120)], "TPS p50 is unusual: 120 tokens/s, usually 74.8 to 85.5.", True),
        ([measured(errors=10)], "error share is unusual: 50%, usually up to 5%.", False),
        ([measured()], "as usual.", None),
    ],
    ids=["slow start", "quick start", "slow", "quick", "errors", "usual"],
)
def test_round_is_judged_against_the_past(
    last: list[ConditionFindings], said: str, good: bool | None
) -> None:
    _, rounds_news = watched([*usual(), last])
    (news,) = rounds_news[-1]["c"]
    assert (news.text, news.good) == (said, good)


def test_drift_is_stated_while_it_lasts_and_when_it_ends() -> None:
    rounds = [*usual(70), *[[measured(300)]] * 5, *[[measured(200)]] * 3]
    history, rounds_news = watched(rounds)
    for found in rounds_news[70:72]:
        assert words(found).startswith("TTFT p50 is unusual: 300 ms")
    for found in rounds_news[72:75]:
        (news,) = found["c"]
        assert news.text.startswith(
            "TTFT p50 has drifted since 2026-11-22 22:00, from 200 ms to 300 ms (+"
        )
        assert news.good is False
    assert words(rounds_news[-1]) == (
        "TTFT p50 drifted on 2026-11-22 22:00, from 200 ms to 300 ms (+49.8%), and came back on "
        "2026-11-23 03:00."
    )
    everything = history.findings(3600)
    (statement,) = everything.statements
    assert (
        statement
        == f"a/x at concurrency 1: {words(rounds_news[-1]).removesuffix('.')}, for the worse."
    )
    ttft, tps, errors = everything.lines
    assert [line.figure for line in everything.lines] == ["ttft_ms", "tps", "errors"]
    assert [point.state for point in ttft.points[69:77]] == [
        "usual",
        *["drifted"] * 5,
        *["usual"] * 2,
    ]
    (drift,) = ttft.drifts
    assert (drift.since, drift.until, drift.worse, drift.settled) == (
        moment(70),
        moment(75),
        True,
        False,
    )
    assert ttft.drifting is None
    assert not tps.drifts + errors.drifts
    assert ttft.points[-1].tail == 300.0


def test_faster_is_a_drift_for_the_better() -> None:
    history, rounds_news = watched([*usual(70), *[[measured(tps=120)]] * 3])
    assert rounds_news[-1]["c"][0].good is True
    assert (
        history.findings(60)
        .statements[0]
        .endswith("from 80 tokens/s to 120 tokens/s (+50%), for the better.")
    )


def test_lasting_drift_becomes_the_usual_level() -> None:
    history, rounds_news = watched(
        [*usual(60), *[[measured(300 * jitter)] for jitter in JITTER * 5]]
    )
    settled = next(
        n for n, found in enumerate(rounds_news) if "is usual from now on" in words(found)
    )
    assert settled == 60 + 2 + 24, "24 rounds after the round that showed it"
    (after,) = {words(found) for found in rounds_news[settled + 1 :]}
    assert after.startswith("TTFT p50 has drifted since 2026-11-22 12:00, from 200 ms to 300 ms (+")
    assert after.endswith("%), and stays there. `--accept` acknowledges it.")
    assert "and stays there, for the worse." in history.findings(60).statements[0]


def test_a_drift_that_stays_is_open_until_it_is_accepted() -> None:
    history, _ = watched([*usual(), *[[measured(300)]] * 30])
    (line, *_) = history.findings(3600).lines
    assert line.drifting
    assert (line.drifting.since, line.drifting.settled) == (moment(60), True)
    (statement,) = history.accept()
    assert "TTFT p50 has drifted since 2026-11-22 12:00, from 200 ms to 299 ms" in statement
    found = history.findings(3600)
    assert (found.lines[0].drifting, history.accept()) == (None, [])
    assert "and stayed there" in found.statements[0]
    news = history.add(WatchRound(at=moment(90), rows=[measured(300)]))
    assert words(news) == "as usual."


def test_an_accepted_drift_is_the_usual_level_at_once() -> None:
    history, _ = watched([*usual(), *[[measured(300)]] * 3])
    assert len(history.accept()) == 1
    found = [history.add(WatchRound(at=moment(63 + n), rows=[measured(300)])) for n in range(3)]
    assert {words(news) for news in found} == {"as usual."}


def test_a_lasting_level_of_the_first_minutes_is_a_drift() -> None:
    """Rounds of ten seconds: 40 ms twelve times, then 61 ms for good."""
    history = WatchHistory()
    for number in range(50):
        at = f"2026-11-20T10:{number // 6:02d}:{number % 6 * 10:02d}.000+00:00"
        history.add(
            WatchRound(at=at, rows=[measured((40 if number < 12 else 61) * JITTER[number % 10])])
        )
    found = history.findings(10)
    drift = found.lines[0].drifting
    assert drift
    assert (drift.since, drift.worse, drift.settled) == (
        "2026-11-20T10:02:00.000+00:00",
        True,
        False,
    )
    assert drift.before == pytest.approx(40, rel=0.02)
    assert drift.after == pytest.approx(61, rel=0.02)
    assert "TTFT p50 has drifted since 2026-11-20 10:02, from 40 ms to 61" in found.statements[0]


def test_current_drifts_are_listed_before_past_ones() -> None:
    rounds = [
        *usual(70),
        *[[measured(300)]] * 3,
        *usual(4),
        *[[measured(tps=40)]] * 3,
        *usual(4),
        *[[measured(120)]] * 3,
    ]
    said = watched(rounds)[0].findings(60).statements
    assert [sentence.split(": ")[1].split(",")[0] for sentence in said] == [
        "TTFT p50 has drifted since 2026-11-23 12:00",
        "TPS p50 drifted on 2026-11-23 05:00",
        "TTFT p50 drifted on 2026-11-22 22:00",
    ]


def test_each_target_and_load_is_judged_by_its_own_past() -> None:
    def both(ttft_ms: float, other_ms: float) -> list[ConditionFindings]:
        return [measured(ttft_ms), measured(other_ms, target="b/y", condition="d", concurrency=8)]

    history, rounds_news = watched([*[both(200 * j, 900 * j) for j in JITTER * 6], both(200, 200)])
    assert words(rounds_news[-1]) == "as usual."
    assert words(rounds_news[-1], "d").startswith("TTFT p50 is unusual: 200 ms")
    assert [line.name for line in history.findings(60).lines[::3]] == [
        "a/x at concurrency 1",
        "b/y at concurrency 8",
    ]


def test_untrusted_rounds_are_neither_judged_nor_remembered() -> None:
    history = WatchHistory()
    for n, each in enumerate(usual(10)):
        history.add(WatchRound(at=moment(n), rows=each))
    before = history.findings(60).lines
    invalid = history.add(
        WatchRound(at=moment(10), rows=[measured(900, invalid=["the client was too busy."])])
    )
    cut = history.add(WatchRound(at=moment(11), rows=[measured(900)], finished=False))
    none = history.add(
        WatchRound(at=moment(12), rows=[row(notes=["HTTP 401."])], failed="no network")
    )
    assert words(invalid) == "INVALID: the client was too busy."
    assert words(cut) == "interrupted, so it is not judged."
    assert words(none) == "not measured. HTTP 401."
    found = history.findings(60)
    assert found.lines == before
    assert (found.rounds, found.failed) == (13, {moment(12): "no network"})


def test_requests_that_all_failed_leave_only_their_errors() -> None:
    history, rounds_news = watched([*usual(10), *[[measured(None, None, errors=20)]] * 3])
    assert (
        words(rounds_news[-1]) == "error share has drifted since 2026-11-20 10:00, from 0% to 100%."
    )
    assert [len(line.points) for line in history.findings(60).lines] == [10, 10, 13]


def test_round_is_made_from_a_run() -> None:
    run = Run(
        id="r",
        began=moment(0),
        began_ns=1,
        finished=True,
        conditions=[measured()],
        invalid=["a remark"],
    )
    assert WatchRound.of(run) == WatchRound(
        at=moment(0), rows=run.conditions, failed="", finished=True
    )
    failed = Run(id="r", began=moment(0), began_ns=1, conditions=[row()], invalid=["no network"])
    assert WatchRound.of(failed) == WatchRound(
        at=moment(0), rows=failed.conditions, failed="no network", finished=False
    )


def test_gate_compares_with_the_usual_level() -> None:
    history, _ = watched(usual(10))
    last = [measured(260, cost_usd=1.0), measured(260, target="b/new", condition="d")]
    base = history.usual(last)
    assert [each.target for each in base] == ["a/x"]
    assert base[0].ttft_ms.p50 == pytest.approx(200)
    assert base[0].ttft_ms.p95 == pytest.approx(300)
    (breach,) = parse_gate("ttft_ms.p95 > +20%").check(last, base)
    assert (
        breach == "a/x at concurrency 1: ttft_ms.p95 went from 300 to 390 (+30%), which is > +20%."
    )
    assert not parse_gate("ttft_ms.p95 > +40%").check(last, base)


def test_no_usual_level_before_enough_rounds() -> None:
    assert watched(usual(MIN - 1))[0].usual([measured()]) == []
    assert WatchHistory().usual([measured()]) == []
    empty = WatchHistory().findings(60)
    assert (empty.rounds, empty.first, empty.lines, empty.statements) == (0, "", [], [])
