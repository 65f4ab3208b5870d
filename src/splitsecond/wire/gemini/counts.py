"""Gemini's counts as `events.Usage`.

Gemini counts apart what we count together. Input is ``promptTokenCount``, which includes cached tokens, and
``toolUsePromptTokenCount``, the results of the provider's own tools, which it does not include. Output is
``candidatesTokenCount``, the visible answer of all candidates, and ``thoughtsTokenCount``. A few previews counted the
thoughts among the candidates; then the total gives it away.
"""

from splitsecond.events import Usage
from splitsecond.wire.gemini.shapes import UsageMetadata


def usage_of(shape: UsageMetadata, at: int) -> Usage | None:
    """The counts in our terms; None where `shape` says nothing."""
    prompt, candidates, thoughts = shape.prompt_token_count, shape.candidates_token_count, shape.thoughts_token_count
    input_tokens = prompt
    if shape.tool_use_prompt_token_count:
        input_tokens = (prompt or 0) + shape.tool_use_prompt_token_count
    output = candidates
    if thoughts and not (candidates and shape.total_token_count == (input_tokens or 0) + candidates):
        output = (candidates or 0) + thoughts
    if input_tokens is None and output is None:
        return None
    return Usage(at, input_tokens, output, thoughts, shape.cached_content_token_count)


def shown_so_far(shape: UsageMetadata, usage: Usage, *, thoughts_shown: bool, thought: bool) -> int | None:
    """Tokens streamed so far: thoughts count only where they are shown, as else they are no part of the stream.

    None where the chunk does not count what it holds: `thought`, or visible text.
    """
    if usage.output_tokens is None or (shape.candidates_token_count is None and not thought):
        return None
    hidden = 0 if thoughts_shown else usage.reasoning_tokens or 0
    return max(usage.output_tokens - hidden, 0) or None
