"""Anthropic's API format, Messages, in both roles. `pass_on` and `to_chat`: see `RequestReader`."""

from splitsecond.core.wire.anthropic.answers import (
    StreamWriter,
    counts,
    error_body,
    model,
    model_list,
    token_count,
)
from splitsecond.core.wire.anthropic.decode import AnthropicDecoder as decoder
from splitsecond.core.wire.anthropic.encode import count, encode, pass_on
from splitsecond.core.wire.anthropic.to_chat import sources, to_chat
from splitsecond.core.wire.provider_errors import fault_from_response
