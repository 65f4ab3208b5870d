"""What a number of calls a day costs at the targets of a run."""

import pytest
from tests.analysis.made import row

from splitsecond.benchmark.findings.call_costs import call_costs, cost_card
from splitsecond.cli.option_values import calls_per_day
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault


def test_tokens_cost_their_calls_and_a_machine_its_hours() -> None:
    rows = [
        row(target="a/token", requests=9, usd_per_request=0.002),
        row(target="b/rented", requests=9, requests_per_s=0.05, price=Price(per_hour_usd=2.0)),
        row(target="c/unknown", requests=9),
    ]
    token, rented, unknown = call_costs(rows, 10_000)
    assert (token.target, token.usd_per_day, token.usd_per_30_days) == ("a/token", 20.0, 600.0)
    # 10,000 calls are 2.3 machines of 4,320 a day
    assert (rented.machines, rented.usd_per_day) == (3, 144.0)
    assert (unknown.target, unknown.usd_per_day) == ("c/unknown", None)


def test_target_costs_what_its_cheapest_load_does() -> None:
    rows = [
        row(
            condition=f"c{c}",
            concurrency=c,
            requests=9,
            requests_per_s=float(c),
            price=Price(per_hour_usd=1.0),
        )
        for c in (1, 8)
    ]
    (found,) = call_costs(rows, 500_000)
    assert (found.load, found.machines) == ("concurrency 8", 1)


def test_number_of_calls_has_a_period() -> None:
    assert [calls_per_day(each) for each in ("10k/day", "500/hour", "3M/month")] == [
        10_000,
        12_000,
        100_000,
    ]
    for wrong in ("10k", "x/day", "10/week"):
        with pytest.raises(CallerFault, match="--calls"):
            calls_per_day(wrong)


def test_card_has_targets_with_a_price_and_two_volumes() -> None:
    rows = [
        row(target="b/rented", requests=9, requests_per_s=0.05, price=Price(per_hour_usd=2.0)),
        row(target="a/token", requests=9, usd_per_request=0.002),
        row(target="c/unknown", requests=9),
    ]
    found = {
        target: [each.usd_per_30_days for each in costs]
        for target, costs in cost_card(rows).items()
    }
    # 1,000 calls need one machine, 10,000 three
    assert found == {"a/token": [60.0, 600.0], "b/rented": [1440.0, 4320.0]}
