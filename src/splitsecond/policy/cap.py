"""`cap(x, max_tokens=500)`: no answer is longer.

What it does. The request's limit on output tokens is lowered to `max_tokens`, under whichever of its names the client
used (`max_tokens`, `max_completion_tokens`, `max_output_tokens`), and set where there is none. It is never raised.

What it costs. Nothing; an answer that reaches the limit ends with the finish reason "length".

When it helps. The time of an answer is its first token plus a time for each that follows, so the limit on tokens is the
limit on the time that a target is held. It bounds what a call may cost, also where a client forgot to.

When it hurts. Models that reason count those tokens too: a low limit then ends the answer before it has begun. And a
tool call that is cut is no use to anybody.

Where it stands. Anywhere; around one branch of a policy it holds for that branch alone. Inside `cache` or outside of it
makes no difference to the answers, but outside the capped request is what is looked up.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from splitsecond.errors import CallerFault
from splitsecond.policy.settings import count, written
from splitsecond.service import Call, Reply, Service, Spoken

_NAMES: Mapping[Spoken, tuple[str, ...]] = {
    "openai": ("max_completion_tokens", "max_tokens"),
    "anthropic": ("max_tokens",),
    "responses": ("max_output_tokens",),
}
"""What the limit is called; the last is set where there is none."""


def cap(service: Service, *, max_tokens: int) -> Service:
    """`service`, whose answers have at most `max_tokens` tokens."""
    return Cap(service, count("max_tokens", max_tokens))


class Cap:
    """See `cap`."""

    def __init__(self, service: Service, most: int) -> None:
        self._service = service
        self._most = most

    def __repr__(self) -> str:
        return written("cap", [self._service], max_tokens=self._most)

    async def __call__(self, call: Call) -> Reply:
        if call.operation == "embeddings":
            return await self._service(call)
        return await self._service(msgspec.structs.replace(call, body=self._capped(call.body, _NAMES[call.dialect])))

    def _capped(self, body: Any, names: tuple[str, ...]) -> dict[str, Any]:
        """`body` with the limit. Raises `CallerFault` where the client's own is no whole number."""
        fields = dict(body)
        found = False
        for name in names:
            asked = _asked(name, fields.get(name))
            if asked is not None:
                found = True
                if asked > self._most:
                    fields[name] = self._most
        if not found:
            fields[names[-1]] = self._most
        return fields


def _asked(name: str, value: Any) -> int | None:
    if value is None:
        return None
    try:
        if isinstance(value, Raw):
            return msgspec.json.decode(value, type=int | None)
        return msgspec.convert(value, int)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's {name} is wrong: {error}") from error
