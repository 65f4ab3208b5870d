"""Requests for which the account has too little credit at one target.

Some providers reserve what a request may cost at most, so one with a large output limit is answered
with status 402 although the account has money left. Such an answer tells only that this request,
and larger ones, cannot be paid. So smaller requests are still sent, and each that is refused lowers
the limit. For an account without any credit that takes a few requests. What a request costs depends
on more than its size, so a client's requests are measured by its own ones.
"""

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import WHOLE_OPERATIONS, Call
from splitsecond.core.upstream.prompt_size import input_tokens
from splitsecond.core.wire.output_limit import output_limit

KEY_RETRY_NS = 300 * NS_PER_S
"""How often a key that has worked before, or an account without credit, is tried again."""
OUTPUT_WEIGHT = 4
"""Price of an output token, in input tokens, at most providers."""
UNLIMITED_OUTPUT = 32_768
"""Output tokens that a provider reserves for a request without a limit."""


class CreditLimit:
    __slots__ = ("_size", "until_ns")

    def __init__(self) -> None:
        self._size = 0
        self.until_ns = 0
        """When a request of that size may be sent again."""

    def record_refused(self, call: Call, now_ns: int) -> None:
        size = billed_size(call)
        self._size = min(size, self._size) if now_ns < self.until_ns else size
        self.until_ns = now_ns + KEY_RETRY_NS

    def covers(self, call: Call) -> bool:
        return billed_size(call) >= self._size


def billed_size(call: Call) -> int:
    if call.operation in WHOLE_OPERATIONS:
        return input_tokens(call)
    most = output_limit(call.body)
    return input_tokens(call) + OUTPUT_WEIGHT * (UNLIMITED_OUTPUT if most is None else most)
