"""The catalogue: every file is valid, and wrong names are answered with the right ones."""

import re

import msgspec
import pytest
from tests.cases import each_case

from splitsecond.core.catalog import price_list
from splitsecond.core.catalog.provider import (
    Provider,
    fill_base_url,
    is_foreign,
    names,
    provider,
    split_target,
)
from splitsecond.core.errors import CallerFault
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.reasoning import style_for

ADDRESS = re.compile(r"https://\S+|http://localhost:\d+\S*|\{[A-Z_]+_ENDPOINT(_[A-Z]+)?\}/\S+")


@each_case("name", names())
def test_every_file_is_a_provider(name: str) -> None:
    found = provider(name)
    assert found.name == name
    assert found.title
    for address in (found.base_url, *(region.base_url for region in found.regions.values())):
        assert ADDRESS.fullmatch(address)
        assert not address.endswith("/")
    assert found.source.startswith("https://")
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]+", variable) for variable in found.api_key_env)
    assert found.checked == "" or re.fullmatch(r"20\d\d-\d\d-\d\d", found.checked)


@each_case("name", names())
def test_default_model_is_not_retired(name: str) -> None:
    found = provider(name)
    assert found.model(found.default_model).retired == ""


@each_case("name", names())
def test_facts_about_models_have_a_source_and_a_date(name: str) -> None:
    for model in provider(name).models.values():
        for speed in model.speeds:
            assert speed.source
            assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", speed.date)
            assert speed.summary
        assert model.retired == "" or re.fullmatch(r"20\d\d-\d\d-\d\d", model.retired)
        assert model.replaced_by == "" or (
            model.retired and not provider(name).model(model.replaced_by).retired
        )
        if model.price:
            assert model.price.source
            assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", model.price.as_of)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            "groq/llama-3.1-70b-versatile",
            [
                "230 ms (p95 290), 215 tok/s (p95 200) (c=1)",
                "290 ms (p95 820), 180 tok/s (p95 145) (c=8)",
                "610 ms (p95 2400), 140 tok/s (p95 105) (c=32)",
            ],
        ),
        ("groq/mixtral-8x7b-32768", ["120 ms, 450–550 tok/s, over 3000 tok/s in parallel (c=1)"]),
        ("groq/llama3-70b-8192", ["over 100 tok/s with the wait"]),
        ("azure/gpt-3.5-turbo", ["under 20 tok/s with the wait"]),
        ("gemini/gemini-2.5-flash-lite", ["140 ms, 240 tok/s"]),
    ],
)
def test_published_speeds_have_summaries(target: str, words: list[str]) -> None:
    name, model = split_target(target)
    assert [speed.summary for speed in provider(name).model(model).speeds] == words


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(CallerFault, match=r"unknown provider 'gorq'.*Did you mean groq"):
        provider("gorq")
    with pytest.raises(CallerFault, match=r"Known: .*openai"):
        provider("zzzz")


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("kimi", "moonshot"),
        ("alibaba", "qwen"),
        ("DashScope", "qwen"),
        ("google", "gemini or gemini-openai or vertex or vertex-claude"),
        ("grok", "xai or groq"),
    ],
)
def test_name_of_a_maker_or_model_suggests_its_provider(word: str, meant: str) -> None:
    with pytest.raises(CallerFault) as refused:
        provider(word)
    assert refused.value.hint.startswith(f"Did you mean {meant}")


@each_case("name", names())
def test_providers_and_regions_are_not_foreign(name: str) -> None:
    assert not any(
        map(
            is_foreign,
            [name, f"{name}:x", *(f"{name}-{region}" for region in provider(name).regions)],
        )
    )


@pytest.mark.parametrize("name", ["provider-3", "localhost", "", ":", "groqs"])
def test_a_foreign_name_is_unknown(name: str) -> None:
    assert is_foreign(name)
    with pytest.raises(CallerFault, match="unknown provider"):
        provider(name)


def test_region_has_its_own_address_and_may_have_its_own_key() -> None:
    found = provider("qwen-cn")
    assert (found.name, found.region, found.base_url) == (
        "qwen-cn",
        "cn",
        "https://dashscope.aliyuncs.com/compatible-mode/v1",
    )
    assert found.api_key_env == provider("qwen").api_key_env == ("DASHSCOPE_API_KEY",)
    assert provider("azure-eu").api_key_env == ("AZURE_OPENAI_API_KEY_EU",)
    assert found.models == provider("qwen").models


def test_region_after_a_colon_fills_the_address_pattern() -> None:
    azure = provider("azure:east-us2")
    assert (azure.name, azure.region) == ("azure:east-us2", "east-us2")
    assert azure.base_url == "{AZURE_OPENAI_ENDPOINT_EAST_US2}/openai/v1"
    assert azure.api_key_env == ("AZURE_OPENAI_API_KEY_EAST_US2", "AZURE_OPENAI_API_KEY")
    assert provider("vertex:me-west1").base_url.startswith(
        "https://me-west1-aiplatform.googleapis.com/"
    )
    assert provider("qwen:cn").base_url == provider("qwen-cn").base_url


@pytest.mark.parametrize(
    "name", ["qwen:mars", "groq:eu", "vertex:evil.example/", "vertex:", "azure:A"]
)
def test_a_region_after_a_colon_that_does_not_exist(name: str) -> None:
    with pytest.raises(CallerFault, match=r"has no region") as refused:
        provider(name)
    assert refused.value.kind == "unknown_provider"


def test_region_belongs_to_the_longest_provider_name() -> None:
    assert provider("vertex-claude").region == ""
    assert provider("vertex-claude-us-east5").base_url.endswith(
        "/locations/us-east5/publishers/anthropic"
    )
    assert provider("vertex-us-east5").base_url.endswith("/locations/us-east5/publishers/google")


