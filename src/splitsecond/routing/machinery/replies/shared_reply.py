"""Replies with several readers: a policy can read the answer before its caller does, and several
callers can read it.

There is no reading task: the first reader that needs a chunk that is not there yet reads it for all
of them, while the others wait. If that reader is cancelled, the next one continues. So no reader
depends on another, and the provider is read as fast as the fastest reader wants.

Callers get a `ReplyReader`, a reply that begins at the first chunk. Chunks that all readers have
passed are dropped, unless the reply is kept. A reader that is so far behind that `limit` bytes wait
for it is cut off, because a dead client must not fill the memory.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec
from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.errors import Fault, Overloaded, TimedOut
from splitsecond.core.events import Broken, Event
from splitsecond.core.large_bodies import LARGE_BYTES, HeldAnswer
from splitsecond.core.service import Reply, ReplyBase

MAX_BYTES = 8 << 20
"""The most bytes of one answer that are held: the longest event that is read at all."""
EVENT_BYTES = 128
"""The approximate memory of an event beside its text."""


class RecordedChunk(Struct, frozen=True):
    data: bytes
    events: tuple[Event, ...]


def joined(chunks: Iterable[RecordedChunk]) -> RecordedChunk:
    read = list(chunks)
    return RecordedChunk(
        b"".join(each.data for each in read), tuple(event for each in read for event in each.events)
    )


class SharedReply:
    """Wraps `reply`, of a watched call, for several readers.

    `complete`: the answer ended well, and no chunk was dropped. `keep`: chunks that were read stay,
    up to `limit` bytes. `close` it when done.
    """

    def __init__(self, reply: Reply, *, keep: bool = False, limit: int = MAX_BYTES) -> None:
        self.target = reply.target
        self.empty = reply.empty
        self.broken: Broken | None = None
        self.over = False
        self.size = 0  # bytes of the chunks that are held
        self._held_answer: HeldAnswer | None = None  # of a large answer
        self._reply = reply
        self._keep = keep
        self._limit = limit
        self._chunks: deque[RecordedChunk] = deque()
        self._dropped = 0
        self._readers: list[ReplyReader] = []
        self._announced: Broken | None = None
        self._lock = asyncio.Lock()

    @property
    def complete(self) -> bool:
        return self.over and self.broken is None and not self._dropped

    @property
    def token_ns(self) -> int:
        return self._reply.token_ns

    @property
    def from_start(self) -> bool:
        return not self._dropped

    @property
    def chunks(self) -> deque[RecordedChunk]:
        return self._chunks

    def chunk_if_ready(self, number: int) -> RecordedChunk | None:
        place = number - self._dropped
        return self._chunks[place] if 0 <= place < len(self._chunks) else None

    async def chunk(self, number: int) -> RecordedChunk | None:
        while number >= self._dropped + len(self._chunks):
            if self.over:
                return None
            await self._read_chunk()
        if number < self._dropped:
            raise Overloaded(
                "the answer arrived faster than it was read, and its beginning could not be kept"
            )
        return self._chunks[number - self._dropped]

    async def _read_chunk(self) -> None:
        chunk_count = self._dropped + len(self._chunks)
        async with self._lock:
            if self.over or chunk_count < self._dropped + len(self._chunks):
                return  # another reader has read it
            chunk, self.over = await self.receive()
            try:
                self.add(chunk)
            except Fault as fault:
                self.break_off(fault.without_traceback())
            self._drop_passed()
        if self.over:
            self.on_end()

    async def receive(self) -> tuple[RecordedChunk, bool]:
        data = b""
        try:
            data = await self._reply.read()
        except Fault as fault:
            self.broken = Broken(clock.now_ns(), fault.without_traceback())
        events = []
        for event in self._reply.arrived():
            if isinstance(event, Broken):
                self._announced = event  # readers get it after the last bytes before it
            else:
                events.append(event)
        if self.broken is not None:
            self.broken = self._announced or self.broken
        return RecordedChunk(data, tuple(events)), not data

    def rewrite(self, change: Callable[[bytes], bytes]) -> None:
        whole = joined(self._chunks)
        self._chunks = deque([RecordedChunk(change(whole.data), whole.events)])

    def add(self, chunk: RecordedChunk) -> None:
        if chunk.data or chunk.events:
            self._chunks.append(chunk)
            self.size += _size(chunk)
            if self.size > LARGE_BYTES:
                self._held_answer = self._held_answer or HeldAnswer()
                self._held_answer.hold(self.size)

    def on_end(self) -> None:
        """Called when nothing more will arrive. Subclasses override it."""

    def break_off(self, fault: Fault) -> None:
        self.broken = Broken(clock.now_ns(), fault)
        self.over = True

    def reader(
        self,
        *,
        watched: bool,
        deadline_ns: int | None = None,
        leave: Callable[[], Awaitable[None]] | None = None,
    ) -> "ReplyReader":
        reader = ReplyReader(
            self, watched=watched, deadline_ns=deadline_ns, leave=leave or self.close
        )
        self._readers.append(reader)
        return reader

    def _drop_passed(self) -> None:
        if self._keep and self.size <= self._limit:
            return
        self._keep = False
        needed = min((reader.at for reader in self._readers), default=0)
        while self._dropped < needed or (self.size > self._limit and len(self._chunks) > 1):
            self.size -= _size(self._chunks.popleft())
            self._dropped += 1

    async def finished(self) -> None:
        while not self.over:
            await self._read_chunk()
        if self.broken is None:
            async with self._lock:
                await self._reply.finished()

    def remove_reader(self, reader: "ReplyReader") -> None:
        self._readers.remove(reader)

    async def close(self) -> None:
        await self._reply.aclose()


class StoredReply:
    broken = None
    over = True
    empty = False
    token_ns = 0

    def __init__(self, target: str, chunks: Sequence[RecordedChunk]) -> None:
        self.target = target
        self.size = sum(map(_size, chunks))
        self._chunks = chunks

    def chunk_if_ready(self, number: int) -> RecordedChunk | None:
        if number >= len(self._chunks):
            return None
        chunk, now_ns = self._chunks[number], clock.now_ns()
        events = tuple(msgspec.structs.replace(event, at=now_ns) for event in chunk.events)
        return RecordedChunk(chunk.data, events)

    async def chunk(self, number: int) -> RecordedChunk | None:
        return self.chunk_if_ready(number)

    async def finished(self) -> None:
        """Return at once."""

    def remove_reader(self, reader: "ReplyReader") -> None:
        """Do nothing: no chunk is dropped."""

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    def reader(self, *, watched: bool) -> "ReplyReader":
        return ReplyReader(self, watched=watched, deadline_ns=None, leave=self.close)


class ReplyReader(ReplyBase):
    """A reply from a shared or stored one. Its caller gets either bytes or events; both if the call
    is `watched`."""

    def __init__(
        self,
        source: SharedReply | StoredReply,
        *,
        watched: bool,
        deadline_ns: int | None,
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        self._source = source
        self._leave = leave
        self._watched = watched
        self._deadline_ns = deadline_ns
        self._bytes_at = 0
        self._events_at = 0
        self._events: deque[Event] = deque()
        self._own_break: Broken | None = None
        self._break_reported = False
        self._closed = False

    @property
    def at(self) -> int:
        return min(self._bytes_at, self._events_at)

    @property
    def target(self) -> str:
        return self._source.target

    @property
    def empty(self) -> bool:
        return self._source.empty

    @property
    def token_ns(self) -> int:
        return self._source.token_ns

    @property
    def _broken(self) -> Broken | None:
        return self._own_break or self._source.broken

    async def _chunk(self, number: int) -> RecordedChunk | None:
        if self._own_break is not None:
            return None
        try:
            if self._deadline_ns is None:
                return await self._source.chunk(number)
            async with asyncio.timeout_at(self._deadline_ns / clock.NS_PER_S):
                return await self._source.chunk(number)
        except TimeoutError:
            words = (
                "the deadline for the whole call passed, in an answer that is shared with "
                "another call"
            )
            self._own_break = Broken(
                clock.now_ns(), TimedOut(words, phase="total", target=self.target)
            )
        except Overloaded as behind:
            self._own_break = Broken(clock.now_ns(), behind.without_traceback())
        return None

    async def __anext__(self) -> Event:
        while not self._events:
            chunk = await self._chunk(self._events_at)
            if chunk is None:
                if self._broken is None or self._break_reported:
                    raise StopAsyncIteration
                self._break_reported = True
                return self._broken
            self._events_at += 1
            self._events.extend(chunk.events)
            if not self._watched:
                self._bytes_at = self._events_at
        return self._events.popleft()

    def arrived(self) -> list[Event]:
        events = list(self._events)
        self._events.clear()
        while (chunk := self._source.chunk_if_ready(self._events_at)) is not None:
            events.extend(chunk.events)
            self._events_at += 1
        if self._broken is not None and self._source.over and not self._break_reported:
            self._break_reported = True
            events.append(self._broken)
        return events

    async def read(self) -> bytes:
        while True:
            chunk = await self._chunk(self._bytes_at)
            if chunk is None:
                if self._broken is not None:
                    raise self._broken.fault
                return b""
            self._bytes_at += 1
            if not self._watched:
                self._events_at = self._bytes_at
            if chunk.data:
                return chunk.data

    async def finished(self) -> None:
        self._events.clear()
        while await self._chunk(self._events_at) is not None:
            self._events_at = self._bytes_at = self._events_at + 1
        if self._own_break is None:
            await self._source.finished()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._source.remove_reader(self)
            await self._leave()


def _size(chunk: RecordedChunk) -> int:
    return len(chunk.data) + EVENT_BYTES * len(chunk.events)
