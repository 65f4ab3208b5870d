from collections.abc import Sequence

import numpy as np

from splitsecond.benchmark.money.break_even import monthly_usd, tokens_words
from splitsecond.benchmark.report.plots.plot_frame import target_entries_of
from splitsecond.benchmark.rows.records import BreakEven, ConditionFindings, Run
from splitsecond.benchmark.rows.usable_rows import lightest_rows
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import usd
from splitsecond.core.pages.axis import fitted, linear, logarithmic
from splitsecond.core.pages.chart import Chart, Plot, Point, picture
from splitsecond.core.pages.figure_cells import number
from splitsecond.log.report.price_plot import speed_against_price

POINTS = 60


def choosing_plots(run: Run) -> list[Plot]:
    entries = target_entries_of(run)
    return [*speed_against_price(run.speed_and_price, entries), *break_even(run), *length(run)]


def break_even(run: Run) -> list[Plot]:
    machines = grouped(run.break_even, lambda each: each.machine)
    return [
        _break_even(run, number, machine, pairs)
        for number, (machine, pairs) in enumerate(machines.items(), 1)
    ]


def _mark_break_evens(chart: Chart, pairs: Sequence[BreakEven]) -> None:
    for each in sorted(pairs, key=lambda each: each.utilisation):
        if each.tokens_per_month:
            words = tokens_words(each.tokens_per_month)
            tip = f"{each.api}: break-even at {words} tokens a month"
            mark = chart.mark(None, each.tokens_per_month, each.usd_per_month, tip)
            # The label stands on the left, where there is room: the axis begins at a twentieth of
            # the first volume.
            x, y = chart.across(each.tokens_per_month) - 8, chart.down(each.usd_per_month) + 16
            chart.add(None, mark, chart.label(x, y, words, anchor="end"))


def _break_even(run: Run, number: int, machine: str, pairs: Sequence[BreakEven]) -> Plot:
    ends = [
        pairs[0].machine_tokens_per_month,
        *(each.tokens_per_month for each in pairs if each.tokens_per_month),
    ]
    least, most = min(ends) / 20, max(ends) * 2
    full = pairs[0].machine_tokens_per_month
    # the step is upright
    volumes = sorted([*np.geomspace(least, most, POINTS).tolist(), full, full * 1.000001])
    curves: dict[str, list[Point]] = {
        machine: [(tokens, monthly_usd(pairs[0], tokens)[0]) for tokens in volumes]
    }
    curves |= {
        each.api: [(tokens, monthly_usd(each, tokens)[1]) for tokens in volumes] for each in pairs
    }
    paid = [cost for curve in curves.values() for _, cost in curve if cost > 0]
    chart = Chart(
        logarithmic("tokens a month", least, most, grid=False), fitted("US dollars a month", paid)
    )
    entries = target_entries_of(run)
    for target, curve in curves.items():
        chart.add(entries[target], chart.line(curve, tip=target))
    _mark_break_evens(chart, pairs)
    pays = "; ".join(
        f"{e.api} {tokens_words(e.tokens_per_month)}" for e in pairs if e.tokens_per_month
    )
    meeting = (
        f"Break-even: {pays} tokens a month."
        if pays
        else "The lines of the machine stay above the others."
    )
    return picture(
        chart,
        name=f"break-even-{number}",
        section="money",
        title=f"Cost of a month: {machine} against targets paid by the token",
        description=f"{machine} costs {usd(pairs[0].usd_per_month)} a month. Where one cannot do "
        "more, at the highest throughput of this run, the line steps up to a second one. Marks "
        f"are break-even volumes. {meeting}",
    )


def length(run: Run) -> list[Plot]:
    if not run.crossings:
        return []
    lines = [
        row for row in lightest_rows(run.conditions) if row.ttft_ms.p50 is not None and row.tps.p50
    ]
    most = max(each.tokens for each in run.crossings) * 2.5
    times = [_time_ms(row, tokens) for row in lines for tokens in (0, most)]
    chart = Chart(
        linear("output tokens", 0, most), linear("ms until the last token", 0, max(times) * 1.05)
    )
    entries = target_entries_of(run)
    for row in lines:
        chart.add(
            entries[row.target],
            chart.line([(n, _time_ms(row, n)) for n in (0, most)], tip=row.target),
        )
    by_condition = {row.condition: row for row in lines}
    for each in run.crossings:
        if (first := by_condition.get(each.rows[0])) is not None:
            ms, words = _time_ms(first, each.tokens), f"{number(each.tokens)} tokens"
            label = chart.label(
                chart.across(each.tokens) - 8, chart.down(ms) - 7, words, anchor="end"
            )
            mark = chart.mark(
                None, each.tokens, ms, f"{each.first} is sooner up to {words}, then {each.then}"
            )
            chart.add(None, mark, label)
    parts = [
        f"{each.first} up to {number(each.tokens)} tokens, then {each.then}"
        for each in run.crossings
    ]
    return [
        picture(
            chart,
            name="length",
            section="length",
            title="Time of a response by its length",
            description="TTFT p50 + tokens ÷ TPS p50 of each target at the lightest load. The "
            f"lowest line is the soonest: {'; '.join(parts)}.",
        )
    ]


def _time_ms(row: ConditionFindings, tokens: float) -> float:
    return (row.ttft_ms.p50 or 0.0) + 1000 * tokens / (row.tps.p50 or 1.0)
