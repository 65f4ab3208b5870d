"""Replicate's dialect: a prediction is asked for with one request, and its output is read with another; in both roles.

Client: `encode` a call, `decoder` for its answer, `fault_from_response` for a refusal. Server: `parse_request`, then
`created` and a `StreamWriter`, or `whole`, or an `error_body`. The models are not chats: they take a prompt and the
system's words, and say text. How many tokens that was is said only where the answer is wanted whole.
"""

from splitsecond.wire.refusals import fault_from_response
from splitsecond.wire.replicate.answers import StreamWriter, created, error_body, whole
from splitsecond.wire.replicate.decode import ReplicateDecoder, decoder
from splitsecond.wire.replicate.encode import encode, output_address
from splitsecond.wire.replicate.requests import parse_request

__all__ = [
    "ReplicateDecoder",
    "StreamWriter",
    "created",
    "decoder",
    "encode",
    "error_body",
    "fault_from_response",
    "output_address",
    "parse_request",
    "whole",
]
