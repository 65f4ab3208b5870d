"""What tokens cost: every kind at its own rate, tiers by the length of the prompt, and where a
price is from."""

from datetime import UTC, datetime, time
from decimal import Decimal

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    TimeOfDateConstraint,
)
from msgspec import structs
from tests.cases import each_case

from splitsecond.core import clock
from splitsecond.core.catalog import price_list
from splitsecond.core.catalog.model import CatalogModel
from splitsecond.core.catalog.price import Price, Tier
from splitsecond.core.catalog.prices import (
    PriceLookup,
    listing,
    lookup_in_child,
    price,
    prices,
    provider_models,
    replacements,
)
from splitsecond.core.catalog.provider import provider
from splitsecond.core.errors import CallerFault

PLAIN = Price(input_usd=2.0, output_usd=10.0)
CACHING = Price(input_usd=2.0, output_usd=10.0, cached_usd=0.2, cache_write_usd=2.5)
TIERED = Price(
    input_usd=1.0,
    output_usd=2.0,
    tiers=(Tier(above_tokens=200_000, input_usd=10.0, output_usd=20.0, cached_usd=5.0),),
)


@each_case(
    "price, input_tokens, output_tokens, cached, written, cost",
    [
        (PLAIN, 1_000_000, 0, 0, 0, 2.0),
        (PLAIN, 0, 1_000_000, 0, 0, 10.0),
        (PLAIN, 1_000_000, 0, 500_000, 250_000, 2.0),
        (CACHING, 1_000_000, 100_000, 600_000, 200_000, 0.4 + 0.12 + 0.5 + 1.0),
        (TIERED, 200_000, 0, 0, 0, 0.2),
        (TIERED, 200_001, 0, 0, 0, 2.00001),
        (TIERED, 400_000, 100_000, 400_000, 0, 2.0 + 2.0),
        (Price(per_hour_usd=3.0), 1_000_000, 1_000_000, 0, 0, 0.0),
        (PLAIN, 10, 0, 20, 0, 20 * 2e-6),
    ],
)
def test_each_kind_of_token_has_its_own_price(
    price: Price, input_tokens: int, output_tokens: int, cached: int, written: int, cost: float
) -> None:
    assert price.cost_usd(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached,
        cache_write_tokens=written,
    ) == pytest.approx(cost)


@each_case(
    "provider, model",
    [
        ("anthropic", "claude-haiku-4-5"),
        ("anthropic", "claude-sonnet-4-5"),
        ("anthropic", "claude-haiku-5-5"),
        ("google", "gemini-2.5-pro"),
        ("openai", "gpt-5-mini"),
        ("groq", "llama-3.3-70b-versatile"),
        ("fireworks", "accounts/fireworks/models/gpt-oss-120b"),
        ("moonshotai", "kimi-k3"),
        ("deepseek", "deepseek-chat"),
    ],
)
@each_case("input_tokens", [1_000, 150_000, 300_000])
def test_cost_equals_that_of_genai_prices(provider: str, model: str, input_tokens: int) -> None:
    at = datetime(2026, 11, 20, 3, 30, tzinfo=UTC)
    cached, written, output_tokens = input_tokens // 2, input_tokens // 10, 700
    with clock.using(clock.now_ns, lambda: int(at.timestamp()) * clock.NS_PER_S):
        found = price_list.listed_model(provider, model).price
    assert found is not None
    written = written if found.cache_write_usd is not None else 0
    cached = cached if found.cached_usd is not None else 0
    usage = Usage(input_tokens=input_tokens, output_tokens=output_tokens)
    usage.cache_read_tokens, usage.cache_write_tokens = cached, written
    theirs = calc_price(usage, model, provider_id=provider, genai_request_timestamp=at).total_price
    ours = found.cost_usd(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached,
        cache_write_tokens=written,
    )
    assert ours == pytest.approx(float(theirs))


def test_listed_price_states_its_source_and_date() -> None:
    found = price("groq/llama-3.3-70b-versatile")
    assert found is not None
    assert found.source.startswith("genai-prices ")
    assert "2026-01-01" < found.as_of <= clock.wall_time().date().isoformat()
    assert found.by_token


