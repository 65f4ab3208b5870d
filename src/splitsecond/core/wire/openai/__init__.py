"""OpenAI's API format of chat completions, completions and embeddings, in both roles."""

from splitsecond.core.wire.openai.answers import (
    StreamWriter,
    counts,
    error_body,
    model,
    model_list,
    numbered_error_body,
)
from splitsecond.core.wire.openai.decode import decoder
from splitsecond.core.wire.openai.encode import encode
from splitsecond.core.wire.provider_errors import fault_from_response
