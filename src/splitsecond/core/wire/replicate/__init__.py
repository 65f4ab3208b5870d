"""Replicate's API format, in both roles: one request creates a prediction, another reads its
output.

The models take a prompt and a system prompt, and return text. Only an answer that is not streamed
has token counts.
"""

from splitsecond.core.wire.provider_errors import fault_from_response
from splitsecond.core.wire.replicate.answers import StreamWriter, created, error_body
from splitsecond.core.wire.replicate.decode import ReplicateDecoder as decoder
from splitsecond.core.wire.replicate.encode import encode, output_address
