"""Secrets of a target, and their redaction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.core.errors import EXCERPT_BYTES, CallerFault, excerpt
from splitsecond.core.redaction import redacted
from splitsecond.core.upstream.spec import TargetSpec, from_catalog, secrets

KEY = "sk-0123456789abcdef"


def spec(**headers: str) -> TargetSpec:
    return TargetSpec(name="x/m", base_url="http://x.test", model="m", headers=headers)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"Authorization": f"Bearer {KEY}"}, [KEY]),
        ({"x-api-key": KEY, "cookie": ""}, [KEY]),
        ({"x-team": "a-name-that-is-long"}, []),
        ({"x-token": "short"}, []),
    ],
)
def test_secrets_are_the_key_and_credentials_in_headers(
    headers: dict[str, str], found: list[str]
) -> None:
    assert secrets(spec(**headers)) == found
    assert secrets(spec(**headers), "another-key") == ["another-key", *found]


def test_very_short_key_is_not_a_secret() -> None:
    assert secrets(spec(), "EMPTY") == secrets(spec(), None) == []


def test_secret_is_redacted_at_any_depth() -> None:
    value = {"command": ["--header", f"x: {KEY}"], "n": 3, "both": (f"{KEY}{KEY}", None)}
    assert redacted(value, [KEY]) == {
        "command": ["--header", "x: [key]"],
        "n": 3,
        "both": ["[key][key]", None],
    }
    assert redacted("nothing here", [KEY]) == "nothing here"


@given(st.integers(0, EXCERPT_BYTES + 10), st.text(max_size=700))
def test_excerpt_holds_at_most_3_letters_of_a_key(before: int, after: str) -> None:
    shown = redacted(excerpt("." * before + KEY + after.replace("sk-", "")), [KEY])
    assert KEY[:4] not in shown


@pytest.mark.parametrize(
    ("environment", "hint"),
    [
        ({}, "export CO_API_KEY=..."),
        ({"CO_KEY": "k", "GROQ_API_KEY": "k"}, "CO_KEY is set: is it that? export CO_API_KEY=..."),
        (
            {"cohere_api_key": "k", "COHERE_MODEL": "m"},
            "cohere_api_key is set: is it that? export CO_API_KEY=...",
        ),
        (
            {"CO_TOKEN": "k", "COHERE_TOKEN": "k"},
            "COHERE_TOKEN and CO_TOKEN are set: is it that? export CO_API_KEY=...",
        ),
    ],
)
def test_key_in_a_similar_variable_gets_a_hint(environment: dict[str, str], hint: str) -> None:
    with pytest.raises(
        CallerFault, match="no key: CO_API_KEY or COHERE_API_KEY is not set"
    ) as refused:
        from_catalog("cohere/command-a-03-2025", environment)
    assert refused.value.hint == hint


def test_empty_key_variable_is_reported_as_empty() -> None:
    with pytest.raises(CallerFault, match="no key: GROQ_API_KEY is empty") as refused:
        from_catalog("groq/x", {"GROQ_API_KEY": " "})
    assert refused.value.hint == "export GROQ_API_KEY=..."
