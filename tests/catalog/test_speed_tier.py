"""Speed tiers as data: names, prices, and the price of the tier that served a request."""

import pytest
from tests.cases import each_case

from splitsecond.core.catalog.model_names import identify
from splitsecond.core.catalog.price import Price, Tier
from splitsecond.core.catalog.prices import listing, price
from splitsecond.core.catalog.provider import names, provider
from splitsecond.core.catalog.speed_tier import SpeedTier, TierPrice, tier_price
from splitsecond.core.errors import CallerFault

FAST = SpeedTier(
    field="speed",
    value="fast",
    granted=("fast", "quick"),
    prices=(TierPrice(models=("m-1*",), factor=6.0), TierPrice(models=("m-*",), factor=2.0)),
)
FLEX = SpeedTier(
    field="speed", value="flex", granted=("flex",), prices=(TierPrice(models=("m-*",), factor=0.5),)
)
TIERS = {"fast": FAST, "flex": FLEX}
STANDARD = Price(
    input_usd=1.0,
    output_usd=4.0,
    cached_usd=0.1,
    tiers=(Tier(above_tokens=100, input_usd=2.0, output_usd=8.0),),
    as_of="2026-11-01",
    source="a list",
)


def in_tier(name: str, model: str = "m-2") -> Price:
    found = tier_price(STANDARD, model, name, TIERS, ("standard",))
    assert found is not None
    return found


def test_a_tier_multiplies_every_rate() -> None:
    fast = in_tier("fast")
    assert (fast.input_usd, fast.output_usd, fast.cached_usd, fast.cache_write_usd) == (
        2.0,
        8.0,
        0.2,
        None,
    )
    assert fast.tiers == (Tier(above_tokens=100, input_usd=4.0, output_usd=16.0),)
    assert (fast.as_of, fast.source) == ("2026-11-01", "a list, 2 times the standard price")
    assert in_tier("fast", "m-1b").input_usd == 6.0, "the first entry that matches counts"


def test_a_model_without_a_published_factor_has_no_price() -> None:
    assert tier_price(STANDARD, "other", "fast", TIERS, ("standard",)) is None
    assert tier_price(STANDARD, "other", "", TIERS, ("standard",)) == STANDARD


@each_case("name", ["", "fast", "flex"])
@each_case("served, usd", [("standard", 5.0), ("fast", 10.0), ("quick", 10.0), ("flex", 2.5)])
def test_cost_uses_the_tier_that_served(name: str, served: str, usd: float) -> None:
    standard = STANDARD.scaled(1.0)
    found = tier_price(Price(input_usd=1.0, output_usd=4.0), "m-2", name, TIERS, ("standard",))
    assert found is not None
    assert found.cost_usd(
        input_tokens=1_000_000, output_tokens=1_000_000, tier=served
    ) == pytest.approx(usd)
    assert standard == STANDARD


def test_response_without_a_tier_costs_the_requested_tier() -> None:
    fast = in_tier("fast")
    assert fast.cost_usd(input_tokens=50, output_tokens=0) == pytest.approx(100e-6)
    assert fast.cost_usd(input_tokens=50, output_tokens=0, tier="a new word") == pytest.approx(
        100e-6
    )


def test_the_name_of_a_target_ends_with_its_tier() -> None:
    assert provider("openai").split_tier("gpt-5@flex") == ("gpt-5", "flex")
    assert provider("openai").split_tier("gpt-5") == ("gpt-5", "")
    assert provider("vertex-claude").split_tier("claude-3-sonnet@20240229") == (
        "claude-3-sonnet@20240229",
        "",
    )


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("gpt-5@fst", "Did you mean fast?"),
        ("gpt-5@turbo-x", "For example openai/gpt-5@fast."),
        ("gpt-5@", "For example openai/gpt-5@fast."),
        ("@fast", "Did you mean fast?"),
    ],
)
def test_an_unknown_tier_is_refused(model: str, hint: str) -> None:
    with pytest.raises(CallerFault) as raised:
        provider("openai").split_tier(model)
    assert raised.value.kind == "unknown_tier"
    assert (
        raised.value.message
        == f"unknown tier {model.rpartition('@')[2]!r}; openai has fast, flex, priority"
    )
    assert raised.value.hint == hint


def test_all_tiers_serve_the_same_model() -> None:
    assert identify("openai/gpt-5@flex").model == identify("openai/gpt-5").model == "gpt-5"


def test_the_price_list_knows_the_standard_price() -> None:
    standard, fast = price("openai/gpt-5"), price("openai/gpt-5@fast")
    assert standard is not None
    assert fast is not None
    assert (fast.input_usd, fast.output_usd) == (2 * standard.input_usd, 2 * standard.output_usd)
    assert listing("openai/gpt-5@fast").context_tokens == listing("openai/gpt-5").context_tokens
    assert price("openai/o3@fast") is None


@each_case("name", names())
def test_speed_tiers_have_complete_data(name: str) -> None:
    found = provider(name)
    for tier in found.tiers.values():
        assert tier.value in tier.granted
        assert not set(tier.granted) & set(found.standard_tiers)
        assert tier.source.startswith("https://")
        assert tier.checked
        assert all(each.factor > 0 and each.models for each in tier.prices)
