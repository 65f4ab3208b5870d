"""The Gemini dialect: ``generateContent`` and ``streamGenerateContent?alt=sse``, in both roles.

Client: `encode` a call, `decoder` for its answer, `fault_from_response` for a refusal. Server: `parse_request`, then a
`StreamWriter` or `whole`, or an `error_body`. Paths begin after the API's version, so that the base URL decides whether
it is Google's own API or Vertex (``…/publishers/google``).
"""

from splitsecond.wire.dialect import Answer, ServerRequest
from splitsecond.wire.gemini.answers import StreamWriter, error_body, token_count, whole
from splitsecond.wire.gemini.decode import GeminiDecoder, decoder
from splitsecond.wire.gemini.encode import encode
from splitsecond.wire.gemini.faults import fault_from_response
from splitsecond.wire.gemini.requests import parse_count, parse_request

__all__ = [
    "Answer",
    "GeminiDecoder",
    "ServerRequest",
    "StreamWriter",
    "decoder",
    "encode",
    "error_body",
    "fault_from_response",
    "parse_count",
    "parse_request",
    "token_count",
    "whole",
]
