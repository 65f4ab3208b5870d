"""Cohere's own API format, ``/v2/chat``, ``/v2/embed`` and ``/v2/rerank``, in both roles."""

from splitsecond.core.wire import embeddings as _embeddings
from splitsecond.core.wire.cohere.answers import StreamWriter, error_body
from splitsecond.core.wire.cohere.decode import CohereDecoder, fault_from_response
from splitsecond.core.wire.cohere.encode import encode as _encode_chat

encode = _embeddings.encoder("Cohere", _encode_chat)
decoder = _embeddings.decoder(CohereDecoder, rankings=True)
