"""Token counts of requests, for clients that ask for the count before they send a request, such as
Anthropic's.

If no target of the model has the client's format, or the count fails, the number is estimated from
the length of the request, and a header marks it as an estimate: for a client that watches the
length of a conversation, an estimate that is 20% off is better than an error.
"""

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault
from splitsecond.core.service import Call
from splitsecond.core.upstream.prompt_size import input_tokens
from splitsecond.core.upstream.target import Target
from splitsecond.core.wire.client_format import ClientFormat
from splitsecond.routing.requests.error_response import Headers

TIMEOUT_NS = 10 * clock.NS_PER_S
_NO_COUNTS = (404, 405)
"""Statuses of servers that have the API format, but do not count tokens."""
_ESTIMATED: Headers = [(b"x-splitsecond-estimated", b"input_tokens")]


async def count_tokens(
    target: Target | None, call: Call, form: ClientFormat
) -> tuple[bytes, Headers]:
    """Return the JSON with the number of tokens, counted by `target` if there is one, and the
    headers to send with it.

    Raises `CallerFault` if the request is invalid.
    """
    if target is not None:
        try:
            return await target.count_tokens(call, clock.now_ns() + TIMEOUT_NS), []
        except CallerFault as fault:
            if fault.status not in _NO_COUNTS:
                raise
        except Fault:
            pass  # the header marks the number as an estimate
    if form.counting is None:
        raise CallerFault("clients of this API format do not count tokens")
    if form.messages_field not in call.body:
        raise CallerFault(f"the request has no {form.messages_field}")
    return form.counting.answer(input_tokens(call)), _ESTIMATED
