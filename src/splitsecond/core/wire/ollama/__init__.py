"""Ollama's own API format, ``/api/chat``: one JSON object per line (NDJSON), in both roles. The
last line of an answer reports the server's own durations."""

from splitsecond.core.wire import embeddings as _embeddings
from splitsecond.core.wire.ollama.answers import (
    SERVED_VERSION,
    GenerateWriter,
    StreamWriter,
    counts,
    error_body,
    model_details,
    model_list,
)
from splitsecond.core.wire.ollama.decode import OllamaDecoder, fault_from_response
from splitsecond.core.wire.ollama.encode import encode as _encode_chat
from splitsecond.core.wire.ollama.to_chat import chat_to_chat, generate_to_chat

encode = _embeddings.encoder("Ollama", _encode_chat)
decoder = _embeddings.decoder(OllamaDecoder)
