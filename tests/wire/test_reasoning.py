"""Requested reasoning in each client's format, as each target gets it."""

from typing import Any

import msgspec
import pytest
from tests.cases import each_case

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import Call, Spoken
from splitsecond.core.upstream.target import API_FORMATS
from splitsecond.core.upstream.transcoding import request
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.reasoning import (
    BUDGETS,
    EFFORTS,
    ReasoningRequest,
    ReasoningStyle,
    from_budget,
)

OLDER, NEWER, OTHER = "claude-sonnet-4-5", "claude-opus-4-6", "minimax-m2"
FLASH, PRO, THIRD = "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3.1-pro"
ON = {"thinking": {"type": "adaptive"}}
OFF = {"thinking": {"type": "disabled"}}
MEASURED = {"thinking": {"type": "enabled", "budget_tokens": 5000}}
HIDDEN = {"thinking": {"type": "enabled", "budget_tokens": 5000, "display": "omitted"}}
LOW: dict[str, Any] = {"reasoning": {"effort": "low"}}
SUMMED: dict[str, Any] = {"reasoning": {"effort": "high", "summary": "detailed"}}
MINE: dict[Spoken, dict[str, Any]] = {
    "openai": {"messages": [{"role": "user", "content": "hi"}]},
    "anthropic": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 64000},
    "responses": {"input": "hi"},
}


def config(**said: Any) -> dict[str, Any]:
    """Return Gemini's form."""
    return {"generationConfig": {"thinkingConfig": said}}


NOT_OF_THINKING = {
    "messages",
    "max_tokens",
    "input",
    "contents",
    "model",
    "stream",
    "stream_options",
    "store",
}


