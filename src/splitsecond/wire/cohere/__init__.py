"""Cohere's own API format, ``/v2/chat``, in both roles."""

from splitsecond.wire.cohere.answers import StreamWriter, error_body
from splitsecond.wire.cohere.decode import CohereDecoder as decoder
from splitsecond.wire.cohere.decode import fault_from_response
from splitsecond.wire.cohere.encode import encode
from splitsecond.wire.server_request import parse_cohere as parse_request
