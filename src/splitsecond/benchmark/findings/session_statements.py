"""Findings about sessions as sentences of at most 98 characters. Each row has one statement with
all of its own."""

from collections.abc import Callable, Iterator, Sequence

from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.row_fields import Estimated, SessionFindings
from splitsecond.benchmark.rows.usable_rows import load_order, row
from splitsecond.core.money.cost import usd
from splitsecond.core.wording import Statement, counted_as, number, percent, span


def session_statements(rows: Sequence[ConditionFindings]) -> list[Statement]:
    """Return what is known of the sessions of each valid row.

    The only row of a run needs no name, and has a statement for each sentence. What depends little
    on load is stated for the lightest one.
    """
    valid = sorted((each for each in rows if each.session and not each.invalid), key=load_order)
    lightest = {each.target: each for each in reversed(valid)}
    statements = []
    for each in valid:
        assert each.session is not None
        typical = list(_typical(each.session)) if lightest[each.target] is each else []
        facts = [
            fact[0].upper() + fact[1:]
            for fact in (*typical[:1], *_troubles(each.session), *typical[1:])
        ]
        if len(rows) == 1:
            return [Statement(fact) for fact in facts]
        if facts:
            lines = "\n".join((f"{row(each, short=True)}:", *facts))
            statements.append(Statement(f"{row(each)}: {' '.join(facts)}", lines))
    return statements


def _typical(totals: SessionFindings) -> Iterator[str]:
    parts = (totals.waiting_share, totals.generating_share, totals.tools_share)
    waiting, generating, tools = (percent(round(part.value or 0.0, 2)) for part in parts)
    spent = f"{waiting} waiting, {generating} generating, {tools} in tools"
    if (whole := totals.session_s).value:
        yield f"a session takes {number(whole.value)} s{_evident(whole, number)}: {spent}."
    else:
        yield f"sessions spend their time so: {spent}. None was finished."
    if (speed := totals.prefill_tokens_per_s).value is not None:
        cached = totals.ms_per_1000_cached_tokens.value
        more = (
            f"; 1,000 cached ones take {number(cached)} ms"
            if cached is not None and cached > 0
            else ""
        )
        yield f"new input is read at {number(speed.value)} tokens/s{_evident(speed, number)}{more}."
    if (gave := totals.cached_of_ideal).value is not None:
        yield (
            f"the prompt cache gave {percent(round(gave.value, 2))} of the "
            f"ideal{_evident(gave, percent)}."
        )
    if (
        totals.usd.value
        and totals.usd_uncached.value
        and totals.usd.value < totals.usd_uncached.value
    ):
        yield (
            f"a session costs {usd(totals.usd.value)}; without the prompt cache, "
            f"{usd(totals.usd_uncached.value)}."
        )


def _troubles(totals: SessionFindings) -> Iterator[str]:
    if totals.misses and totals.miss_s.value and totals.miss_waiting_share.value:
        missed = f"{totals.misses:,} of {counted_as(totals.reusing, 'turn')} missed"
        share = percent(round(totals.miss_waiting_share.value, 2))
        yield (
            f"each cache miss costs {number(totals.miss_s.value)} s; {missed}; this is {share} of "
            "the time that users wait."
        )
    elif totals.cache_by and totals.reusing:
        yield f"{totals.misses or 'none'} of {totals.reusing:,} turns missed the prompt cache."
    if totals.broken:
        yield (
            f"{totals.broken:,} of {counted_as(totals.broken + totals.finished, 'session')} that "
            "ended broke."
        )


def _evident(of: Estimated, words: Callable[[float], str]) -> str:
    low, high = of.ci95
    return "" if low is None or high is None else f" (95% {span(words(low), words(high))})"
