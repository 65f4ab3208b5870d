"""The conclusion of a run, in three sentences: which target for what was asked, how sure that is,
and what it costs.

What was asked is the use of the run's limits (`--slo voice`); without one, which target is the
fastest at the lightest and at the heaviest load.
"""

from collections.abc import Iterable, Mapping, Sequence

from splitsecond.benchmark.findings.recommendation import asked_for, figure_words, limit_words
from splitsecond.benchmark.findings.statements import Lead, leads
from splitsecond.benchmark.rows.figures import FIGURES, TOTALS, ttft_figure, wait_figure
from splitsecond.benchmark.rows.metric import Figure
from splitsecond.benchmark.rows.records import ConditionFindings, Recommendation, Run
from splitsecond.benchmark.rows.round_spread import CLAIM, CLAIM_OF_FILES
from splitsecond.benchmark.rows.usable_rows import (
    load_of,
    load_order,
    rows_by_target,
    rows_by_workload,
)
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import usd
from splitsecond.core.observation import Observation
from splitsecond.core.wording import ENGINE, SIMULATED, counted_as, level, listed, number, ratio
from splitsecond.log.statistics.summary import advised

TTFT, TPS = "ttft_ms", "tps"
WORDS = {TTFT: "to the first token", TPS: "in tokens per second"}
MAX_NAMED = 3
Row = ConditionFindings


def conclusion(run: Run, observations: Sequence[Observation], use: str = "") -> list[str]:
    """Return the three sentences; none for a run without requests. `use`: that of the run's limits,
    or ""."""
    if not any(row.requests for row in run.conditions):
        return []
    if not run.capacity and not any(map(rows_by_target, rows_by_workload(run.conditions))):
        return ["Do not rely on the figures of this run.", _sure(run)]
    answer = (
        run.statements[0] if run.capacity else _for_use(run, use) or _fastest(run, observations)
    )
    return [sentence for sentence in (answer, _sure(run), _cost(run)) if sentence]


def _for_use(run: Run, use: str) -> str:
    return " ".join(
        _of_use(run, choice, asked_for(choice))
        for choice in run.uses
        if choice.use == use and choice.candidates
    )


def _of_use(run: Run, choice: Recommendation, use: str) -> str:
    best, tense = choice.candidates[0], _within(run)
    limit, value = limit_words(choice.use), _judged(choice)
    at = f" at {best.load}" if best.load else ""
    if best.keeps == "no":
        beyond = f"; {best.target} comes nearest ({value}{at})" if value else ""
        return f"For {use}, no target meets {limit}{tense}{beyond}."
    if best.keeps == "unsure":
        seen = f"{value or best.why}{at}{tense}"
        return f"For {use}, the run cannot tell yet whether {best.target} meets {limit} ({seen})."
    if choice.is_clear or len(choice.candidates) == 1:
        return (
            f"For {use}, take {best.target}: it meets "
            f"{limit}{at}{tense}{f' ({value})' if value else ''}."
        )
    met = [each.target for each in choice.candidates if each.keeps == "yes"]
    return (
        f"For {use}, {listed(met)} {'meets' if len(met) == 1 else 'meet'} {limit}{at}{tense}; "
        "none is clearly first."
    )


def _judged(choice: Recommendation) -> str:
    best = choice.candidates[0]
    if best.value is None or not choice.limits:
        return ""
    return f"{choice.percentile} {figure_words(next(iter(choice.limits)), best.value)}"


def _fastest(run: Run, observations: Sequence[Observation]) -> str:
    all_leads = leads(run.conditions, observations)
    workloads = [
        loads
        for rows in rows_by_workload(run.conditions)
        if (loads := _loads(rows_by_target(rows)))
    ]
    if len(workloads) > 1:
        return _by_workload(run, workloads, all_leads)
    (loads,) = workloads
    lightest, heaviest = loads[min(loads)], loads[max(loads)]
    if len(lightest) == 1:
        (first,) = lightest
        heavier = [row for row in heaviest if row.target == first.target and row is not first]
        return _of_one_target(first, heavier)
    within = _within(run)
    tense, verb = ("was", "was ahead") if within else ("is", "is the fastest")
    if _leads_everywhere(loads, all_leads):
        of = by_figure(all_leads, lightest)
        where = f"at every load{within}; {level(lightest[0])} it {tense}"
        return f"{_winner(of)} {verb} {where} {_margins(_clear(of))} as the next target."
    if lightest is heaviest:
        return _of_load(lightest, by_figure(all_leads, lightest), within)
    light, heavy = by_figure(all_leads, lightest), by_figure(all_leads, heaviest)
    if (winner := _winner(light)) and winner == _winner(heavy):
        return (
            f"{winner} {verb} {level(lightest[0])} and {level(heaviest[0])}{within}: "
            f"{level(heaviest[0])}, {_margins(_clear(heavy))} as the next target."
        )
    both = ((lightest, light), (heaviest, heavy))
    return " ".join(_of_load(rows, of, within) for rows, of in both if len(rows) > 1)


