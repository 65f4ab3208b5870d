"""Values of options: prices of rented and owned machines."""

import pytest

from splitsecond.cli.option_values import prices


@pytest.mark.parametrize("text", ["1500,3,450,0.15", "rtx-4090,3,0.15"])
def test_an_owned_machine_has_a_price_per_hour(text: str) -> None:
    found = prices(["2,4"], ["rented/m=2.69"], [f"own/m={text}"])
    own = found["own/m"]
    assert own.owned is not None
    assert (
        own.owned.purchase_usd,
        own.owned.life_years,
        own.owned.watts,
        own.owned.usd_per_kwh,
    ) == (
        1500,
        3,
        450,
        0.15,
    )
    assert own.per_hour_usd == pytest.approx(1500 / 3 / 8766 + 0.0675)
    assert not own.by_token
    assert (found["rented/m"].per_hour_usd, found["rented/m"].owned) == (2.69, None)
    assert found[""].input_usd == 2
