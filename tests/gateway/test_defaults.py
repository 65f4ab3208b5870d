"""A gateway without configuration: which providers it uses, and its message if no key is set."""

from splitsecond.core.catalog.provider import provider
from splitsecond.routing.configuration.defaults import ROUTE, found, unconfigured
from splitsecond.routing.construction.expression import targets

GROQ = f"groq/{provider('groq').default_model}"
MISTRAL = f"mistral/{provider('mistral').default_model}"


def test_the_route_is_over_the_providers_whose_key_is_there() -> None:
    settings = unconfigured({"GROQ_API_KEY": "gsk-1", "MISTRAL_API_KEY": "m-1", "OPENAI_API_KEY": ""})
    assert targets(settings.routes[ROUTE]) == [GROQ, MISTRAL]
    assert all(settings.spec(name).model for name in (GROQ, MISTRAL))
    assert GROQ in found(settings)
    assert "gsk-1" not in found(settings)


def test_one_provider_is_a_route_too() -> None:
    assert targets(unconfigured({"GROQ_API_KEY": "gsk-1"}).routes[ROUTE]) == [GROQ]


def test_two_entries_that_take_the_same_key_are_one_provider() -> None:
    names = targets(unconfigured({"GEMINI_API_KEY": "g-1", "GROQ_API_KEY": "gsk-1"}).routes[ROUTE])
    assert sum(name.startswith("gemini") for name in names) == 1


def test_a_token_that_is_set_for_another_end_is_not_used() -> None:
    assert unconfigured({"GITHUB_TOKEN": "ghp-1", "HF_TOKEN": "hf-1"}).routes == {}


def test_no_key_at_all_says_where_it_was_looked_for() -> None:
    settings = unconfigured({"HOME": "/root"})
    assert settings.routes == {}
    words = found(settings)
    assert "GROQ_API_KEY" in words
    assert "vllm/MODEL" in words
    assert settings.spec("vllm/any").api_key_env == ()
