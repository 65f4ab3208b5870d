from collections.abc import Mapping, Sequence

from splitsecond.benchmark.findings.recommendation import asked_for, quality_points
from splitsecond.benchmark.rows.records import Recommendation
from splitsecond.core.errors import CallerFault
from splitsecond.core.pages.axis import fitted
from splitsecond.core.pages.chart import Chart, LegendEntry, Plot, picture, target_entries
from splitsecond.core.pages.png import png

UNITS = {"ttft_ms": "ms", "agent_ms": "ms", "tps": "tokens/s", "tokens_per_usd": "output tokens"}
BESIDE = 9
"""Pixels from a mark to its name."""


def quality_plot(
    recommendations: Sequence[Recommendation], entries: Mapping[str, LegendEntry]
) -> Plot | None:
    scored = [choice for choice in recommendations if choice.quality_front]
    if not scored:
        return None
    return picture(
        *(_chart(choice, entries) for choice in scored),
        name="speed-quality",
        section="quality",
        title="Speed against quality",
        description="Each target's figure for the use against its score. The dashed line joins the "
        "targets that no other one beats in both, with filled marks: "
        + "; ".join(f"{asked_for(each)}: {', '.join(each.quality_front)}" for each in scored)
        + ".",
    )


def quality_png(recommendations: Sequence[Recommendation]) -> bytes:
    """Return the plot as a PNG file with a legend. Raises `CallerFault` without scores of two
    targets, or without the package."""
    entries = target_entries(
        list(
            dict.fromkeys(
                target
                for choice in recommendations
                if choice.quality_front
                for target, _, _ in quality_points(choice)[1]
            )
        )
    )
    drawn = quality_plot(recommendations, entries)
    if drawn is None:
        raise CallerFault(
            "--png draws speed against quality, and fewer than two targets have a score",
            kind="nothing_to_draw",
            hint="Give scores with --quality FILE.",
        )
    return png(drawn, entries)


def _chart(choice: Recommendation, entries: Mapping[str, LegendEntry]) -> Chart:
    label, points = quality_points(choice)
    chart = Chart(
        fitted("score", [score for _, _, score in points], zero=False),
        fitted(
            f"{asked_for(choice)}: {label}, {UNITS[choice.by]}", [value for _, value, _ in points]
        ),
    )
    best = [(score, value) for name, value, score in points if name in choice.quality_front]
    chart.add(None, chart.line(sorted(best), dash=True))
    for name, value, score in points:
        tip = f"{name}\n{label} {value:g}\nscore {score:g}"
        mark = chart.mark(entries[name], score, value, tip, size=6)
        chart.add(entries[name], mark, look="" if name in choice.quality_front else "hollow")
        chart.keep_clear(score, value, BESIDE - 3)
    for name, value, score in points:
        x, y = chart.across(score), chart.down(value) + 4
        places = [
            (x + BESIDE, "start", (0,)),
            (x - BESIDE, "end", (0,)),
            (x, "start", (-1, 1)),
            (x, "end", (-1, 1)),
        ]
        # a name without room is in the legend only
        words = (chart.label(at, y, name, anchor=a, moves=m) for at, a, m in places)
        chart.add(None, next(filter(None, words), ""))
    return chart
