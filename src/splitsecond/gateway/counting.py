"""How many tokens a request has, for clients that ask before they send it, as those of Anthropic's do.

Only Anthropic counts them for others. Where no target of the model speaks its dialect, or the one that does cannot be
asked, the number is a guess by the request's length, and a header says so: who asks wants to know when a conversation
becomes too long, and a fifth more or less is of more use there than no answer.
"""

import msgspec

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault
from splitsecond.gateway.refusal import Headers
from splitsecond.policy.choosing.prompt_size import input_tokens
from splitsecond.service import Call
from splitsecond.upstream.target import Target

PATIENCE_NS = 10 * clock.NS_PER_S
"""How long the count is waited for."""
_GUESSED: Headers = [(b"x-splitsecond-estimated", b"input_tokens")]


async def count_tokens(target: Target | None, call: Call) -> tuple[bytes, Headers]:
    """The answer that says how many, by `target` where there is one, and the headers that go with it.

    Raises `CallerFault` where the request is wrong.
    """
    if target is not None:
        try:
            return await target.count_tokens(call, clock.now_ns() + PATIENCE_NS), []
        except CallerFault:
            raise
        except Fault:
            pass  # the header tells
    if "messages" not in call.body:
        raise CallerFault("the request has no messages")
    return msgspec.json.encode({"input_tokens": input_tokens(call)}), _GUESSED
