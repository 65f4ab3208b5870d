from collections.abc import Mapping, Sequence

from splitsecond.benchmark.report import rows
from splitsecond.benchmark.report.plots import series
from splitsecond.benchmark.report.plots.plot_frame import deciding, legends, level_slug
from splitsecond.benchmark.report.plots.series import STAGES, Samples
from splitsecond.benchmark.rows.records import ConditionFindings, Run
from splitsecond.core.grouping import grouped
from splitsecond.core.pages.axis import linear
from splitsecond.core.pages.chart import (
    NAMES,
    ROW,
    Chart,
    LegendEntry,
    Plot,
    name_height,
    picture,
)
from splitsecond.core.pages.figure_cells import number

MIN_ROW = 26


def stages(run: Run) -> list[Plot]:
    stage_names = series.stages_of(run)
    until_first = [stage for stage in stage_names if stage != "streaming"]
    return [
        *_phases(run, "stages-first-token", "Until the first token", until_first),
        *_phases(run, "stages-whole", "The whole request", stage_names),
    ]


def _phases(run: Run, name: str, title: str, stage_names: Sequence[str]) -> list[Plot]:
    parts = {
        c.condition: {
            STAGES[stage]: c.phases_ms[stage] for stage in stage_names if stage in c.phases_ms
        }
        for c in run.conditions
    }
    return _stacked(
        run,
        parts,
        name=name,
        section="stages",
        title=title,
        legend="stages",
        description=f"{title}: the mean of each stage, one after another, for each target and "
        "load. The table below lists the numbers.",
        heading=f"Where the time goes · {title.lower()}",
    )


def split(run: Run, samples: Samples) -> list[Plot]:
    parts = {c.condition: series.split(c, samples[c.condition]) for c in run.conditions}
    return _stacked(
        run,
        parts,
        name="split",
        section="stages",
        title="Time to first token, by the server's own times",
        legend="split",
        description="The mean TTFT of each target and load in parts: the round trip of the "
        "network, the queue and the prefill as the server reports them, and the rest. Times from "
        "the server's metrics are those of all requests, warm-up and cool-down included.",
    )


class Bars:
    """Bars of a chart, one mark for each colour, with a label and a tooltip for each row."""

    def __init__(self, chart: Chart, above: float) -> None:
        self._chart = chart
        self._above = above  # pixels above a bar in its row
        self._places: dict[str, list[tuple[float, float, float]]] = {}
        self._texts: list[str] = []
        self._hits: list[str] = []

    def bar(self, name: str, begin: float, end: float, y: float) -> None:
        """Add a bar from `begin` to `end`, as far as the axis shows it."""
        if begin < self._chart.x.high:
            self._places.setdefault(name, []).append(
                (begin, min(end, self._chart.x.high), y + self._above)
            )

    def end_row(self, y: float, height: float, end: float, words: str, tip: Sequence[str]) -> None:
        self._texts.append(
            self._chart.end_label(end, self._chart.top + y + self._above + 11, words)
        )
        self._hits.append(self._chart.hit(y, height, "\n".join(tip)))

    def draw(self, entries: Mapping[str, LegendEntry]) -> None:
        for name, places in self._places.items():
            self._chart.add(entries[name], self._chart.bars(places, ROW - 4))
        self._chart.add(None, *self._texts, *self._hits)


def _stacked(
    run: Run,
    parts: Mapping[str, Mapping[str, float]],
    *,
    name: str,
    legend: str,
    title: str,
    **words: str,
) -> list[Plot]:
    levels = rows.levels(run)
    conditions = [c for level in levels for c in level.conditions if parts[c.condition]]
    if not conditions:
        return []
    by_target = grouped(conditions, lambda c: c.target)
    longest = max(
        sum(parts[c.condition].values()) for c in deciding(run, conditions, lambda c: c.target)
    )
    several = len(levels) > 1
    x = linear("ms", 0, (1.45 if several else 1.2) * longest or 1.0)
    gap = 12
    heights = {
        target: max(len(own) * ROW, MIN_ROW, name_height(target))
        for target, own in by_target.items()
    }
    chart, y = (
        Chart(x, None, height=sum(heights.values()) + gap * len(heights), left=NAMES),
        gap / 2,
    )
    bars = Bars(chart, 2)
    for target in (each for each in rows.targets(run) if each in by_target):
        own = by_target[target]
        chart.add(None, chart.name(target, y + heights[target] / 2))
        top = y + (heights[target] - len(own) * ROW) / 2
        for at, c in enumerate(own):
            _stack(bars, c, parts[c.condition], top + at * ROW, several_loads=several)
        y += heights[target] + gap
    bars.draw(legends(run)[legend])
    return [picture(chart, name=name, title=title, legend=legend, **words)]


