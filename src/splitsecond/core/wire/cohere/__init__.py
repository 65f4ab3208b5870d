"""Cohere's own API format, ``/v2/chat``, ``/v2/embed`` and ``/v2/rerank``, in both roles."""

from splitsecond.core.service import Call, Operation
from splitsecond.core.wire import embeddings as _embeddings
from splitsecond.core.wire import rankings as _rankings
from splitsecond.core.wire.api_format import Encoded, Quirks
from splitsecond.core.wire.cohere.answers import StreamWriter, error_body
from splitsecond.core.wire.cohere.decode import CohereDecoder, fault_from_response
from splitsecond.core.wire.cohere.encode import encode as _encode_chat
from splitsecond.core.wire.streaming import Decoder

_encode = _embeddings.encoder("Cohere", _encode_chat)
_decoder = _embeddings.decoder(CohereDecoder)


def encode(call: Call, model: str, quirks: Quirks) -> Encoded:
    if call.operation == "rerank":
        return _rankings.encode(call, model)
    return _encode(call, model, quirks)


def decoder(operation: Operation = "chat") -> Decoder:
    return _rankings.RankingDecoder(operation) if operation == "rerank" else _decoder(operation)
