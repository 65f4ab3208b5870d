"""Values of options: addresses, and prices of rented and owned machines."""

import pytest

from splitsecond.cli.option_values import full_address, prices


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


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("localhost:8000/", "http://localhost:8000/v1"),
        ("gpu-1:8000/api", "http://gpu-1:8000/api"),
        ("new=gpu-1:8000", "new=http://gpu-1:8000/v1"),
        ("http://gpu-1:8000", "http://gpu-1:8000"),
        ("groq/openai/gpt-oss-120b", "groq/openai/gpt-oss-120b"),
        ("ollama/llama3:8", "ollama/llama3:8"),
    ],
)
def test_an_address_without_a_scheme_is_that_of_a_server(text: str, full: str) -> None:
    assert full_address(text) == full