def test_a_price_at_night_is_the_night_s() -> None:
    day, night = (
        ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(4)),
        ModelPrice(input_mtok=Decimal(1)),
    )
    dark = TimeOfDateConstraint(
        start_time=time(16, 30, tzinfo=UTC), end_time=time(0, 30, tzinfo=UTC)
    )
    model = ModelInfo(
        "m",
        ClauseEquals("m"),
        prices=[ConditionalPrice(prices=day), ConditionalPrice(dark, prices=night)],
    )

    def rate(hour: int) -> float:
        moment = int(datetime(2026, 11, 20, hour, tzinfo=UTC).timestamp()) * clock.NS_PER_S
        with clock.using(clock.now_ns, lambda: moment):
            found = price_list.listed_model("x", "m").price
        assert found is not None
        return found.input_usd

    set_custom_snapshot(
        DataSnapshot([Provider("x", "X", "", models=[model])], from_auto_update=False)
    )
    try:
        assert [rate(hour) for hour in (3, 12, 16, 17, 23, 0)] == [2, 2, 2, 1, 1, 1]
    finally:
        set_custom_snapshot(None)


def test_the_configuration_wins_then_the_list_then_the_catalogue() -> None:
    own = Price(input_usd=0.1, output_usd=0.2, source="our contract")
    assert price("groq/llama-3.3-70b-versatile", {"groq/llama-3.3-70b-versatile": own}) is own
    assert price("groq/anything", {"groq/*": own}) is own
    listed = price("groq/llama-3.3-70b-versatile", {"together/*": own})
    assert listed is not None
    assert listed.source.startswith("genai-prices")
    stated = price("deepinfra/openai/gpt-oss-120b")
    assert stated is not None
    assert (stated.source, stated.as_of) == ("models.dev", "2026-05-21")


def test_a_region_has_its_provider_s_price() -> None:
    assert price("azure-eu/gpt-4o") == price("azure/gpt-4o") is not None


@pytest.mark.parametrize(
    ("logged", "requested"),
    [
        ("anthropic/claude-4.5-sonnet-20250929", "anthropic/claude-sonnet-4-5"),
        ("deepinfra/llama-3.3-70b-instruct", "deepinfra/meta-llama/Llama-3.3-70B-Instruct"),
        ("groq/gpt-oss-120b", "groq/openai/gpt-oss-120b"),
    ],
)
def test_other_names_of_a_model_have_its_price(logged: str, requested: str) -> None:
    assert price(logged) == price(requested) is not None


def test_a_name_of_models_with_two_prices_has_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    models = {
        name: CatalogModel(price=Price(input_usd=usd, output_usd=1.0))
        for name, usd in (("a/llama-3-8b", 1.0), ("b/llama-3-8b", 2.0), ("a/llama-3-70b", 3.0))
    }
    owner = structs.replace(provider("groq"), prices="", models=models)
    monkeypatch.setattr("splitsecond.core.catalog.prices.provider", lambda name: owner)
    assert price("groq/llama-3-8b") is None
    assert price("groq/llama-3-70b") == models["a/llama-3-70b"].price


def test_unlisted_targets_have_no_price() -> None:
    targets = ["sim/groq", "127.0.0.1:8000/mine", "groq/no-such-model", "vllm/mine", "odd"]
    assert prices(targets) == dict.fromkeys(targets)


@pytest.mark.parametrize(
    ("name", "makers"),
    [
        ("gemini", {"gemini", "gemma"}),
        ("gemini-openai", {"gemini", "gemma"}),
        ("vertex", {"gemini", "gemma"}),
        ("vertex-claude", {"claude"}),
    ],
)
@pytest.mark.system
def test_one_name_in_the_list_for_several_addresses(name: str, makers: set[str]) -> None:
    """The list has Google's models and Anthropic's at Google under one name; they are called in
    different API formats."""
    assert {model.partition("-")[0] for model in provider_models(provider(name))} == makers
    assert {model.partition("-")[0] for model in lookup_in_child([], [name]).models[name]} == makers


