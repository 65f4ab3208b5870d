from collections.abc import Sequence

from splitsecond.benchmark.findings.figures import FIGURES
from splitsecond.benchmark.findings.findings import Capacity, ConditionFindings, Run
from splitsecond.benchmark.findings.metric import Figure
from splitsecond.benchmark.findings.round_spread import round_spread
from splitsecond.benchmark.findings.statements import Lead, leads
from splitsecond.benchmark.findings.usable_rows import lightest_rows, rows_by_target
from splitsecond.benchmark.report import rows
from splitsecond.core.observation import Observation
from splitsecond.core.pages import figure_cells
from splitsecond.core.pages.figure_cells import MISSING, number
from splitsecond.core.pages.html import Badge, Headline, Tile
from splitsecond.core.wording import level, limits, ratio

TTFT, TPS = "ttft_ms", "tps"
WORDS = {TTFT: "to the first token", TPS: "in tokens per second"}


def run_headline(run: Run, observations: Sequence[Observation]) -> Headline:
    badge = _badge(run)
    if run.capacity is not None:
        sentence = run.statements[0] if run.statements else ""
        return Headline(sentence=sentence, tiles=_capacity_tiles(run, run.capacity), badge=badge)
    lightest = lightest_rows(run.conditions)
    if not lightest:
        invalid = bool(run.conditions) and all(c.invalid for c in run.conditions)
        return Headline(sentence="Do not rely on the figures of this run." if invalid else "", badge=badge)
    found = leads(run.conditions, observations)
    by_metric = _by_metric(found, lightest)
    spread = round_spread(observations)
    if spread is None or spread.claims:
        sentence, period = _sentence(lightest, by_metric, everywhere=_leads_everywhere(run, found)), ""
    else:
        sentence, period = f"{spread.only}: {_of_period(lightest, by_metric)} {spread.advice}", spread.period()
    tiles = [_session_time(lightest, found, period)]
    tiles += [_first(name, by_metric.get(name), lightest, period) for name in (TTFT, TPS)]
    tiles.append(_throughput(run))
    return Headline(sentence=sentence, tiles=[tile for tile in tiles if tile is not None], badge=badge)


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
    return Badge(text="measurement valid", look="good")


def _by_metric(found: Sequence[Lead], level_rows: Sequence[ConditionFindings]) -> dict[str, Lead]:
    at = {row.condition for row in level_rows}
    return {_plain(each): each for each in found if each.best.condition in at and isinstance(each.metric, Figure)}


def _winner(by_metric: dict[str, Lead]) -> str:
    winners = {each.best.target if each.found.real else "" for each in by_metric.values()}
    return winners.pop() if by_metric.keys() == {TTFT, TPS} and len(winners) == 1 else ""


def _leads_everywhere(run: Run, found: Sequence[Lead]) -> bool:
    loads: dict[tuple[int | None, float | None], list[ConditionFindings]] = {}
    for row in (row for own in rows_by_target(run.conditions) for row in own):
        loads.setdefault((row.concurrency, row.rate), []).append(row)
    winners = {_winner(_by_metric(found, own)) for own in loads.values()}
    return len(loads) > 1 and len(winners) == 1 and winners != {""}


def _plain(of: Lead) -> str:
    return next((name for name in (TTFT, TPS) if of.metric in (FIGURES[name], FIGURES[name].from_due)), of.metric.name)


def _sentence(lightest: Sequence[ConditionFindings], by_metric: dict[str, Lead], *, everywhere: bool = False) -> str:
    where = level(lightest[0])
    if len(lightest) == 1:
        return _alone(lightest[0])
    clear = _clear(by_metric)
    if winner := _winner(by_metric):
        lead = f"at every load; {where} it is " if everywhere else f"{where}: "
        return f"{winner} is the fastest {lead}{_margins(clear)} as the next target."
    if by_metric and all(each.found.p_value is None for each in by_metric.values()):
        return f"Too few requests or rounds to tell which target is the fastest {where}."
    if not clear:
        return f"No target is clearly the fastest {where}."
    parts = [f"{each.best.target} is first {WORDS[name]}" for name, each in clear.items()]
    unclear = [WORDS[name] for name in WORDS if name not in clear]
    rest = f"; no target is clearly first {unclear[0]}" if unclear else ""
    return f"{where.capitalize()}, {' and '.join(parts)}{rest}."


