"""Token counts that cannot be true, by the sizes of the request and of the answer.

A provider may report any number, and limits, costs and speeds follow from it. So a report is used
only if it is possible. The bounds are generous, because every real report must pass, and finite,
because what passes is charged:

- Output: a token for each byte of the answer, and tokens that were never sent, such as hidden
  reasoning. Of these there are at most as many as the request's output limit (some limits leave
  reasoning out, so at least `HIDDEN_TOKENS`) and the model's maximum output (`MAX_OUTPUT_TOKENS`
  where that is not known), for each answer that was requested.
- Input: a token for each byte of the request, and `ADDED_TOKENS` for a template, a system prompt or
  search results that the provider adds. A request that may hold media, or refers to something
  outside it (a file, an earlier response, a provider's tool), has `MAX_CONTEXT_TOKENS` instead.
- Nothing is larger than `MAX_TOKENS`, whatever the sizes, so that no sum leaves the range of a
  counter.

If a report is beyond that, it and all later ones of the answer become `Usage` that is
`implausible`, as if they had contradicted themselves.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from splitsecond.core.events import Event, Token, Usage, WholeText
from splitsecond.core.service import Call
from splitsecond.core.wire.output_limit import MAX_TOKENS, answer_count, output_limit

MAX_OUTPUT_TOKENS = 1 << 17
"""Longest answer of a model whose maximum is not known."""
HIDDEN_TOKENS = 1 << 13
ADDED_TOKENS = 1 << 16
MAX_CONTEXT_TOKENS = 1 << 21
"""The longest context of today's models."""
MAX_EXAMINED_BYTES = 1 << 20
"""Longer requests are not examined: they may hold media."""
_MORE = (
    b'"image', b'"audio', b'"video', b'"file', b'"document', b'"source', b'_url"', b'"url',
    b'"input_image', b'"input_audio', b'"input_file', b'"cached', b'"container',
    b'"previous_response', b'"conversation', b'"thread',
    b'"search', b'search"', b'"web_', b'"code_', b'"mcp', b'"computer', b'"plugin',
)  # fmt: skip
"""Beginnings and ends of the names in a request that may bring more tokens than it has bytes."""


class UnseenTokens(NamedTuple):
    """The most tokens of a call beyond a token for each byte of its request, and for each byte of
    its answer."""

    input: int
    output: int


def unseen_tokens(call: Call, output_tokens: int | None) -> UnseenTokens:
    """Return the most tokens of `call` that no bytes show. `output_tokens`: the model's maximum;
    None: not known."""
    limit = output_limit(call.body)
    longest = output_tokens or MAX_OUTPUT_TOKENS
    return UnseenTokens(
        MAX_CONTEXT_TOKENS if _may_bring_more(call) else ADDED_TOKENS,
        min(
            (longest if limit is None else min(longest, max(HIDDEN_TOKENS, limit)))
            * answer_count(call),
            MAX_TOKENS,
        ),
    )


def possible(usage: Usage, input_tokens: int, output_tokens: int) -> bool:
    """Return whether counts are neither implausible already nor beyond these numbers."""
    if usage.implausible or (usage.input_tokens or 0) > input_tokens:
        return False
    return (usage.output_tokens or 0) <= output_tokens


def without_counts(events: Iterable[Event]) -> list[Event]:
    """Return `events` with implausible reports in the place of all reports, and without running
    counts."""
    return [_without_counts(event) for event in events]


def _without_counts(event: Event) -> Event:
    if isinstance(event, Usage):
        return Usage(event.at, implausible=True)
    if isinstance(event, WholeText):
        return replace(event, usage=Usage(event.at, implausible=True))
    if isinstance(event, Token) and event.tokens_so_far is not None:
        return replace(event, tokens_so_far=None)
    return event


def _may_bring_more(call: Call) -> bool:
    """Return whether the request may bring more input than its bytes and what the provider adds to
    any request."""
    try:
        data = msgspec.json.encode(call.body)
    except (ValueError, RecursionError):
        return True
    return len(data) > MAX_EXAMINED_BYTES or any(mark in data for mark in _MORE)
