"""A reply that is written down as it comes, so that a policy can read it before the caller does, and several can.

The reply of a watched call is read piece by piece: the bytes that came, and the events they brought. Nobody's task does
that on its own: whoever wants a piece that is not there yet reads it, for everybody, while the others wait for their
turn. When the one who reads is cancelled the next one reads on, so no reader depends on another, and the provider is
read as fast as the fastest of them wants.

A `Playback` is what a caller gets: a reply that begins at the first piece. Pieces that all readers have passed are
forgotten, unless the recording is kept whole. A reader that is so far behind that `most` bytes wait for it is broken
off, as a dead client must not fill the memory.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import Fault, Overloaded, TimedOut
from splitsecond.events import Broken, Event
from splitsecond.service import Reply

MOST_BYTES = 8 << 20
"""Of one answer, while it is held: the longest event that is read at all."""
EVENT_BYTES = 128
"""About what an event takes in memory beside its text."""


class Piece(Struct, frozen=True, gc=False):
    """What one read brought."""

    data: bytes
    events: tuple[Event, ...]


class Recording:
    """`reply`, of a watched call, from its first byte. `whole`: it ended well, and nothing of it was forgotten.

    `keep`: pieces that were read stay, as long as they are no more than `most` bytes. `close` it when done.
    """

    def __init__(self, reply: Reply, *, keep: bool = False, most: int = MOST_BYTES) -> None:
        self.target = reply.target
        self.empty = reply.empty
        self.broken: Broken | None = None
        self.over = False
        self.size = 0  # of the pieces that are here
        self._reply = reply
        self._keep = keep
        self._most = most
        self._pieces: deque[Piece] = deque()
        self._forgotten = 0
        self._readers: list[Playback] = []
        self._said: Broken | None = None
        self._turn = asyncio.Lock()

    @property
    def whole(self) -> bool:
        """All of a good answer is here."""
        return self.over and self.broken is None and not self._forgotten

    @property
    def token_ns(self) -> int:
        """When its latest token arrived, which may not have been read."""
        return self._reply.token_ns

    @property
    def from_the_first(self) -> bool:
        """The first piece is still here, so that another reader may join."""
        return not self._forgotten

    @property
    def pieces(self) -> deque[Piece]:
        """Those that are here."""
        return self._pieces

    def ready(self, number: int) -> Piece | None:
        """The piece of that number, if it is here; waits for nothing."""
        place = number - self._forgotten
        return self._pieces[place] if 0 <= place < len(self._pieces) else None

    async def piece(self, number: int) -> Piece | None:
        """The piece of that number, as soon as there is one. None: there is none; the answer is over, or `broken`."""
        while number >= self._forgotten + len(self._pieces):
            if self.over:
                return None
            await self._more()
        if number < self._forgotten:
            raise Overloaded("this answer came faster than it was read, and its beginning could not be kept")
        return self._pieces[number - self._forgotten]

    async def _more(self) -> None:
        known = self._forgotten + len(self._pieces)
        async with self._turn:
            if self.over or known < self._forgotten + len(self._pieces):
                return  # somebody else has read it
            piece, self.over = await self.heard()
            self.take(piece)
            self._forget()
        if self.over:
            self.ended()

    async def heard(self) -> tuple[Piece, bool]:
        """What comes next, and whether it is the last; `broken` then says what broke the answer."""
        data = b""
        try:
            data = await self._reply.read()
        except Fault as fault:
            self.broken = Broken(clock.now_ns(), fault.kept())
        events = []
        for event in self._reply.arrived():
            if isinstance(event, Broken):
                self._said = event  # it is told when its bytes have come to an end
            else:
                events.append(event)
        if self.broken is not None:
            self.broken = self._said or self.broken
        return Piece(data, tuple(events)), not data

    def rewrite(self, change: Callable[[bytes], bytes]) -> None:
        """Put what `change` makes of all bytes in their place. Only of what is `whole`, and before it is played."""
        events = tuple(event for piece in self._pieces for event in piece.events)
        data = change(b"".join(piece.data for piece in self._pieces))
        self._pieces = deque([Piece(data, events)])

    def take(self, piece: Piece) -> None:
        """A piece has come."""
        if piece.data or piece.events:
            self._pieces.append(piece)
            self.size += _size(piece)

    def ended(self) -> None:
        """Nothing more will come."""

    def break_off(self, fault: Fault) -> None:
        """The answer ends here, in `fault`, whatever the provider goes on to say."""
        self.broken = Broken(clock.now_ns(), fault)
        self.over = True

    def play(
        self, *, watched: bool, deadline_ns: int | None = None, leave: Callable[[], Awaitable[None]] | None = None
    ) -> "Playback":
        """A reply that begins with the first piece, for a call that is `watched` or not.

        `deadline_ns`: its caller's own, where the reply keeps another. `leave`: who is told when it is closed; None:
        then the recording is.
        """
        reader = Playback(self, watched=watched, deadline_ns=deadline_ns, leave=leave or self.close)
        self._readers.append(reader)
        return reader

    def _forget(self) -> None:
        """Let go of what nobody needs; and of what somebody does, where it is too much."""
        if self._keep and self.size <= self._most:
            return
        self._keep = False
        needed = min((reader.at for reader in self._readers), default=0)
        while self._forgotten < needed or (self.size > self._most and len(self._pieces) > 1):
            self.size -= _size(self._pieces.popleft())
            self._forgotten += 1

    async def finished(self) -> None:
        """Read to the end, and wait until the provider's answer is over."""
        while not self.over:
            await self._more()
        if self.broken is None:
            async with self._turn:
                await self._reply.finished()

    def left(self, reader: "Playback") -> None:
        """`reader` is done."""
        self._readers.remove(reader)

    async def close(self) -> None:
        """Close the reply."""
        await self._reply.aclose()


