"""Error messages for unknown models."""

import pytest
from tests.cases import each_case
from tests.gateway.test_settings import ENVIRONMENT, GOOD

from splitsecond.core.errors import CallerFault
from splitsecond.core.transport.client import Client
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.router.routes import Routes
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.target_states import TargetStates

OPEN = GOOD.replace("keys:\n  - {name: web, key: env:WEB_KEY, routes: [fast, groq/*]}\n", "")


def refused(text: str, model: str) -> CallerFault:
    settings = read(text, ENVIRONMENT)
    routes = Routes(
        settings, lambda _: None, Client(), TargetStates(TargetDirectory(settings).facts)
    )
    with pytest.raises(CallerFault, match=r"unknown model '.*'") as found:
        routes.service(model, settings.keys[0] if settings.keys else None)
    assert (found.value.kind, found.value.status) == ("model_not_found", 404)
    return found.value


@pytest.mark.parametrize("text", [GOOD, OPEN])
def test_the_nearest_route_is_named(text: str) -> None:
    assert refused(text, "fats").hint == "Did you mean fast? Routes: fast."
    assert refused(text, "something-else").hint == "Routes: fast."


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("openai/gpt-4o", "OPENAI_API_KEY is not set"),
        ("cerebra/llama", "Did you mean cerebras"),
        ("qwen-cm/qwen-plus", "Did you mean qwen-cn"),
    ],
)
def test_reason_is_given_only_on_a_loopback_gateway_without_keys(model: str, why: str) -> None:
    assert why in str(refused(OPEN, model))
    assert why not in str(refused(GOOD.replace("groq/*", '"*"'), model))


def test_configured_provider_is_suggested_before_the_catalogues() -> None:
    assert (
        refused(OPEN, "groqq/llama").hint == "Did you mean groq/llama or ours/llama? Routes: fast."
    )
    assert "Did you mean cerebras" in refused(OPEN, "cerebra/llama").hint


@each_case(
    ("routes", "model", "near"),
    [
        ("[fast, slow]", "fasst", "fast"),
        ("[slow]", "fasst", ""),  # what it may not use is not named
        ("[fast, groq/*]", "llama-3.3-70b-versatile", "groq/llama-3.3-70b-versatile"),
        ("[fast, groq/openai/gpt-oss-120b]", "gpt-oss-120b", "groq/openai/gpt-oss-120b"),
        ("[fast]", "llama-3.3-70b-versatile", ""),
        ("['*']", "llama", "ours/llama"),
        ("[fast, groq/*]", "grok/llama-3.3-70b-versatile", "groq/llama-3.3-70b-versatile"),
        ("['*']", "our/any-model", "ours/any-model"),
        ("[fast]", "our/any-model", ""),
    ],
)
def test_the_nearest_name_is_one_that_the_key_may_use(routes: str, model: str, near: str) -> None:
    text = GOOD.replace("[fast, groq/*]", routes) + "  slow: {policy: '\"ours/llama\"'}\n"
    hint = refused(text, model).hint
    assert hint.startswith(f"Did you mean {near}? Routes: " if near else "Routes: ")
