"""What the finish reasons that are known mean."""

import pytest

from splitsecond.core.finish_reasons import FAILURE, KNOWN, meaning, openai_reason


def test_a_reason_has_one_meaning_in_all_formats() -> None:
    reasons = [reason for reasons in KNOWN.values() for reason in reasons]
    assert len(reasons) == len(set(reasons))
    assert {word for reasons in KNOWN.values() for word in reasons.values()} == {
        "stop", "length", "tool_calls", "content_filter", FAILURE,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reason", "text", "called"),
    [
        ("STOP", "stop", "tool_calls"),
        ("odd", "stop", "tool_calls"),
        ("OTHER", "stop", "tool_calls"),
        ("max_tokens", "length", "length"),
        ("MAX_TOKENS", "length", "length"),
        ("max_output_tokens", "length", "length"),
        ("SAFETY", "content_filter", "content_filter"),
        ("tool_use", "stop", "tool_calls"),
        ("TOOL_CALL", "stop", "tool_calls"),
        ("COMPLETE", "stop", "tool_calls"),
    ],
)
def test_reasons_in_openais_words(reason: str, text: str, called: str) -> None:
    assert (openai_reason(reason), openai_reason(reason, called=True)) == (text, called)


def test_a_reason_after_googles_prefix_is_known() -> None:
    assert meaning("function_call_filter: MALFORMED_FUNCTION_CALL") == FAILURE
