"""A watch for the eye: its page, its pictures, its lines on a terminal."""

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
import vl_convert
from tests.analysis.made import row

from splitsecond.analysis.findings import ConditionFindings, Spread
from splitsecond.analysis.watching import History, News, Round, WatchFindings
from splitsecond.report import html
from splitsecond.report.rounds import round_lines
from splitsecond.report.theme import THEMES, Theme, vega_config
from splitsecond.report.time_lines import SHOWN, draw
from splitsecond.report.watch import render_watch

HOSTILE = "</script><script>alert(1)</script>"
JITTER = (1.0, 1.03, 0.98, 1.01, 0.96, 1.02, 0.99, 1.04, 0.97, 1.0)


def moment(number: int) -> str:
    return f"2026-11-{1 + number // 24:02d}T{number % 24:02d}:00:00.000+00:00"


def measured(target: str, ttft_ms: float, tps: float = 80.0, errors: int = 0, **changes: Any) -> ConditionFindings:
    figures = {"ttft_ms": Spread(n=20, p50=ttft_ms, p95=ttft_ms * 2), "tps": Spread(n=20, p50=tps, p95=tps * 0.9)}
    return row(target=target, condition=target, requests=20, errors=errors, **figures, **changes)


def history(*targets: str, rounds: int = 40, slower_from: int = 35) -> History:
    """Hourly rounds, of which the 20th failed, the 25th was slow, and those from `slower_from` on are."""
    found = History()
    for number in range(rounds):
        slower = 1.5 if number >= slower_from or number == 25 else 1.0
        made = [measured(target, 200 * JITTER[number % 10] * slower) for target in targets]
        failed = "no network" if number == 20 else ""
        found.add(Round(at=moment(number), rows=[] if failed else made, failed=failed))
    return found


@pytest.fixture(scope="module")
def watched() -> WatchFindings:
    return history("a/x", "b/y").findings(3 * 3600)


@pytest.fixture
def page(watched: WatchFindings, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(html, "_bundle", lambda: "")
    return render_watch(watched)


def test_the_page_says_what_there_is_and_what_drifted(page: str) -> None:
    words = " ".join(re.sub(r"<[^>]+>", " ", page[page.index("<main>") : page.index("</main>")]).split())
    assert "2 targets over time" in words
    assert (
        "40 rounds from 2026-11-01 00:00 to 2026-11-02 15:00 UTC, now one every 3 hours: a/x and b/y. "
        "1 round failed as a whole." in words
    )
    assert "a/x at concurrency 1: TTFT p50 has drifted since 2026-11-02 11:00, from 200 ms to " in words
    assert "TTFT p50: drifted" in words
    assert "2026-11-01 20:00 no network" in words
    headings = re.findall(r"<h2>([^<]*)</h2>", page)
    assert headings == [
        "The last round",
        "Time to first token, ms",
        "Speed of one request, tokens per second",
        "Errors",
        "Rounds that failed as a whole",
        "What is usual, and what a drift is",
    ]
    assert page.count('class="plot"') == 6


def test_figures_stand_with_what_was_usual(page: str) -> None:
    cells = re.findall(r"<td>([^<]*)(?:<small>([^<]*)</small>)?</td>", page)
    assert ("300", "186–216") in cells
    assert ("80.0", "76.2–84.0") in cells
    assert ("0 %", "up to 5.00 %") in cells


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
def test_the_interval_is_told_in_words(every_s: float, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_bundle", lambda: "")
    assert words in render_watch(history("a/x", rounds=1).findings(every_s))


def test_a_page_before_anything_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_bundle", lambda: "")
    found = History()
    found.add(Round(at=moment(0), rows=[row()], failed=HOSTILE))
    page = render_watch(found.findings(3600))
    assert "No round has any figure yet." in page
    assert "Nothing has drifted." in page
    assert HOSTILE not in page


def test_names_from_outside_stay_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_bundle", lambda: "")
    found = history(HOSTILE, rounds=20)
    found.add(Round(at=moment(30), rows=[], failed=HOSTILE))
    page = render_watch(found.findings(3600))
    assert HOSTILE not in page
    assert "&lt;/script&gt;" in page


def test_each_figure_of_each_row_has_a_picture(watched: WatchFindings) -> None:
    pictures = draw(watched.lines, watched.failed)
    assert [(p.section, p.title) for p in pictures.values()] == [
        (figure, f"{target} at concurrency 1") for target in ("a/x", "b/y") for figure in ("ttft_ms", "tps", "errors")
    ]
    ttft = pictures["ttft-ms-0"]
    assert ttft.description.startswith("TTFT p50 of a/x at concurrency 1 in 39 rounds from 2026-11-01 00:00")
    assert ttft.description.endswith("It has drifted since 2026-11-02 11:00 UTC.")
    drawn = [record for records in ttft.spec["datasets"].values() for record in records]
    assert [record["state"] for record in drawn if "state" in record][-7:] == ["usual"] * 2 + ["drifted"] * 5
    assert [record["why"] for record in drawn if "why" in record] == ["no network"]


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_pictures_are_drawn_in_both_themes(watched: WatchFindings, theme: Theme) -> None:
    for picture in draw(watched.lines, watched.failed).values():
        svg = vl_convert.vegalite_to_svg(picture.spec | {"width": 500}, config=vega_config(theme))
        assert "NaN" not in svg
        assert theme.targets[0] in svg
        assert (theme.targets[1] in svg) == (picture.section == "ttft_ms"), "the colour of a drift"


def test_one_round_is_a_picture_too() -> None:
    found = history("a/x", rounds=1).findings(60)
    for picture in draw(found.lines, found.failed).values():
        assert "NaN" not in vl_convert.vegalite_to_svg(picture.spec | {"width": 300}, config=vega_config(THEMES[0]))


def test_long_lines_show_their_end() -> None:
    found = history("a/x", rounds=700, slower_from=690).findings(60)
    ttft = next(iter(draw(found.lines, found.failed).values()))
    assert len(json.dumps(ttft.spec)) < 250_000
    assert f"in {SHOWN} rounds" in ttft.description


def lines(rows: Sequence[ConditionFindings], news: dict[str, list[News]]) -> list[str]:
    return [line.plain for line in round_lines(Round(at=moment(3), rows=list(rows)), news)]


def test_a_round_on_a_terminal() -> None:
    rows = [
        measured("groq/model", 182.4, 312.0),
        measured("b/y", 1234.0, 80.0, errors=3, concurrency=8),
        row(target="bad\x1b[2J", condition="bad", requests=0),
    ]
    news = {
        "groq/model": [News(text="as usual.")],
        "b/y": [News(text="TTFT p50 is unusual.", good=False), News(text="error share too.", good=False)],
        "bad": [News(text="not measured.", good=False)],
    }
    assert lines(rows, news) == [
        "2026-11-01 03:00  groq/model c=1  TTFT 182 ms, p95 365      TPS 312   errors 0        as usual.",
        "2026-11-01 03:00  b/y c=8         TTFT 1,234 ms, p95 2,468  TPS 80.0  errors 3 of 20  "
        "TTFT p50 is unusual. error share too.",
        "2026-11-01 03:00  bad [2J c=1     TTFT – ms, p95 –          TPS –     errors 0        not measured.",
    ]


def test_colours_tell_good_from_bad() -> None:
    news = {"a/x": [News(text="slow.", good=False), News(text="fast.", good=True), News(text="usual.")]}
    (line,) = round_lines(Round(at=moment(0), rows=[measured("a/x", 1.0)]), news)
    assert [str(span.style) for span in line.spans] == ["bold red", "green", "dim"]
