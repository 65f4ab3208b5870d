"""The page, the plots and the terminal lines of a watch."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from tests.analysis.made import row
from tests.golden import Golden
from tests.report.drawing import keys, marks, texts, tips
from tests.report.page import Page

from splitsecond.benchmark.findings.watching import (
    RoundNews,
    WatchFindings,
    WatchHistory,
    WatchRound,
)
from splitsecond.benchmark.report.plots.watch_plots import SHOWN, watch_plots
from splitsecond.benchmark.report.terminal import round_lines
from splitsecond.benchmark.report.watch_page import render_watch
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.row_fields import ServerView
from splitsecond.log.statistics.summary import Summary

HOSTILE = "</script><script>alert(1)</script>"
JITTER = (1.0, 1.03, 0.98, 1.01, 0.96, 1.02, 0.99, 1.04, 0.97, 1.0)


def moment(number: int) -> str:
    return f"2026-11-{1 + number // 24:02d}T{number % 24:02d}:00:00.000+00:00"


def measured(
    target: str, ttft_ms: float, tps: float = 80.0, errors: int = 0, **changes: Any
) -> ConditionFindings:
    figures = {
        "ttft_ms": Summary(n=20, p50=ttft_ms, p95=ttft_ms * 2),
        "tps": Summary(n=20, p50=tps, p95=tps * 0.9),
    }
    return row(target=target, condition=target, requests=20, errors=errors, **figures, **changes)


def history(*targets: str, rounds: int = 80, slower_from: int = 75) -> WatchHistory:
    """Hourly rounds: number 20 failed, and number 25 and all from `slower_from` on are slow."""
    found = WatchHistory()
    for number in range(rounds):
        slower = 1.5 if number >= slower_from or number == 25 else 1.0
        made = [measured(target, 200 * JITTER[number % 10] * slower) for target in targets]
        failed = "no network" if number == 20 else ""
        found.add(WatchRound(at=moment(number), rows=[] if failed else made, failed=failed))
    return found


@pytest.fixture(scope="module")
def watched() -> WatchFindings:
    return history("a/x", "b/y").findings(3 * 3600)


@pytest.fixture
def page(watched: WatchFindings) -> str:
    return render_watch(watched)


def test_the_page_has_its_plots_and_drifts(page: str) -> None:
    words = Page(page).words
    assert (
        "80 rounds from 2026-11-01 00:00 to 2026-11-04 07:00 UTC, now "
        "one every 3 hours: a/x and b/y." in words
    )
    assert (
        "a/x at concurrency 1: TTFT p50 has drifted since 2026-11-04 03:00, from 200 ms to "
        in words
    )
    assert "| TTFT p50: drifted" in words
    assert "2026-11-01 20:00 | all rows | no network" in words
    assert page.count('<svg class="chart"') == 6


def test_the_words_of_the_page(page: str, golden: Golden) -> None:
    golden.check(Page(page).words)


def test_figures_have_their_usual_range(page: str) -> None:
    cells = re.findall(r"<td[^>]*>([^<]*)(?:<small>([^<]*)</small>)?</td>", page)
    assert ("300", "187–209") in cells
    assert ("80.0", "76.2–84.0") in cells
    assert ("0%", "up to 5.00%") in cells


@pytest.mark.parametrize(
    ("every_s", "words"),
    [
        (60, "every minute:"),
        (86400, "every day:"),
        (5400, "every 1.5 hours:"),
        (1, "every second:"),
        (2.5, "every 2.5 s"),
    ],
)
def test_page_states_the_interval_between_rounds(every_s: float, words: str) -> None:
    assert words in render_watch(history("a/x", rounds=1).findings(every_s))


@pytest.mark.parametrize(
    ("rounds", "words"),
    [(2, "too early: 2 of 8 rounds"), (12, "usual, by the wide limits of the first days")],
)
def test_the_state_of_the_first_rounds(rounds: int, words: str) -> None:
    assert f"| {words}" in Page(render_watch(history("a/x", rounds=rounds).findings(3600))).words


def test_the_page_shows_what_servers_reported_in_each_round() -> None:
    found = WatchHistory()
    for number in range(9):
        view = ServerView(waiting=float(number), kv_use_max=0.5, preemptions=0.0)
        rows = [measured("a/x", 200, server=view), measured("b/y", 200)]
        found.add(WatchRound(at=moment(number), rows=rows))
    findings = found.findings(3600)
    assert list(findings.server) == ["a/x at concurrency 1"]
    assert findings.server["a/x at concurrency 1"]["waiting"][moment(8)] == 8.0
    (plot,) = [plot for plot in watch_plots(findings) if plot.section == "server"]
    assert {"waiting", "8", "KV cache in use", "100%"} <= {*texts(plot)}
    assert "preemptions" not in texts(plot), "it was always 0"
    assert "The server's own view" in Page(render_watch(findings)).words
    assert "The server's own view" not in Page(render_watch(history("a/x").findings(3600))).words


def test_a_page_before_anything_was_measured() -> None:
    found = WatchHistory()
    found.add(WatchRound(at=moment(0), rows=[row()], failed=HOSTILE))
    page = render_watch(found.findings(3600))
    assert "No round has any figure yet." in page
    assert "Too early: 0 of 8 rounds." in page
    assert HOSTILE not in page


def test_names_from_outside_stay_text() -> None:
    found = history(HOSTILE, rounds=20)
    found.add(WatchRound(at=moment(30), rows=[], failed=HOSTILE))
    page = render_watch(found.findings(3600))
    assert HOSTILE not in page
    assert "&lt;/script&gt;" in page


def test_each_figure_of_each_row_has_a_plot(watched: WatchFindings) -> None:
    drawn = watch_plots(watched)
    assert [(p.section, p.title) for p in drawn] == [
        (figure, f"{target} at concurrency 1")
        for target in ("a/x", "b/y")
        for figure in ("ttft_ms", "tps", "errors")
    ]
    ttft = drawn[0]
    assert ttft.description.startswith(
        "TTFT p50 of a/x at concurrency 1 in 79 rounds from 2026-11-01 00:00"
    )
    assert ttft.description.endswith("It has drifted since 2026-11-04 03:00 UTC.")
    states = [tip.splitlines()[0].rpartition(" ")[2] for tip in tips(ttft)]
    assert (states.count("drifted"), states.count("unusual"), states.count("learning")) == (5, 2, 8)
    assert "2026-11-01 20:00 UTC\nthe round failed: no network" in tips(ttft)
    assert keys(ttft) == {f"state-{at}" for at in range(5)}


def test_plot_shows_p95_and_a_24_hour_clock(watched: WatchFindings) -> None:
    ttft = watch_plots(watched)[0]
    assert "400" in texts(ttft), "p95 is twice the median of 200"
    assert {"Nov 2", "12:00"} <= {*texts(ttft)}


def test_all_plots_share_the_time_axis() -> None:
    found = history("a/x")
    found.add(WatchRound(at=moment(200), rows=[measured("b/y", 200.0)]))
    drawn = watch_plots(found.findings(3600 * 200))
    for plot in (drawn[0], drawn[-1]):
        assert {"Nov 3", "Nov 9"} <= {*texts(plot)}


def test_rounds_without_figures_are_shown_with_their_reason() -> None:
    found = history("a/x", "b/y", rounds=12)
    late = [measured("a/x", 200.0, invalid=["the client was late."]), measured("b/y", 200.0)]
    found.add(WatchRound(at=moment(12), rows=late))
    found.add(WatchRound(at=moment(15), rows=[measured("a/x", 200.0), measured("b/y", 200.0)]))
    findings = found.findings(3600)
    assert findings.left_out == {
        "a/x at concurrency 1": {moment(12): "INVALID: the client was late."}
    }
    assert findings.skipped == {moment(13): 2}
    plots = {plot.name: tips(plot) for plot in watch_plots(findings)}
    assert "2026-11-01 12:00 UTC\nINVALID: the client was late." in plots["ttft-ms-0"]
    assert "2026-11-01 12:00 UTC\nINVALID: the client was late." not in plots["ttft-ms-3"]
    for name in ("ttft-ms-0", "ttft-ms-3"):
        assert "2026-11-01 13:00 UTC\nskipped: 2 rounds in a row" in plots[name]
    words = Page(render_watch(findings)).words
    assert "2026-11-01 12:00 | a/x at concurrency 1 | INVALID: the client was late." in words
    assert "2026-11-01 13:00 | all rows | skipped: 2 rounds in a row" in words
    assert "1 with rows not judged, 2 skipped" in words


def test_headline_names_faults_of_the_last_round() -> None:
    def headline(last: WatchRound) -> str:
        made = history("a/x", "b/y", rounds=60)
        made.add(last)
        return Page(render_watch(made.findings(3600))).words.partition("rounds\n")[0]

    at, usual = moment(60), [measured(target, 200) for target in ("a/x", "b/y")]
    assert "# 2 targets over time no drift\nNothing has drifted.\n" in headline(
        WatchRound(at=at, rows=usual)
    )
    failed = headline(WatchRound(at=at, rows=[], failed="no network"))
    assert "last round failed\nThe last round failed. Nothing has drifted." in failed
    invalid = headline(
        WatchRound(at=at, rows=[usual[0], measured("b/y", 200, invalid=["too busy"])])
    )
    assert (
        "last round in doubt\nNothing has drifted. In the last round, 1 row was not judged."
        in invalid
    )
    slow = headline(WatchRound(at=at, rows=[usual[0], measured("b/y", 400)]))
    assert "In the last round, TTFT p50 of b/y at concurrency 1 was unusual." in slow


def test_single_round_is_plotted() -> None:
    found = history("a/x", rounds=1).findings(60)
    for plot in watch_plots(found):
        assert len(marks(plot, "dots")) == 1


def test_long_lines_show_their_end() -> None:
    found = history("a/x", rounds=700, slower_from=690).findings(3600)
    ttft = watch_plots(found)[0]
    assert len(ttft.svg) < 40_000
    assert f"in {SHOWN} rounds" in ttft.description


def lines(rows: Sequence[ConditionFindings], news: dict[str, list[RoundNews]]) -> list[str]:
    return [line.plain for line in round_lines(WatchRound(at=moment(3), rows=list(rows)), news)]


def test_a_round_on_a_terminal() -> None:
    rows = [
        measured("groq/model", 182.4, 312.0),
        measured("b/y", 1234.0, 80.0, errors=3, concurrency=8),
        row(target="bad\x1b[2J", condition="bad", requests=0),
    ]
    news = {
        "groq/model": [RoundNews(text="as usual.")],
        "b/y": [
            RoundNews(text="TTFT p50 is unusual.", good=False),
            RoundNews(text="error share too.", good=False),
        ],
        "bad": [RoundNews(text="not measured.", good=False)],
    }
    assert lines(rows, news) == [
        "2026-11-01 03:00  groq/model c=1  TTFT 182 ms, p95 365      TPS "
        "312   errors 0        as usual.",
        "2026-11-01 03:00  b/y c=8         TTFT 1,234 ms, p95 2,468  TPS 80.0  errors 3 of 20  "
        "TTFT p50 is unusual. error share too.",
        "2026-11-01 03:00  bad [2J c=1     TTFT – ms, p95 –          TPS –     errors 0        "
        "not measured.",
    ]


def test_colours_tell_good_from_bad() -> None:
    news = {
        "a/x": [
            RoundNews(text="slow.", good=False),
            RoundNews(text="fast.", good=True),
            RoundNews(text="usual."),
        ]
    }
    (line,) = round_lines(WatchRound(at=moment(0), rows=[measured("a/x", 1.0)]), news)
    assert [str(span.style) for span in line.spans] == ["bold red", "green", "dim"]
