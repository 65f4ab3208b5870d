"""What a search for capacity found, as plain sentences: how much is borne, what gives first, what that load is like,
and from where on throughput hardly grows."""

from collections.abc import Mapping, Sequence

from splitsecond.analysis.capacity import load_of
from splitsecond.analysis.cost import usd
from splitsecond.analysis.figures import ttft_figure
from splitsecond.analysis.findings import Capacity, CapacityStep, ConditionFindings
from splitsecond.analysis.wording import counted, counted_as, level, limits, listed, load, number, percent, ratio

Row = ConditionFindings


def capacity_statements(found: Capacity, rows: Sequence[Row]) -> list[str]:
    """The sentences, the capacity itself first. `rows`: those of its steps."""
    by_load = {load_of(row): row for row in rows}
    steps = {step.load: step for step in found.steps}
    said = [_borne(found, by_load, steps)]
    if found.ceiling is not None:
        said += _what_gives(found.why, steps[found.ceiling], by_load[found.ceiling])
    if found.holds is not None:
        said.append(_at_capacity(by_load[found.holds]))
    return said + _throughput(found, by_load)


def _borne(found: Capacity, rows: Mapping[float, Row], steps: Mapping[float, CapacityStep]) -> str:
    """How much: "a/x bears concurrency 12 with TTFT ≤ 300 ms in 95 % of requests (90 of 90 kept to it), not 13 …"."""
    wanted = f"with {limits(found.limits)} in {percent(found.share)} of requests"
    ceiling = steps[found.ceiling] if found.ceiling is not None and found.why != "invalid" else None
    unsure = [_counted(steps[each]) for each in found.undecided]
    not_beyond = f", not {_counted(ceiling)}" if ceiling else ""
    between = f"; not decided: {listed(unsure)}" if unsure else ""
    if found.holds is not None:
        held = f"{found.target} bears {load(rows[found.holds])} {wanted} ({_kept(steps[found.holds])} kept to it)"
        end = "" if unsure or found.ceiling is not None else ", the heaviest load of this search"
        return f"{held}{not_beyond}{end}{between}."
    lightest = min(steps)
    if found.why == "invalid" and not unsure:
        return f"What {found.target} bears is not known: the figures {level(rows[lightest])} are INVALID."
    if unsure:
        return f"It is not sure that {found.target} bears any load {wanted}{between}{not_beyond}."
    return f"{found.target} does not bear even {load(rows[lightest])} {wanted} ({_kept(steps[lightest])} kept to it)."


def _counted(step: CapacityStep) -> str:
    return f"{step.load:g} ({_kept(step)})"


def _kept(step: CapacityStep) -> str:
    return f"{step.met:,} of {step.sent:,}"


def _what_gives(why: str, step: CapacityStep, row: Row) -> list[str]:
    """Why there is a ceiling: which limit is missed most, that the server broke, or that nobody knows."""
    where = level(row).capitalize()
    if why == "invalid":
        return [f"{where} the figures are INVALID, so it is not known whether it bears that: {row.invalid[0]}"]
    if why == "breaks":
        failed = f"{row.errors:,} of {counted_as(row.requests, 'request', 'requests')} failed"
        return [f"{where} it broke, and the search ended: {failed} ({counted(row.error_kinds)})."]
    if not step.missed:
        return []
    shares = [f"{_limit(name)} in {count:,} of {step.sent:,}" for name, count in step.missed.items()]
    return [f"What gives first is {_limit(next(iter(step.missed)))}: {level(row)} requests missed {listed(shares)}."]


def _limit(name: str) -> str:
    return "an answer" if name == "errors" else name.upper()


def _at_capacity(row: Row) -> str:
    """What the server gives at the heaviest load that holds."""
    ttft = getattr(row, ttft_figure(open_loop=row.concurrency is None).name)
    parts = [
        f"{number(row.output_tokens_per_s)} tokens/s in all" if row.output_tokens_per_s else "",
        f"{number(row.goodput.per_s)} good requests/s" if row.goodput and row.goodput.per_s else "",
        f"TTFT p95 {number(ttft.p95)} ms" if ttft.p95 is not None else "",
        f"TPS p50 {number(row.tps.p50)}" if row.tps.p50 is not None else "",
        f"{usd(row.usd_per_million_output)} a million output tokens" if row.usd_per_million_output is not None else "",
    ]
    return f"{level(row).capitalize()} it gives {', '.join(filter(None, parts))}."


def _throughput(found: Capacity, rows: Mapping[float, Row]) -> list[str]:
    """Where more load stops to buy throughput, and how much batching had bought until there."""
    speeds = {at: row.output_tokens_per_s for at, row in rows.items() if row.output_tokens_per_s and not row.invalid}
    if len(speeds) < 2:
        return []
    most = max(speeds, key=lambda at: speeds[at])
    if found.knee is None:
        return [f"System tokens/s grow up to {load(rows[most])}: {number(speeds[most])}{_gained(rows[most])}."]
    knee = f"{number(speeds[found.knee])}{_gained(rows[found.knee])}"
    beyond = f", {number(speeds[most])} at most" if most > found.knee else ""
    return [f"System tokens/s hardly grow beyond {load(rows[found.knee])}: {knee}{beyond}."]


def _gained(row: Row) -> str:
    gained = row.batching_efficiency if row.concurrency != 1 else None
    return f", {ratio(gained)} times those of concurrency 1" if gained else ""
