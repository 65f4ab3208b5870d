"""Money: what the tokens of observations cost, by prices that are handed in with their day and source.

An observation holds token counts and no price, so a run's cost can be computed anew by other prices. The cost of a row
is that of everything that was sent for it, warm-ups, failures and the losers of a race included.

A price of "a million tokens" hides how many of them are input. `usd_per_million` is the money divided by all tokens of
the answers, input and output: the row's own mix. `usd_per_million_output` puts the same money on the output alone. A
machine that is paid by the hour has no price for a token but the one that its load gives it: the hour divided by the
tokens of an hour at the row's system throughput.

Not every count is known. An attempt that failed before its first token with an error of the provider's costs nothing.
Of one that was closed early, nobody says the counts: it is taken to have cost its prompt (as long as that of another
attempt of the same call, else of the same row) and the tokens that came. `cost_estimated` counts such attempts; where
the provider goes on generating, their true cost is higher. Those that ended because the run did are in a row's cost,
and in none of its rates: their answers are not there to share it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor, log10

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.analysis.findings import ConditionFindings
from splitsecond.analysis.wording import counted_as, level, listed, percent
from splitsecond.catalog.price import MILLION, Price
from splitsecond.clock import NS_PER_S
from splitsecond.timing.observation import Observation

S_PER_HOUR = 3600
REFUSED = 400
"""From this status on an answer is an error, which nobody bills."""
WORTH_SAYING = 0.01
"""A share of cached input below this is not worth a note."""
_MUTE = "what it cost is not known: no answer says how many tokens its prompt had."

Prices = Mapping[str, Price]


class Bill(Struct, frozen=True):
    """What some attempts cost by the token. `estimated` of them did not say all of their counts, `unpriced` have no
    price, or nothing to go by."""

    usd: float = 0.0
    attempts: int = 0
    estimated: int = 0
    unpriced: int = 0


def cost_usd(o: Observation, price: Price | None) -> float | None:
    """What one attempt cost by the token; None where its price or its counts are not known."""
    if price is None or not price.by_token:
        return None
    if _unbilled(o):
        return 0.0
    if o.input_tokens is None or o.output_tokens is None:
        return None
    return price.cost_usd(
        input_tokens=o.input_tokens,
        output_tokens=o.output_tokens,
        cached_tokens=o.cached_tokens or 0,
        cache_write_tokens=o.cache_write_tokens or 0,
    )


def bill(observations: Iterable[Observation], prices: Prices) -> Bill:
    """What attempts cost together, each by its own target's price; of a policy's calls its attempts, not the calls."""
    costs = list(costs_usd(billed(observations), prices.get))
    return Bill(
        sum(usd or 0.0 for _, usd, _ in costs),
        len(costs),
        sum(estimated for _, _, estimated in costs),
        sum(usd is None for _, usd, _ in costs),
    )


def costs_usd(
    sent: Sequence[Observation], price: Callable[[str], Price | None]
) -> Iterator[tuple[Observation, float | None, bool]]:
    """Each attempt with what it cost (None: not known), and whether that is an estimate (see the file)."""
    prompts: dict[str, int] = {}
    longest: dict[str, int] = {}
    for o in sent:
        if o.input_tokens is not None:
            prompts[o.call] = o.input_tokens
            longest[o.condition] = max(longest.get(o.condition, 0), o.input_tokens)
    for o in sent:
        known = price(o.target)
        usd, estimated = cost_usd(o, known), False
        if usd is None and known is not None and known.by_token:
            prompt = prompts.get(o.call, longest.get(o.condition))
            if prompt is not None:
                usd, estimated = known.cost_usd(input_tokens=prompt, output_tokens=o.output_tokens or 0), True
        yield o, usd, estimated


def run_cost_usd(observations: Iterable[Observation], prices: Prices) -> float | None:
    """What a whole run cost: its attempts by the token, and each machine by the hour from the first request to it until
    the end of the last, whether or not it had something to do. None where nothing in it has a known cost."""
    sent = billed(observations)
    found = bill(sent, prices)
    rented: dict[str, list[Observation]] = {}
    for o in sent:
        if (price := prices.get(o.target)) is not None and price.per_hour_usd is not None:
            rented.setdefault(o.target, []).append(o)
    if found.unpriced == found.attempts and not rented:
        return None
    return found.usd + sum(
        (prices[target].per_hour_usd or 0.0)
        * (max(o.end_ns for o in each) - min(o.start_ns for o in each))
        / (S_PER_HOUR * NS_PER_S)
        for target, each in rented.items()
    )


def billed(observations: Iterable[Observation]) -> list[Observation]:
    """The attempts among observations: a call that a policy served is left out, as its attempts stand for it."""
    every = list(observations)
    served = {o.call for o in every if o.role in ("winner", "loser")}
    return [o for o in every if o.call not in served or o.role in ("winner", "loser")]


def with_cost(
    row: ConditionFindings, observations: Sequence[Observation], prices: Prices, *, hours: float
) -> ConditionFindings:
    """The same row with its money; as it was where no price is known. `observations` are all of the row, `hours` how
    long its load lasted.
    """
    price = prices.get(row.target)
    found = bill(observations, prices)
    by_hour = price.per_hour_usd if price else None
    if by_hour is None and found.unpriced == found.attempts:
        mute = price is not None and price.by_token and found.attempts
        return replace(row, price=price, notes=[*row.notes, *([_MUTE] if mute else [])])
    own = [o for o in observations if o.role in ("measured", "warmup")]
    answers = [o for o in own if o.ok]
    tokens_in = sum(o.input_tokens or 0 for o in answers)
    tokens_out = sum(o.output_tokens or 0 for o in answers)
    rent = (by_hour or 0.0) * hours
    stopped = {id(o) for o in own if o.outcome == "cancelled"}
    shared = bill([o for o in observations if id(o) not in stopped], prices).usd if stopped else found.usd
    per_output = shared / tokens_out * MILLION if tokens_out else None
    if by_hour is not None and per_output is not None:
        speed = row.output_tokens_per_s
        per_output = per_output + by_hour / S_PER_HOUR / speed * MILLION if speed else None
    return replace(
        row,
        price=price,
        cost_usd=found.usd + rent,
        cost_estimated=found.estimated + (0 if by_hour is not None else found.unpriced),
        usd_per_request=(shared + rent) / len(answers) if answers else None,
        usd_per_million=None if per_output is None else per_output * tokens_out / (tokens_in + tokens_out),
        usd_per_million_output=per_output,
        notes=[*row.notes, *_cache_note(answers, price), *(_estimated_note(found) if by_hour is None else [])],
    )


def cost_statements(rows: Sequence[ConditionFindings]) -> list[str]:
    """For each load, whose tokens cost least, and what the others' cost; nothing where fewer than two have a cost."""
    loads: dict[str, list[ConditionFindings]] = {}
    for row in rows:
        if row.usd_per_million is not None:
            loads.setdefault(level(row), []).append(row)
    places: dict[str, list[str]] = {}
    for where, priced in loads.items():
        ranked = sorted(priced, key=lambda row: row.usd_per_million or 0.0)
        if len(ranked) > 1:
            best, *others = (f"{row.target} {usd(row.usd_per_million)}" for row in ranked)
            places.setdefault(f"{best}, {', '.join(others)}", []).append(where)
    return [
        f"{listed(where).capitalize()}, a million tokens in this run's mix of input and output cost least at {ranking}."
        for ranking, where in places.items()
    ]


