"""Ollama's own dialect, ``/api/chat``: one JSON object a line (NDJSON), in both roles.

Client: `encode` a call, `decoder` for its answer, `fault_from_response` for a refusal. Server: `parse_request`, then a
`StreamWriter` or `whole`, or an `error_body`. The last line of an answer says how long the server itself took for
loading the model, for the prompt and for the output: its own TTFT and pace, to hold beside ours.
"""

from splitsecond.wire.ollama.answers import StreamWriter, durations, error_body, whole
from splitsecond.wire.ollama.decode import OllamaDecoder, decoder
from splitsecond.wire.ollama.encode import encode
from splitsecond.wire.ollama.faults import fault_from_response
from splitsecond.wire.ollama.requests import parse_request

__all__ = [
    "OllamaDecoder",
    "StreamWriter",
    "decoder",
    "durations",
    "encode",
    "error_body",
    "fault_from_response",
    "parse_request",
    "whole",
]