class Kept:
    """A whole answer that has been over for long. It is given again as if it came at this moment."""

    broken = None
    over = True
    empty = False
    token_ns = 0
    """All of it came before it was asked for."""

    def __init__(self, target: str, pieces: Sequence[Piece]) -> None:
        self.target = target
        self.size = sum(map(_size, pieces))
        self._pieces = pieces

    def ready(self, number: int) -> Piece | None:
        """The piece of that number; None after the last."""
        if number >= len(self._pieces):
            return None
        piece, now_ns = self._pieces[number], clock.now_ns()
        events = tuple(msgspec.structs.replace(event, at=now_ns) for event in piece.events)
        return Piece(piece.data, events)

    async def piece(self, number: int) -> Piece | None:
        """As `ready`."""
        return self.ready(number)

    async def finished(self) -> None:
        """It is."""

    def left(self, reader: "Playback") -> None:
        """Nothing is kept for a reader."""

    async def close(self) -> None:
        """Nothing is open."""

    def play(self, *, watched: bool) -> "Playback":
        """A reply of it."""
        return Playback(self, watched=watched, deadline_ns=None, leave=self.close)


class Playback:
    """A recording as a reply. Who reads bytes is given no events that they brought, unless the call is `watched`."""

    def __init__(
        self,
        recording: Recording | Kept,
        *,
        watched: bool,
        deadline_ns: int | None,
        leave: Callable[[], Awaitable[None]],
    ) -> None:
        self._recording = recording
        self._leave = leave
        self._watched = watched
        self._deadline_ns = deadline_ns
        self._bytes_at = 0
        self._events_at = 0
        self._events: deque[Event] = deque()
        self._late: Broken | None = None
        self._told = False
        self._closed = False

    @property
    def at(self) -> int:
        """The number of the first piece that it still needs."""
        return min(self._bytes_at, self._events_at)

    @property
    def target(self) -> str:
        return self._recording.target

    @property
    def empty(self) -> bool:
        return self._recording.empty

    @property
    def token_ns(self) -> int:
        return self._recording.token_ns

    @property
    def _broken(self) -> Broken | None:
        return self._late or self._recording.broken

    async def _piece(self, number: int) -> Piece | None:
        """The piece of that number; None after the last, or where our own deadline has passed."""
        if self._late is not None:
            return None
        try:
            if self._deadline_ns is None:
                return await self._recording.piece(number)
            async with asyncio.timeout_at(self._deadline_ns / clock.NS_PER_S):
                return await self._recording.piece(number)
        except TimeoutError:
            words = "the deadline for the whole call passed, in an answer that is shared with another call"
            self._late = Broken(clock.now_ns(), TimedOut(words, phase="total", target=self.target))
        except Overloaded as behind:
            self._late = Broken(clock.now_ns(), behind.kept())
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            piece = await self._piece(self._events_at)
            if piece is None:
                if self._broken is None or self._told:
                    raise StopAsyncIteration
                self._told = True
                return self._broken
            self._events_at += 1
            self._events.extend(piece.events)
            if not self._watched:
                self._bytes_at = self._events_at
        return self._events.popleft()

    def arrived(self) -> list[Event]:
        found = list(self._events)
        self._events.clear()
        while (piece := self._recording.ready(self._events_at)) is not None:
            found.extend(piece.events)
            self._events_at += 1
        if self._broken is not None and self._recording.over and not self._told:
            self._told = True
            found.append(self._broken)
        return found

    async def read(self) -> bytes:
        while True:
            piece = await self._piece(self._bytes_at)
            if piece is None:
                if self._broken is not None:
                    raise self._broken.fault
                return b""
            self._bytes_at += 1
            if not self._watched:
                self._events_at = self._bytes_at
            if piece.data:
                return piece.data

    async def finished(self) -> None:
        self._events.clear()
        while await self._piece(self._events_at) is not None:
            self._events_at = self._bytes_at = self._events_at + 1
        if self._late is None:
            await self._recording.finished()

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._recording.left(self)
            await self._leave()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _size(piece: Piece) -> int:
    return len(piece.data) + EVENT_BYTES * len(piece.events)
