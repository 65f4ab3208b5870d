"""What the documents show can be used as it stands there."""

import re
from pathlib import Path

import pytest

from splitsecond.gateway.configuration.problems import problems
from splitsecond.gateway.configuration.reading import read
from splitsecond.policy.expression import parse
from splitsecond.policy.forms import POLICIES

ROOT = Path(__file__).parents[2]
PROVIDERS = ("GROQ", "CEREBRAS", "TOGETHER", "DEEPINFRA", "OPENAI", "ANTHROPIC")
KEYS = ("WEB_KEY", *(f"{name}_API_KEY" for name in PROVIDERS))
ENVIRONMENT = dict.fromkeys(KEYS, "a-key-that-is-long-enough")


@pytest.mark.parametrize("document", ["README.md", "docs/gateway.md"])
def test_each_configuration_can_be_served(document: str) -> None:
    shown = re.findall(r"```yaml\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert shown
    for text in shown:
        settings = read(text, ENVIRONMENT)
        assert settings.routes
        assert [each for each in problems(settings) if not each.startswith("seeds")] == []


def test_each_policy_is_described_and_each_that_is_shown_can_be_read() -> None:
    text = (ROOT / "docs/policies.md").read_text()
    shown = [found for found in re.findall(r"`([a-z_]+\(.*?\))`", text) if "…" not in found]
    described = {found.partition("(")[0] for found in shown}
    assert described == set(POLICIES)
    for found in shown:
        assert parse(found)
