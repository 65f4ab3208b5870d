"""OpenAI's API format Responses, in both roles. `pass_on` and `to_chat`: see `RequestReader`."""

from splitsecond.core.wire.openai.answers import error_body
from splitsecond.core.wire.provider_errors import fault_from_response
from splitsecond.core.wire.responses.answers import StreamWriter, counts, token_count
from splitsecond.core.wire.responses.decode import ResponsesDecoder as decoder
from splitsecond.core.wire.responses.encode import count, encode, pass_on
from splitsecond.core.wire.responses.to_chat import sources, to_chat
