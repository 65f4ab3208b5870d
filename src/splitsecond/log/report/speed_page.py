"""The chart and the page of production speeds: one bar for each target, coloured by its grade, with
filters."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from splitsecond.core.catalog.model_names import identify
from splitsecond.core.errors import CallerFault
from splitsecond.core.money.cost import usd_or_free
from splitsecond.core.pages.axis import fitted, linear, moments
from splitsecond.core.pages.chart import (
    NAMES,
    Chart,
    LegendEntry,
    Plot,
    name_height,
    palette_entries,
    picture,
    target_entries,
)
from splitsecond.core.pages.figure_cells import MISSING, cell, number, share
from splitsecond.core.pages.html import (
    Badge,
    Headline,
    HtmlTable,
    TableCell,
    Tile,
    figure_cell,
    render,
)
from splitsecond.core.pages.png import png
from splitsecond.core.wording import counted_as, full, ratio, span
from splitsecond.log.production.against import FIGURES, SpeedAgainst
from splitsecond.log.production.drift import SpeedOfPeriod
from splitsecond.log.production.drivers import FIGURES as DRIVEN
from splitsecond.log.production.drivers import WORDS, SpeedDrivers, share_words
from splitsecond.log.production.speed import GRADES, SLOWEST, ProductionSpeed, speed_remarks
from splitsecond.log.production.speed_and_price import (
    logged_speed_and_price,
    speed_and_price_statements,
)
from splitsecond.log.report.price_plot import speed_against_price
from splitsecond.log.statistics.summary import Summary

DAY_HEIGHT, ERROR_HEIGHT, DAY_LEFT = 170, 60, 56
MAX_DAY_LINES = 8
STEP, NAME_GAP = 30, 6
"""Pixels of a bar and the space to the next, and of the space between two names."""
UNGRADED = "none"
LABELS = {
    **{str(number): f"grade {number}: {least:g}+ tokens/s" for least, number in GRADES},
    str(SLOWEST): f"grade {SLOWEST}: below {GRADES[-1][0]:g}",
    UNGRADED: "no grade: few requests",
}
"""Grades with their limits."""
SELECTS = ("model", "maker", "host")
"""Properties of a target that the page can select, besides those that have one value only."""


def speed_plot(speeds: Sequence[ProductionSpeed]) -> Plot | None:
    rows = [(speed, speed.total_tps.p50) for speed in speeds if speed.total_tps.p50 is not None]
    if not rows:
        return None
    highest = max(speed.total_tps.ci95["p50"][1] or median for speed, median in rows)
    x = linear("total tokens/s, median", 0, highest * 1.15)
    step = max(STEP, *(name_height(speed.name) + NAME_GAP for speed, _ in rows))
    chart, entries = Chart(x, None, height=step * len(rows), left=NAMES), grade_entries()
    for at, (speed, median) in enumerate(rows):
        low, high = speed.total_tps.ci95["p50"]
        entry = entries[_grade(speed)]
        interval = (
            f"\n95% interval {number(low)} to {number(high)}"
            if low is not None and high is not None
            else ""
        )
        tip = (
            f"{speed.name}\n{entry.label}\n{number(median)} "
            f"tokens/s{interval}\n{counted_as(speed.requests, 'request')}"
        )
        chart.add_row(
            at * step,
            speed.name,
            chart.group(entry, chart.bars([(0, median, step / 2 - 9)], 18, tip)),
            chart.group(None, chart.span(low, high, step / 2), look="strong")
            if low and high
            else "",
            chart.group(
                None,
                chart.text(
                    chart.across(high or median) + 6, chart.top + step / 2 + 4, number(median)
                ),
            ),
            chart.group(None, chart.name(speed.name, step / 2)),
        )
    medians = ", ".join(f"{speed.name} {number(median)}" for speed, median in rows)
    return picture(
        chart,
        name="speed-grades",
        section="speed",
        title="Total tokens per second in production",
        description=f"Median total tokens per second. {medians}.",
        legend="grades",
    )


def day_plot(speeds: Sequence[ProductionSpeed], entries: Mapping[str, LegendEntry]) -> Plot | None:
    """Return the plot of TTFT and errors of each target by day, or None with one day."""
    days = [day for speed in speeds for day in speed.by_period]
    moments_s = sorted({_moment(day) for day in days})
    medians = [day.ttft_ms for day in days if day.ttft_ms]
    if len(moments_s) < 2 or not medians:
        return None
    x = moments(moments_s[0], moments_s[-1])
    ttft = Chart(x, fitted("TTFT p50, ms", medians), height=DAY_HEIGHT, left=DAY_LEFT)
    highest = max(day.error_share for day in days)
    errors = Chart(
        x,
        linear("errors", 0, max(highest * 1.1, 0.05), percent=True),
        height=ERROR_HEIGHT,
        left=DAY_LEFT,
    )
    for speed in speeds:
        entry = entries[speed.name]
        _add_days(ttft, speed, entry, lambda day: day.ttft_ms)
        _add_days(errors, speed, entry, lambda day: day.error_share)
    return picture(
        ttft,
        errors,
        name="speed-days",
        section="days",
        title="TTFT and errors by day",
        description="Median TTFT of each target, and below it the share of its requests that "
        f"failed, on each day: {', '.join(speed.name for speed in speeds)}.",
    )


def _add_days(
    chart: Chart,
    speed: ProductionSpeed,
    entry: LegendEntry,
    figure: Callable[[SpeedOfPeriod], float | None],
) -> None:
    points = [(_moment(day), figure(day)) for day in speed.by_period]
    measured = [(at, value) for at, value in points if value is not None]
    chart.add(entry, chart.line(measured, tip=speed.name), look="thin")
    chart.add(entry, *[chart.dot(*each, tip=speed.name) for each in measured])


def _shown_by_day(speeds: Sequence[ProductionSpeed]) -> list[ProductionSpeed]:
    """Return the targets that the plot has room for: those that drifted, then the most used."""

    def order(speed: ProductionSpeed) -> tuple[bool, int]:
        drifts = (speed.ttft_drift, speed.drift)
        return not any(each and each.real for each in drifts), -speed.requests

    return sorted((speed for speed in speeds if speed.by_period), key=order)[:MAX_DAY_LINES]


def _moment(day: SpeedOfPeriod) -> float:
    return datetime.fromisoformat(day.began).replace(tzinfo=UTC).timestamp()


def grade_entries() -> dict[str, LegendEntry]:
    entries = palette_entries("grade", list(LABELS.values()))
    return {grade: entries[label] for grade, label in LABELS.items()}


def speed_png(speeds: Sequence[ProductionSpeed]) -> bytes:
    """Return the chart as a PNG file with a legend. Raises `CallerFault` without a median, or
    without the extra."""
    drawn = speed_plot(speeds)
    if drawn is None:
        raise CallerFault("no row has a speed", kind="nothing_to_draw")
    return png(drawn, grade_entries())


def render_speed(
    speeds: Sequence[ProductionSpeed],
    statements: Sequence[str],
    *,
    period: str,
    least: int,
    by: str,
    against: Sequence[SpeedAgainst] = (),
    drivers: Sequence[SpeedDrivers] = (),
) -> str:
    drawn = speed_plot(speeds)
    prices = {speed.name: speed.usd_per_million for speed in speeds}
    speed_and_price = logged_speed_and_price(speeds, prices) if by == "target" else None
    by_day = _shown_by_day(speeds) if by == "target" else []
    priced = speed_and_price.targets if speed_and_price else ()
    drawn_names = [speed.name for speed in by_day] + [point.target for point in priced]
    targets = target_entries(list(dict.fromkeys(drawn_names)))
    days = day_plot(by_day, targets)
    sentence = _main_finding(speeds, statements, least)
    rows = [_properties(speed, by) for speed in speeds]
    batches = next((f"; here, each is {s.period}" for s in speeds if s.periods), "")
    return render(
        "speed.html",
        [*filter(None, [drawn, days]), *speed_against_price(speed_and_price, targets)],
        {"targets": targets},
        headline=_headline(speeds, sentence),
        filtered=rows,
        title="LLM speed in production",
        lead=f"{counted_as(sum(speed.requests for speed in speeds), 'request')}, {period}, one "
        f"row for each {by}.",
        statements=[statement for statement in statements if statement != sentence],
        meaning=_meaning_of_grades(),
        **_filters(rows),
        least=f"{least:,}",
        periods=batches,
        money_statements=full(speed_and_price_statements(speed_and_price)),
        last=_table(speeds, by),
        against=_against_table(against) if against else None,
        drivers=_driver_table(drivers),
        lines=speed_remarks(speeds),
    )


def _meaning_of_grades() -> str:
    bounds = ", ".join(f"{grade} from {tps:g} tokens/s" for tps, grade in GRADES)
    return f"Grades: {bounds}, else {SLOWEST}."


def _filters(rows: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    choices = {each: sorted({row[each] for row in rows if each in row}) for each in SELECTS}
    present = {row["grade"] for row in rows}
    return {
        "selects": {each: values for each, values in choices.items() if len(values) > 1},
        "grades": {value: entry for value, entry in grade_entries().items() if value in present},
    }


def _main_finding(speeds: Sequence[ProductionSpeed], statements: Sequence[str], least: int) -> str:
    if speeds and all(speed.grade is None for speed in speeds):
        return f"Nothing has a grade yet: a grade needs {least:,} successful requests."
    return statements[0] if statements else ""


def _headline(speeds: Sequence[ProductionSpeed], sentence: str) -> Headline:
    tiles = [
        Tile(
            label=f"total TPS p50, grade {speed.grade}",
            value=number(speed.total_tps.p50),
            unit="tokens/s",
            target=speed.name,
            note=counted_as(speed.requests, "request"),
        )
        for speed in speeds
        if speed.grade is not None
    ]
    few = sum(speed.grade is None for speed in speeds)
    badge = Badge(text=f"{few:,} of {len(speeds):,} without a grade", look="warn") if few else None
    return Headline(sentence=sentence, tiles=tiles[:3], badge=badge)


def _grade(speed: ProductionSpeed) -> str:
    return UNGRADED if speed.grade is None else str(speed.grade)


def _properties(speed: ProductionSpeed, by: str) -> dict[str, str]:
    properties = {"name": speed.name, "grade": _grade(speed)}
    if by == "target":
        target = identify(speed.name)
        properties |= {
            "model": target.model,
            "maker": target.maker or "unknown",
            "host": target.host,
        }
    return properties


def _table(speeds: Sequence[ProductionSpeed], by: str) -> HtmlTable:
    head = [
        by, "grade", "total "
        "TPS p50", "total TPS p95", "TTFT p50, ms", "TTFT p95, ms", "TPS p50", "tokens out",
        "requests", "failed", "$/M tokens",
    ]  # fmt: skip
    body = [_row(speed) for speed in speeds]
    if not any(speed.usd_per_million is not None for speed in speeds):
        head, body = head[:-1], [row[:-1] for row in body]
    return HtmlTable(caption="Production speed", head=head, body=body, export=True)


def _against_table(against: Sequence[SpeedAgainst]) -> HtmlTable:
    body: list[list[str | TableCell]] = [
        [
            TableCell(
                text=comparison.target, notes=[f"{comparison.source} {comparison.load}".rstrip()]
            ),
            FIGURES[each.figure][0],
            number(each.production),
            each.known.words,
            MISSING if each.ratio is None else f"{ratio(each.ratio)}×",
            MISSING if each.ci95 is None else span(*map(ratio, each.ci95)),
            "cannot tell" if each.verdict == "unclear" else each.verdict,
        ]
        for comparison in against
        for each in comparison.figures
    ]
    head = ["target", "p50 of", "production", "there", "ratio", "95%", "verdict"]
    return HtmlTable(caption="Production against it", head=head, body=body, export=True)


def _driver_table(drivers: Sequence[SpeedDrivers]) -> HtmlTable | None:
    body: list[list[str | TableCell]] = [
        [
            DRIVEN[of_figure.figure],
            WORDS[each.by],
            f"{each.values:,}",
            share_words(each, interval=True),
        ]
        for of_figure in drivers
        for each in of_figure.drivers
    ]
    if not body:
        return None
    head = ["figure", "property", "values", "share of the variation"]
    return HtmlTable(caption="What speed goes with", head=head, body=body, export=True)


def _row(speed: ProductionSpeed) -> list[str | TableCell]:
    grade = MISSING if speed.grade is None else str(speed.grade)
    possible = f"{speed.grades[0]}–{speed.grades[-1]}" if len(speed.grades) > 1 else ""
    return [
        TableCell(text=speed.name),
        TableCell(text=grade, notes=[possible] if possible else [], look="grade"),
        _figure(speed.total_tps, "p50"),
        _figure(speed.total_tps, "p95"),
        _figure(speed.ttft_ms, "p50"),
        _figure(speed.ttft_ms, "p95"),
        _figure(speed.tps, "p50"),
        MISSING if speed.output_tokens is None else f"{speed.output_tokens:,.0f}",
        f"{speed.requests:,}",
        TableCell(text=share(speed.error_share), look="bad") if speed.failed else "0",
        usd_or_free(speed.usd_per_million),
    ]


def _figure(summary: Summary, percentile: str) -> TableCell:
    return figure_cell(cell(summary, percentile))
