"""OpenRouter: the CSV of single generations.

`generation_time_ms` is the whole time of a request from `created_at`, the wait included: in public
files, the next call of an agent begins right after it.
"""

from splitsecond.log.store.foreign.columns import KnownFormat

_COLUMNS = {
    "id": "generation_id", "time": "created_at", "duration_ms": "generation_time_ms",
    "ttft_ms": "time_to_first_token_ms", "model": "model_permaslug", "provider": "provider_name",
    "client": "api_key_name", "input_tokens": "tokens_prompt", "output_tokens": "tokens_completion",
    "reasoning_tokens": "tokens_reasoning", "cached_tokens": "tokens_cached",
    "cost_usd": "cost_total", "tags": "app_name", "streamed": "streamed",
    "cancelled": "cancelled",
}  # fmt: skip

FORMAT = KnownFormat(
    "OpenRouter's activity",
    _COLUMNS,
    {"created_at", "model_permaslug", "generation_time_ms"},
    {"google": "vertex"},  # Gemini's own API is "Google AI Studio" there
)
