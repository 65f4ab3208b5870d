"""LiteLLM: the table LiteLLM_SpendLogs (docs.litellm.ai, spend tracking), and the
StandardLoggingPayloads that it gives to its callbacks."""

from splitsecond.log.store.foreign.columns import KnownFormat


def _usage(*paths: str) -> str:
    """Return the columns of a field of LiteLLM's usage: newer rows have it in one object, older
    ones in another."""
    objects = ("metadata.usage_object", "metadata.additional_usage_values")
    return "|".join(f"{each}.{path}" for each in objects for path in paths)


_COLUMNS = {
    "id": "request_id|id", "time": "startTime", "end_time": "endTime",
    "first_token_time": "completionStartTime",
    "model": "model", "provider": "custom_llm_provider",
    "client": "metadata.user_api_key_alias|user|metadata.user_api_key_user_id",
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "reasoning_tokens": _usage("completion_tokens_details.reasoning_tokens"),
    "cached_tokens": _usage("prompt_tokens_details.cached_tokens", "cache_read_input_tokens"),
    "cache_write_tokens": _usage("prompt_tokens_details.cache_creation_tokens",
    "cache_creation_input_tokens"),
    "cache_write_1h_tokens": _usage(
        "prompt_tokens_details.cache_creation_token_details.ephemeral_1h_input_tokens",
        "cache_creation.ephemeral_1h_input_tokens",
    ),
    "status": "status",
    "error_status": "metadata.error_information.error_code|error_information.error_code",
    "cost_usd": "spend|response_cost",
    "team": "metadata.user_api_key_team_alias|team_id|metadata.user_api_key_team_id",
    "tags": "request_tags",
    "streamed": "stream", "cache_hit": "cache_hit", "call_type": "call_type",
}  # fmt: skip

FORMAT = KnownFormat("LiteLLM's spend log", _COLUMNS, {"startTime", "endTime", "completion_tokens"})
