"""Ollama's own API format, ``/api/chat``: one JSON object per line (NDJSON), in both roles.

The last line of an answer reports the server's own durations of loading the model, reading the prompt and writing the
output, to compare with the measured times.
"""

from splitsecond.wire.ollama.answers import GenerateWriter, StreamWriter, counts, error_body, model_list
from splitsecond.wire.ollama.decode import OllamaDecoder as decoder
from splitsecond.wire.ollama.decode import fault_from_response
from splitsecond.wire.ollama.encode import encode
from splitsecond.wire.ollama.to_chat import chat_to_chat, generate_to_chat
from splitsecond.wire.server_request import parse_ollama as parse_request
from splitsecond.wire.server_request import parse_ollama_generate as parse_generate
