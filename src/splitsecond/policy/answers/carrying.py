"""An answer on its way to a client who must not see that it broke: what `resume` does once there is a reply.

As long as nothing breaks, whole events go on as they came, and are only counted in bytes: they are looked into when the
answer breaks, or when there are many of them, as that costs a fraction of looking into each. Only then it is known what
the client has (`told`), and what another target has to say beyond that.
"""

from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Literal, Protocol, Self

from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import CallerFault, Fault, Overloaded
from splitsecond.events import Broken, Event
from splitsecond.policy.answers.prefill import can_go_on, prefilled
from splitsecond.policy.answers.recording import MOST_BYTES, Piece, Recording
from splitsecond.policy.answers.told import Appended, Retold, Told, appended
from splitsecond.policy.choosing.branch import Branch
from splitsecond.policy.deadline import Deadline
from splitsecond.policy.prompt import plain
from splitsecond.policy.remedy import answered, check_time
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call, Reply, Service

How = Literal["replay", "prefill"]
MOST_UNHEARD = 16_384
"""Bytes that were told and not yet looked into."""
_HOPELESS = frozenset({"too_long"})
"""Kinds of breaks that any other target's answer would have too."""


class Teller(Protocol):
    """One answer in its client's dialect, made anew for each: bytes to events, and events to bytes that go on."""

    def whole(self, data: bytes) -> bytes:
        """The whole events among what came so far. What is begun waits for its end."""
        ...

    def left(self) -> bytes:
        """What still waits when the body has ended well."""
        ...

    def hear(self, data: bytes, at: int) -> list[Event]:
        """What is said by `data`, the next that `whole` or `left` gave."""
        ...

    def close(self, at: int) -> list[Event]:
        """What the end of the body says."""
        ...

    def tell(self, event: Event) -> bytes:
        """`event`, as one more event of this answer; b"" where it has none."""
        ...


MakeTeller = Callable[[Call], Teller | None]
"""The teller of a call's answer; None: its answers cannot be told on."""


class Plan(Struct, frozen=True):
    """How an answer is carried on, and where: at `others`, in turn."""

    others: Sequence[Branch]
    how: How
    standing: Standing
    teller: MakeTeller


class Story:
    """The answer as its client gets it, whoever tells it. `broken`: what it ended in."""

    def __init__(self, reply: Reply, call: Call, plan: Plan, telling: Teller) -> None:
        self.reply = reply
        self.broken: Broken | None = None
        self._call = call
        self._plan = plan
        self._tries = sum(len(branch.names) for branch in plan.others)
        self._fault: Fault | None = None
        self._telling = telling
        self._hearing = telling  # whose answer comes: its own, or that of whoever carries on
        self._new: Retold | Appended | None = None
        self._told = Told()
        self._unheard: list[bytes] = []
        self._unheard_size = 0
        self._held: list[Piece] | None = None if call.stream else []
        self._held_size = 0

    async def next(self, *, heard: bool) -> tuple[Piece, bool]:
        """What the client is told next, and whether that is the last; `heard`: with its events."""
        while True:
            try:
                data = await self.reply.read()
                piece = self._piece(data, heard)
            except Fault as fault:
                self._hear_up()
                if self._told.over:
                    return Piece(b"", ()), True
                if not await self._carry_on(fault):
                    self.broken = Broken(clock.now_ns(), self._fault or fault.kept())
                    return Piece(b"", ()), True
                continue
            if self._held is not None:
                piece = self._hold(self._held, piece, over=not data)
            if piece.data or piece.events or not data:
                return piece, not data

    def _piece(self, data: bytes, heard: bool) -> Piece:
        """What the client is to be told of what came. Raises `Differs`."""
        whole = self._hearing.whole(data) if data else self._hearing.left()
        if self._new is None and not heard:
            if self._held is None:
                self._unheard.append(whole)
                self._unheard_size += len(whole)
                if self._unheard_size > MOST_UNHEARD:
                    self._hear_up()
            return Piece(whole, ())
        self._hear_up()
        events = self._hearing.hear(whole, clock.now_ns())
        if not data:
            events += self._hearing.close(clock.now_ns())
        if self._new is not None:
            events = self._new.take(events)
            if not data:
                self._new.ended()
            whole = b"".join(map(self._telling.tell, events))
        if self._held is None:
            self._told.add(events)
        return Piece(whole, tuple(events))

    def _hear_up(self) -> None:
        """Look into what was told."""
        if self._unheard:
            data = b"".join(self._unheard)
            self._unheard.clear()
            self._unheard_size = 0
            self._told.add(self._hearing.hear(data, clock.now_ns()))

    def _hold(self, held: list[Piece], piece: Piece, *, over: bool) -> Piece:
        """All of it when it is over, or too much to be held; nothing before."""
        held.append(piece)
        self._held_size += len(piece.data)
        if not over and self._held_size <= MOST_BYTES:
            return Piece(b"", ())
        self._held = None
        data, events = b"".join(each.data for each in held), [event for each in held for event in each.events]
        if events:
            self._told.add(events)
        else:
            self._unheard.append(data)
        return Piece(data, tuple(events))

    async def _carry_on(self, fault: Fault) -> bool:
        """Whether another target carries the answer on; then it is the reply."""
        if self._fault is None:
            self._fault = fault.kept()
        await self.reply.aclose()
        if fault.phase == "total" or fault.kind in _HOPELESS or isinstance(fault, CallerFault | Overloaded):
            return False
        if self._held is not None:
            self._held.clear()
            self._held_size = 0
        if not self._told.nothing and (not self._told.comparable or _wants_logprobs(self._call)):
            return False
        self._call.notes.barred.append(self.reply.target)
        for branch in self._plan.others:
            while self._tries and (able := self._able(branch)):
                if await self._asked(branch, able):
                    return True
        return False

    def _able(self, branch: Branch) -> list[str]:
        """Those of its targets that may carry it on. The others are not to be asked."""
        standing, barred = self._plan.standing, self._call.notes.barred
        left = [name for name in branch.names if name not in barred]
        if self._plan.how == "prefill" and not self._told.nothing:
            left = can_go_on(left, standing)
            barred.extend(name for name in branch.names if name not in left)
        return left if any(map(standing.available, left)) else []

    async def _asked(self, branch: Branch, able: Sequence[str]) -> bool:
        """Whether that branch carries it on, by one of those that are `able`. If not, there is one less of them."""
        self._tries -= 1
        told, notes = self._told, self._call.notes
        before, prefill = len(notes.asked), self._plan.how == "prefill" and not told.nothing
        mark = self._plan.standing.facts(able[0]).mark
        call = prefilled(self._call, told, mark=mark) if prefill else self._call
        hearing = self._plan.teller(self._call)
        if call is None or hearing is None:
            notes.barred.extend(able)
            return False
        try:
            check_time(call, clock.now_ns(), branch.service)
            reply = await answered(_in_time(branch.service, call), call)
        except Fault:
            notes.barred.extend(notes.asked[before:] or able)
            return False
        self.reply = reply
        notes.chosen += f"{'; ' if notes.chosen else ''}resumed at {reply.target}"
        self._hearing = hearing
        if told.nothing:
            self._telling, self._new = hearing, None
        else:
            self._new = appended(told) if prefill else Retold(told)
        return True