def price_words(price: Price | None) -> str:
    """A price without its day: "$0.59 in, $0.79 out a million tokens"; "" for none."""
    if price is None:
        return ""
    cached = f", ${price.cached_usd:g} cached" if price.cached_usd is not None else ""
    tokens = f"${price.input_usd:g} in{cached}, ${price.output_usd:g} out a million tokens" if price.by_token else ""
    hour = f"${price.per_hour_usd:g} an hour" if price.per_hour_usd is not None else ""
    return ", ".join(filter(None, (tokens, hour)))


def usd(value: float | None) -> str:
    """Money with three significant digits at least, and cents: "$12.34", "$0.0123", "$1,234.00"."""
    if value is None:
        return "–"
    size = abs(value)
    decimals = 2 if size >= 0.995 or not size else min(2 - floor(log10(size)), 9)
    return f"{'−' if value < 0 else ''}${size:,.{decimals}f}"


def _unbilled(o: Observation) -> bool:
    """Whether an attempt never came to be billed: it was not sent, or refused before its first token."""
    return o.first_token_ns is None and (o.sent_ns is None or o.status >= REFUSED)


def _cache_note(answers: Sequence[Observation], price: Price | None) -> list[str]:
    """How much of the input came from the provider's prompt cache, and what that saved, less what filling it cost."""
    total, cached = sum(o.input_tokens or 0 for o in answers), sum(o.cached_tokens or 0 for o in answers)
    if price is None or not total or cached < WORTH_SAYING * total:
        return []
    plain = [replace(o, cached_tokens=0, cache_write_tokens=0) for o in answers]
    saved = sum((cost_usd(a, price) or 0.0) - (cost_usd(b, price) or 0.0) for a, b in zip(plain, answers, strict=True))
    moved = f"saved {usd(saved)}" if saved >= 0 else f"cost {usd(-saved)} more than it saved"
    share = f"{percent(cached / total)} of the input, warm-ups included"
    return [f"{share}, came from the provider's prompt cache, which {moved}."]


def _estimated_note(found: Bill) -> list[str]:
    said = []
    if found.estimated:
        attempts = counted_as(found.estimated, "attempt", "attempts")
        said.append(f"the cost of {attempts} that did not end is a guess, and may be higher.")
    if found.unpriced:
        attempts = counted_as(found.unpriced, "attempt has", "attempts have")
        said.append(f"{attempts} no known price, and {'is' if found.unpriced == 1 else 'are'} not in the cost.")
    return said