def asked(
    client: Spoken, said: dict[str, Any], api_format: str, model: str = "m", **quirks: Any
) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of the request beside the prompt, and the names of what was left out."""
    body = {
        name: msgspec.Raw(msgspec.json.encode(value))
        for name, value in {**MINE[client], **said}.items()
    }
    call = Call(id="1", api_format=client, body=body)
    encoded = request(
        call, api_format, API_FORMATS[api_format].encode, model, msgspec.convert(quirks, Quirks)
    )
    fields = msgspec.json.decode(encoded.body)
    sent = {name: value for name, value in fields.items() if name not in NOT_OF_THINKING}
    sent.get("generationConfig", {}).pop("maxOutputTokens", None)
    sent.get("options", {}).pop("num_predict", None)
    return {
        name: value for name, value in sent.items() if value not in ({}, 64000)
    }, call.notes.left_out.get("", [])


@each_case(
    "client, said, api_format, model, sent",
    [
        # Anthropic's words
        ("anthropic", ON, "openai", "m", {"reasoning_effort": "medium"}),
        ("anthropic", OFF, "openai", "m", {"reasoning_effort": "none"}),
        ("anthropic", MEASURED, "openai", "m", {"reasoning_effort": "medium"}),
        (
            "anthropic",
            {"output_config": {"effort": "max"}},
            "openai",
            "m",
            {"reasoning_effort": "high"},
        ),
        (
            "anthropic",
            {**MEASURED, "output_config": {"effort": "low"}},
            "openai",
            "m",
            {"reasoning_effort": "low"},
        ),
        ("anthropic", ON, "responses", "m", {"reasoning": {"effort": "medium"}}),
        (
            "anthropic",
            {"thinking": {"type": "adaptive", "display": "summarized"}},
            "responses",
            "m",
            {"reasoning": {"effort": "medium", "summary": "auto"}},
        ),
        ("anthropic", MEASURED, "gemini", FLASH, config(includeThoughts=True, thinkingBudget=5000)),
        ("anthropic", ON, "gemini", FLASH, config(includeThoughts=True, thinkingBudget=-1)),
        ("anthropic", OFF, "gemini", FLASH, config(thinkingBudget=0)),
        ("anthropic", ON, "gemini", THIRD, config(includeThoughts=True)),
        (
            "anthropic",
            MEASURED,
            "gemini",
            THIRD,
            config(includeThoughts=True, thinkingLevel="MEDIUM"),
        ),
        (
            "anthropic",
            HIDDEN,
            "gemini",
            FLASH,
            config(includeThoughts=False, thinkingBudget=5000),
        ),
        (
            "anthropic",
            MEASURED,
            "cohere",
            "m",
            {"thinking": {"type": "enabled", "token_budget": 5000}},
        ),
        ("anthropic", ON, "cohere", "m", {"thinking": {"type": "enabled"}}),
        ("anthropic", OFF, "cohere", "m", {"thinking": {"type": "disabled"}}),
        ("anthropic", ON, "ollama", "m", {"think": True}),
        ("anthropic", OFF, "ollama", "m", {"think": False}),
        ("anthropic", MEASURED, "ollama", "m", {"think": "medium"}),
        ("anthropic", MEASURED, "anthropic", OLDER, MEASURED),
        # those of Responses
        ("responses", LOW, "openai", "m", {"reasoning_effort": "low"}),
        (
            "responses",
            {"reasoning": {"effort": "minimal"}},
            "openai",
            "m",
            {"reasoning_effort": "low"},
        ),
        (
            "responses",
            LOW,
            "anthropic",
            OLDER,
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        ),
        (
            "responses",
            LOW,
            "anthropic",
            NEWER,
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        ),
        (
            "responses",
            SUMMED,
            "anthropic",
            OTHER,
            {"thinking": {"type": "enabled", "budget_tokens": 24576, "display": "summarized"}},
        ),
        (
            "responses",
            SUMMED,
            "gemini",
            FLASH,
            config(includeThoughts=True, thinkingBudget=24576),
        ),
        (
            "responses",
            {"reasoning": {"summary": "auto"}},
            "gemini",
            THIRD,
            config(includeThoughts=True),
        ),
        ("responses", {"reasoning": {"summary": "auto"}}, "openai", "m", {}),
        # those of a chat, OpenAI's and others'
        ("openai", {"reasoning_effort": "xhigh"}, "gemini", PRO, config(thinkingBudget=32768)),
        ("openai", {"reasoning_effort": "xhigh"}, "gemini", FLASH, config(thinkingBudget=24576)),
        ("openai", {"reasoning_effort": "minimal"}, "ollama", "m", {"think": "low"}),
        ("openai", {"reasoning_effort": "default"}, "ollama", "m", {}),
        ("openai", {"think": "high"}, "cohere", "m", {"thinking": {"type": "enabled"}}),
        ("openai", {"think": False}, "anthropic", NEWER, OFF),
        ("openai", MEASURED, "gemini", FLASH, config(includeThoughts=True, thinkingBudget=5000)),
        ("openai", MEASURED, "anthropic", OLDER, MEASURED),
        (
            "openai",
            {"reasoning": {"max_tokens": 3000}},
            "anthropic",
            OLDER,
            {"thinking": {"type": "enabled", "budget_tokens": 3000}},
        ),
        (
            "openai",
            {"reasoning": {"enabled": True, "exclude": True}},
            "responses",
            "m",
            {"reasoning": {"effort": "medium"}},
        ),
        (
            "openai",
            {"reasoning": {"effort": "low", "exclude": False}},
            "responses",
            "m",
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        (
            "openai",
            {"reasoning": {"effort": "low", "summary": "auto"}},
            "responses",
            "m",
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        (
            "openai",
            {"enable_thinking": True, "thinking_budget": 700},
            "cohere",
            "m",
            {"thinking": {"type": "enabled", "token_budget": 700}},
        ),
        ("openai", {"enable_thinking": False}, "gemini", FLASH, config(thinkingBudget=0)),
        ("openai", {"reasoning_effort": "high", **OFF}, "ollama", "m", {"think": False}),
        (
            "openai",
            {"reasoning": {"effort": "low"}, "odd": 1},
            "openai",
            "m",
            {"reasoning": {"effort": "low"}, "odd": 1},
        ),
    ],
)
def test_reasoning_is_translated_between_all_api_formats(
    client: Spoken, said: dict[str, Any], api_format: str, model: str, sent: dict[str, Any]
) -> None:
    assert asked(client, said, api_format, model) == (sent, [])


@each_case(
    "way, said, sent",
    [
        ({"field": "reasoning"}, MEASURED, {"reasoning": {"max_tokens": 5000}}),
        ({"field": "reasoning"}, HIDDEN, {"reasoning": {"exclude": True, "max_tokens": 5000}}),
        (
            {"field": "reasoning"},
            {"output_config": {"effort": "low"}},
            {"reasoning": {"effort": "low"}},
        ),
        ({"field": "reasoning"}, ON, {"reasoning": {"enabled": True}}),
        ({"field": "reasoning"}, OFF, {"reasoning": {"enabled": False}}),
        ({"field": "thinking"}, MEASURED, {"thinking": {"type": "enabled"}}),
        ({"field": "thinking"}, OFF, OFF),
        (
            {"field": "enable_thinking"},
            MEASURED,
            {"enable_thinking": True, "thinking_budget": 5000},
        ),
        ({"field": "enable_thinking"}, ON, {"enable_thinking": True}),
        ({"field": "enable_thinking"}, OFF, {"enable_thinking": False}),
        ({"efforts": ["low", "high"]}, MEASURED, {"reasoning_effort": "low"}),
        (
            {"efforts": ["minimal", "max"]},
            {"output_config": {"effort": "high"}},
            {"reasoning_effort": "max"},
        ),
    ],
)
def test_a_chat_has_the_form_of_its_provider(
    way: Any, said: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert asked("anthropic", said, "openai", thinking=[way]) == (sent, [])


@each_case(
    "client, said, api_format, model, sent, named",
    [
        ("anthropic", MEASURED, "replicate", "a/b", {}, ["thinking", "usage"]),
        ("responses", LOW, "gemini", "gemma-3-27b", {}, ["reasoning"]),
        ("responses", {"reasoning": {"effort": "none"}}, "gemini", "gemma-3-27b", {}, []),
        (
            "openai",
            {"reasoning_effort": "low"},
            "gemini",
            "gemini-1.5-pro",
            {},
            ["reasoning_effort"],
        ),
        (
            "openai",
            {"reasoning_effort": "low"},
            "gemini",
            "gemini-10-pro",
            config(thinkingLevel="LOW"),
            [],
        ),
        (
            "anthropic",
            OFF,
            "gemini",
            PRO,
            config(thinkingBudget=128),
            ["thinking"],
        ),
        (
            "openai",
            {"reasoning_effort": "low"},
            "anthropic",
            "claude-3-5-haiku-latest",
            {},
            ["reasoning_effort"],
        ),
        (
            "openai",
            {"reasoning_effort": "low", "max_tokens": 1000},
            "anthropic",
            OLDER,
            {},
            ["reasoning_effort"],
        ),
    ],
)
def test_a_request_that_cannot_be_expressed_is_reported(
    client: Spoken,
    said: dict[str, Any],
    api_format: str,
    model: str,
    sent: dict[str, Any],
    named: list[str],
) -> None:
    found, dropped = asked(client, said, api_format, model)
    found.pop("input", None)
    assert (found, dropped) == (sent, named)


def test_models_whose_reasoning_cannot_be_set_get_no_field() -> None:
    ways = [{"models": ["gpt-5*", "o?"], "efforts": ["minimal", "low"]}]
    assert asked("anthropic", MEASURED, "openai", "gpt-4o", thinking=ways) == ({}, ["thinking"])
    assert asked("anthropic", OFF, "openai", "gpt-4o", thinking=ways) == ({}, [])
    assert asked("anthropic", MEASURED, "openai", "o3", thinking=ways) == (
        {"reasoning_effort": "low"},
        [],
    )
    assert asked("anthropic", OFF, "openai", "o3", thinking=ways) == (
        {"reasoning_effort": "minimal"},
        ["thinking"],
    )
    assert asked("openai", {"reasoning_effort": "low"}, "openai", "gpt-4o", thinking=ways)[0] == {
        "reasoning_effort": "low"
    }
    assert asked("openai", {"reasoning_effort": "low"}, "cohere", "m", thinking=[]) == (
        {},
        ["reasoning_effort"],
    )


def test_anthropic_does_not_think_if_a_tool_call_is_forced() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    said = {"reasoning_effort": "low", "tools": [tool], "tool_choice": "required"}
    for model, effort in ((OLDER, None), (NEWER, {"effort": "low"})):
        sent, dropped = asked("openai", said, "anthropic", model)
        assert "thinking" not in sent
        assert sent.get("output_config") == effort
        assert dropped == ["reasoning_effort"]
    assert "thinking" in asked("openai", {**said, "tool_choice": "auto"}, "anthropic", OLDER)[0]


def test_anthropic_gets_no_sampling_fields_with_thinking() -> None:
    said = {"reasoning_effort": "low", "temperature": 0.2, "top_p": 0.5, "top_k": 3}
    for model in (OLDER, NEWER):
        sent, dropped = asked("openai", said, "anthropic", model)
        assert sent.keys() == {"thinking"} | ({"output_config"} if model == NEWER else set())
        assert dropped == ["temperature", "top_p", "top_k"]
    allowed = {"reasoning_effort": "low", "temperature": 1, "top_p": 0.97}
    assert (
        asked("openai", allowed, "anthropic", OLDER)[0].items()
        >= {"temperature": 1, "top_p": 0.97}.items()
    )
    sent, dropped = asked("openai", {**said, "reasoning_effort": "none"}, "anthropic", OLDER)
    assert (sent["temperature"], sent["top_k"], dropped) == (0.2, 3, [])


def test_no_budget_if_the_reasoning_before_a_tool_call_is_lost() -> None:
    called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turns = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [called], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
    ]
    said = {"messages": turns, "reasoning_effort": "low"}
    assert asked("openai", said, "anthropic", OLDER) == (
        {},
        ["reasoning_content", "reasoning_effort"],
    )
    assert asked("openai", said, "anthropic", NEWER)[0]["thinking"] == {"type": "adaptive"}
    turns += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And?"}]
    assert "thinking" in asked("openai", said, "anthropic", OLDER)[0]


@pytest.mark.parametrize(
    "said",
    [
        {"reasoning_effort": "extreme"},
        {"reasoning_effort": 3},
        {"reasoning": {"effort": "extreme"}},
    ],
)
def test_an_unknown_effort_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(
        CallerFault,
        match=r"cannot be translated for a target of another API format.*Possible: none, minimal",
    ) as no:
        asked("openai", said, "cohere")
    assert no.value.kind == "not_translatable"


@pytest.mark.parametrize(
    "said", [{"thinking": "much"}, {"thinking": {"type": "odd"}}, {"think": 7}]
)
def test_unknown_reasoning_fields_are_dropped(said: dict[str, Any]) -> None:
    assert asked("openai", said, "gemini", FLASH) == ({}, list(said))


def test_budgets_and_effort_levels_correspond() -> None:
    call = Call(id="1", body={})
    assert list(BUDGETS) == list(EFFORTS)
    assert list(BUDGETS.values()) == sorted(BUDGETS.values())
    for effort, tokens in BUDGETS.items():
        assert ReasoningRequest(name="x", effort=effort).tokens == tokens
    for tokens, effort in {
        0: "none",
        1: "low",
        2048: "low",
        2049: "medium",
        16384: "medium",
        16385: "high",
    }.items():
        assert from_budget("x", tokens).level(call) == effort
    assert from_budget("x", -1).tokens is None
    assert call.notes.dropped == []


def test_the_first_style_that_matches_a_model_counts() -> None:
    first, rest = ReasoningStyle(models=("a*",), efforts=("low",)), ReasoningStyle()
    assert asked(
        "responses", SUMMED, "openai", "abc", thinking=msgspec.to_builtins([first, rest])
    ) == (
        {"reasoning_effort": "low"},
        [],
    )