def _of_period(lightest: Sequence[ConditionFindings], by_metric: dict[str, Lead]) -> str:
    """Return what a run whose rounds are too close for a claim says about its own time."""
    where = level(lightest[0])
    if len(lightest) == 1:
        return _alone(lightest[0])
    if by_metric and all(each.found.p_value is None for each in by_metric.values()):
        return f"too few requests or rounds to compare the targets {where}."
    clear = _clear(by_metric)
    if winner := _winner(by_metric):
        return f"{where}, {winner} was ahead, {_margins(clear)} as the next target."
    parts = [f"{each.best.target} was ahead, {_margins({name: each})}" for name, each in clear.items()]
    return f"{where}, {' and '.join(parts) or 'no target was clearly ahead'}."


def _margins(clear: dict[str, Lead]) -> str:
    return " and ".join(f"{ratio(each.found.ratio or 1)} times as fast {WORDS[name]}" for name, each in clear.items())


def _clear(by_metric: dict[str, Lead]) -> dict[str, Lead]:
    return {name: of for name in WORDS if (of := by_metric.get(name)) and of.found.real and of.found.ratio}


def _alone(row: ConditionFindings) -> str:
    if row.session is not None:
        took = row.session.session_s.value
        return "" if took is None else f"{row.target} takes {number(took)} s for a session {level(row)}."
    ttft, tps = figure_cells.cell(rows.ttft(row), "p50").figure, figure_cells.cell(row.tps, "p50").figure
    if MISSING in (ttft, tps):
        return ""
    return f"{row.target} sends the first token after {ttft} ms, then {tps} tokens per second (p50, {level(row)})."


def _session_time(lightest: Sequence[ConditionFindings], found: Sequence[Lead], period: str) -> Tile | None:
    known = [(c.session.session_s, c) for c in lightest if c.session and c.session.session_s.value]
    if not known:
        return None
    time, best = min(known, key=lambda pair: pair[0].value or 0.0)
    between = figure_cells.interval_text(time.ci95, number)
    own = [each for each in found if each.metric.name == "session_s" and each.best.condition == best.condition]
    return Tile(
        label=f"mean session time {level(best)}",
        value=number(time.value),
        unit="s",
        target=best.target,
        note=_compared(own[0] if own else None, f"95% interval {between}" if between else "", period),
    )


def _first(name: str, lead: Lead | None, lightest: Sequence[ConditionFindings], period: str) -> Tile | None:
    figure = FIGURES[name].under(open_loop=rows.open_loop(lightest[0]))
    known = [(value, row) for row in lightest if (value := figure.summary(row).p50) is not None]
    if not known:
        return None
    best = (max if figure.higher_is_better else min)(known, key=lambda pair: pair[0])[1]
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


def _throughput(run: Run) -> Tile | None:
    found = [(c.output_tokens_per_s, c) for c in run.conditions if c.output_tokens_per_s and not c.invalid]
    if not found:
        return None
    most, best = max(found, key=lambda pair: pair[0])
    label = f"highest system throughput, {level(best)}"
    return Tile(label=label, value=number(most), unit="tokens/s", target=best.target)


def _capacity_tiles(run: Run, found: Capacity) -> list[Tile]:
    what = "requests/s" if found.open_loop else "concurrency"
    share = f"{found.share:.0%} of requests"
    if found.holds is None:
        return [Tile(label="capacity", value="none certain", note=f"{limits(found.limits)} in {share}")]
    tiles = [Tile(label="capacity", value=f"{found.holds:g}", unit=what, note=f"{limits(found.limits)} in {share}")]
    step = next(step for step in found.steps if step.load == found.holds)
    row = next(c for c in run.conditions if c.condition == step.condition)
    ttft = figure_cells.cell(rows.ttft(row), "p95")
    tiles.append(Tile(label="TTFT p95 at this load", value=ttft.figure, unit="ms", note=_interval(ttft)))
    speed = number(row.output_tokens_per_s)
    tiles.append(Tile(label="system throughput at this load", value=speed, unit="tokens/s"))
    return tiles
