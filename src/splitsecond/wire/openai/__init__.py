"""The OpenAI dialect: chat completions and completions, in both roles.

Client: `encode` a call, `decoder` for its answer, `fault_from_response` for a refusal. Server: `parse_request`, then a
`StreamWriter` or `whole`, or an `error_body`.
"""

from splitsecond.wire.dialect import Answer, ServerRequest
from splitsecond.wire.openai.answers import StreamWriter, error_body, whole
from splitsecond.wire.openai.decode import OpenAIDecoder, decoder
from splitsecond.wire.openai.encode import encode
from splitsecond.wire.openai.requests import parse_request
from splitsecond.wire.refusals import fault_from_response

__all__ = [
    "Answer",
    "OpenAIDecoder",
    "ServerRequest",
    "StreamWriter",
    "decoder",
    "encode",
    "error_body",
    "fault_from_response",
    "parse_request",
    "whole",
]