def reply_of(story: Story, *, watched: bool) -> Reply:
    """The reply that tells it."""
    return _Watched(story).play(watched=True) if watched else _Plain(story)


class _Watched(Recording):
    """A story for a caller who wants both its events and its bytes."""

    def __init__(self, story: Story) -> None:
        super().__init__(story.reply)
        self._story = story

    async def heard(self) -> tuple[Piece, bool]:
        piece = await self._story.next(heard=True)
        self._reply, self.broken = self._story.reply, self._story.broken
        return piece

    async def close(self) -> None:
        await self._story.reply.aclose()


class _Plain:
    """A story for a caller who wants either its events or its bytes."""

    def __init__(self, story: Story) -> None:
        self.empty = False
        self._story = story
        self._events: deque[Event] = deque()
        self._over = False
        self._said_why = False

    @property
    def target(self) -> str:
        return self._story.reply.target

    @property
    def token_ns(self) -> int:
        return self._story.reply.token_ns

    async def read(self) -> bytes:
        while not self._over:
            piece, self._over = await self._story.next(heard=False)
            if piece.data:
                return piece.data
        if self._story.broken is not None:
            raise self._story.broken.fault
        return b""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            piece, self._over = await self._story.next(heard=True)
            self._events.extend(piece.events)
            self._say_why()
        return self._events.popleft()

    def _say_why(self) -> None:
        if self._over and self._story.broken is not None and not self._said_why:
            self._said_why = True
            self._events.append(self._story.broken)

    def arrived(self) -> list[Event]:
        self._say_why()
        events = list(self._events)
        self._events.clear()
        return events

    async def finished(self) -> None:
        while not self._over:
            _, self._over = await self._story.next(heard=False)
        self._events.clear()
        if self._story.broken is None:
            await self._story.reply.finished()

    async def aclose(self) -> None:
        await self._story.reply.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _in_time(service: Service, call: Call) -> Service:
    """`service`, which must begin as soon as a silence may last: the client is in the middle of an answer."""
    if call.stall_ns is None:
        return service
    return Deadline(service, ttft=f"{max(call.stall_ns // clock.NS_PER_MS, 1)}ms")


def _wants_logprobs(call: Call) -> bool:
    return bool(plain(call, "logprobs") or plain(call, "top_logprobs"))
