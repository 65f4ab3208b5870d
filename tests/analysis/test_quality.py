"""Scores of models by the user, sizes by their names, and requirements by the catalogue."""

import pytest
from tests.cases import each_case

from splitsecond.benchmark.findings.quality import Quality, Requirements, parse_quality
from splitsecond.core.errors import CallerFault

FILE = """
[scores]
"gpt-oss-120b" = 61
"groq/openai/gpt-oss-120b" = 60
[billions]
"claude-haiku-4-5" = 20
"""


def test_scores_of_a_target_or_of_a_model() -> None:
    found = parse_quality(FILE, "quality.toml")
    assert found.score("groq/openai/gpt-oss-120b") == 60
    assert found.score("cerebras/gpt-oss-120b") == 61
    assert found.score("openai/gpt-4o") is None


@each_case(
    ("target", "billions"),
    [
        ("groq/llama-3.1-8b-instant", 8),
        ("groq/mixtral-8x7b-32768", 56),
        ("x/qwen3-0.6b", 0.6),
        ("x/Llama-3.3-70B-Instruct", 70),
        ("anthropic/claude-haiku-4-5", 20),
        ("openai/gpt-4o", None),
        ("x/web3bot", None),
    ],
)
def test_sizes_are_given_or_in_the_name(target: str, billions: float | None) -> None:
    assert parse_quality(FILE, "quality.toml").size(target) == billions


@pytest.mark.parametrize(
    "text", ["scores = 3", "[scores]\nx = 'good'", "[scores", "[score]\nx = 1"]
)
def test_unreadable_quality_file_is_refused(text: str) -> None:
    with pytest.raises(CallerFault, match=r"quality.toml: ") as refused:
        parse_quality(text, "quality.toml")
    assert refused.value.kind == "bad_quality"


@each_case(
    ("required", "target", "why"),
    [
        (
            Requirements(needs=["images"]),
            "groq/openai/gpt-oss-120b",
            "the catalogue says that it takes no images",
        ),
        (Requirements(needs=["images", "tools"]), "openai/gpt-4o", ""),
        (Requirements(needs=["images"]), "groq/of-tomorrow", ""),  # not known
        (
            Requirements(context_tokens=200_000),
            "groq/openai/gpt-oss-120b",
            "its context has 131,072 tokens",
        ),
        (Requirements(least_quality=60), "openai/gpt-4o", "it has no quality score"),
        (
            Requirements(least_quality=62, quality=Quality(scores={"gpt-4o": 61})),
            "openai/gpt-4o",
            "its quality is 61, at least 62 is required",
        ),
        (
            Requirements(least_quality=61, quality=Quality(scores={"gpt-4o": 61})),
            "openai/gpt-4o",
            "",
        ),
    ],
)
def test_refusal_names_what_the_target_lacks(required: Requirements, target: str, why: str) -> None:
    assert required.refusal(target, 131_072) == why


@each_case(
    ("required", "target", "context", "unknown"),
    [
        (Requirements(needs=["images"]), "openai/gpt-4o", None, ""),
        # a model takes them at every provider
        (Requirements(needs=["images"]), "myserver/gpt-4o", None, ""),
        # refused, not unknown
        (Requirements(needs=["images"]), "groq/openai/gpt-oss-20b", None, ""),
        (Requirements(needs=["images"]), "groq/of-tomorrow", None, "takes images"),
        (Requirements(needs=["images", "tools"]), "x/mistral-7b", None, "takes tools"),
        (Requirements(context_tokens=9), "x/y", None, "has a context of 9 tokens"),
        (Requirements(context_tokens=9), "x/y", 10, ""),
    ],
)
def test_unknown_abilities_are_named(
    required: Requirements, target: str, context: int | None, unknown: str
) -> None:
    expected = f"the catalogue does not know whether it {unknown}" if unknown else ""
    assert required.unknown(target, context) == expected