def _stack(
    bars: Bars, c: ConditionFindings, parts: Mapping[str, float], y: float, *, several_loads: bool
) -> None:
    begin = 0.0
    for label, ms in parts.items():
        bars.bar(label, begin, begin + ms, y)
        begin += ms
    whole, load = sum(parts.values()), rows.load_words(c)
    tip = [f"{c.target}, {load}", *(f"{label} {number(ms)} ms" for label, ms in parts.items())]
    bars.end_row(y, ROW, whole, number(whole) + (f" · {load}" if several_loads else ""), tip)


def waterfalls(run: Run, samples: Samples) -> list[Plot]:
    drawn = []
    for level in rows.levels(run):
        bars: dict[str, list[series.Step]] = {}
        for c in level.conditions:
            for step in series.waterfall(c.target, samples[c.condition]):
                bars.setdefault(f"{step.target}\n{step.which}", []).append(step)
        if not bars:
            continue
        drawn.append(
            _waterfall(
                run,
                bars,
                name=f"waterfall-{level_slug(level)}",
                section="waterfall",
                title=level.title,
                description="Two requests of each target, from the moment they were due to the "
                "last token: a typical one above, the slowest below.",
                heading=f"Single requests · {level.title}",
            )
        )
    return drawn


def slowest(run: Run, samples: Samples) -> list[Plot]:
    drawn = []
    for place, target in enumerate(rows.targets(run)):
        own = {c.condition: c for c in run.conditions if c.target == target}
        slow = series.by_duration([o for name in own for o in samples[name]])[
            : -series.SLOWEST - 1 : -1
        ]
        bars = {
            f"{at + 1}. {rows.load_words(own[o.condition])}": steps
            for at, o in enumerate(slow)
            if (steps := series.steps(target, str(at + 1), o))
        }
        if bars:
            drawn.append(
                _waterfall(
                    run,
                    bars,
                    name=f"slowest-{place}",
                    section="slowest",
                    title=target,
                    description=f"The {len(bars)} slowest requests to {target}, from the moment "
                    "they were due to the last token.",
                    heading=f"Slowest requests · {target}",
                )
            )
    return drawn


def _waterfall(
    run: Run, requests: Mapping[str, Sequence[series.Step]], *, name: str, **words: str
) -> Plot:
    ends = {key: own[-1].end_ms for key, own in requests.items()}
    longest = max(ends[key] for key in deciding(run, [*ends], lambda key: requests[key][0].target))
    x = linear("ms since the request was due", 0, longest * 1.2)
    height = ROW + 4
    left = NAMES if any("\n" in key for key in requests) else 64
    chart, y, last = Chart(x, None, height=len(requests) * height, left=left), 0.0, ""
    bars = Bars(chart, 3)
    for key, own in requests.items():
        target, newline, which = key.partition("\n")
        if newline and target != last:
            count = sum(each.startswith(f"{target}\n") for each in requests)
            chart.add(None, chart.name(target, y + count * height / 2))
            last = target
        elif not newline:
            chart.add(
                None, chart.text(left - 8, chart.top + y + 14, target, anchor="end", look="name")
            )
        for step in own:
            bars.bar(step.name, step.begin_ms, step.end_ms, y)
        tip = [f"{own[0].target} {which or target}"]
        tip += [f"{step.name}: {number(step.end_ms - step.begin_ms)} ms" for step in own]
        bars.end_row(y, height, ends[key], number(ends[key]), tip)
        y += height
    bars.draw(legends(run)["steps"])
    return picture(chart, name=name, legend="steps", **words)
