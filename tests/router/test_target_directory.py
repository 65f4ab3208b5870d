"""Facts about targets other than their speed: where they come from, and what a request costs."""

import pytest
from tests.analysis.made import failure
from tests.gateway.test_settings import ENVIRONMENT
from tests.policies.attempts import answered

from splitsecond.core.catalog.price import Price, Tier
from splitsecond.core.catalog.prices import PriceLookup
from splitsecond.core.catalog.provider import provider
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.target_directory import MAX_PRICES, TargetDirectory
from splitsecond.routing.targets.target_info import TargetInfo

TEXT = """
providers:
  ours: {base_url: http://10.0.0.5/v1, region: eu, price: {input_usd: 1, output_usd: 2}}
  hourly: {base_url: http://10.0.0.6/v1, price: {per_hour_usd: 2.69}}
  half: {base_url: http://10.0.0.7/v1, price: {input_usd: 1}}
  second: {like: groq, api_key: env:OURS, price: {output_usd: 5},
    models: {big: {context: 1000, price: {input_usd: 3}}}}
"""
LISTED = Price(
    input_usd=0.5,
    output_usd=0.8,
    tiers=(Tier(above_tokens=9, input_usd=1, output_usd=1),),
    source="a list",
)


@pytest.fixture
def facts() -> TargetDirectory:
    return TargetDirectory(read(TEXT, ENVIRONMENT))


def test_configured_prices_are_used(facts: TargetDirectory) -> None:
    assert facts.price("ours/x") == Price(input_usd=1, output_usd=2, source="configuration")
    assert facts.price("hourly/x") == Price(per_hour_usd=2.69, source="configuration")
    assert facts.price("half/x") is None  # of half a price nobody can tell a cost
    assert facts.price("groq/x") is None


def test_refused_attempt_costs_nothing_at_any_price(facts: TargetDirectory) -> None:
    assert facts.cost_usd(failure(target="half/x", status=429)) == 0.0
    assert facts.cost_usd(failure(target="half/x", sent_ns=None)) == 0.0
    assert facts.cost_usd(failure(target="half/x")) is None  # a broken answer may be billed


def test_target_paid_by_the_hour_has_no_cost_per_call(facts: TargetDirectory) -> None:
    hourly = facts.facts("hourly/x")
    assert hourly.price == Price(per_hour_usd=2.69, source="configuration")
    assert hourly.cost_usd(1000, 1000) == 0


def test_price_list_completes_the_configuration(facts: TargetDirectory) -> None:
    facts.learn(PriceLookup({"groq/x": LISTED, "groq/big": LISTED}))
    assert facts.price("groq/x") == LISTED
    changed = facts.price("second/x")
    assert changed is not None
    assert (changed.input_usd, changed.output_usd, changed.tiers) == (0.5, 5, ())
    own = facts.price("second/big")
    assert own is not None
    assert (own.input_usd, own.output_usd) == (3, 0.8)
    # so it is after a reload
    assert TargetDirectory(read(TEXT, ENVIRONMENT), facts).price("groq/x") == LISTED


def test_looked_up_prices_count_as_known(facts: TargetDirectory) -> None:
    assert not facts.knows("second/x")
    facts.learn(PriceLookup({"groq/x": None}))
    assert facts.knows("second/x")
    assert facts.knows("groq/x")
    assert not facts.knows("groq/y")


def test_price_requested_before_the_lookup_stays_unknown(facts: TargetDirectory) -> None:
    assert facts.price("groq/x") is None
    assert not facts.knows("groq/x"), "else whatever it costs would be free from here on"
    assert facts.knows("ours/x"), "the configuration has all of it"


def test_price_state_is_known_unread_or_missing(facts: TargetDirectory) -> None:
    assert facts.price_state("groq/x") == "unread"
    facts.learn(PriceLookup({"groq/x": None, "groq/y": LISTED}))
    states = {
        name: facts.price_state(name)
        for name in ("groq/x", "groq/y", "ours/x", "hourly/x", "half/x", "other/x")
    }
    assert states == {
        "groq/x": "missing",
        "groq/y": "known",
        "ours/x": "known",
        "hourly/x": "known",
        "half/x": "missing",  # half a price
        "other/x": "known",  # a server that is not in the catalogue
    }
    free = TargetDirectory(read("providers: {bare: {base_url: 'http://127.0.0.1:1'}}", {}))
    assert free.price_state("bare/x") == free.price_state("ollama/x") == "known"


def test_context_length_from_configuration_catalogue_or_list() -> None:
    text = "providers: {second: {like: openai, api_key: env:OURS, models: {gpt-4o: {context: 99}}}}"
    facts = TargetDirectory(read(text, ENVIRONMENT))
    facts.learn(
        PriceLookup({"openai/of-the-list": LISTED}, context_tokens={"openai/of-the-list": 7})
    )
    assert facts.context_tokens("second/gpt-4o") == 99
    assert facts.context_tokens("second/gpt-5") == provider("openai").model("gpt-5").context_tokens
    assert facts.context_tokens("second/of-the-list") == 7
    assert TargetDirectory(read(text, ENVIRONMENT), facts).context_tokens("openai/of-the-list") == 7
    assert facts.context_tokens("second/nobody-knows") is None


