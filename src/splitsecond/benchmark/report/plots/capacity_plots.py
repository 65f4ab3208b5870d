from splitsecond.benchmark.report.capacity import VERDICTS
from splitsecond.benchmark.rows.records import Capacity, ConditionFindings, Run
from splitsecond.benchmark.rows.slo import limited
from splitsecond.benchmark.rows.usable_rows import load_of
from splitsecond.core.pages.axis import Axis, fitted, load_axis, load_unit
from splitsecond.core.pages.chart import Chart, LegendEntry, Plot, picture, target_entries
from splitsecond.core.pages.figure_cells import number

Steps = list[tuple[ConditionFindings, str]]
Values = list[tuple[float, float, str]]


def capacity_plots(run: Run, capacity: Capacity) -> list[Plot]:
    """Draw one plot for each limit and one of the throughput, each only where a step has the
    figure.

    INVALID steps are left out: a plot would make them look like measurements.
    """
    verdicts = {
        step.condition: VERDICTS[step.verdict]
        for step in capacity.steps
        if step.verdict != "invalid"
    }
    steps = [(row, verdicts[row.condition]) for row in run.conditions if row.condition in verdicts]
    steps.sort(key=lambda step: load_of(step[0]))
    return [
        *(drawn for name in capacity.limits for drawn in _limit(capacity, name, steps)),
        *_throughput(capacity, steps),
    ]


def _limit(capacity: Capacity, name: str, steps: Steps) -> list[Plot]:
    figure = limited(name, open_loop=capacity.open_loop)
    values: dict[str, Values] = {
        percentile: [
            (load_of(row), value, verdict)
            for row, verdict in steps
            if (value := getattr(getattr(row, figure.name), percentile)) is not None
        ]
        for percentile in ("p50", "p95")
    }
    all_values = [value for own in values.values() for _, value, _ in own]
    if not all_values:
        return []
    limit = capacity.limits[name]
    chart = _chart(capacity, steps, fitted(figure.unit, [*all_values, limit]))
    chart.add(None, chart.level_rule(limit, f"limit: {limit:,g} {figure.unit}"))
    for percentile, own in values.items():
        _curve(
            chart,
            capacity,
            own,
            f"{figure.label} {percentile}",
            figure.unit,
            dash=percentile == "p95",
        )
    return [
        _plot(
            chart,
            f"capacity-{name}",
            f"{figure.label}, {figure.unit}: p50 solid, p95 dashed",
            f"{figure.label} against the load, at p50 and at p95, with its limit.",
        )
    ]


def _throughput(capacity: Capacity, steps: Steps) -> list[Plot]:
    values = [
        (load_of(row), row.output_tokens_per_s, verdict)
        for row, verdict in steps
        if row.output_tokens_per_s is not None
    ]
    if not values:
        return []
    chart = _chart(capacity, steps, fitted("tokens per second", [value for _, value, _ in values]))
    _curve(chart, capacity, values, "system", "tokens/s", dash=False)
    title = "Tokens per second of the whole system"
    description = (
        f"{title} against the load. Where the line is flat, more load gives no more throughput."
    )
    return [_plot(chart, "capacity-throughput", title, description)]


def _chart(capacity: Capacity, steps: Steps, y: Axis) -> Chart:
    chart = Chart(
        load_axis({load_of(row) for row, _ in steps}, load_unit(open_loop=capacity.open_loop)), y
    )
    if capacity.holds is not None:
        chart.add(None, chart.upright_rule(capacity.holds, f"capacity: {capacity.holds:g}"))
    return chart


def _curve(
    chart: Chart, capacity: Capacity, values: Values, label: str, unit: str, *, dash: bool
) -> None:
    entry: LegendEntry = target_entries([capacity.target])[capacity.target]
    what = load_unit(open_loop=capacity.open_loop)
    chart.add(
        entry,
        chart.line([(load, value) for load, value, _ in values], dash=dash, tip=label),
        *(
            chart.mark(
                entry, load, value, f"{what} {load:g}: {verdict}\n{label} {number(value)} {unit}"
            )
            for load, value, verdict in values
        ),
    )


def _plot(chart: Chart, name: str, title: str, description: str) -> Plot:
    return picture(
        chart,
        name=name,
        section="capacity",
        title=title,
        description=f"{description} The table of the steps lists the figures.",
    )