def test_the_dearest_cost_has_the_cache_and_any_tier() -> None:
    price = Price(
        input_usd=4, output_usd=8, cache_write_usd=5, by_tier={"flex": 0.5, "priority": 2.0}
    )
    assert price.dearest_usd(input_tokens=1_000_000, output_tokens=1_000_000) == 13
    assert price.dearest_usd(input_tokens=1_000_000, output_tokens=1_000_000, any_tier=True) == 26
    plain = Price(input_usd=4, output_usd=8, cache_write_usd=3)
    assert plain.dearest_usd(input_tokens=1_000_000, output_tokens=0, any_tier=True) == 4


@pytest.mark.system
def test_a_child_process_finds_the_same() -> None:
    targets = [
        "groq/llama-3.3-70b-versatile",
        "sim/groq",
        "gemini/gemini-2.5-pro",
        "deepinfra/openai/gpt-oss-120b",
    ]
    found = lookup_in_child(targets, ["groq", "gemini", "ollama"])
    assert found.prices == prices(targets)
    assert found.context_tokens == {
        name: known for name in targets if (known := listing(name).context_tokens)
    }
    assert "groq/llama-3.3-70b-versatile" in found.context_tokens
    assert (
        set(provider_models(provider("groq")))
        >= set(found.models["groq"])
        > {"openai/gpt-oss-120b"}
    )
    assert "gemini-3-pro-preview" not in found.models["gemini"], (
        "its file says that it was taken down"
    )
    assert found.models["ollama"] == list(provider("ollama").models), "the list has nothing of it"
    assert lookup_in_child(["sim/groq"]) == PriceLookup({"sim/groq": None})


@pytest.mark.system
def test_a_child_that_does_not_end_is_a_clear_fault() -> None:
    with pytest.raises(CallerFault, match="prices could not be looked up"):
        lookup_in_child(["groq/x"], timeout_s=0.0001)


def test_the_context_window_is_the_catalogue_s_or_the_list_s() -> None:
    targets = ["groq/llama-3.3-70b-versatile", "together/openai/gpt-oss-120b", "sim/groq"]
    found = {target: listing(target) for target in targets}
    assert [found[target].context_tokens for target in targets] == [131072, 131072, None]
    assert found["together/openai/gpt-oss-120b"].price == price("together/openai/gpt-oss-120b")


def test_models_of_a_provider_are_called_as_a_request_calls_them() -> None:
    found = provider_models(provider("fireworks"))
    assert found["accounts/fireworks/models/gpt-oss-120b"].price == price(
        "fireworks/accounts/fireworks/models/gpt-oss-120b"
    )
    assert "gpt-oss-120b" not in found
    listed = found["accounts/fireworks/models/llama-v3p1-70b-instruct"]
    assert (listed.price, listed.context_tokens) == (None, 131072)


@pytest.mark.parametrize(
    ("target", "day", "nearest"),
    [
        ("groq/openai/gpt-oss-120", "", "groq/openai/gpt-oss-120b"),
        ("groq/nothing-that-is-like-it", "", None),
        # the replacement of a retired model
        ("groq/llama-3.3-70b-versatil", "", "groq/openai/gpt-oss-120b"),
        ("gemini/gemini-3-pro-preview", "2026-03-09", "gemini/gemini-3.1-pro-preview"),
        ("sim/groq", "", None),
    ],
)
@pytest.mark.system
def test_unserved_model_gets_its_nearest_replacement(
    target: str, day: str, nearest: str | None
) -> None:
    found, near = replacements(target)
    assert (found, next(iter(near), None)) == (day, nearest)
    learnt = lookup_in_child(
        [], [owner for owner in [target.partition("/")[0]] if owner != "sim"]
    ).models
    assert replacements(target, learnt.get(target.partition("/")[0], [])) == (found, near)


def test_the_rates_of_a_turn_cost_as_much_as_its_tokens() -> None:
    price = Price(input_usd=3, output_usd=15, cached_usd=0.3, cache_write_usd=3.75)
    new, cached, output = price.of_turn(0.5)
    assert 1_000 * new + 9_000 * cached + 200 * output == pytest.approx(
        price.cost_usd(
            input_tokens=10_000, cached_tokens=9_000, cache_write_tokens=500, output_tokens=200
        )
    )
    assert Price(input_usd=3, output_usd=15).of_turn(0.5)[:2] == pytest.approx((3e-6, 3e-6))
