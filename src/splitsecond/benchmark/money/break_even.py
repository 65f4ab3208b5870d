"""Break-even of a machine paid by the hour, rented or owned, against an API paid by the token.

A machine costs the same whether it works or not; the API costs its price per million tokens in the
run's own mix of input and output. They are equal at the break-even volume. The `utilisation` is
that volume divided by the tokens of a month at the highest throughput that the run measured, day
and night. Above 1 there is no break-even: a second machine costs as much as the first.

Not included: the work of running the machine, a second one for when it fails, and the difference in
quality.
"""

from collections.abc import Iterator, Sequence
from math import ceil

from splitsecond.benchmark.rows.records import BreakEven, ConditionFindings
from splitsecond.benchmark.rows.usable_rows import lightest_rows
from splitsecond.core.catalog.ownership import HOURS_PER_YEAR
from splitsecond.core.catalog.price import MILLION, Price
from splitsecond.core.grouping import grouped
from splitsecond.core.money.cost import S_PER_HOUR, usd
from splitsecond.core.wording import Statement, in_a_line, listed, number, percent

HOURS_PER_MONTH = HOURS_PER_YEAR / 12


def break_even(
    machine_usd_per_hour: float, api_usd_per_million: float, machine_tokens_per_s: float
) -> tuple[float, float]:
    """Return the tokens a month from which the machine is cheaper, and the utilisation that this
    takes."""
    tokens = machine_usd_per_hour * HOURS_PER_MONTH / api_usd_per_million * MILLION
    return tokens, tokens / (machine_tokens_per_s * S_PER_HOUR * HOURS_PER_MONTH)


def break_evens(rows: Sequence[ConditionFindings]) -> list[BreakEven]:
    """Return the break-even of each target of a run that is paid by the hour with each that is paid
    by the token."""
    priced = [(row, row.price) for row in rows if row.price is not None and not row.invalid]
    by_token = [row for row, price in priced if price.per_hour_usd is None]
    apis = [row for row in lightest_rows(by_token) if row.usd_per_million]
    machines = grouped(
        (each for each in priced if each[1].per_hour_usd and _tokens_per_s(each[0])),
        lambda each: each[0].target,
    )
    fastest = [max(own, key=lambda each: _tokens_per_s(each[0])) for own in machines.values()]
    return [_break_even(machine, price, api) for machine, price in fastest for api in apis]


def _break_even(machine: ConditionFindings, price: Price, api: ConditionFindings) -> BreakEven:
    per_hour, per_million = price.per_hour_usd or 0.0, api.usd_per_million or 0.0
    tokens, utilisation = break_even(per_hour, per_million, _tokens_per_s(machine))
    return BreakEven(
        machine=machine.target,
        api=api.target,
        rows=[machine.condition, api.condition],
        owned=price.owned is not None,
        usd_per_month=per_hour * HOURS_PER_MONTH,
        usd_per_million=per_million,
        machine_tokens_per_month=_tokens_per_s(machine) * S_PER_HOUR * HOURS_PER_MONTH,
        tokens_per_month=tokens if utilisation <= 1 else None,
        utilisation=utilisation,
    )


def _tokens_per_s(row: ConditionFindings) -> float:
    if not row.output_tokens_per_s or not row.output_tokens:
        return 0.0
    return row.output_tokens_per_s * (1 + (row.input_tokens or 0.0) / row.output_tokens)


def monthly_usd(pair: BreakEven, tokens: float) -> tuple[float, float]:
    """Return the cost of that many tokens a month on as many machines as it takes, and at the
    API."""
    machines = max(ceil(tokens / pair.machine_tokens_per_month), 1)
    return machines * pair.usd_per_month, tokens / MILLION * pair.usd_per_million


def tokens_words(tokens: float) -> str:
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if tokens >= size * 0.9995:
            return f"{number(tokens / size)} {word}"
    return number(tokens)


def break_even_statements(pairs: Sequence[BreakEven]) -> list[Statement]:
    by_machine = grouped(
        sorted(pairs, key=lambda each: each.utilisation), lambda each: each.machine
    )
    return [sentence for each in by_machine.values() for sentence in _sentences(each)]


def _sentences(pairs: Sequence[BreakEven]) -> Iterator[Statement]:
    first = pairs[0]
    costs = (
        f"{first.machine} costs {usd(first.usd_per_month)} a month "
        f"({'owned' if first.owned else 'rented'})"
    )
    cheaper, short = (
        [
            f"than {each.api} from {tokens_words(each.tokens_per_month)} tokens{per} "
            f"({percent(each.utilisation)} busy)"
            for each in pairs
            if each.tokens_per_month is not None
        ]
        for per in (" a month", "/month")
    )
    if cheaper:
        yield Statement(
            f"{costs} and is cheaper {listed(cheaper)}; busy is the share of the highest "
            "throughput of this run.",
            in_a_line(f"{first.machine} ({usd(first.usd_per_month)}/month) is cheaper ", short),
        )
    dearer = [
        f"{each.api} ({usd(each.usd_per_million)})"
        for each in pairs
        if each.tokens_per_month is None
    ]
    if dearer:
        full = first.usd_per_month / first.machine_tokens_per_month * MILLION
        yield Statement(
            f"{costs} and never pays against {listed(dearer)}: at the highest throughput of this "
            f"run its million tokens cost {usd(full)}.",
            in_a_line(
                f"{first.machine}, {usd(full)}/M tokens at full load, never pays against ", dearer
            ),
        )
