"""The chart of speed grades and its page."""

import re

import msgspec
import pytest
from tests.golden import Golden
from tests.report.drawing import tips
from tests.report.page import Page

from splitsecond.core.errors import CallerFault
from splitsecond.core.pages.chart import target_entries
from splitsecond.log.production.drift import SpeedOfPeriod
from splitsecond.log.production.speed import ProductionSpeed, graded
from splitsecond.log.report.speed_page import day_plot, render_speed, speed_plot, speed_png
from splitsecond.log.statistics.summary import Summary

TARGETS = {
    "groq/llama-3.3-70b-versatile": 250.0, "openai/gpt-4o": 60.0, "azure/gpt-4o": 31.0,
    "vertex-claude/claude-3-sonnet@20240229": 18.0, "mistral/<b>new": 90.0,
}  # fmt: skip


def speed(name: str, median: float) -> ProductionSpeed:
    requests = 20 if "new" in name else 900
    spread = Summary(
        n=requests, p50=median, p95=median / 2, ci95={"p50": (median * 0.96, median * 1.05)}
    )
    made = ProductionSpeed(
        name=name, requests=requests + 10, answered=requests, failed=10, closed=0, grade=None,
        total_tps=spread,
        tps=spread, ttft_ms=spread, output_tokens=212.4, usd_per_million=0.7, periods=14,
        period="day",
    )  # fmt: skip
    return graded(made, 500)


def speeds() -> list[ProductionSpeed]:
    return [speed(name, median) for name, median in TARGETS.items()]


def speed_page() -> str:
    period = "2026-11-08 15:05 to 2026-11-22 15:05 UTC"
    return render_speed(speeds(), ["groq is the fastest."], period=period, least=500, by="target")


def test_a_bar_for_each_target_in_the_colour_of_its_grade() -> None:
    drawn = speed_plot(speeds())
    assert drawn is not None
    bars = [each for each in tips(drawn) if "tokens/s" in each]
    assert [tip.splitlines()[0] for tip in bars] == list(TARGETS)
    assert bars[0].splitlines()[1:] == [
        "grade 1: 100+ tokens/s",
        "250 tokens/s",
        "95% interval 240 to 262",
        "910 requests",
    ]
    assert re.findall(r'data-name="[^"]+"><g class="\S+" data-key="([^"]+)"', drawn.drawing) == [
        "grade-0",
        "grade-2",
        "grade-3",
        "grade-4",
        "grade-5",
    ]
    assert "azure/gpt-4o 31.0" in drawn.description


def test_without_a_median_there_is_no_chart() -> None:
    empty = msgspec.structs.replace(speed("a/x", 1), total_tps=Summary(n=0))
    assert speed_plot([empty]) is None
    with pytest.raises(CallerFault, match="no row has a speed"):
        speed_png([empty])
    assert "a/x" in render_speed([empty], [], period="today", least=500, by="target")


def test_ttft_and_errors_by_day() -> None:
    days = [
        SpeedOfPeriod(
            began=f"2026-11-{day:02}", ttft_ms=400 + day, total_tps=60, answered=90, failed=day
        )
        for day in range(1, 6)
    ]
    names = list(TARGETS)[:2]
    lines = [msgspec.structs.replace(speed(name, 60), by_period=days) for name in names]
    drawn = day_plot(lines, target_entries(names))
    assert drawn is not None
    assert drawn.drawing.count('class="line"') == 2 * len(names)  # TTFT, and errors below
    assert "Nov 2" in drawn.drawing
    assert day_plot([speed("a/x", 1)], {}) is None
    page = render_speed(lines, [], period="today", least=500, by="target")
    assert "TTFT and errors by day" in page


def test_the_words_of_the_page(golden: Golden) -> None:
    page = Page(speed_page())
    golden.check(page.words)
    options = [attributes.get("name") for tag, attributes in page.tags if tag == "select"]
    assert options == ["model", "maker", "host"]
    assert "<b>new" in page.text


def test_rows_by_hour_have_no_filters() -> None:
    page = Page(render_speed([speed("08:00 UTC", 40)], [], period="today", least=500, by="hour"))
    assert not [tag for tag, _ in page.tags if tag == "select"]


@pytest.mark.parametrize("rows", [1, 5])
def test_the_chart_as_a_png(rows: int) -> None:
    assert speed_png(speeds()[:rows]).startswith(b"\x89PNG")
