"""Replies that continue at another target when the answer breaks off, so that the client does not
see the break.

As long as nothing breaks, whole events are passed on as they arrived, and only their bytes are
stored, compressed if there are many: that takes a third of the time of parsing them. They are
parsed when the answer breaks. Only then is it known what the client has (`delivered`) and what
another target has to add.
"""

import zlib
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault, Overloaded
from splitsecond.core.events import Broken, Event
from splitsecond.core.service import Call, ForwardingReply, Reply, Service
from splitsecond.core.wire.continuation import ContinuationEncoder
from splitsecond.routing.machinery.choosing.branch import Branch
from splitsecond.routing.machinery.fault_handling import TOO_LONG_ANSWER, answered, check_time
from splitsecond.routing.machinery.prompt import field_value
from splitsecond.routing.machinery.replies.delivered import DeliveredText, ReplayDiff
from splitsecond.routing.machinery.replies.shared_reply import (
    MAX_BYTES,
    RecordedChunk,
    SharedReply,
    joined,
)
from splitsecond.routing.machinery.settings import Duration
from splitsecond.routing.machinery.token_deadline import TokenDeadline
from splitsecond.routing.targets.target_states import TargetStates

BLOCK_BYTES = 16_384
"""So many bytes of events are compressed together, to a twentieth."""

MakeEncoder = Callable[[Call], ContinuationEncoder | None]
"""Makes the encoder for the answer to a call; None: its answers cannot be continued."""


class ResumePlan(Struct, frozen=True):
    others: Sequence[Branch]
    states: TargetStates
    make_encoder: MakeEncoder


