"""`resume(a, b, ..., how="replay", stall="10s")`: an answer that breaks off is carried on at another target.

It is the one policy that touches an answer after its first token; all others leave it alone. Mostly it stands as a
setting of another, ``fallback(a, b, resume="replay")``, or of a route.

What it does. `a` is asked, and what it says goes to the client byte for byte. If that breaks (the connection is cut, an
error comes inside the stream, or no further token for `stall`), the next branch is asked, in turn. With one branch,
``resume(fastest(a, b))``, that is asked again. No target is asked again whose answer to this call broke off. Before the
first token `resume` does nothing: a failure is raised as it is.

`how="replay"`: it is asked the same again. What the client already has is held back, and compared with it to the byte;
from there on the client gets what is new, a token that is half known cut in two. Where it says something else the next
branch is asked. That works where an answer is repeatable: the same model, and a temperature of 0.

`how="prefill"`: it is given the beginning of the answer as a message of the assistant's (without white space at its
end, which many refuse), and goes on from there, with `max_tokens` less what was said. Only targets are asked of which
it is known that they can. It is done for one plain text alone: not with tools, a form of the answer, several choices,
or thoughts.

Neither is done for audio and pictures, nor where log-probabilities were asked for. Where nobody can carry on, the
client gets the error that broke the answer, whatever those who were asked after it said. There is one end, never a
second and never a made-up one. The client goes on to see the id and the model of the first target.

An answer that was not wanted as a stream is held back until it is whole, so one that breaks is simply asked for anew.

What it costs. While nothing breaks each chunk is decoded once more. A broken answer is paid for twice: by replay the
prompt and all that was said, by prefill the prompt and the rest. While it is said again the client waits.

When it helps. On long answers, and on streams that are cut by what stands between.

When it hurts. By replay, where models do not repeat themselves: then it is paid for nothing, and the error comes later.
By prefill, where the other model is worse, or writes in another tone.

Where it stands. Around the policies that choose, inside `deadline`, `limit`, `cap` and `cache`. The usage that the
client is told is by replay the second target's; by prefill that and what had been said before. A client of another
dialect than OpenAI's, and a bench, get the break as it is.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault, Overloaded
from splitsecond.events import Broken, Event
from splitsecond.policy.branch import Branch, branches
from splitsecond.policy.deadline import Deadline
from splitsecond.policy.prefill import can_go_on, prefilled
from splitsecond.policy.prompt import plain
from splitsecond.policy.recording import Piece, Recording
from splitsecond.policy.remedy import answered, check_time
from splitsecond.policy.settings import duration, one_of, written
from splitsecond.policy.standing import Standing
from splitsecond.policy.told import Appended, Retold, Told, appended
from splitsecond.service import Call, Reply, Service

How = Literal["replay", "prefill"]
_HOPELESS = frozenset({"too_long"})
"""Kinds of breaks that any other target's answer would have too."""


class Teller(Protocol):
    """One answer in its client's dialect, made anew for each: bytes to events, and events to bytes that go on."""

    def take(self, data: bytes, at: int) -> tuple[bytes, list[Event]]:
        """The whole events among what came so far, and what they say. What is begun waits for its end."""
        ...

    def rest(self, at: int) -> tuple[bytes, list[Event]]:
        """What is left when the body has ended well."""
        ...

    def tell(self, event: Event) -> bytes:
        """`event`, as one more event of this answer; b"" where it has none."""
        ...


MakeTeller = Callable[[Call], Teller | None]
"""The teller of a call's answer; None: its answers cannot be told on."""


def way(name: str, value: object) -> How:
    """How an answer is carried on: "replay" or "prefill"."""
    return "prefill" if one_of(name, value, ("replay", "prefill")) == "prefill" else "replay"


def resume(
    first: Service,
    *others: Service,
    how: str | None = None,
    stall: str | None = None,
    standing: Standing | None = None,
    names: Sequence[Sequence[str]] = (),
    teller: MakeTeller | None = None,
) -> Service:
    """The service that asks `first`, and `others` in turn where its answer breaks off.

    None is carried on without `teller`.
    """
    given = branches((first, *others), names)
    return Resume(
        first,
        given[1:] or given,
        way("how", how or "replay"),
        standing or Standing(),
        teller,
        stall_ns=None if stall is None else duration("stall", stall),
        text=written("resume", (first, *others), how=how, stall=stall),
    )


def carried_on(
    service: Service, names: Sequence[str], how: How, standing: Standing, teller: MakeTeller, *, stall_ns: int | None
) -> Service:
    """`service`, whose answers are carried on by itself, and which is written as if nothing stood around it.

    `names`: of all targets in it.
    """
    return Resume(service, [Branch(service, names)], how, standing, teller, stall_ns=stall_ns)


class Resume:
    """See `resume`. `text`: how it is written, "" for as its service is."""

    def __init__(
        self,
        service: Service,
        others: Sequence[Branch],
        how: How,
        standing: Standing,
        teller: MakeTeller | None,
        *,
        stall_ns: int | None = None,
        text: str = "",
    ) -> None:
        self._service = service
        self._stall_ns = stall_ns
        self._text = text
        self.teller = teller
        self.others = others
        self.how = how
        self.standing = standing

    def __repr__(self) -> str:
        return self._text or repr(self._service)

    async def __call__(self, call: Call) -> Reply:
        if self._stall_ns is not None:
            call = with_stall(call, self._stall_ns)
        telling = None if self.teller is None else self.teller(call)
        reply = await self._service(call)
        if telling is None or reply.empty:
            return reply
        return _Carried(reply, call, self, telling).play(watched=call.watched)


