"""OpenAI's API format Responses, in both roles.

`pass_on` encodes a request of this format for a target of the same format, `to_chat` rewrites it in
the common chat form for targets of other formats.
"""

from splitsecond.core.wire.openai.answers import error_body
from splitsecond.core.wire.provider_errors import fault_from_response
from splitsecond.core.wire.responses.answers import StreamWriter, counts, token_count
from splitsecond.core.wire.responses.decode import ResponsesDecoder as decoder
from splitsecond.core.wire.responses.encode import count, encode, pass_on
from splitsecond.core.wire.responses.to_chat import sources, to_chat
