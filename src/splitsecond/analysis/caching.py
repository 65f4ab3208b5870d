"""What a provider's prompt cache saves: two rows of one target, held against each other.

Under each load a target was asked in two ways that took turns (`load.plan`): by prompts that begin differently, which
no cache can have, and by prompts that share all but their last words. What differs between the rows is the cache's
doing: in time by the interval and the test of `contrast`, in money by the input tokens billed at each price.

Money is of the input alone. The output costs the same both ways, and the chance that makes some answers longer must not
pass for a saving. Everything that was sent is in it, warm-ups too, so that filling the cache is paid for; spread over
more requests than were sent here, that weighs less. A machine that is paid by the hour has no price for its input: of
it the time of a request counts.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from splitsecond.analysis.compare import TOLD_PERCENTILES, figure_changes
from splitsecond.analysis.cost import WORTH_SAYING, Prices, bill, usd
from splitsecond.analysis.figures import answered, ttft_figure
from splitsecond.analysis.findings import CacheSaving, ConditionFindings, FigureChange
from splitsecond.analysis.wording import change, evidence, listed, number, percent, row
from splitsecond.timing.observation import Observation

SEED = 0
THOUSAND = 1000

Row = ConditionFindings
Observed = tuple[Row, Sequence[Observation]]


def cache_savings(rows: Sequence[Row], observations: Sequence[Observation], prices: Prices) -> list[CacheSaving]:
    """For each row of cache reuse that has a row of fresh prompts beside it: what the cache saves."""
    observed: defaultdict[str, list[Observation]] = defaultdict(list)
    for o in observations:
        observed[o.condition].append(o)
    fresh = {(c.target, c.concurrency, c.rate): c for c in rows if not c.cache_reuse}
    pairs = [(fresh.get((c.target, c.concurrency, c.rate)), c) for c in rows if c.cache_reuse]
    return [
        _saving((apart, observed[apart.condition]), (alike, observed[alike.condition]), prices)
        for apart, alike in pairs
        if apart is not None
    ]


def _saving(fresh: Observed, reuse: Observed, prices: Prices) -> CacheSaving:
    apart, alike = answered(fresh[1]), answered(reuse[1])
    figure = ttft_figure(open_loop=fresh[0].concurrency is None)
    changes = figure_changes(figure, apart, alike, np.random.default_rng(SEED))
    said = [o.cached_tokens for o in alike if o.cached_tokens is not None]
    total = sum(o.input_tokens or 0 for o in alike)
    saving = CacheSaving(
        target=fresh[0].target,
        fresh=fresh[0].condition,
        reuse=reuse[0].condition,
        ttft=[found for found in changes if found.percentile in TOLD_PERCENTILES],
        requests=len(alike),
        hits=sum(1 for cached in said if cached),
        cached_share=sum(said) / total if said and total else None,
        usd_per_request_fresh=_usd_per_request(*fresh, prices),
        usd_per_request_reuse=_usd_per_request(*reuse, prices),
    )
    saving.verdict = _verdict(saving, fresh[0], reuse[0])
    return saving


def _usd_per_request(row: Row, observations: Sequence[Observation], prices: Prices) -> float | None:
    """What the input of a request cost; None where no price is known."""
    if row.price is not None and row.price.per_hour_usd is not None:
        return row.usd_per_request
    found = bill([replace(o, output_tokens=0) for o in observations], prices)
    answers = sum(1 for o in observations if o.ok and o.role in ("measured", "warmup"))
    return found.usd / answers if answers and found.unpriced < found.attempts else None


def _verdict(saving: CacheSaving, fresh: Row, reuse: Row) -> str:
    """One sentence: what the cache saves in time and in money, and what speaks for it."""
    name = row(fresh)
    if spoilt := [row(c) for c in (fresh, reuse) if c.invalid]:
        return f"{name}: what the prompt cache saves is not judged, as INVALID is {listed(spoilt)}."
    if not saving.ttft:
        return f"{name}: what the prompt cache saves is not known, as one of the two ways has no answer."
    n = min(c.requests - c.errors for c in (fresh, reuse))
    said = _reported(saving, n) if saving.hits else _unreported(saving, n)
    return f"{name}: {said}."


def _reported(saving: CacheSaving, n: int) -> str:
    dollars = _moved_usd(saving)
    if _faster(saving.ttft[0]):
        said = f"the prompt cache saves {_time_saved(saving.ttft[0])}"
        if dollars > 0:
            said += f" and {_per_thousand(dollars)}"
        elif dollars < 0:
            said += f", but costs {_per_thousand(-dollars)} more, as it must be filled"
    else:
        said = _no_time_saved(saving.ttft[0], n)
        if dollars > 0:
            said += f", but the prompt cache saves {_per_thousand(dollars)}"
        elif dollars < 0:
            said += f", and filling the prompt cache costs {_per_thousand(-dollars)} more than it saves"
    came = "" if saving.cached_share is None else f"{percent(saving.cached_share)} of the input came from it, "
    return f"{said}; {came}in {saving.hits} of {saving.requests} requests"


def _unreported(saving: CacheSaving, n: int) -> str:
    said = "the provider reports no cached tokens, "
    if _faster(saving.ttft[0]):
        said += f"but prompts that begin alike save {_time_saved(saving.ttft[0])}: it may cache and not say so"
    else:
        said += f"and there is {_no_time_saved(saving.ttft[0], n)}"
    dollars = _moved_usd(saving)
    return said if dollars >= 0 else f"{said}; filling a cache costs {_per_thousand(-dollars)} more"


def _faster(median: FigureChange) -> bool:
    return median.real and median.better is True


def _time_saved(median: FigureChange) -> str:
    saved = [percent(-bound) for bound in reversed(median.ci95 or ())]
    known = evidence("", (saved[0], saved[1]) if saved else None, median.p_value)
    share = percent(-(median.change or 0))
    return f"{share} of TTFT at p50, {number(median.before)} to {number(median.after)} ms{known}"


def _no_time_saved(median: FigureChange, n: int) -> str:
    moved = "" if median.change is None else change(median.change)
    known = evidence(moved, median.ci95 and (change(median.ci95[0]), change(median.ci95[1])), median.p_value)
    if median.real:
        return f"no saving but a longer TTFT at p50, {number(median.before)} to {number(median.after)} ms{known}"
    return f"no saving of TTFT that n = {n} could show{known}"


def _moved_usd(saving: CacheSaving) -> float:
    """Dollars of a request that the cache saves, below 0: costs; 0 where nobody knows, or it is not worth a word."""
    fresh, reuse = saving.usd_per_request_fresh, saving.usd_per_request_reuse
    if not fresh or reuse is None or abs(fresh - reuse) < WORTH_SAYING * fresh:
        return 0.0
    return fresh - reuse


def _per_thousand(dollars: float) -> str:
    return f"{usd(THOUSAND * dollars)} per 1,000 requests"
