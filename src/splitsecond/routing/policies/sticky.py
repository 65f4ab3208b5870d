"""`sticky(a, b, ..., ttl="10m")`: a conversation stays with one branch, whose prompt cache holds
its beginning."""

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from operator import itemgetter
from typing import Any

from splitsecond.core import clock
from splitsecond.core.service import WHOLE_OPERATIONS, Call, Reply, Service
from splitsecond.core.upstream.prompt_size import raw_bytes
from splitsecond.routing.machinery.choosing.branch import Branch, Choice, ask_in_turn, in_order
from splitsecond.routing.machinery.conversation import conversation_beginning
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.prompt import examined
from splitsecond.routing.machinery.settings import Duration

TTL = Duration.parse("ttl", "10m")
REMEMBERED = 10_000
"""Conversations."""
_KEY_FIELDS = ("prompt_cache_key", "user")


class Sticky(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        /,
        *others: Service,
        ttl: Duration = TTL,
    ) -> None:
        super().__init__(context)
        self._branches = context.branches((first, second, *others))
        self._ttl_ns = ttl.ns
        self._salts = [
            f"{place} {branch.label}".encode() for place, branch in enumerate(self._branches)
        ]
        self._homes: OrderedDict[bytes, tuple[Branch, int]] = OrderedDict()
        """The branch of each conversation, and until when (ns) it is remembered; the last used one
        at the end."""

    async def __call__(self, call: Call) -> Reply:
        key = await examined(call, conversation)
        if key is None:
            return await ask_in_turn(call, self._choices(call, _digest(call.id.encode()), None))
        home, until_ns = self._homes.get(key, (None, 0))
        if clock.now_ns() >= until_ns:
            home = None
        tried_branches: list[Branch] = []
        reply = await ask_in_turn(call, _noted(self._choices(call, key, home), tried_branches))
        if home is None or home is tried_branches[-1]:
            self._remember(key, tried_branches[-1])
        return reply

    def _choices(self, call: Call, key: bytes, home: Branch | None) -> Iterator[Choice]:
        ranks = (_digest(key + salt) for salt in self._salts)
        by_hash = [
            branch
            for _, branch in sorted(zip(ranks, self._branches, strict=True), key=itemgetter(0))
        ]
        available = [branch for branch in by_hash if branch.available(self._states, call)]
        others = available or by_hash
        if home in available:
            yield home, f"sticky: {home.label}, where the conversation is", 1.0, available
            others = [branch for branch in available if branch is not home]
        why = "sticky" if available else "sticky, none is available"
        yield from in_order(others, why, 1 / len(others) if others else 1.0, available)

    def _remember(self, key: bytes, branch: Branch) -> None:
        self._homes[key] = branch, clock.now_ns() + self._ttl_ns
        self._homes.move_to_end(key)
        if len(self._homes) > REMEMBERED:
            self._homes.popitem(last=False)


def conversation(call: Call) -> bytes | None:
    body = call.body
    for name in _KEY_FIELDS:
        if name in body:
            return _digest(_joined(call.client, name, raw_bytes(body[name])))
    if call.operation in WHOLE_OPERATIONS:
        return None
    beginning = conversation_beginning(body)
    return None if beginning is None else _digest(_joined(call.client, *beginning))


def _joined(*parts: Any) -> bytes:
    return b"\0".join(part.encode() if isinstance(part, str) else part for part in parts)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _noted(choices: Iterator[Choice], tried_branches: list[Branch]) -> Iterator[Choice]:
    for choice in choices:
        tried_branches.append(choice[0])
        yield choice


sticky = Policy(
    Sticky, example='sticky("a/x", "b/x", ttl="10m")', branches="alternatives", needs_stream=()
)