def _loads(levels: Sequence[Sequence[Row]]) -> Mapping[tuple[bool, float], list[Row]]:
    return grouped((row for own in levels for row in own), load_order)


def _by_workload(
    run: Run, workloads: Sequence[Mapping[tuple[bool, float], list[Row]]], all_leads: Sequence[Lead]
) -> str:
    """Return a sentence for each workload: of several targets at the heaviest load, of one at the
    lightest."""
    if len({row.target for loads in workloads for rows in loads.values() for row in rows}) == 1:
        first, *others = (loads[min(loads)][0] for loads in workloads)
        return _of_one_target(first, others)
    within = _within(run)
    heaviest = [loads[max(loads)] for loads in workloads]
    return " ".join(
        _of_load(rows, by_figure(all_leads, rows), within) for rows in heaviest if len(rows) > 1
    )


def _of_one_target(first: Row, others: Iterable[Row]) -> str:
    return " ".join([_alone(first), *(_alone(row, brief=True) for row in others)]).strip()


def _of_load(rows: Sequence[Row], of: Mapping[str, Lead], within: str) -> str:
    where, clear = level(rows[0]), _clear(of)
    if of and all(each.found.p_value is None for each in of.values()):
        return f"Too few requests or rounds to tell which target is the fastest {where}."
    if not clear:
        return f"No target {'was' if within else 'is'} clearly the fastest {where}{within}."
    if winner := _winner(of):
        verb = f"was ahead {where}{within}" if within else f"is the fastest {where}"
        return f"{winner} {verb}: {_margins(clear)} as the next target."
    verb = "was ahead" if within else "is first"
    parts = [f"{each.best.target} {verb} {WORDS[name]}" for name, each in clear.items()]
    unclear = [WORDS[name] for name in WORDS if name not in clear]
    rest = f"; no target {'was' if within else 'is'} clearly first {unclear[0]}" if unclear else ""
    return f"{where.capitalize()}{within}, {' and '.join(parts)}{rest}."


def _sure(run: Run) -> str:
    """Return how far the answer can be relied on, and what would settle what is open."""
    if run.invalid:
        return f"The run is INVALID: {run.invalid[0]}."
    rows = run.conditions
    invalid = [row for row in rows if row.invalid]
    if not run.capacity and not any(has_interval(row) for row in rows):
        return f"It is not sure: {_sent(run)} give no intervals. Use -n {advised(0.95)}."
    sentences = []
    if not run.capacity:  # its own sentence says how certain it is
        sentences.append(_holds_for(run))
    if not run.finished:
        sentences.append("The run was stopped before its end.")
    if invalid:
        verb = "is" if len(invalid) == 1 else "are"
        sentences.append(
            f"{len(invalid):,} of {counted_as(len(rows), 'row')} {verb} INVALID and not compared."
        )
    if all(row.target.startswith((SIMULATED, ENGINE)) for row in rows):
        sentences.append("The targets are simulated: no provider was measured.")
    return " ".join(sentences)


def _sent(run: Run) -> str:
    counts = [row.requests for row in run.conditions]
    rounds = f" in {counted_as(run.spread.rounds, 'round')}" if run.spread else ""
    least = f"{min(counts):,} to " if min(counts) < max(counts) else ""
    return f"{least}{counted_as(max(counts), 'request')} per row{rounds}"


def _holds_for(run: Run) -> str:
    how, needs = "It is sure within the intervals", []
    if not any(_has_p95(row) for row in run.conditions):
        needs.append(f"a p95 needs -n {advised(0.95)}")
    if not _claims(run):
        how = f"It holds for {_period(run)} only"
        of_tool = run.asked.get("settings", {}).get("tool")
        needs.append(f"other minutes need {CLAIM_OF_FILES if of_tool else CLAIM}")
    return f"{how} ({_sent(run)}){f'; {listed(needs)}' if needs else ''}."


