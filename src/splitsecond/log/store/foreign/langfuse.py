"""Langfuse: observations of its API, or an export of its web pages. Only generations are calls."""

from splitsecond.log.store.foreign.columns import KnownFormat

_COLUMNS = {
    "id": "id", "time": "startTime", "end_time": "endTime",
    "first_token_time": "completionStartTime",
    "ttft_s": "timeToFirstToken", "model": "model|providedModelName", "client": "userId",
    # `usageDetails.input` is what is left when the other kinds of input are taken away.
    "input_tokens": "usageDetails.input+usageDetails.input_cached_tokens"
    "+usageDetails.cache_read_input_tokens+usageDetails.cache_creation_input_tokens|usage.input|promptTokens|inputTokens",
    "output_tokens": "usageDetails.output+usageDetails.output_reasoning_tokens"
    "|usage.output|completionTokens|outputTokens",
    "reasoning_tokens": "usageDetails.output_reasoning_tokens",
    "cached_tokens": "usageDetails.input_cached_tokens|usageDetails.cache_read_input_tokens",
    "cache_write_tokens": "usageDetails.cache_creation_input_tokens", "status": "level",
    "call_type": "type",
    "cost_usd": "costDetails.total|calculatedTotalCost|totalCost",
    "team": "metadata.team|metadata.user_api_key_team_alias",
    "tags": "tags|traceTags",
}  # fmt: skip

FORMAT = KnownFormat("Langfuse's observations", _COLUMNS, {"traceId", "startTime", "endTime"})
