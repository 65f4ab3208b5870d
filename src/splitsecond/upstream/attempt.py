"""One request to one target: bytes to events to a reply, and in the end to an observation.

`Attempt` is the `Receiver` that transport calls in its read callback, and the `Reply` that the caller gets. Between
the two lies no task and no queue: the callback decodes and keeps the book, and wakes somebody only when somebody waits:
once for the first token, once for the end, and for each read only if the caller asks for events one by one, or for the
bytes as they came (`Unread`). Both are kept where the call is watched; then nothing holds the provider back, and an
answer of which more than `HELD_BYTES` were not read is broken off.

Deadlines cost nothing per token: one timer sleeps until the earliest moment at which a deadline could have passed,
looks at what has arrived since, and sleeps again. It is set anew only where another kind of deadline begins to hold.

The end of an answer is the end of the HTTP body, because only then can the connection serve again. A server that has
said everything but leaves the body open is given `LINGER_NS`, then closed: that is not an error.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from splitsecond import clock
from splitsecond.alarms import Alarm
from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.errors import Fault, Phase, ProviderFault
from splitsecond.events import Broken, Event
from splitsecond.service import Call
from splitsecond.timing.observation import Observation
from splitsecond.timing.timeline import Sending, Timeline
from splitsecond.transport.exchange import Exchange
from splitsecond.upstream.spec import own
from splitsecond.upstream.terms import Terms, overdue
from splitsecond.upstream.unread import FULL_BYTES, HELD_BYTES, Unread
from splitsecond.wire.dialect import Decoder
from splitsecond.wire.rate_limits import rate_limits
from splitsecond.wire.retelling import Retelling
from splitsecond.wire.server_times import PROCESSING_HEADER, processing_times

LINGER_NS = NS_PER_S
ERROR_BODY_BYTES = 65_536


def _sending(exchange: Exchange) -> Sending:
    """What transport knows of how the request went out."""
    connection = exchange.connection
    return Sending(
        sent_ns=exchange.sent_ns,
        dns_ns=connection.dns_ns,
        tcp_ns=connection.tcp_ns,
        tls_ns=connection.tls_ns,
        reused=connection.reused,
        resent=exchange.resent,
        rtt_ns=exchange.rtt_ns(),
    )


class Attempt(Alarm):
    """One attempt. Made by `upstream.target.Target`; satisfies `service.Reply` and `transport.exchange.Receiver`."""

    __slots__ = (
        "_buffer", "_complete", "_deadline_ns", "_decoder", "_error_body", "_event_waiter", "_exchange", "_fault",
        "_first", "_headers", "_last_ns", "_retelling", "_status", "_terms", "_timeline", "_unread", "_waiter",
        "empty", "observation", "target",
    )  # fmt: skip

    def __init__(
        self, terms: Terms, call: Call, timeline: Timeline, decoder: Decoder, retelling: Retelling | None = None
    ) -> None:
        Alarm.__init__(self)
        self.target = terms.target
        self._terms = terms
        self._timeline = timeline
        self._decoder = decoder
        self._retelling = retelling
        deadline_ns, total_ms = call.deadline_ns, terms.timeouts.total_ms
        if total_ms is not None:
            total_ns = call.start_ns + total_ms * NS_PER_MS
            deadline_ns = total_ns if deadline_ns is None else min(total_ns, deadline_ns)
        self._deadline_ns = deadline_ns
        self._exchange: Exchange | None = None
        self._first: Sending | None = None  # of the request before this one, where there was one
        self._status = 0
        self._headers: Mapping[str, str] = {}
        self._error_body: bytearray | None = None
        self._last_ns = call.start_ns  # the latest moment that transport told us
        self._complete = False  # the stream said all it had to say, well or not
        self._buffer: deque[Event] | None = None
        self._unread: Unread | None = None
        if terms.raw and not call.watched:
            self._unread = Unread(FULL_BYTES)
            decoder.in_runs = retelling is None
        else:
            self._buffer = deque()
            if call.watched:
                self._unread = Unread(HELD_BYTES)
        self._waiter: asyncio.Future[None] | None = None
        self._event_waiter: asyncio.Future[None] | None = None  # events and bytes may be read by two
        self._fault: Fault | None = None
        self.empty = False
        """The answer ended well without a single token."""
        self.observation: Observation | None = None
        """What this attempt turned out to be; None until it has ended."""

    # What transport tells. Nothing here may raise or block.

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        self._last_ns = at
        self._status, self._headers = status, headers
        self._timeline.head(at, status)
        self._timeline.limits = rate_limits(headers)
        if PROCESSING_HEADER in headers:
            self._decoder.server_timings.update(processing_times(headers))
        if not 200 <= status < 300:
            self._error_body = bytearray()

    def body_received(self, at: int, lag: int, kernel_time: bool, data: bytes) -> None:
        if self._complete:
            return
        self._last_ns = at
        self._timeline.read(lag, kernel_time, len(data))
        if self._error_body is not None:
            self._error_body += data[: ERROR_BODY_BYTES - len(self._error_body)]
            if len(self._error_body) == ERROR_BODY_BYTES:
                self._settle(at, self._error_answer())
            return
        events = self._decoder.feed(data, at)
        if events:
            self._take(events)
        if self._retelling is not None:
            self._retell(self._retelling, events, at)
        elif self._unread is not None and self._timeline.broken is None:
            self._keep(self._unread, at, data)

    def ended(self, at: int) -> None:
        self._last_ns = at
        if self._error_body is not None:
            self._settle(at, self._error_answer())
            return
        if not self._complete:
            events = self._decoder.close(at)
            if events:
                self._take(events, last=True)
            if self._retelling is not None:
                self._retell(self._retelling, events, at)
        self._settle(at)

    def failed(self, at: int, fault: Fault) -> None:
        self._last_ns = at
        if self._error_body is not None:
            fault = self._error_answer()  # the status says more than the way in which the connection then broke
        elif self._complete:
            self._settle(at)  # everything had been said; how the connection ended after that does not matter
            return
        elif self._timeline.has_token and fault.phase in ("head", "first token"):
            fault.phase = "between tokens"
        elif self._status and not self._timeline.has_token and fault.phase in ("head", "between tokens"):
            fault.phase = "first token"
        self._break(at, fault)

    def _take(self, events: list[Event], *, last: bool = False) -> None:
        """What a read brought. `last`: nothing comes after it, so no deadline needs to be watched."""
        timeline = self._timeline
        had_token = timeline.has_token
        timeline.took(events)
        broken = timeline.broken
        if broken is not None:
            self._own(broken)
        if broken is not None or timeline.ended_well:
            self._complete = True
        if self._buffer is not None:
            self._buffer.extend(events)
            self._wake()
        if broken is not None:
            self._settle(events[-1].at, broken)  # nothing after it counts; the connection is not worth keeping
        elif not last and (self._complete or not had_token):
            self._watch()  # another deadline holds from here on, perhaps an earlier one

    def _keep(self, unread: Unread, at: int, data: bytes) -> None:
        """Puts what came where `read` finds it. Bytes that broke an answer are not kept: they may end it falsely."""
        unread.put(data)
        if self._complete:
            pass
        elif not self._timeline.has_token:
            if unread.size > HELD_BYTES:
                words = f"{unread.size} bytes of an answer and no token among them, expected at most {HELD_BYTES}"
                self._break(at, ProviderFault(words, kind="malformed", phase="first token", status=self._status))
            return  # nobody reads before the first token
        elif unread.full:
            if self._buffer is not None:  # it is watched: to hold it back would stop whoever reads its events
                words = f"{unread.size} bytes of an answer that is watched were not read, expected at most {HELD_BYTES}"
                self._break(at, ProviderFault(words, kind="too_long", phase="between tokens", status=self._status))
            elif self._exchange is not None:
                unread.hold(self._exchange)
        self._wake()

    def _retell(self, retelling: Retelling, events: list[Event], at: int) -> None:
        """Puts `events` where `read` finds them, in the client's dialect."""
        try:
            data = retelling.tell(events)
        except Fault as fault:
            self._break(at, fault)
            return
        if data and self._unread is not None:
            self._keep(self._unread, at, data)

    def _own(self, fault: Fault) -> None:
        own(fault, self.target, self._terms.secrets)

    def _error_answer(self) -> Fault:
        return self._terms.read_fault(self._status, self._headers, bytes(self._error_body or b""))

    # Ending, exactly once.

    def _break(self, at: int, fault: Fault) -> None:
        self._own(fault)
        if self._buffer is not None and not self._complete:
            self._buffer.append(Broken(at, fault))
        self._complete = True
        self._settle(at, fault)

    def _settle(self, end_ns: int, fault: Fault | None = None, *, cancelled: bool = False) -> None:
        if self.observation is not None:
            return
        if fault is not None:
            self._own(fault)
        self.silence()
        exchange = self._exchange
        self.observation = self._timeline.observe(
            end_ns=end_ns,
            fault=fault,
            cancelled=cancelled,
            sending=self._first or (_sending(exchange) if exchange is not None else Sending()),
            server_timings=self._decoder.server_timings,
        )
        self._fault = fault or self._timeline.broken
        if exchange is not None:
            exchange.close()
            self._exchange = None  # it holds us: that would be a cycle for each request
        self._terms.observer(self.observation)
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)
        if self._event_waiter is not None and not self._event_waiter.done():
            self._event_waiter.set_result(None)

    # Deadlines.

    def ring(self) -> None:
        self._sleep(clock.now_ns())

    def _watch(self) -> None:
        """Another deadline holds."""
        self.silence()
        self._sleep(clock.now_ns())

    def _sleep(self, now_ns: int) -> None:
        """Looks whether a deadline has passed, and sleeps until the next one could. No alarm is set."""
        if self._exchange is None or self.observation is not None:
            return
        due_ns = self._next_deadline()
        if due_ns is None:
            return
        if now_ns < due_ns:
            self._terms.alarms.set(self, due_ns, now_ns)
        elif self._complete:
            self._settle(self._last_ns)
        else:
            self._break(due_ns, self._overdue(due_ns))

    def _waiting_for(self) -> tuple[Phase, int, int | None]:
        """What must come next, since when it is waited for (ns), and how long it may take (ms)."""
        limits = self._terms.timeouts
        if not self._timeline.has_token:
            sent_ns = self._exchange.sent_ns if self._exchange is not None else 0
            if self._first is not None and self._first.sent_ns is not None:
                sent_ns = self._first.sent_ns
            if not self._status:
                return "head", sent_ns, limits.head_ms
            return "first token", sent_ns, limits.first_token_ms
        if self._unread is None:
            return "between tokens", self._timeline.last_activity_ns, limits.stall_ms
        if self._unread.held:  # it is the caller who does not read
            return "between tokens", self._timeline.last_activity_ns, None
        return "between tokens", max(self._timeline.last_activity_ns, self._unread.released_ns), limits.stall_ms

    def _next_deadline(self) -> int | None:
        """The earliest deadline that would pass if nothing more arrived."""
        if self._complete:
            return self._last_ns + LINGER_NS
        _, since_ns, limit_ms = self._waiting_for()
        return self._due(since_ns, limit_ms)

    def _due(self, since_ns: int, limit_ms: int | None) -> int | None:
        """When what is waited for since then must have come."""
        deadline_ns = self._deadline_ns
        if limit_ms is None:
            return deadline_ns
        due_ns = since_ns + limit_ms * NS_PER_MS
        return due_ns if deadline_ns is None else min(due_ns, deadline_ns)

    def _overdue(self, due_ns: int) -> Fault:
        """The fault of not having had what was due at `due_ns`."""
        phase, since_ns, limit_ms = self._waiting_for()
        if due_ns == self._deadline_ns:
            return overdue(phase, due_ns - self._timeline.start_ns)
        return overdue(phase, due_ns - since_ns, limit_ms)

    # What the caller does.

    @property
    def deadline_ns(self) -> int | None:
        """When the whole call must have ended; None: there is no such moment."""
        return self._deadline_ns

    def preceded(self, exchange: Exchange) -> None:
        """A request before this one has been written, by `exchange`: the attempt's times begin with it."""
        self._first = _sending(exchange)

    def under_way(self, exchange: Exchange) -> None:
        """Transport has written the first byte; from here on deadlines run."""
        if self.observation is not None:  # it failed within the write
            exchange.close()
            return
        self._exchange = exchange
        sent_ns, first, terms = exchange.sent_ns, self._first, self._terms
        since_ns = sent_ns if first is None or first.sent_ns is None else first.sent_ns
        due_ns = self._due(since_ns, terms.timeouts.head_ms)
        if due_ns is not None:
            terms.alarms.set(self, due_ns, sent_ns)

    def abandon(self, fault: Fault | None, at: int) -> None:
        """There will be no reply: transport could not send the request (`fault`), or the caller gave up (None)."""
        self._complete = True
        self._settle(at, fault, cancelled=fault is None)

    async def first_token(self) -> None:
        """Returns when the first token has arrived or the stream ended well; raises the `Fault` otherwise."""
        timeline = self._timeline
        while not timeline.has_token and not self._complete and self.observation is None:
            await self._wakes()
        if not timeline.has_token:
            if self._fault is not None:
                raise self._fault
            self.empty = self._complete

    def _wakes(self) -> "asyncio.Future[None]":
        """What `_wake` ends."""
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    @property
    def token_ns(self) -> int:
        return self._timeline.last_activity_ns

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while True:
            if self._buffer:
                return self._buffer.popleft()
            if self._buffer is None or self._complete or self.observation is not None:
                raise StopAsyncIteration
            self._event_waiter = asyncio.get_running_loop().create_future()
            try:
                await self._event_waiter
            finally:
                self._event_waiter = None

    def arrived(self) -> list[Event]:
        events = list(self._buffer or ())
        if self._buffer:
            self._buffer.clear()
        return events

    async def finished(self) -> None:
        self._buffer = None
        unread, self._unread = self._unread, None
        if unread is not None and unread.held and self._exchange is not None:
            unread.release(self._exchange, clock.now_ns())
            self._watch()
        while self.observation is None:
            await self._wakes()

    async def read(self) -> bytes:
        unread = self._unread
        if unread is None:
            raise RuntimeError("read() needs a target that was connected with raw=True, or a call that is watched")
        while not unread.size:
            if self._fault is not None:
                raise self._fault
            if self._complete or self.observation is not None:
                return b""
            await self._wakes()
        data = unread.take()
        if unread.held and self._exchange is not None:
            unread.release(self._exchange, clock.now_ns())
            self._watch()
        return data

    async def aclose(self) -> None:
        if self.observation is not None or (self._complete and self._fault is None):
            return  # it has ended; or all was said, and the timer lets the connection end well, or closes it
        self._settle(self._last_ns, cancelled=not self._complete)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
