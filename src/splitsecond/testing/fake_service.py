"""A service that does what the test says: by hand, or by script.

By hand, as in a conversation: the test waits for the call, then says what happens on its stream.

    fake = FakeService()
    reply = asyncio.create_task(fake(call))
    told = await fake.expect()
    told.first_token(after=0.2)
    told.finish(tokens=9, tps=100)

By script, where there are many calls: `FakeService(script=lambda call: Script(ttft=0.2, tokens=10, tps=100))`.

Steps follow one another: `after` counts seconds from the step before it (or from now, where that has passed). Every
call keeps its deadline and its longest silence, and leaves exactly one observation, made by the same `Timeline` as a
real one; and `closed_at` shows whether, and when, the caller was done with the reply.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from msgspec import Struct

from splitsecond import clock
from splitsecond.errors import Fault, TimedOut
from splitsecond.events import Broken, Done, Event, Finish, Token, Usage
from splitsecond.service import Call
from splitsecond.timing.observation import Observation
from splitsecond.timing.timeline import Sending, Timeline
from splitsecond.upstream.interpreter import retelling
from splitsecond.wire.openai import StreamWriter

Observer = Callable[[Observation], None]


class Script(Struct, frozen=True, kw_only=True):
    """What one call gets: the first of `tokens` tokens after `ttft` seconds, the others at `tps` a second.

    With a `fault` the call fails instead, after `ttft`; or, with `breaks_after`, the stream breaks after that many
    tokens. `input_tokens` None: the answer carries no usage at all. `hangs`: nothing happens, ever. `texts` is what
    the first tokens say, as many as there are; `finish` why the answer ends.
    """

    ttft: float = 0.2
    tokens: int = 10
    tps: float = 100.0
    input_tokens: int | None = None
    fault: Fault | None = None
    breaks_after: int = 0
    hangs: bool = False
    texts: tuple[str, ...] = ()
    finish: str = "stop"


class FakeCall:
    """One call as the service sees it: what was asked, and the means to answer it."""

    def __init__(self, call: Call, target: str, observer: Observer | None) -> None:
        self.call = call
        self.target = target
        self.closed_at: int | None = None
        self.replied = False
        self.observation: Observation | None = None
        self._observer = observer
        self._events: deque[Event] = deque()
        self._unread: deque[Event] = deque()  # of a watched call: read once as events, once as bytes
        self._writer = StreamWriter(call.operation, target, id=call.id, created=0)
        self._retelling = None if call.dialect == "openai" else retelling(call, target)
        self._changed = asyncio.Event()
        self._steps: deque[tuple[int, Callable[[int], None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._cursor_ns = self._sent_ns = clock.now_ns()
        self._tokens = 0
        self._timeline = Timeline(
            attempt=f"{call.id}.1",
            call=call.id,
            target=target,
            due_ns=call.due_ns,
            start_ns=call.start_ns or self._sent_ns,
        )
        self._stall: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        if call.deadline_ns is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_at(call.deadline_ns / clock.NS_PER_S, self._overdue, call.deadline_ns)

    def first_token(self, after: float = 0.0, text: str = "word") -> None:
        """A content-bearing event arrives (the first one, or another)."""
        self._schedule(after, lambda at: self._take(Token(at, text)))
        self._tokens += 1

    def finish(
        self,
        after: float = 0.0,
        *,
        tokens: int = 0,
        tps: float = 100.0,
        input_tokens: int | None = None,
        reason: str = "stop",
    ) -> None:
        """`tokens` more tokens at `tps` a second, then, `after` seconds later, the stream ends well."""
        for _ in range(tokens):
            self.first_token(1 / tps)
        output_tokens = self._tokens
        self._schedule(after, lambda at: self._end(at, input_tokens, output_tokens, reason))

    def fail(self, fault: Fault, after: float = 0.0) -> None:
        """The call fails: the await raises `fault` before the first token, the stream breaks with it after that."""
        self._schedule(after, lambda at: self._break(fault, at))

    def play(self, script: Script) -> None:
        """Everything that `script` says."""
        if script.hangs:
            return
        if script.fault is not None and script.breaks_after == 0:
            self.fail(script.fault, script.ttft)
            return
        tokens = script.tokens if script.fault is None else script.breaks_after
        for number in range(tokens):
            text = script.texts[number] if number < len(script.texts) else "word"
            self.first_token(script.ttft if number == 0 else 1 / script.tps, text)
        if script.fault is not None:
            self.fail(script.fault, 1 / script.tps)
        else:
            self.finish(0.0 if tokens else script.ttft, input_tokens=script.input_tokens, reason=script.finish)

    def close(self) -> None:
        """The caller is done with it; before its end this makes it a cancelled one."""
        if self.closed_at is None:
            self.closed_at = clock.now_ns()
            self._settle(self.closed_at, cancelled=True)

    @property
    def empty(self) -> bool:
        """The stream ended well without a token."""
        return self._timeline.ended_well and not self._timeline.has_token

    @property
    def token_ns(self) -> int:
        """When its latest token came, 0 before the first."""
        return self._timeline.last_activity_ns

    async def answered(self) -> None:
        """Returns when the first token has arrived or the stream ended well; raises the `Fault` otherwise."""
        while not self._timeline.has_token and self.observation is None:
            await self._wait()
        if self._timeline.broken is not None and not self._timeline.has_token:
            raise self._timeline.broken

    async def next_event(self) -> Event:
        """The next event on the stream; raises StopAsyncIteration after the last."""
        return await self._next(self._events)

    async def next_bytes(self) -> bytes:
        """What the stream has brought since the last time; b"" after its end. Raises the `Fault` that broke it."""
        unread = self._unread if self.call.watched else self._events
        while True:
            try:
                event = await self._next(unread)
            except StopAsyncIteration:
                return b""
            if isinstance(event, Broken):
                unread.appendleft(event)  # whoever reads again is told again
                raise event.fault
            if data := self.encoded(event):
                return data

    def arrived(self) -> list[Event]:
        """The events that nobody has read yet."""
        events = list(self._events)
        self._events.clear()
        return events

    async def _next(self, events: deque[Event]) -> Event:
        while not events:
            if self.observation is not None:
                raise StopAsyncIteration
            await self._wait()
        return events.popleft()

    def encoded(self, event: Event) -> bytes:
        """`event` as a stream of the client's dialect has it; b"" where it has nothing."""
        if self._retelling is not None:
            return self._retelling.tell([event])
        match event:
            case Token():
                return self._writer.token(event.text, event.kind, event.index)
            case Finish():
                return self._writer.finish(event.reason, event.index)
            case Usage():
                return self._writer.usage(event)
            case Done(marker=True):
                return self._writer.done()
            case _:
                return b""

    async def ended(self) -> None:
        """Returns when the stream has ended, however it did."""
        while self.observation is None:
            await self._wait()

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _schedule(self, after: float, step: Callable[[int], None]) -> None:
        at = max(self._cursor_ns, clock.now_ns()) + round(after * clock.NS_PER_S)
        self._cursor_ns = at
        self._steps.append((at, step))
        if self._timer is None:
            self._advance()

    def _advance(self) -> None:
        """Take the steps that are due, in order, and sleep until the next one is."""
        self._timer = None
        while self._steps and (ahead_ns := self._steps[0][0] - clock.now_ns()) <= 0:
            at, step = self._steps.popleft()
            step(at)
        if self._steps:
            self._timer = asyncio.get_running_loop().call_later(ahead_ns / clock.NS_PER_S, self._advance)

    def _take(self, *events: Event) -> None:
        if self.observation is None:
            self._timeline.took(events)
            self._events.extend(events)
            if self.call.watched:
                self._unread.extend(events)
            self._changed.set()
            self._watch(any(isinstance(event, Token) for event in events))

    def _watch(self, progress: bool) -> None:
        """No further token for as long as the call allows breaks the answer off."""
        stall_ns = self.call.stall_ns
        if stall_ns is None or not progress:
            return
        if self._stall is not None:
            self._stall.cancel()
        self._stall = asyncio.get_running_loop().call_later(stall_ns / clock.NS_PER_S, self._silent, stall_ns)

    def _silent(self, stall_ns: int) -> None:
        words = f"no further token for {stall_ns // clock.NS_PER_MS} ms"
        self._break(TimedOut(words, phase="between tokens", after_ns=stall_ns), clock.now_ns())

    def _end(self, at: int, input_tokens: int | None, output_tokens: int, reason: str) -> None:
        usage = [] if input_tokens is None else [Usage(at, input_tokens, output_tokens)]
        self._take(Finish(at, reason), *usage, Done(at, marker=True))
        self._settle(at)

    def _break(self, fault: Fault, at: int) -> None:
        self._take(Broken(at, fault))
        self._settle(at)

    def _overdue(self, deadline_ns: int) -> None:
        after_ns = deadline_ns - self._sent_ns
        self._break(TimedOut("the deadline of the whole call passed", phase="total", after_ns=after_ns), clock.now_ns())

    def _settle(self, end_ns: int, *, cancelled: bool = False) -> None:
        if self.observation is not None:
            return
        self._steps.clear()
        for timer in (self._timer, self._stall, self._deadline):
            if timer is not None:
                timer.cancel()
        self.observation = self._timeline.observe(
            end_ns=end_ns, cancelled=cancelled, sending=Sending(sent_ns=self._sent_ns, reused=True)
        )
        if self._observer is not None:
            self._observer(self.observation)
        self._changed.set()


