"""`split(a, b, share="10%")`: an A/B of two policies on live traffic, by session or by key.

A hash decides which arm a session or a key belongs to, so all workers agree, also after a restart.
With a larger `share`, those that were in the second arm stay there. A call stays in its arm if the
arm is down: its failures are part of what is compared.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

from splitsecond.core.service import Call, Reply, Service
from splitsecond.routing.machinery.choosing.branch import note_choice
from splitsecond.routing.machinery.definition import Policy, PolicyContext, PolicyService
from splitsecond.routing.machinery.settings import Share

Unit = Literal["session", "key"]
SHARE = Share.parse("share", "10%")
PER_HASH = 1 << 64


class Split(PolicyService):
    def __init__(
        self,
        context: PolicyContext,
        first: Service,
        second: Service,
        /,
        *,
        share: Share = SHARE,
        by: Unit = "session",
    ) -> None:
        super().__init__(context)
        self._arms = context.branches((first, second))
        self._by = by
        self._seed = seed_of(context.route, context.names)
        self._odds = 1 - share.value, share.value
        self._why = [
            f"split: {arm.label}, {100 * odds:.3g}% by {by}"
            for arm, odds in zip(self._arms, self._odds, strict=True)
        ]

    async def __call__(self, call: Call) -> Reply:
        session = call.notes.session
        unit = unit_of(self._by, "" if session is None else session.id, call.client, call.id)
        place = int(in_second(self._seed, unit, self._odds[1]))
        notes = call.notes
        notes.chosen = self._why[place]
        if not notes.attempts:
            note_choice(notes, self._arms[place], self._odds[place], self._arms)
        return await self._arms[place].service(call)


def seed_of(route: str, names: Sequence[Sequence[str]]) -> bytes:
    """Return the seed of a split. `names`: those of the targets of each arm; with other targets it
    is another experiment."""
    return blake2b(repr((route, [list(each) for each in names])).encode(), digest_size=16).digest()


def unit_of(by: Unit, session: str, client: str, call: str) -> str:
    """Return what is assigned to an arm as one: the session, else the client's key, else the call;
    with `by` "key" the key first."""
    if session and by == "session":
        return f"session {session}"
    return f"key {client}" if client else f"call {call}"


def in_second(seed: bytes, unit: str, share: float) -> bool:
    digest = blake2b(unit.encode(), key=seed, digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * PER_HASH


split = Policy(Split, example='split("a/x", "b/x", share="10%", by="session")', needs_stream=())
