"""Cohere's own dialect, ``/v2/chat``, in both roles.

Client: `encode` a call, `decoder` for its answer, `fault_from_response` for a refusal. Server: `parse_request`, then a
`StreamWriter` or `whole`, or an `error_body`.
"""

from splitsecond.wire.cohere.answers import StreamWriter, error_body, whole
from splitsecond.wire.cohere.decode import CohereDecoder, decoder
from splitsecond.wire.cohere.encode import encode
from splitsecond.wire.cohere.faults import fault_from_response
from splitsecond.wire.cohere.requests import parse_request

__all__ = [
    "CohereDecoder",
    "StreamWriter",
    "decoder",
    "encode",
    "error_body",
    "fault_from_response",
    "parse_request",
    "whole",
]