class FakeReply:
    """The reply to a `FakeCall`, as the caller holds it."""

    def __init__(self, fake: FakeCall) -> None:
        self._fake = fake

    @property
    def observation(self) -> Observation | None:
        """What the attempt turned out to be, once it has ended."""
        return self._fake.observation

    @property
    def target(self) -> str:
        return self._fake.target

    @property
    def empty(self) -> bool:
        return self._fake.empty

    @property
    def token_ns(self) -> int:
        return self._fake.token_ns

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self._fake.next_event()

    async def finished(self) -> None:
        await self._fake.ended()

    async def read(self) -> bytes:
        return await self._fake.next_bytes()

    def arrived(self) -> list[Event]:
        return self._fake.arrived()

    async def aclose(self) -> None:
        self._fake.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class FakeService:
    """A `Service` for tests. `calls` are all it ever got, in order.

    `in_flight` says how many have not ended, `left_open` how many somebody must still close.
    """

    def __init__(
        self,
        *,
        script: Callable[[Call], Script] | None = None,
        target: str = "fake/model",
        observer: Observer | None = None,
    ) -> None:
        self.calls: list[FakeCall] = []
        self._script = script
        self._target = target
        self._observer = observer
        self._arrived: asyncio.Queue[FakeCall] = asyncio.Queue()

    @property
    def in_flight(self) -> int:
        """How many calls have begun and not ended."""
        return sum(fake.observation is None for fake in self.calls)

    @property
    def left_open(self) -> int:
        """How many calls are under way, or gave a reply that nobody has closed."""
        return sum(fake.observation is None or (fake.replied and fake.closed_at is None) for fake in self.calls)

    async def expect(self) -> FakeCall:
        """The next call that nobody was told of yet; waits for it. Only without a script."""
        return await self._arrived.get()

    async def __call__(self, call: Call) -> FakeReply:
        fake = FakeCall(call, self._target, self._observer)
        self.calls.append(fake)
        if self._script is not None:
            fake.play(self._script(call))
        else:
            self._arrived.put_nowait(fake)
        try:
            await fake.answered()
        except asyncio.CancelledError:
            fake.close()
            raise
        fake.replied = True
        return FakeReply(fake)

    def __repr__(self) -> str:
        return f'"{self._target}"'