class ResumableReply(ForwardingReply):
    """The answer as its client gets it, whichever target it comes from. `broken`: the fault that
    ended it."""

    def __init__(
        self, reply: Reply, call: Call, plan: ResumePlan, encoder: ContinuationEncoder
    ) -> None:
        super().__init__(reply)
        self.broken: Broken | None = None
        self._call = call
        self._plan = plan
        self._tries = sum(len(branch.names) for branch in plan.others)
        self._fault: Fault | None = None
        self._writer = encoder
        self._parser = encoder  # reads the bytes of the target that sends now
        self._continuation: ReplayDiff | None = None
        self._delivered = DeliveredText()
        self._blocks: list[bytes] = []  # delivered and not parsed yet, compressed
        self._unparsed = bytearray()  # what came after them
        self._held: list[RecordedChunk] | None = None if call.stream else []
        self._held_size = 0
        self._events: deque[Event] = deque()
        self._over = False
        self._break_reported = False

    @property
    def empty(self) -> bool:
        return False

    @property
    def reply(self) -> Reply:
        return self._reply

    async def read(self) -> bytes:
        while not self._over:
            chunk, self._over = await self.next_chunk(parse=False)
            if chunk.data:
                return chunk.data
        if self.broken is not None:
            raise self.broken.fault
        return b""

    def pass_on(self, take: Callable[[bytes], bool]) -> None:
        whole, unparsed = self._parser.whole, self._unparsed

        def take_delivered(data: bytes) -> bool:
            if not whole(data) or not take(data):
                return False
            unparsed.extend(data)
            if len(unparsed) > BLOCK_BYTES:
                self._compress()
            return True

        if self._call.stream:
            self._reply.pass_on(take_delivered)  # what continues it is read

    async def __anext__(self) -> Event:
        while not self._events:
            if self._over:
                raise StopAsyncIteration
            chunk, self._over = await self.next_chunk(parse=True)
            self._events.extend(chunk.events)
            self._report_break()
        return self._events.popleft()

    def _report_break(self) -> None:
        if self._over and self.broken is not None and not self._break_reported:
            self._break_reported = True
            self._events.append(self.broken)

    def arrived(self) -> list[Event]:
        self._report_break()
        events = list(self._events)
        self._events.clear()
        return events

    async def finished(self) -> None:
        while not self._over:
            _, self._over = await self.next_chunk(parse=False)
        self._events.clear()
        if self.broken is None:
            await self._reply.finished()

    async def next_chunk(self, *, parse: bool) -> tuple[RecordedChunk, bool]:
        while True:
            try:
                data = await self._reply.read()
                chunk = self._process(data, parse)
            except Fault as fault:
                self._parse_delivered()
                if self._delivered.ended:
                    return RecordedChunk(b"", ()), True
                if not await self._resume(fault):
                    self.broken = Broken(clock.now_ns(), self._fault or fault.without_traceback())
                    return RecordedChunk(b"", ()), True
                continue
            if self._held is not None:
                chunk = self._hold(self._held, chunk, over=not data)
            if chunk.data or chunk.events or not data:
                return chunk, not data

    def _process(self, data: bytes, parse: bool) -> RecordedChunk:
        whole = self._parser.cut(data) if data else self._parser.rest()
        if self._continuation is None and not parse:
            if self._held is None:
                self._unparsed += whole
                if len(self._unparsed) > BLOCK_BYTES:
                    self._compress()
            return RecordedChunk(whole, ())
        self._parse_delivered()
        events = self._parser.decode(whole, clock.now_ns())
        if not data:
            events += self._parser.close(clock.now_ns())
        if self._continuation is not None:
            events = self._continuation.take(events)
            if not data:
                self._continuation.finish()
            whole = b"".join(map(self._writer.encode, events))
        if self._held is None:
            self._delivered.add(events)
        return RecordedChunk(whole, tuple(events))

    def _compress(self) -> None:
        self._blocks.append(zlib.compress(self._unparsed, zlib.Z_BEST_SPEED))
        self._unparsed.clear()

    def _parse_delivered(self) -> None:
        for block in self._blocks:
            self._delivered.add(self._parser.decode(zlib.decompress(block), clock.now_ns()))
        self._blocks.clear()
        if self._unparsed:
            self._delivered.add(self._parser.decode(bytes(self._unparsed), clock.now_ns()))
            self._unparsed.clear()

    def _hold(
        self, held: list[RecordedChunk], chunk: RecordedChunk, *, over: bool
    ) -> RecordedChunk:
        held.append(chunk)
        self._held_size += len(chunk.data)
        if not over and self._held_size <= MAX_BYTES:
            return RecordedChunk(b"", ())
        self._held = None
        whole = joined(held)
        if whole.events:
            self._delivered.add(whole.events)
        else:
            self._unparsed += whole.data
        return whole

    async def _resume(self, fault: Fault) -> bool:
        if self._fault is None:
            self._fault = fault.without_traceback()
        await self._reply.aclose()
        due_ns = self._call.deadline_ns
        if due_ns is not None and clock.now_ns() >= due_ns:
            return False
        if fault.kind == TOO_LONG_ANSWER or isinstance(fault, CallerFault | Overloaded):
            return False
        if self._held is not None:
            self._held.clear()
            self._held_size = 0
        if not self._delivered.is_empty and (
            not self._delivered.comparable or _wants_logprobs(self._call)
        ):
            return False
        self._call.notes.excluded.append(self._reply.target)
        for branch in self._plan.others:
            while self._tries and (able := self._able(branch)):
                if await self._continue_at(branch, able):
                    return True
        return False

    def _able(self, branch: Branch) -> list[str]:
        able = [name for name in branch.names if name not in self._call.notes.excluded]
        return able if any(map(self._plan.states.available, able)) else []

    async def _continue_at(self, branch: Branch, able: Sequence[str]) -> bool:
        self._tries -= 1
        call, notes = self._call, self._call.notes
        before = len(notes.attempted)
        parser = self._plan.make_encoder(call)
        if parser is None:
            notes.excluded.extend(able)
            return False
        try:
            check_time(call, clock.now_ns(), branch.service)
            reply = await answered(_within_stall(branch.service, call), call)
        except Fault:
            notes.excluded.extend(notes.attempted[before:] or able)
            return False
        self._reply = reply
        notes.chosen += f"{'; ' if notes.chosen else ''}resumed at {reply.target}"
        self._parser = parser
        if self._delivered.is_empty:
            self._writer, self._continuation = parser, None
        else:
            self._continuation = ReplayDiff(self._delivered)
        return True


def resumable(reply: Reply, call: Call, plan: ResumePlan, encoder: ContinuationEncoder) -> Reply:
    resuming = ResumableReply(reply, call, plan, encoder)
    return _WatchedResumable(resuming).reader(watched=True) if call.watched else resuming


class _WatchedResumable(SharedReply):
    def __init__(self, resuming: ResumableReply) -> None:
        super().__init__(resuming.reply)
        self._resuming = resuming

    async def receive(self) -> tuple[RecordedChunk, bool]:
        chunk = await self._resuming.next_chunk(parse=True)
        self._reply, self.broken = self._resuming.reply, self._resuming.broken
        return chunk

    async def close(self) -> None:
        await self._resuming.aclose()


def _within_stall(service: Service, call: Call) -> Service:
    if call.stall_ns is None:
        return service
    return TokenDeadline(
        service, Duration.parse("stall", f"{max(call.stall_ns // clock.NS_PER_MS, 1)}ms")
    )


def _wants_logprobs(call: Call) -> bool:
    return bool(field_value(call, "logprobs") or field_value(call, "top_logprobs"))