class _Carried(Recording):
    """The answer as its client gets it, whoever says it."""

    def __init__(self, reply: Reply, call: Call, policy: Resume, telling: Teller) -> None:
        super().__init__(reply)
        self._call = call
        self._policy = policy
        self._tries = sum(len(branch.names) for branch in policy.others)
        self._fault: Fault | None = None
        self._telling = telling
        self._told = Told()
        self._hearing: Teller | None = None  # whoever carries on, as long as the first of all is what the client sees
        self._new: Retold | Appended | None = None
        self._held: list[Piece] | None = None if call.stream else []
        self._held_size = 0

    async def heard(self) -> tuple[Piece, bool]:
        while True:
            try:
                data = await self._reply.read()
                piece = self._hear(data)
            except Fault as fault:
                if self._told.over:
                    return Piece(b"", ()), True
                if not await self._carry_on(fault):
                    self.broken = Broken(clock.now_ns(), self._fault or fault)
                    return Piece(b"", ()), True
                continue
            if self._held is not None:
                piece = self._hold(self._held, piece, over=not data)
            if piece.data or piece.events or not data:
                return piece, not data

    def _hear(self, data: bytes) -> Piece:
        """What the client is to be told of what came. Raises `Differs`."""
        hearing, now_ns = self._hearing or self._telling, clock.now_ns()
        told, events = hearing.take(data, now_ns) if data else hearing.rest(now_ns)
        if self._new is not None:
            events = self._new.take(events)
            if not data:
                self._new.ended()
            told = b"".join(map(self._telling.tell, events))
        if self._held is None:
            self._told.add(events)
        return Piece(told, tuple(events))

    def _hold(self, held: list[Piece], piece: Piece, *, over: bool) -> Piece:
        """All of it when it is over, or too much to be held; nothing before."""
        held.append(piece)
        self._held_size += len(piece.data)
        if not over and self._held_size <= self._most:
            return Piece(b"", ())
        self._held = None
        events = tuple(event for each in held for event in each.events)
        self._told.add(list(events))
        return Piece(b"".join(each.data for each in held), events)

    async def _carry_on(self, fault: Fault) -> bool:
        """Whether another target carries the answer on; then it is the reply."""
        if self._fault is None:
            self._fault = fault
        await self._reply.aclose()
        if fault.phase == "total" or fault.kind in _HOPELESS or isinstance(fault, CallerFault | Overloaded):
            return False
        if self._held is not None:
            self._held.clear()
            self._held_size = 0
        if not self._told.nothing and (not self._told.comparable or _wants_logprobs(self._call)):
            return False
        self._call.notes.barred.append(self._reply.target)
        for branch in self._policy.others:
            while self._tries and (able := self._able(branch)):
                if await self._asked(branch, able):
                    return True
        return False

    def _able(self, branch: Branch) -> list[str]:
        """Those of its targets that may carry it on. The others are not to be asked."""
        standing, barred = self._policy.standing, self._call.notes.barred
        left = [name for name in branch.names if name not in barred]
        if self._policy.how == "prefill" and not self._told.nothing:
            left = can_go_on(left, standing)
            barred.extend(name for name in branch.names if name not in left)
        return left if any(map(standing.available, left)) else []

    async def _asked(self, branch: Branch, able: Sequence[str]) -> bool:
        """Whether that branch carries it on, by one of those that are `able`. If not, there is one less of them."""
        self._tries -= 1
        told, notes = self._told, self._call.notes
        before, prefill = len(notes.asked), self._policy.how == "prefill" and not told.nothing
        prefix = self._policy.standing.facts(able[0]).prefix
        call = prefilled(self._call, told, prefix=prefix) if prefill else self._call
        hearing = self._policy.teller(self._call) if self._policy.teller is not None else None
        if call is None or hearing is None:
            notes.barred.extend(able)
            return False
        try:
            check_time(call, clock.now_ns(), branch.service)
            reply = await answered(_in_time(branch.service, call), call)
        except Fault:
            notes.barred.extend(notes.asked[before:] or able)
            return False
        self._reply = reply
        notes.chosen += f"{'; ' if notes.chosen else ''}resumed at {reply.target}"
        if told.nothing:
            self._telling, self._hearing, self._new = hearing, None, None
        else:
            self._hearing, self._new = hearing, appended(told) if prefill else Retold(told)
        return True


def with_stall(call: Call, stall_ns: int) -> Call:
    """`call`, whose answer may be silent for `stall_ns` at most."""
    if call.stall_ns is not None and call.stall_ns <= stall_ns:
        return call
    return msgspec.structs.replace(call, stall_ns=stall_ns)


def _in_time(service: Service, call: Call) -> Service:
    """`service`, which must begin as soon as a silence may last: the client is in the middle of an answer."""
    if call.stall_ns is None:
        return service
    return Deadline(service, ttft=f"{max(call.stall_ns // clock.NS_PER_MS, 1)}ms")


def _wants_logprobs(call: Call) -> bool:
    return bool(plain(call, "logprobs") or plain(call, "top_logprobs"))
