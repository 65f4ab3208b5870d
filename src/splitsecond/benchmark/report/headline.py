from collections.abc import Sequence

from splitsecond.benchmark.findings.conclusion import TPS, TTFT, by_figure, has_interval
from splitsecond.benchmark.findings.statements import Lead, leads
from splitsecond.benchmark.report import rows
from splitsecond.benchmark.rows.figures import FIGURES, LATENCY, TOTALS
from splitsecond.benchmark.rows.records import Capacity, ConditionFindings, Run
from splitsecond.benchmark.rows.usable_rows import lightest_rows
from splitsecond.core.observation import Observation
from splitsecond.core.pages import figure_cells
from splitsecond.core.pages.figure_cells import number
from splitsecond.core.pages.html import Badge, Headline, Tile
from splitsecond.core.wording import level, limits, ratio


def run_headline(run: Run, observations: Sequence[Observation]) -> Headline:
    badge = _badge(run)
    sentence, *further = run.conclusion or [""]
    if run.capacity is not None:
        return Headline(
            sentence=sentence,
            further=further,
            tiles=_capacity_tiles(run, run.capacity),
            badge=badge,
        )
    lightest = lightest_rows(run.conditions)
    if not lightest:
        return Headline(sentence=sentence, further=further, badge=badge)
    all_leads = leads(run.conditions, observations)
    by_metric = by_figure(all_leads, lightest)
    period = "" if run.spread is None or run.spread.claims else run.spread.period()
    tiles = [_session_time(lightest, all_leads, period)]
    names = (LATENCY.name,) if lightest[0].inputs else (TTFT, TPS)
    tiles += [_first(name, by_metric.get(name), lightest, period) for name in names]
    tiles += [_throughput(run, "output_tokens_per_s"), _throughput(run, "inputs_per_s")]
    return Headline(
        sentence=sentence,
        further=further,
        tiles=[tile for tile in tiles if tile is not None],
        badge=badge,
    )


def _badge(run: Run) -> Badge | None:
    sent = sum(c.requests for c in run.conditions)
    invalid = sum(bool(c.invalid) for c in run.conditions)
    if not sent:
        return None
    if run.invalid or invalid == len(run.conditions):
        return Badge(text="INVALID", look="bad")
    if all(c.errors == c.requests for c in run.conditions):
        return Badge(text="every request failed", look="bad")
    if invalid:
        return Badge(text=f"{invalid:,} of {len(run.conditions):,} rows INVALID", look="warn")
    if not run.finished:
        return Badge(text="stopped early", look="warn")
    if not any(has_interval(c) for c in run.conditions):
        return Badge(text="too few requests for intervals", look="warn")
    return Badge(text="measurement valid", look="good")


def _session_time(
    lightest: Sequence[ConditionFindings], all_leads: Sequence[Lead], period: str
) -> Tile | None:
    times = [(c.session.session_s, c) for c in lightest if c.session and c.session.session_s.value]
    if not times:
        return None
    time, best = min(times, key=lambda pair: pair[0].value or 0.0)
    between = figure_cells.interval_text(time.ci95, number)
    own = [
        each
        for each in all_leads
        if each.metric.name == "session_s" and each.best.condition == best.condition
    ]
    return Tile(
        label=f"mean session time {level(best)}",
        value=number(time.value),
        unit="s",
        target=best.target,
        note=_compared(
            own[0] if own else None, f"95% interval {between}" if between else "", period
        ),
    )


def _first(
    name: str, lead: Lead | None, lightest: Sequence[ConditionFindings], period: str
) -> Tile | None:
    figure = FIGURES[name].under(open_loop=rows.open_loop(lightest[0]))
    values = [(value, row) for row in lightest if (value := figure.summary(row).p50) is not None]
    if not values:
        return None
    best = (max if figure.higher_is_better else min)(values, key=lambda pair: pair[0])[1]
    best = lead.best if lead is not None else best
    cell = figure_cells.cell(figure.summary(best), "p50")
    note = _compared(lead, _interval(cell), period)
    label = f"{FIGURES[name].label} p50 {level(best)}"
    return Tile(label=label, value=cell.figure, unit=figure.unit, target=best.target, note=note)


def _compared(lead: Lead | None, interval: str, period: str) -> str:
    within = f" in {period}" if period else ""
    if lead is None:
        return f"{interval}{within}".lstrip()
    if lead.found.p_value is None:
        return f"too few requests or rounds to compare with {lead.next_best.target}"
    if not (lead.found.real and lead.found.ratio):
        return f"not clearly ahead of {lead.next_best.target}{within}"
    between = lead.found.ci95
    bounds = f" ({ratio(between[0])} to {ratio(between[1])})" if between else ""
    return f"{ratio(lead.found.ratio)} times as fast as {lead.next_best.target}{bounds}{within}"


def _interval(cell: figure_cells.FigureCell) -> str:
    return f"95% interval {cell.interval}" if cell.interval else ""


def _throughput(run: Run, name: str) -> Tile | None:
    total = TOTALS[name]
    throughputs = [
        (value, c) for c in run.conditions if (value := total.value(c)) and not c.invalid
    ]
    if not throughputs:
        return None
    most, best = max(throughputs, key=lambda pair: pair[0])
    label = f"highest system throughput, {level(best)}"
    return Tile(label=label, value=number(most), unit=total.unit, target=best.target)


def _capacity_tiles(run: Run, capacity: Capacity) -> list[Tile]:
    what = "requests/s" if capacity.open_loop else "concurrency"
    share = f"{capacity.share:.0%} of requests"
    if capacity.holds is None:
        return [
            Tile(
                label="capacity", value="none certain", note=f"{limits(capacity.limits)} in {share}"
            )
        ]
    tiles = [
        Tile(
            label="capacity",
            value=f"{capacity.holds:g}",
            unit=what,
            note=f"{limits(capacity.limits)} in {share}",
        )
    ]
    step = next(step for step in capacity.steps if step.load == capacity.holds)
    row = next(c for c in run.conditions if c.condition == step.condition)
    ttft = figure_cells.cell(rows.ttft(row), "p95")
    tiles.append(
        Tile(label="TTFT p95 at this load", value=ttft.figure, unit="ms", note=_interval(ttft))
    )
    speed = number(row.output_tokens_per_s)
    tiles.append(Tile(label="system throughput at this load", value=speed, unit="tokens/s"))
    return tiles
