"""The catalogue: every file is valid, and wrong names are answered with the right ones."""

import pytest

from splitsecond.catalog.provider import Provider, fill_base_url, names, provider, split_target
from splitsecond.errors import CallerFault


@pytest.mark.parametrize("name", names())
def test_every_file_is_a_provider(name: str) -> None:
    found = provider(name)
    assert found.name == name
    assert found.title
    assert found.base_url.startswith(("https://", "http://localhost:"))
    assert not found.base_url.endswith("/")
    assert found.source.startswith("https://")


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(CallerFault, match=r"unknown provider 'grok'.*Did you mean groq\?"):
        provider("grok")
    with pytest.raises(CallerFault, match=r"Known: .*openai"):
        provider("zzzz")


def test_a_target_is_provider_and_model() -> None:
    assert split_target("openrouter/meta-llama/llama-3.3-70b") == ("openrouter", "meta-llama/llama-3.3-70b")
    for wrong in ("groq", "/x", "groq/", ""):
        with pytest.raises(CallerFault, match="is not a target"):
            split_target(wrong)


def test_an_address_takes_its_part_from_the_environment() -> None:
    found = Provider(title="Mine", base_url="https://x/{MY_ID}/v1")
    assert fill_base_url(found, {"MY_ID": "abc"}) == "https://x/abc/v1"
    with pytest.raises(CallerFault, match="needs MY_ID in the environment"):
        fill_base_url(found, {})
