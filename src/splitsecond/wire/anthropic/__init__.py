"""The Anthropic dialect: Messages, in both roles.

Client: `encode` a call, `decoder` for its answer, `fault_from_response` for a refusal. Server: `parse_request`, then a
`StreamWriter` or `whole`, or an `error_body`. Between the two: `pass_on` gives a request of this dialect to a target
that speaks it too, `to_chat` brings it into the form that the others can `encode`.
"""

from splitsecond.wire.anthropic.answers import StreamWriter, error_body, token_count, whole
from splitsecond.wire.anthropic.decode import AnthropicDecoder, decoder
from splitsecond.wire.anthropic.encode import count, encode, pass_on
from splitsecond.wire.anthropic.faults import fault_from_response
from splitsecond.wire.anthropic.requests import parse_count, parse_request
from splitsecond.wire.anthropic.to_chat import to_chat
from splitsecond.wire.dialect import Answer, ServerRequest

__all__ = [
    "Answer",
    "AnthropicDecoder",
    "ServerRequest",
    "StreamWriter",
    "count",
    "decoder",
    "encode",
    "error_body",
    "fault_from_response",
    "parse_count",
    "parse_request",
    "pass_on",
    "to_chat",
    "token_count",
    "whole",
]
