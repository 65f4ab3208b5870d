from collections.abc import Mapping, Sequence

from splitsecond.benchmark.findings.findings import ConditionFindings, Run
from splitsecond.benchmark.report import rows, series
from splitsecond.benchmark.report.plot_frame import legends, level_slug, on_axis
from splitsecond.benchmark.report.series import STAGES, Samples
from splitsecond.core.pages.axis import linear
from splitsecond.core.pages.chart import NAMES, ROW, Chart, Plot, picture
from splitsecond.core.pages.figure_cells import number

MIN_ROW = 26


def stages(run: Run) -> list[Plot]:
    found = series.stages_of(run)
    until_first = [stage for stage in found if stage != "streaming"]
    return [
        *_phases(run, "stages-first-token", "Until the first token", until_first),
        *_phases(run, "stages-whole", "The whole request", found),
    ]


def _phases(run: Run, name: str, title: str, shown: Sequence[str]) -> list[Plot]:
    parts = {
        c.condition: {STAGES[stage]: c.phases_ms[stage] for stage in shown if stage in c.phases_ms}
        for c in run.conditions
    }
    return _stacked(
        run,
        parts,
        name=name,
        section="stages",
        title=title,
        legend="stages",
        description=f"{title}: the mean of each stage, one after another, for each target and load. The table below "
        "lists the numbers.",
        heading=f"Where the time goes · {title.lower()}",
    )


def split(run: Run, samples: Samples) -> list[Plot]:
    parts = {c.condition: series.split(samples[c.condition]) for c in run.conditions}
    return _stacked(
        run,
        parts,
        name="split",
        section="stages",
        title="Time to first token, by the server's own times",
        legend="split",
        description="The mean TTFT of each target and load in parts: the round trip of the network, the queue and the "
        "prefill as the server reports them, and the rest.",
    )


def _stacked(
    run: Run, parts: Mapping[str, Mapping[str, float]], *, name: str, legend: str, title: str, **words: str
) -> list[Plot]:
    levels, entries = rows.levels(run), legends(run)[legend]
    by_target: dict[str, list[ConditionFindings]] = {}
    for level in levels:
        for condition in level.conditions:
            if parts[condition.condition]:
                by_target.setdefault(condition.target, []).append(condition)
    if not by_target:
        return []
    decides = on_axis(run)
    sums = {c.condition: sum(parts[c.condition].values()) for own in by_target.values() for c in own}
    longest = max((sums[c.condition] for t, own in by_target.items() if decides(t) for c in own), default=0.0)
    room = 1.45 if len(levels) > 1 else 1.2
    x = linear("ms", 0, room * (longest or max(sums.values())) or 1.0)
    gap = 12
    heights = {target: max(len(own) * ROW, MIN_ROW) for target, own in by_target.items()}
    chart, y = Chart(x, None, height=sum(heights.values()) + gap * len(heights), left=NAMES), gap / 2
    bars: dict[str, list[tuple[float, float, float]]] = {}
    texts: list[str] = []
    hits: list[str] = []
    for target in (each for each in rows.targets(run) if each in by_target):
        own, below = by_target[target], y + heights[target] + gap
        chart.add(None, chart.name(target, y + heights[target] / 2))
        y += (heights[target] - len(own) * ROW) / 2
        for condition in own:
            begin = 0.0
            for label, ms in parts[condition.condition].items():
                bars.setdefault(label, []).append((begin, min(begin + ms, x.high), y + 2))
                begin = min(begin + ms, x.high)
            load = f" · {rows.load_words(condition)}" if len(levels) > 1 else ""
            whole = sums[condition.condition]
            texts.append(chart.end_label(whole, chart.top + y + 13, number(whole) + load))
            of_row = (f"{label} {number(ms)} ms" for label, ms in parts[condition.condition].items())
            hits.append(chart.hit(y, ROW, "\n".join([f"{target}, {rows.load_words(condition)}", *of_row])))
            y += ROW
        y = below
    for label, places in bars.items():
        chart.add(entries[label], chart.bars(places, ROW - 4))
    chart.add(None, *texts, *hits)
    return [picture(chart, name=name, title=title, legend=legend, **words)]


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
                description="Two requests of each target, from the moment they were due to the last token: a typical "
                "one above, the slowest below.",
                heading=f"Single requests · {level.title}",
            )
        )
    return drawn


def slowest(run: Run, samples: Samples) -> list[Plot]:
    drawn = []
    for place, target in enumerate(rows.targets(run)):
        own = {c.condition: c for c in run.conditions if c.target == target}
        slow = series.by_duration([o for name in own for o in samples[name]])[: -series.SLOWEST - 1 : -1]
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
                    description=f"The {len(bars)} slowest requests to {target}, from the moment they were due to the "
                    "last token.",
                    heading=f"Slowest requests · {target}",
                )
            )
    return drawn


def _waterfall(run: Run, bars: Mapping[str, Sequence[series.Step]], *, name: str, **words: str) -> Plot:
    decides, entries = on_axis(run), legends(run)["steps"]
    ends = {key: own[-1].end_ms for key, own in bars.items()}
    shown = [end for key, end in ends.items() if decides(bars[key][0].target)] or [*ends.values()]
    x = linear("ms since the request was due", 0, max(shown) * 1.2)
    several = any("\n" in key for key in bars)
    left = NAMES if several else 64
    chart, y, last = Chart(x, None, height=len(bars) * (ROW + 4), left=left), 0.0, ""
    places: dict[str, list[tuple[float, float, float]]] = {}
    texts: list[str] = []
    hits: list[str] = []
    for key, own in bars.items():
        target, newline, which = key.partition("\n")
        if newline and target != last:
            count = sum(each.startswith(f"{target}\n") for each in bars)
            chart.add(None, chart.name(target, y + count * (ROW + 4) / 2))
            last = target
        elif not newline:
            chart.add(None, chart.text(left - 8, chart.top + y + 14, target, anchor="end", look="name"))
        for step in own:
            if step.begin_ms < x.high:
                places.setdefault(step.name, []).append((step.begin_ms, min(step.end_ms, x.high), y + 3))
        texts.append(chart.end_label(own[-1].end_ms, chart.top + y + 14, number(own[-1].end_ms)))
        of_row = (f"{step.name}: {number(step.end_ms - step.begin_ms)} ms" for step in own)
        hits.append(chart.hit(y, ROW + 4, "\n".join([f"{own[0].target} {which or target}", *of_row])))
        y += ROW + 4
    for step_name, of_step in places.items():
        chart.add(entries[step_name], chart.bars(of_step, ROW - 4))
    chart.add(None, *texts, *hits)
    return picture(chart, name=name, legend="steps", **words)
