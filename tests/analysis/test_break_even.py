"""Break-even of a machine against an API, and the cost of an owned machine."""

import pytest
from tests.analysis.made import row

from splitsecond.benchmark.money.break_even import (
    break_even,
    break_even_statements,
    break_evens,
    monthly_usd,
    tokens_words,
)
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.core.catalog.ownership import Ownership, machines
from splitsecond.core.catalog.price import Price
from splitsecond.core.wording import full

HOURS = 730.5


def measured(
    target: str,
    price: Price,
    *,
    output_per_s: float,
    concurrency: int = 1,
    usd: float | None = None,
) -> ConditionFindings:
    """A row with as many input as output tokens."""
    return row(
        target=target,
        condition=f"{target}@c{concurrency}",
        concurrency=concurrency,
        requests=50,
        price=price,
        input_tokens=500.0,
        output_tokens=500.0,
        output_tokens_per_s=output_per_s,
        usd_per_million=usd,
    )


API = measured("api/m", Price(input_usd=4, output_usd=4), output_per_s=50, usd=4.0)
H100 = Price(per_hour_usd=2.69)


def test_the_volume_does_not_depend_on_the_machines_speed() -> None:
    tokens, utilisation = break_even(2.69, 4.0, 1000)
    assert tokens == pytest.approx(2.69 * HOURS / 4 * 1e6)
    assert utilisation == pytest.approx(tokens / (1000 * 3600 * HOURS))
    assert break_even(2.69, 4.0, 500) == pytest.approx((tokens, 2 * utilisation))


def test_break_even_of_an_h100_is_the_published_500_million() -> None:
    """Document: "Breakeven around 500M+ tokens monthly": so it is where the API costs $3.93 a
    million tokens."""
    tokens, utilisation = break_even(2.69, 3.93, 190)
    assert tokens == pytest.approx(500e6, rel=0.001)
    # 190 tokens/s of input and output, day and night
    assert utilisation == pytest.approx(1, rel=0.01)


def test_a_run_with_both_kinds_of_price() -> None:
    slow = measured("own/m", H100, output_per_s=40)
    busy = measured("own/m", H100, output_per_s=500, concurrency=32)
    (found,) = break_evens([slow, busy, API])
    assert (found.machine, found.api, found.rows) == ("own/m", "api/m", ["own/m@c32", "api/m@c1"])
    # input counts as well
    assert found.machine_tokens_per_month == pytest.approx(1000 * 3600 * HOURS)
    assert found.tokens_per_month == pytest.approx(2.69 * HOURS / 4 * 1e6)
    assert full(break_even_statements([found])) == [
        "own/m costs $1,965.05 a month (rented) and is cheaper than api/m from 491 million tokens "
        "a month (18.7% "
        "busy); busy is the share of the highest throughput of this run."
    ]


def test_a_machine_that_is_too_slow_never_pays() -> None:
    (found,) = break_evens([measured("own/m", H100, output_per_s=40), API])
    assert found.tokens_per_month is None
    assert found.utilisation > 1
    (said,) = full(break_even_statements([found]))
    assert "never pays against api/m ($4.00): at the highest throughput of this run" in said
    assert "its million tokens cost $9.34." in said


def test_beyond_its_capacity_a_second_machine_is_paid() -> None:
    (found,) = break_evens([measured("own/m", H100, output_per_s=500), API])
    month = found.machine_tokens_per_month
    assert [monthly_usd(found, tokens)[0] for tokens in (1, month, month * 1.01)] == pytest.approx(
        [found.usd_per_month, found.usd_per_month, 2 * found.usd_per_month]
    )
    assert monthly_usd(found, 1e6)[1] == pytest.approx(4.0)


def test_break_even_needs_a_machine_and_an_api() -> None:
    assert break_evens([API]) == break_evens([measured("own/m", H100, output_per_s=1)]) == []


def test_an_owned_machine() -> None:
    own = Ownership(purchase_usd=1500, life_years=3, watts=450, usd_per_kwh=0.15)
    assert own.electricity_usd_per_hour == pytest.approx(0.0675)
    assert own.usd_per_hour == pytest.approx(1500 / (3 * 8766) + 0.0675)
    (found,) = break_evens(
        [measured("own/m", Price(per_hour_usd=own.usd_per_hour, owned=own), output_per_s=70), API]
    )
    assert found.owned


def test_machines_of_the_catalogue_can_be_read() -> None:
    known = machines()
    assert (known["rtx-4090"].purchase_usd, known["rtx-4090"].watts) == (1500, 450)
    assert all(each.source for each in known.values())


def test_token_volumes_are_written_with_units() -> None:
    assert [tokens_words(n) for n in (5e5, 999.6e6, 4.8e8, 1.2e12)] == [
        "500,000",
        "1 billion",
        "480 million",
        "1.2 trillion",
    ]
