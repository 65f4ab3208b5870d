"""Tokens that were billed and not streamed: summaries of the reasoning, and the token that ends an
answer."""

from tests.cases import each_case

from splitsecond.core.timing.unstreamed import unstreamed_tokens


def of(
    output: int | None,
    reasoning: int | None = None,
    *,
    events: int = 0,
    shown: int = 0,
    reason: str = "stop",
    counted: bool = False,
) -> int:
    """An answer of `events` events of 4 characters after `shown` events of reasoning, one each 10
    ns."""
    at = [100 + 10 * i for i in range(shown + events)]
    return unstreamed_tokens(
        output,
        reasoning,
        token_at=at,
        lengths=[4] * len(at),
        first_answer_ns=at[shown] if events else None,
        finish_reason=reason,
        counted=counted,
    )


def test_reasoning_beyond_its_shown_summary_is_unstreamed() -> None:
    # 50 tokens of summary for 950 of reasoning and 50 of answer: 1,000 were billed, 100 streamed.
    assert of(1000, 950, shown=50, events=50) == 900


def test_fully_shown_reasoning_leaves_no_unstreamed_tokens() -> None:
    assert of(150, 100, shown=100, events=50) == 0
    assert of(150, 100, shown=70, events=50) == 0  # a few characters less are no summary
    assert of(100, 100, shown=40) == 0  # no answer to take the characters per token from


@each_case(
    "reason, unstreamed",
    [("stop", 1), ("end_turn", 1), ("STOP", 1), ("length", 0), ("", 0), ("tool_calls", 0)],
)
def test_the_token_that_ends_an_answer_has_no_content(reason: str, unstreamed: int) -> None:
    assert of(17, events=16, reason=reason) == unstreamed


def test_other_counts_are_not_explained_by_an_end_token() -> None:
    assert of(16, events=16) == of(18, events=16) == of(8, events=16) == 0
    assert of(17, events=16, counted=True) == 0
    assert of(None, events=16) == of(17) == 0


def test_hidden_reasoning_does_not_hide_the_end_token() -> None:
    assert of(117, 100, events=16) == 1
    assert of(116, 100, events=16) == 0
