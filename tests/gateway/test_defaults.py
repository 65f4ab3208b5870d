"""A gateway without configuration: which providers it uses, and its message if no key is set."""

from splitsecond.core.catalog.provider import provider
from splitsecond.routing.configuration.defaults import ROUTE, found, unconfigured
from splitsecond.routing.construction.expression import targets

GROQ = f"groq/{provider('groq').default_model}"
MISTRAL = f"mistral/{provider('mistral').default_model}"


def test_default_route_has_the_providers_with_a_key() -> None:
    settings = unconfigured(
        {"GROQ_API_KEY": "gsk-1", "MISTRAL_API_KEY": "m-1", "OPENAI_API_KEY": ""}
    )
    assert targets(settings.routes[ROUTE]) == [GROQ, MISTRAL]
    assert all(settings.spec(name).model for name in (GROQ, MISTRAL))
    assert GROQ in found(settings)
    assert "gsk-1" not in found(settings)


def test_default_route_works_with_one_provider() -> None:
    assert targets(unconfigured({"GROQ_API_KEY": "gsk-1"}).routes[ROUTE]) == [GROQ]


def test_providers_with_the_same_key_are_used_once() -> None:
    names = targets(unconfigured({"GEMINI_API_KEY": "g-1", "GROQ_API_KEY": "gsk-1"}).routes[ROUTE])
    assert sum(name.startswith("gemini") for name in names) == 1


def test_tokens_meant_for_other_purposes_are_not_used() -> None:
    assert unconfigured({"GITHUB_TOKEN": "ghp-1", "HF_TOKEN": "hf-1"}).routes == {}


def test_without_any_key_the_message_names_the_variables() -> None:
    settings = unconfigured({"HOME": "/root"})
    assert settings.routes == {}
    words = found(settings)
    assert "GROQ_API_KEY" in words
    assert "vllm/MODEL" in words
    assert settings.spec("vllm/any").api_key_env == ()