def _cost(run: Run) -> str:
    first = next(filter(rows_by_target, rows_by_workload(run.conditions)), [])
    heaviest = {own[0].target: own[-1] for own in rows_by_target(first)}
    if run.capacity and run.capacity.holds is not None:  # heavier loads fail
        heaviest |= {row.target: row for row in first if load_of(row) == run.capacity.holds}
    several = len({row.workload for row in run.conditions}) > 1
    on = f" on workload {first[0].workload}" if several else ""
    priced = {
        name: row.usd_per_million
        for name, row in heaviest.items()
        if row.usd_per_million is not None
    }
    if not priced:
        unknown = "What it costs is unknown without a price: name one with --price."
        return unknown if heaviest else ""
    rate = f"million tokens cost {_prices(priced)}{on}"
    return f"The run cost {usd(run.cost_usd)}; a {rate}." if run.cost_usd else f"A {rate}."


def _prices(usd_per_million: Mapping[str, float]) -> str:
    ranked = sorted(usd_per_million.items(), key=lambda each: each[1])
    prices = [f"{usd(price) if price else 'nothing'} at {name}" for name, price in ranked]
    others = len(ranked) - MAX_NAMED
    more = f" and more at {counted_as(others, 'other')}" if others > 0 else ""
    return f"{listed(prices[:MAX_NAMED])}{more}"


def _claims(run: Run) -> bool:
    return run.spread is None or run.spread.claims


def _within(run: Run) -> str:
    return "" if _claims(run) else f" in {_period(run)}"


def _period(run: Run) -> str:
    return run.spread.period() if run.spread else ""


def has_interval(row: Row) -> bool:
    return None not in wait_figure(row).summary(row).interval("p50")


def _has_p95(row: Row) -> bool:
    return None not in wait_figure(row).summary(row).interval("p95")


def by_figure(all_leads: Sequence[Lead], level_rows: Sequence[Row]) -> dict[str, Lead]:
    at = {row.condition for row in level_rows}
    return {
        _plain(each): each
        for each in all_leads
        if each.best.condition in at and isinstance(each.metric, Figure)
    }


def _winner(by_metric: Mapping[str, Lead]) -> str:
    winners = {each.best.target if each.found.real else "" for each in by_metric.values()}
    return winners.pop() if by_metric.keys() == {TTFT, TPS} and len(winners) == 1 else ""


def _leads_everywhere(
    loads: Mapping[tuple[bool, float], Sequence[Row]], all_leads: Sequence[Lead]
) -> bool:
    winners = {_winner(by_figure(all_leads, rows)) for rows in loads.values()}
    return len(loads) > 1 and len(winners) == 1 and winners != {""}


def _plain(of: Lead) -> str:
    return next(
        (name for name in (TTFT, TPS) if of.metric in (FIGURES[name], FIGURES[name].from_due)),
        of.metric.name,
    )


def _margins(clear: Mapping[str, Lead]) -> str:
    return " and ".join(
        f"{ratio(each.found.ratio or 1)} times as fast {WORDS[name]}"
        for name, each in clear.items()
    )


def _clear(by_metric: Mapping[str, Lead]) -> dict[str, Lead]:
    return {
        name: of
        for name in WORDS
        if (of := by_metric.get(name)) and of.found.real and of.found.ratio
    }


def _alone(row: Row, *, brief: bool = False) -> str:
    if row.session is not None:
        seconds = row.session.session_s.value
        return (
            ""
            if seconds is None
            else f"{row.target} takes {number(seconds)} s for a session {level(row)}."
        )
    if row.inputs:
        latency = wait_figure(row).summary(row).p50
        speed = TOTALS["inputs_per_s"].value(row)
        if latency is None or speed is None:
            return ""
        return (
            f"{row.target} answers {level(row)} after {number(latency)} ms (p50): {number(speed)} "
            "inputs per second."
        )
    ttft, tps = ttft_figure(open_loop=row.concurrency is None).summary(row).p50, row.tps.p50
    if ttft is None or tps is None:
        return ""
    if brief:
        return (
            f"{level(row).capitalize()} it is {number(ttft)} ms and "
            f"{number(tps)} tokens per second."
        )
    return (
        f"{row.target} sends the first token after {number(ttft)} ms, then {number(tps)} tokens "
        f"per second (p50, {level(row)})."
    )