def test_unknown_models_do_not_displace_prices_of_routes() -> None:
    facts = TargetDirectory(
        read(TEXT + "routes: {one: {policy: '\"groq/routed\"'}}\n", ENVIRONMENT)
    )
    facts.learn(PriceLookup({"groq/routed": LISTED, "groq/oldest": LISTED}))
    facts.learn(PriceLookup({f"groq/{number}": None for number in range(MAX_PRICES)}))
    assert not facts.knows("groq/real")
    assert not facts.knows("groq/oldest"), "it is looked up anew"
    assert facts.price("groq/routed") == LISTED
    facts.learn(PriceLookup({"groq/real": LISTED}))
    assert facts.price("groq/real") == LISTED


def test_name_without_a_model_has_no_facts(facts: TargetDirectory) -> None:
    assert facts.facts("other") == TargetInfo(provider="other")
    assert facts.output_tokens("other") is None


def test_output_limit_comes_from_configuration_or_catalogue() -> None:
    text = "providers: {second: {like: openai, api_key: env:OURS, models: {gpt-4o: {output: 99}}}}"
    facts = TargetDirectory(read(text, ENVIRONMENT))
    assert facts.output_tokens("second/gpt-4o") == 99
    assert (
        facts.output_tokens("second/gpt-4o-mini")
        == provider("openai").model("gpt-4o-mini").output_tokens
        == 16384
    )
    assert facts.output_tokens("second/nobody-knows") is None


@pytest.mark.system
def test_published_price_list_has_the_default_model(facts: TargetDirectory) -> None:
    target = f"groq/{provider('groq').default_model}"
    found = facts.look_up([target, "ours/x"])
    assert found.prices["ours/x"] is None
    price = found.prices[target]
    assert price is not None
    assert 0 < price.input_usd <= price.output_usd
    facts.learn(found)
    assert facts.look_up([target, "ours/x"]) == PriceLookup()


def test_unserved_model_gets_replacement_and_nearest_names() -> None:
    routes = """
routes:
  mine: {policy: '"ours/qwen3-8b"'}
  far: {policy: '"second/llama-3.1-8b-instnt"'}
"""
    facts = TargetDirectory(read(TEXT + routes, ENVIRONMENT))
    assert facts.instead_of("groq/openai/gpt-oss-12b") == ("", ["groq/openai/gpt-oss-120b"]), (
        "by the file alone"
    )
    facts.learn(
        PriceLookup(
            models={"groq": ["llama-3.1-8b-instant", "openai/gpt-oss-20b", "openai/gpt-oss-120b"]}
        )
    )
    assert facts.instead_of("second/llama-3.1-8b-instnt") == ("", ["second/llama-3.1-8b-instant"])
    assert facts.instead_of("groq/openai/gpt-oss-20b") == ("", []), "it has that name"
    assert facts.instead_of("second/llama-3.3-70b-versatile") == (
        "2026-08-16",
        ["second/openai/gpt-oss-120b"],
    )
    assert facts.instead_of("ours/qwen-8b") == ("", ["ours/qwen3-8b"]), (
        "for your own servers only models of routes"
    )
    assert facts.instead_of("ours/qwen3-8b") == ("", [])
    assert facts.instead_of("nowhere/x") == ("", [])


def test_cost_of_an_attempt_follows_its_tokens(facts: TargetDirectory) -> None:
    attempt = answered(tokens=100, input_tokens=1000, target="ours/x")
    assert facts.cost_usd(attempt) == pytest.approx((1000 * 1 + 100 * 2) / 1e6)
    assert facts.cost_usd(answered(tokens=2, input_tokens=1, target="groq/x")) is None


def test_facts_for_policies_come_from_file_and_catalogue(facts: TargetDirectory) -> None:
    price = Price(input_usd=1, output_usd=2, source="configuration")
    assert facts.facts("ours/x") == TargetInfo(
        provider="ours", account="ours", region="eu", price=price
    )
    second = facts.facts("second/big")
    assert (second.provider, second.account, second.context_tokens) == (
        "groq",
        "OURS at api.groq.com",
        1000,
    )
    model = provider("groq").default_model
    assert (
        facts.facts(f"groq/{model}").context_tokens == provider("groq").model(model).context_tokens
    )


def test_target_outside_the_settings_has_no_facts(facts: TargetDirectory) -> None:
    assert facts.facts("gone/x") == TargetInfo(provider="gone")
    assert facts.facts("openai/x").account == ""
    assert facts.price("gone/x") is None
