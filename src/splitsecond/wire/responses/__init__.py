"""OpenAI's Responses dialect, in both roles.

Client: `encode` a call, `decoder` for its answer, `fault_from_response` for a refusal. Server: `parse_request`, then a
`StreamWriter` or `whole`, or an `error_body`.
"""

from splitsecond.wire.openai.answers import error_body
from splitsecond.wire.refusals import fault_from_response
from splitsecond.wire.responses.answers import StreamWriter, whole
from splitsecond.wire.responses.decode import ResponsesDecoder, decoder
from splitsecond.wire.responses.encode import encode
from splitsecond.wire.responses.requests import parse_request

__all__ = [
    "ResponsesDecoder",
    "StreamWriter",
    "decoder",
    "encode",
    "error_body",
    "fault_from_response",
    "parse_request",
    "whole",
]
