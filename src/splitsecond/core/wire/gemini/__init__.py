"""Gemini's API format: ``generateContent`` and ``streamGenerateContent?alt=sse``, in both roles.

Paths begin after the API's version: the base URL selects Google's own API or Vertex
(``…/publishers/google``).
"""

from splitsecond.core.wire import embeddings as _embeddings
from splitsecond.core.wire.gemini.answers import (
    StreamWriter,
    counts,
    error_body,
    model,
    model_list,
    token_count,
)
from splitsecond.core.wire.gemini.decode import GeminiDecoder, fault_from_response
from splitsecond.core.wire.gemini.encode import encode as _encode_chat
from splitsecond.core.wire.gemini.to_chat import to_chat

encode = _embeddings.encoder("Gemini", _encode_chat)
decoder = _embeddings.decoder(GeminiDecoder)
