"""Savings by a provider's prompt cache: two rows of one target, compared with each other.

Under each load a target got prompts that begin differently, and prompts that share all but their
last words (`load.plan`). The rows are compared in time round by round, in money by the input tokens
billed at each price, with the warm-ups, which fill the cache. Output is left out, because responses
that are longer by chance must not look like a difference. A machine paid by the hour has no price
for its input: the time of a request counts instead.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from splitsecond.benchmark.findings.change_statements import STATED_PERCENTILES
from splitsecond.benchmark.findings.compare import compare_figure, figure_change
from splitsecond.benchmark.rows.figures import ended, successful, ttft_figure
from splitsecond.benchmark.rows.records import CacheSaving, ConditionFindings, FigureChange
from splitsecond.benchmark.rows.round_spread import round_spread
from splitsecond.benchmark.rows.row_cost import WORTH_SAYING
from splitsecond.benchmark.rows.usable_rows import row
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import Prices, bill, usd
from splitsecond.core.observation import LOAD_ROLES, Observation
from splitsecond.core.wording import Statement, change, evidence, listed, number, percent
from splitsecond.log.statistics.sample_comparison import SampleComparison, holm

THOUSAND = 1000

Row = ConditionFindings
Observed = tuple[Row, Sequence[Observation]]


def cache_savings(
    rows: Sequence[Row], observations: Sequence[Observation], prices: Prices
) -> list[CacheSaving]:
    observed = grouped(observations, lambda o: o.condition)
    fresh = {(c.target, c.concurrency, c.rate): c for c in rows if not c.cache_reuse}
    pairs = [
        ((apart, observed[apart.condition]), (alike, observed[alike.condition]))
        for alike in rows
        if alike.cache_reuse
        if (apart := fresh.get((alike.target, alike.concurrency, alike.rate))) is not None
    ]
    spread = round_spread(observations)
    close = spread is not None and not spread.claims
    judged = holm({(i, p): c for i, pair in enumerate(pairs) for p, c in _compared(*pair).items()})
    return [
        _saving(
            *pair, prices, {p: c for (number, p), c in judged.items() if number == i}, close=close
        )
        for i, pair in enumerate(pairs)
    ]


def _compared(fresh: Observed, reuse: Observed) -> dict[str, SampleComparison]:
    figure = ttft_figure(open_loop=fresh[0].concurrency is None)
    apart, alike = (figure.sample(ended(observations)) for _, observations in (fresh, reuse))
    by_percentile = compare_figure(figure, apart, alike, paired=True)
    return {
        percentile: by_percentile[percentile]
        for percentile in STATED_PERCENTILES
        if percentile in by_percentile
    }


def _saving(
    fresh: Observed,
    reuse: Observed,
    prices: Prices,
    by_percentile: Mapping[str, SampleComparison],
    *,
    close: bool,
) -> CacheSaving:
    alike = successful(reuse[1])
    figure = ttft_figure(open_loop=fresh[0].concurrency is None)
    counts = [o.cached_tokens for o in alike if o.cached_tokens is not None]
    total = sum(o.input_tokens or 0 for o in alike)
    saving = CacheSaving(
        target=fresh[0].target,
        fresh=fresh[0].condition,
        reuse=reuse[0].condition,
        ttft=[
            figure_change(figure, percentile, each) for percentile, each in by_percentile.items()
        ],
        requests=len(alike),
        hits=sum(1 for cached in counts if cached),
        cached_share=sum(counts) / total if counts and total else None,
        usd_per_request_fresh=_usd_per_request(*fresh, prices),
        usd_per_request_reuse=_usd_per_request(*reuse, prices),
    )
    # Rounds that are too close give no p-value: it would be that of other minutes.
    stated = (
        replace(saving, ttft=[replace(each, p_value=None) for each in saving.ttft])
        if close
        else saving
    )
    verdict = _verdict(stated, fresh[0], reuse[0])
    return replace(saving, verdict=verdict.long, short_verdict=verdict.short)


def _usd_per_request(row: Row, observations: Sequence[Observation], prices: Prices) -> float | None:
    """Return the cost of the input of a request; None if no price is known."""
    if row.price is not None and row.price.per_hour_usd is not None:
        return row.usd_per_request
    observations = [o for o in observations if o.role not in LOAD_ROLES or o.outcome != "cancelled"]
    input_bill = bill([replace(o, output_tokens=0) for o in observations], prices)
    answers = sum(1 for o in observations if o.ok and o.role in LOAD_ROLES)
    return (
        input_bill.usd / answers if answers and input_bill.unpriced < input_bill.attempts else None
    )


def _verdict(saving: CacheSaving, fresh: Row, reuse: Row) -> Statement:
    name, short = row(fresh), row(fresh, short=True)
    if spoilt := [c for c in (fresh, reuse) if c.invalid]:
        return Statement(
            f"{name}: the savings of the prompt cache are not judged, because INVALID: "
            f"{listed([row(c) for c in spoilt])}.",
            f"{short}: prompt cache not judged, INVALID: "
            f"{listed([row(c, short=True) for c in spoilt])}.",
        )
    if not saving.ttft:
        return Statement(
            f"{name}: the savings of the prompt cache are unknown, because one kind of prompts "
            "has no response.",
            f"{short}: the savings of the prompt cache are unknown.",
        )
    n = min(c.requests - c.errors for c in (fresh, reuse))
    text = _reported(saving, n) if saving.hits else _unreported(saving, n)
    return Statement(f"{name}: {text}.", _in_short(short, saving, n))


def _in_short(name: str, saving: CacheSaving, n: int) -> str:
    median, dollars = saving.ttft[0], _moved_usd(saving)
    if _faster(median):
        bounds = median.ci95 and (percent(-median.ci95[1]), percent(-median.ci95[0]))
        saved = (
            f"cache reuse saves {percent(-(median.change or 0))} of TTFT "
            f"p50{evidence('', bounds, short=True)}"
        )
    else:
        saved = _no_time_saved(median, n, short=True)
    money = "The provider reports no cached tokens" if not saving.hits else ""
    if dollars > 0:
        money = f"The prompt cache saves {_per_thousand(dollars)}"
    elif dollars < 0:
        money = f"Filling the prompt cache costs {_per_thousand(-dollars)} more than it saves"
    return f"{name}: {saved}.\n{money}." if money else f"{name}: {saved}."


def _reported(saving: CacheSaving, n: int) -> str:
    dollars = _moved_usd(saving)
    if _faster(saving.ttft[0]):
        text = f"the prompt cache saves {_time_saved(saving.ttft[0])}"
        if dollars > 0:
            text += f" and {_per_thousand(dollars)}"
        elif dollars < 0:
            text += f", but costs {_per_thousand(-dollars)} more, because it must be filled"
    else:
        text = _no_time_saved(saving.ttft[0], n)
        if dollars > 0:
            text += f", but the prompt cache saves {_per_thousand(dollars)}"
        elif dollars < 0:
            text += (
                f", and filling the prompt cache costs {_per_thousand(-dollars)} more than it saves"
            )
    came = (
        ""
        if saving.cached_share is None
        else f"{percent(saving.cached_share)} of the input came from it, "
    )
    return f"{text}; {came}in {saving.hits:,} of {saving.requests:,} requests"


def _unreported(saving: CacheSaving, n: int) -> str:
    text = "the provider reports no cached tokens, "
    if _faster(saving.ttft[0]):
        text += (
            f"but prompts that share a beginning save {_time_saved(saving.ttft[0])}: it may "
            "cache without reporting it"
        )
    else:
        text += f"and there is {_no_time_saved(saving.ttft[0], n)}"
    dollars = _moved_usd(saving)
    return text if dollars >= 0 else f"{text}; filling a cache costs {_per_thousand(-dollars)} more"


def _faster(median: FigureChange) -> bool:
    return median.real and median.better is True


def _time_saved(median: FigureChange) -> str:
    saved = [percent(-bound) for bound in reversed(median.ci95 or ())]
    evident = evidence("", (saved[0], saved[1]) if saved else None, median.p_value)
    share = percent(-(median.change or 0))
    return f"{share} of TTFT at p50, {number(median.before)} to {number(median.after)} ms{evident}"


def _no_time_saved(median: FigureChange, n: int, *, short: bool = False) -> str:
    moved = "" if median.change is None else change(median.change)
    bounds = median.ci95 and (change(median.ci95[0]), change(median.ci95[1]))
    evident = evidence(moved, bounds, median.p_value, short=short)
    if median.real:
        return (
            f"no saving but a higher TTFT at p50, {number(median.before)} to "
            f"{number(median.after)} ms{evident}"
        )
    untested = "" if median.needs or median.detectable is not None else " in fewer than five rounds"
    return f"no saving of TTFT that n = {n}{untested} could show{evident}"


def _moved_usd(saving: CacheSaving) -> float:
    """Return the US dollars saved per request, negative for a loss; 0 if unknown or negligible."""
    fresh, reuse = saving.usd_per_request_fresh, saving.usd_per_request_reuse
    if not fresh or reuse is None or abs(fresh - reuse) < WORTH_SAYING * fresh:
        return 0.0
    return fresh - reuse


def _per_thousand(dollars: float) -> str:
    return f"{usd(THOUSAND * dollars)} per 1,000 requests"
