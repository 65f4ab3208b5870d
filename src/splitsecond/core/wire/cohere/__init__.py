"""Cohere's own API format, ``/v2/chat``, in both roles."""

from splitsecond.core.wire.cohere.answers import StreamWriter, error_body
from splitsecond.core.wire.cohere.decode import CohereDecoder as decoder
from splitsecond.core.wire.cohere.decode import fault_from_response
from splitsecond.core.wire.cohere.encode import encode
