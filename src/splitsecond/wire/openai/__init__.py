"""OpenAI's API format of chat completions, completions and embeddings, in both roles."""

from splitsecond.wire.openai.answers import StreamWriter, counts, error_body, model_entry, model_list
from splitsecond.wire.openai.decode import decoder
from splitsecond.wire.openai.encode import encode
from splitsecond.wire.provider_errors import fault_from_response
from splitsecond.wire.server_request import parse_openai as parse_request