def test_unknown_region_suggests_existing_ones() -> None:
    with pytest.raises(CallerFault, match=r"has no region 'cm'.*Did you mean qwen-cn") as refused:
        provider("qwen-cm")
    assert refused.value.kind == "unknown_provider"
    with pytest.raises(
        CallerFault,
        match=r"Groq has no regions in the catalogue, so 'eu' is unknown.*Did you mean groq",
    ):
        provider("groq-eu")
    with pytest.raises(
        CallerFault, match=r"unknown provider 'openai-respones'.*Did you mean openai-responses"
    ):
        provider("openai-respones")


@each_case("name", names())
def test_quirks_api_formats_and_price_lists_of_providers_exist(name: str) -> None:
    found = provider(name)
    msgspec.convert(found.quirks, Quirks)
    assert found.api_format in API_FORMATS
    assert not found.prices or price_list.models(found.prices)


def test_a_target_is_provider_and_model() -> None:
    assert split_target("openrouter/meta-llama/llama-3.3-70b") == (
        "openrouter",
        "meta-llama/llama-3.3-70b",
    )
    for wrong in ("groq", "/x", "groq/", ""):
        with pytest.raises(CallerFault, match="is not a target"):
            split_target(wrong)


def test_an_address_takes_its_part_from_the_environment() -> None:
    found = Provider(title="Mine", base_url="https://x/{MY_ID}/v1/{model}")
    assert fill_base_url(found, {"MY_ID": "abc"}) == "https://x/abc/v1/{model}"
    with pytest.raises(CallerFault, match="needs MY_ID in the environment"):
        fill_base_url(found, {})


def test_an_endpoint_from_the_environment_may_end_in_a_slash() -> None:
    environment = {"AZURE_OPENAI_ENDPOINT": "https://mine.openai.azure.com/"}
    assert (
        fill_base_url(provider("azure"), environment) == "https://mine.openai.azure.com/openai/v1"
    )


def test_a_model_may_differ_from_its_provider() -> None:
    anthropic = provider("anthropic")
    assert anthropic.continues("claude-haiku-4-5") is True
    assert anthropic.continues("claude-opus-4-6") is False
    assert provider("mistral").continues("any") == "prefix"
    assert provider("qwen-cn").continues("any") == "partial"
    assert provider("cerebras").continues("gpt-oss-120b") is None


def test_the_key_that_is_present_is_named_and_not_shown() -> None:
    cohere = provider("cohere")
    assert cohere.key_variable({"COHERE_API_KEY": "secret", "CO_API_KEY": " "}) == "COHERE_API_KEY"
    assert cohere.key_variable({}) == ""


@each_case(
    "name, model, field, efforts",
    [
        ("openai", "gpt-5-mini", "reasoning_effort", ("minimal", "low", "medium", "high")),
        ("openai", "gpt-5.1-codex", "reasoning_effort", ("none", "low", "medium", "high")),
        ("openai", "gpt-4o", None, ()),
        (
            "openai-responses",
            "gpt-6.1-terra",
            "reasoning_effort",
            ("none", "low", "medium", "high", "xhigh"),
        ),
        ("groq", "openai/gpt-oss-120b", "reasoning_effort", ("low", "medium", "high")),
        ("groq", "llama-3.3-70b-versatile", None, ()),
        ("xai", "grok-4.3", "reasoning_effort", ("low", "high")),
        ("deepseek", "deepseek-v4-pro", "thinking", ()),
        ("qwen", "qwen-plus", "enable_thinking", ()),
        ("openrouter", "anthropic/claude-opus-4.6", "reasoning", ()),
        ("ollama", "qwen3:8b", "reasoning_effort", ()),
        ("ollama", "llama3.2", None, ()),
        ("vllm", "any", "reasoning_effort", ()),
    ],
)
def test_model_has_its_reasoning_effort_field(
    name: str, model: str, field: str | None, efforts: tuple[str, ...]
) -> None:
    way = style_for(msgspec.convert(provider(name).quirks, Quirks).thinking, model)
    assert (way and way.field, way.efforts if way else ()) == (field, efforts)


def test_whether_closing_an_answer_stops_the_bill() -> None:
    """As OpenRouter's documents list it of the providers that it calls."""
    stops = (
        "openai azure anthropic fireworks novita deepinfra together cohere hyperbolic xai "
        "friendli chutes deepseek"
    )
    goes_on = (
        "groq gemini vertex minimax huggingface replicate perplexity mistral lambda "
        "sambanova qwen nebius"
    )
    assert [
        name for name in stops.split() if provider(name).closing_stops_billing is not True
    ] == []
    assert [
        name for name in goes_on.split() if provider(name).closing_stops_billing is not False
    ] == []
    assert provider("openrouter").closing_stops_billing is None


@each_case(
    "name, quirk, value",
    [
        ("openai", "usage", "own_chunk"),
        ("groq", "usage", "x_groq"),
        ("moonshot", "usage", "choices"),
        ("mistral", "usage", "last_chunk"),
        ("mistral", "stream_options", False),
        ("perplexity", "usage", "every_chunk"),
        ("gemini-openai", "usage", "every_chunk"),
        ("deepseek", "reasoning_field", "reasoning_content"),
        ("groq", "reasoning_field", "reasoning"),
        ("anthropic", "rate_limits", "anthropic-ratelimit"),
        ("gemini", "rate_limits", "none"),
        ("azure", "max_tokens_field", "max_completion_tokens"),
    ],
)
def test_providers_have_these_quirks(name: str, quirk: str, value: object) -> None:
    assert provider(name).quirks[quirk] == value
