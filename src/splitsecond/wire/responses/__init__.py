"""OpenAI's Responses dialect, in both roles.

Client: `encode` a call, `decoder` for its answer, `fault_from_response` for a refusal. Server: `parse_request`, then a
`StreamWriter` or `whole`, or an `error_body`. Between the two: `pass_on` gives a request of this dialect to a target
that speaks it too, `to_chat` brings it into the form that the others can `encode`.
"""

from splitsecond.wire.openai.answers import error_body
from splitsecond.wire.refusals import fault_from_response
from splitsecond.wire.responses.answers import StreamWriter, token_count, whole
from splitsecond.wire.responses.decode import ResponsesDecoder, decoder
from splitsecond.wire.responses.encode import encode, pass_on
from splitsecond.wire.responses.requests import parse_request
from splitsecond.wire.responses.to_chat import to_chat

__all__ = [
    "ResponsesDecoder",
    "StreamWriter",
    "decoder",
    "encode",
    "error_body",
    "fault_from_response",
    "parse_request",
    "pass_on",
    "to_chat",
    "token_count",
    "whole",
]
