"""Output tokens that were billed but had no content of their own, so that no speed is computed from
them."""

from collections.abc import Sequence

from splitsecond.core.finish_reasons import meaning

SUMMARY_RATIO = 2
"""Streamed reasoning is a summary if it has this many times fewer tokens than were billed."""


def unstreamed_tokens(
    output_tokens: int | None,
    reasoning_tokens: int | None,
    *,
    token_at: Sequence[int],
    lengths: Sequence[int],
    first_answer_ns: int | None,
    finish_reason: str,
    counted: bool,
) -> int:
    """Return the tokens of `output_tokens` that were not streamed, besides reasoning of which
    nothing was shown.

    `token_at` and `lengths` are the arrival and the characters of each content event. `counted`:
    the provider sent a running count of its tokens, so the count of the last event is exact.
    """
    if output_tokens is None or not token_at:
        return 0
    if first_answer_ns == token_at[0]:
        return _end(output_tokens - (reasoning_tokens or 0), len(token_at), finish_reason, counted)
    left_out = _left_out_by_summary(
        output_tokens, reasoning_tokens or 0, token_at, lengths, first_answer_ns
    )
    return left_out or _end(output_tokens, len(token_at), finish_reason, counted)


def _end(streamed: int, events: int, finish_reason: str, has_counts: bool) -> int:
    return int(streamed == events + 1 and not has_counts and meaning(finish_reason) == "stop")


def _left_out_by_summary(
    output: int,
    billed: int,
    token_at: Sequence[int],
    lengths: Sequence[int],
    first_answer_ns: int | None,
) -> int:
    """Return the reasoning tokens beyond those that the shown reasoning has, at the answer's
    characters per token.

    Shown reasoning that is not clearly shorter than what was billed is not a summary.
    """
    if first_answer_ns is None or not 0 < billed < output:
        return 0
    reasoning_length = sum(
        length for at, length in zip(token_at, lengths, strict=True) if at < first_answer_ns
    )
    per_token = (sum(lengths) - reasoning_length) / (output - billed)
    if per_token <= 0:
        return 0
    tokens = round(reasoning_length / per_token)
    return billed - tokens if tokens * SUMMARY_RATIO < billed else 0
