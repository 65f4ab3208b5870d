from collections.abc import Sequence

from msgspec.structs import replace

from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.core.catalog.price import MILLION, Price
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import S_PER_HOUR, Bill, Prices, bill, cost_usd, other_tier, usd
from splitsecond.core.observation import LOAD_ROLES, Observation
from splitsecond.core.wording import Statement, counted_as, in_a_line, level, listed, load, percent

WORTH_SAYING = 0.01

_UNKNOWN = "the cost is unknown: no response reports the tokens of its prompt."


def with_cost(
    row: ConditionFindings, observations: Sequence[Observation], prices: Prices, *, hours: float
) -> ConditionFindings:
    """Return the row with its cost; unchanged if no price is known.

    `observations` are all of the row, `hours` is how long its load lasted.
    """
    price = prices.get(row.target)
    total = bill(observations, prices)
    by_hour = price.per_hour_usd if price else None
    if by_hour is None and total.unpriced == total.attempts:
        return replace(row, price=price, notes=[*row.notes, *_uncounted_note(total, price)])
    rent = by_hour or 0.0
    measured = {o.call for o in observations if o.role == "measured" and o.outcome != "cancelled"}
    answers = [o for o in observations if o.role in LOAD_ROLES and o.ok and o.call in measured]
    by_tokens = bill([o for o in observations if o.call in measured], prices).usd
    return replace(
        row,
        price=price,
        cost_usd=total.usd + rent * hours,
        cost_estimated=total.estimated + (0 if by_hour is not None else total.unpriced),
        usd_per_request=_usd_per_request(row, by_tokens, rent, hours, len(answers)),
        **_usd_per_million(row, by_tokens, by_hour, hours, answers),
        notes=[
            *row.notes,
            *_cache_note(answers, price),
            *_tier_note(answers, prices),
            *_estimated_note(total, by_hour),
        ],
    )


def _usd_per_request(
    row: ConditionFindings, by_tokens: float, by_hour: float, hours: float, n: int
) -> float | None:
    if not n:
        return None
    return by_tokens / n + (
        by_hour / S_PER_HOUR / row.requests_per_s if row.requests_per_s else by_hour * hours / n
    )


def _usd_per_million(
    row: ConditionFindings,
    by_tokens: float,
    by_hour: float | None,
    hours: float,
    answers: Sequence[Observation],
) -> dict[str, float | None]:
    """Return the cost of a million tokens, and of a million of the output alone, as fields of a
    row."""
    tokens_in = sum(o.input_tokens or 0 for o in answers)
    tokens_out = sum(o.output_tokens or 0 for o in answers)
    if row.inputs:
        each = _usd_per_request(row, by_tokens, by_hour or 0.0, hours, len(answers))
        return {
            "usd_per_million": each * len(answers) / tokens_in * MILLION
            if each is not None and tokens_in
            else None
        }
    speed = row.output_tokens_per_s
    if not tokens_out or (by_hour is not None and not speed):
        return {"usd_per_million": None, "usd_per_million_output": None}
    per_output = by_tokens / tokens_out * MILLION
    if by_hour is not None and speed:
        per_output += by_hour / S_PER_HOUR / speed * MILLION
    return {
        "usd_per_million": per_output * tokens_out / (tokens_in + tokens_out),
        "usd_per_million_output": per_output,
    }


def cost_statements(rows: Sequence[ConditionFindings]) -> list[Statement]:
    loads = grouped((row for row in rows if row.usd_per_million is not None), level)
    places: dict[tuple[str, ...], list[ConditionFindings]] = {}
    for priced in loads.values():
        if len(priced) > 1:
            ranked = sorted(priced, key=lambda row: row.usd_per_million or 0.0)
            places.setdefault(
                tuple(f"{row.target} {usd(row.usd_per_million)}" for row in ranked), []
            ).append(priced[0])
    return [
        Statement(
            f"{listed([level(row) for row in at]).capitalize()}, a million tokens in this run's "
            f"mix of input and output cost: {', '.join(ranking)}.",
            in_a_line(
                f"{listed([load(row, short=True) for row in at])}, input and output, $/M tokens: ",
                ranking,
            ),
            detail=True,
        )
        for ranking, at in places.items()
    ]


def _uncounted_note(total: Bill, price: Price | None) -> list[str]:
    return [_UNKNOWN] if price is not None and price.by_token and total.attempts else []


def _cache_note(answers: Sequence[Observation], price: Price | None) -> list[str]:
    total, cached = (
        sum(o.input_tokens or 0 for o in answers),
        sum(o.cached_tokens or 0 for o in answers),
    )
    if price is None or not total or cached < WORTH_SAYING * total:
        return []
    plain = [replace(o, cached_tokens=0, cache_write_tokens=0) for o in answers]
    saved = sum(
        (cost_usd(a, price) or 0.0) - (cost_usd(b, price) or 0.0)
        for a, b in zip(plain, answers, strict=True)
    )
    moved = f"saved {usd(saved)}" if saved >= 0 else f"cost {usd(-saved)} more than it saved"
    share = f"{percent(cached / total)} of the input, warm-ups included"
    return [f"{share}, came from the provider's prompt cache, which {moved}."]


def _tier_note(answers: Sequence[Observation], prices: Prices) -> list[str]:
    others = [o.tier for o in answers if other_tier(o, prices.get(o.target))]
    if not others:
        return []
    served = f"{len(others):,} of {counted_as(len(answers), 'response')}"
    words = listed(sorted(map(repr, set(others))))
    return [f"{served} came from another speed tier ({words}), at the price of that tier."]


def _estimated_note(total: Bill, by_hour: float | None) -> list[str]:
    if by_hour is not None:
        return []
    notes = []
    if total.estimated:
        attempts = counted_as(total.estimated, "attempt")
        notes.append(
            f"the cost of {attempts} without token counts is an estimate, and may be higher."
        )
    if total.unpriced:
        attempts = counted_as(
            total.unpriced, "attempt without a known price is", "attempts without a known price are"
        )
        notes.append(f"{attempts} not in the cost.")
    return notes
