"""Finish reasons of all API formats as OpenAI's."""

from tests.cases import each_case

from splitsecond.core.wire.finish_reasons import openai_reason


@each_case(
    "reason, text, called",
    [
        ("STOP", "stop", "tool_calls"),
        ("odd", "odd", "tool_calls"),
        ("OTHER", "OTHER", "tool_calls"),
        ("max_tokens", "length", "length"),
        ("SAFETY", "content_filter", "content_filter"),
        ("tool_use", "tool_calls", "tool_calls"),
    ],
)
def test_reasons(reason: str, text: str, called: str) -> None:
    assert (openai_reason(reason), openai_reason(reason, called=True)) == (text, called)
