"""One request to one target: from bytes to events to a reply, and finally to an observation.

`Attempt` is both the `Receiver` that transport calls in its read callback and the `Reply` that the
caller gets. There is no task and no queue between the two: the callback decodes and records, and
wakes the caller only if it waits: once for the first token, once for the end, and for each read
only if the caller wants events one by one, or the bytes as they arrived (`PendingBytes`). For a
watched call both are kept. Then nothing slows the provider down, and an answer with more than
`HELD_BYTES` unread is aborted.

Deadlines cost nothing per token: one timer sleeps until the earliest time at which a deadline could
pass, checks what has arrived since, and sleeps again. It is restarted only when another kind of
deadline begins to apply. Before a deadline passes, a stream that is left unread on purpose
(`sparse_reads`) is read.

The end of an answer is the end of the HTTP body, because only then can the connection be used
again. A server that has sent everything but leaves the body open gets `LINGER_NS`, then the
connection is closed: that is not an error. If it sent all finish reasons, but not the mark that
ends the stream, it gets `FINISHED_NS`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import Fault, InternalFault, Phase
from splitsecond.core.events import Broken, Event, Token, Usage
from splitsecond.core.internal_errors import report_internal_error
from splitsecond.core.observation import ArrivalClock, Observation
from splitsecond.core.service import Call, ReplyBase
from splitsecond.core.timers import TimerEntry
from splitsecond.core.timing.rate_floor import RateCheck
from splitsecond.core.timing.timeline import Sending, Timeline
from splitsecond.core.transport.exchange import Exchange
from splitsecond.core.upstream.attempt_config import AttemptConfig
from splitsecond.core.upstream.attempt_faults import (
    no_token_yet,
    of_client,
    overdue,
    too_slow,
    unread,
)
from splitsecond.core.upstream.pending_bytes import FULL_BYTES, HELD_BYTES, PendingBytes
from splitsecond.core.upstream.spec import redact_fault
from splitsecond.core.upstream.usage_check import (
    UnseenTokens,
    possible,
    unseen_tokens,
    without_counts,
)
from splitsecond.core.wire.output_limit import MAX_TOKENS, output_limit
from splitsecond.core.wire.rate_limits import PROCESSING_HEADER, processing_times, rate_limits
from splitsecond.core.wire.streaming import Decoder
from splitsecond.core.wire.transcoder import Transcoder

LINGER_NS = NS_PER_S
FINISHED_NS = 2 * NS_PER_S
"""How long the token counts and the end mark may come after the finish reason of a chat's only
choice."""
ERROR_BODY_BYTES = 65_536
METERED_BYTES = 4096
"""An answer whose cost is limited can be longer by the tokens of so many bytes."""
CHARACTERS_PER_TOKEN = 4
_MEDIA = frozenset({"audio", "image"})
"""Kinds of content whose characters are no text."""
_CHOICES = frozenset({"n", "best_of", "generationConfig"})
"""Fields of a request that can ask for several choices, of which one can begin after another has
ended."""


def _sending(exchange: Exchange) -> Sending:
    connection = exchange.connection
    return Sending(
        sent_ns=exchange.sent_ns,
        written_ns=exchange.written_ns,
        dns_ns=connection.dns_ns,
        tcp_ns=connection.tcp_ns,
        tls_ns=connection.tls_ns,
        reused=connection.reused,
        resent=exchange.resent,
        rtt_ns=exchange.rtt_ns(),
    )


class Attempt(TimerEntry, ReplyBase, eq=False, kw_only=True):
    """One attempt. `core.upstream.target.Target` makes it; it is a `service.Reply` and a
    `core.transport.exchange.Receiver`."""

    target: str
    empty: bool = False
    """Whether the answer ended well without a single token."""
    observation: Observation | None = None
    """The observation of this attempt; None until it has ended."""
    deadline_ns: int | None
    _config: AttemptConfig
    _call: Call
    _timeline: Timeline
    _decoder: Decoder
    _transcoder: Transcoder | None
    _request_bytes: int
    _asked: int | None
    _buffer: deque[Event] | None
    _pending: PendingBytes | None
    _last_ns: int  # the latest time that transport reported
    _exchange: Exchange | None = None
    _unseen: UnseenTokens | None = None
    _miscounted: bool = False  # the provider has reported token counts that cannot be true
    _first_request: Sending | None = None  # of the request before this one, if there was one
    _status: int = 0
    _headers: Mapping[str, str] = {}
    _error_body: bytearray | None = None
    _complete: bool = False  # the stream has ended, well or not
    _finished_ns: int | None = None  # when only the end of the body was missing
    _rate_check: RateCheck | None = None  # from the first token on
    _gathers: bool = False  # `read` or `collected` waits for the end of the answer
    _take: Callable[[bytes], bool] | None = None  # takes bytes while `read` waits
    _waiter: asyncio.Future[None] | None = None
    _event_waiter: asyncio.Future[None] | None = None  # a second task may read the events
    _fault: Fault | None = None

    @staticmethod
    def begin(
        config: AttemptConfig,
        call: Call,
        timeline: Timeline,
        decoder: Decoder,
        transcoder: Transcoder | None = None,
        request_bytes: int = 0,
    ) -> "Attempt":
        """Return an attempt whose request is about to be sent. A struct gets its initial values in
        C.

        `request_bytes`: the length of the request's body.
        """
        deadline_ns, total_ms = call.deadline_ns, config.timeouts.total_ms
        if total_ms is not None:
            total_ns = call.start_ns + total_ms * NS_PER_MS
            deadline_ns = total_ns if deadline_ns is None else min(total_ns, deadline_ns)
        limit = buffer = pending = None
        if config.raw and not call.watched:
            pending = PendingBytes(FULL_BYTES)
            decoder.in_runs = transcoder is None
        else:
            limit, buffer = None if config.raw else output_limit(call.body), deque[Event]()
            if call.watched:
                pending = PendingBytes(HELD_BYTES)
        kind = Attempt if call.notes.meter is None else MeteredAttempt
        return kind(
            target=config.target,
            deadline_ns=deadline_ns,
            _config=config,
            _call=call,
            _timeline=timeline,
            _decoder=decoder,
            _transcoder=transcoder,
            _request_bytes=request_bytes,
            _asked=limit,
            _buffer=buffer,
            _pending=pending,
            _last_ns=call.start_ns,
        )

    # Called by transport. Nothing here may raise or block: an error of this program ends the
    # attempt.

    def head_received(self, at: int, status: int, headers: Mapping[str, str]) -> None:
        self._last_ns = at
        self._status, self._headers = status, headers
        if not 200 <= status < 300:
            self._error_body = bytearray()
        try:
            self._timeline.record_head(at, status)
            self._timeline.limits = rate_limits(headers)
            if PROCESSING_HEADER in headers:
                self._decoder.server_timings.update(processing_times(headers))
        except Exception as error:
            self._break_internally(at, error)

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        if self._complete:
            return
        self._last_ns = at
        try:
            self._timeline.record_read(lag, source, len(data))
            if self._error_body is not None:
                self._error_body += data[: ERROR_BODY_BYTES - len(self._error_body)]
                if len(self._error_body) == ERROR_BODY_BYTES:
                    self._settle(at, self._error_response())
                return
            lengths = self._decoder.feed_texts(data)
            if lengths:
                self._timeline.record_texts(at, lengths)
                if (exchange := self._exchange) is not None and exchange.sparse:
                    self._timeline.record_sparse_read([], *exchange.packets_read())
            else:
                events = self._decoder.feed(data, at)
                if (usage := self._decoder.counted) is not None:
                    events = self._with_possible_counts(events, usage)
                if events:
                    self._take_events(events)
                if self._transcoder is not None:
                    self._transcode(self._transcoder, events, at)
                    return
            if self._pending is not None and self._timeline.broken is None:
                self._put_bytes(self._pending, at, data)
        except Exception as error:
            self._break_internally(at, error)

    def _packets_received(self, bodies: list[bytes], times: list[int], read_ns: int) -> None:
        try:
            run = None if self._complete else self._decoder.feed_packets(bodies, times)
        except Exception as error:
            self._break_internally(times[-1], error)
            return
        if run is None:
            for body, at in zip(bodies, times, strict=True):
                self.body_received(at, read_ns - at, "packets", body)
            return
        self._last_ns = times[-1]
        self._timeline.record_packets(times, read_ns, sum(map(len, bodies)))
        self._take_events([run])

    def ended(self, at: int) -> None:
        self._last_ns = at
        try:
            if self._error_body is not None:
                self._settle(at, self._error_response())
                return
            if not self._complete:
                events = self._decoder.close(at)
                if (usage := self._decoder.counted) is not None:
                    events = self._with_possible_counts(events, usage)
                if events:
                    self._take_events(events, last=True)
                if self._transcoder is not None:
                    self._transcode(self._transcoder, events, at)
        except Exception as error:
            self._break_internally(at, error)
        self._settle(at)

    def failed(self, at: int, fault: Fault) -> None:
        self._last_ns = at
        if self._error_body is not None:
            fault = self._error_response()  # the status tells more than how the connection broke
        elif self._complete:
            self._settle(at)  # the answer was complete; how the connection ended does not matter
            return
        elif self._timeline.has_token and fault.phase in ("head", "first token"):
            fault.phase = "between tokens"
        elif (
            self._status
            and not self._timeline.has_token
            and fault.phase in ("head", "between tokens")
        ):
            fault.phase = "first token"
        self._break(at, fault)

    def _take_events(self, events: list[Event], *, last: bool = False) -> None:
        """Take the events of a read. `last`: nothing comes after it, so no deadline applies."""
        timeline = self._timeline
        had_token = timeline.has_token
        timeline.record_events(events)
        exchange = self._exchange
        if exchange is not None and exchange.sparse:
            timeline.record_sparse_read(events, *exchange.packets_read())
        broken = timeline.broken
        if broken is not None or timeline.ended_well:
            self._end(broken)
        if self._buffer is not None:
            self._buffer.extend(events)
            if not self._gathers:
                self._wake()
        if broken is not None:
            self._settle(events[-1].at, broken)  # ignore the rest; do not reuse the connection
        elif not last:
            if not had_token:
                self._record_first_token()
            finished = timeline.has_finish and self._finish()
            if finished or self._complete or not had_token:
                # another deadline applies from now on, perhaps an earlier one
                self._restart_timer()

    def _end(self, broken: Fault | None) -> None:
        if broken is not None:
            self._attribute(broken)
        self._complete = True
        if self._gathers:
            self._wake()

    def _record_first_token(self) -> None:
        exchange = self._exchange
        if exchange is None or not self._timeline.has_token:
            return
        self._timeline.record_first_read(*exchange.packets_read())
        exchange.gather(self._time_left)
        if self._call.floor is not None:
            self._rate_check = self._timeline.rate_check(self._call.floor)

    def _finish(self) -> bool:
        """Return whether from now on only the end of the response is awaited."""
        if self._finished_ns is not None or not self._awaits_only_the_end():
            return False
        self._finished_ns = self._last_ns
        return True

    def _with_possible_counts(self, events: list[Event], usage: Usage) -> list[Event]:
        """Return `events`, without their counts if `usage`, the largest of them, or earlier ones
        cannot be true."""
        self._decoder.counted = None
        sent, received = self._request_bytes, self._timeline.body_bytes
        # nearly all; for others the call is examined
        if not self._miscounted and possible(usage, sent, received):
            return events
        if self._unseen is None:
            self._unseen = unseen_tokens(self._call, self._config.output_tokens)
        most = (
            min(size + unseen, MAX_TOKENS)
            for size, unseen in zip((sent, received), self._unseen, strict=True)
        )
        self._miscounted = self._miscounted or not possible(usage, *most)
        return without_counts(events) if self._miscounted else events

    def _awaits_only_the_end(self) -> bool:
        """Whether a chat has all of its finish reasons, and no further choice can begin."""
        call = self._call
        return (
            self._decoder.finished and call.operation == "chat" and not _CHOICES & call.body.keys()
        )

    def _time_left(self) -> int | None:
        """Return in how many ns the last token is expected; None: that is unknown."""
        expected = self._config.lengths.expected(self._asked)
        return None if expected is None else self._timeline.expected_at(expected) - clock.now_ns()

    def _put_bytes(self, pending: PendingBytes, at: int, data: bytes) -> None:
        """Pass on bytes, or store them for `read`. Do not call it with bytes that broke an answer:
        they could look like a good end.
        """
        if (
            self._take is not None
            and self._waiter is not None
            and self._passed_on(self._take, at, data)
        ):
            return
        try:
            pending.put(data)
        except Fault as fault:
            self._break(at, fault)
        if self._complete:
            pass
        elif not self._timeline.has_token:
            if pending.size > HELD_BYTES:
                self._break(at, no_token_yet(pending.size, self._status))
            return  # the caller does not read before the first token
        elif pending.full:
            if self._buffer is not None:  # watched: a pause would stop the reader of its events
                self._break(at, unread(pending.size, self._status))
            elif self._exchange is not None:
                pending.pause(self._exchange)
        elif self._gathers:
            return
        self._wake()

    def _passed_on(self, take: Callable[[bytes], bool], at: int, data: bytes) -> bool:
        """Return whether `take` took the bytes. The reader waits, so it has all those before
        them."""
        try:
            if not take(data):
                return False
        except Fault as fault:
            self._break(at, fault)
        if self._complete:
            self._wake()
        return True

    def _transcode(self, transcoder: Transcoder, events: list[Event], at: int) -> None:
        try:
            data = transcoder.encode(events)
        except Fault as fault:
            self._break(at, fault)
            return
        if data and self._pending is not None:
            self._put_bytes(self._pending, at, data)

    def _attribute(self, fault: Fault) -> None:
        secrets, own = self._config.secrets, self._call.credentials
        redact_fault(fault, self.target, secrets if own is None else [*secrets, *own.secrets])

    def _error_response(self) -> Fault:
        try:
            fault = self._config.read_fault(
                self._status, self._headers, bytes(self._error_body or b"")
            )
            return of_client(fault) if self._config.of_client else fault
        except Exception as error:
            report_internal_error("request", error)
            return InternalFault(phase="head")

    # The end, exactly once.

    def _break_internally(self, at: int, error: Exception) -> None:
        report_internal_error("request", error)
        phase: Phase = (
            "between tokens"
            if self._timeline.has_token
            else "first token"
            if self._status
            else "head"
        )
        self._break(at, InternalFault(phase=phase))

    def _break(self, at: int, fault: Fault) -> None:
        self._attribute(fault)
        if self._buffer is not None and not self._complete:
            self._buffer.append(Broken(at, fault))
        self._complete = True
        self._settle(at, fault)

    def _settle(self, end_ns: int, fault: Fault | None = None, *, cancelled: bool = False) -> None:
        if self.observation is not None:
            return
        if fault is not None:
            self._attribute(fault)
        self.cancel_timer()
        exchange = self._exchange
        self.observation = self._timeline.observe(
            end_ns=end_ns,
            fault=fault,
            cancelled=cancelled,
            sending=self._first_request
            or (_sending(exchange) if exchange is not None else Sending()),
            server_timings=self._decoder.server_timings,
            tier=self._decoder.tier,
            odd_fields=self._decoder.odd_fields,
        )
        if self._asked is not None and self.observation.ok:
            self._config.lengths.record(self._asked, len(self.observation.token_at))
        self._fault = fault or self._timeline.broken
        if exchange is not None:
            exchange.close()
            # it refers to this object: that would be a cycle for each request
            self._exchange = None
        self._take = None
        for observer in (self._config.observer, self._call.notes.observer):
            if observer is not None:
                try:
                    observer(self.observation)
                except Exception as error:
                    report_internal_error("observer", error)
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

    def timer_fired(self) -> None:
        now_ns = clock.now_ns()
        if (
            self._exchange is not None
            and (due_ns := self._next_deadline()) is not None
            and now_ns >= due_ns
        ):
            self._exchange.read_resting()  # what came in time may not have been read yet
            self.cancel_timer()  # the read may have set it
        self._check_deadline(now_ns)

    def _restart_timer(self) -> None:
        self.cancel_timer()
        self._check_deadline(clock.now_ns())

    def _check_deadline(self, now_ns: int) -> None:
        """Check whether a deadline has passed, else set the timer for the next one. No timer may be
        set."""
        if self._exchange is None or self.observation is not None:
            return
        due_ns = self._next_deadline()
        if due_ns is None:
            return
        if now_ns < due_ns:
            self._config.timers.set(self, due_ns, now_ns)
        elif self._complete:
            self._settle(self._last_ns)
        elif self._finished_ns is not None:
            self._end_finished(now_ns)
        elif self._rate_check is not None and due_ns == self._rate_check.due_ns:
            self._check_rate(self._rate_check, now_ns)
        else:
            self._break(due_ns, self._overdue(due_ns))

    def _check_rate(self, check: RateCheck, now_ns: int) -> None:
        rate = check.rate(now_ns)
        if rate is None or self._call.floor is None:
            self._check_deadline(now_ns)
        else:
            self._break(now_ns, too_slow(rate, self._call.floor))

    def _end_finished(self, now_ns: int) -> None:
        """End an answer of which only the end mark is missing; if more of it came meanwhile, wait
        for the rest."""
        self._finished_ns = None
        if self._decoder.finished:
            self.ended(self._last_ns)
        else:
            self._check_deadline(now_ns)

    def _waiting_for(self) -> tuple[Phase, int, int | None]:
        """Return the current phase, its beginning (ns), and its limit (ms)."""
        limits = self._config.timeouts
        if not self._timeline.has_token:
            sent_ns = self._exchange.sent_ns if self._exchange is not None else 0
            if self._first_request is not None and self._first_request.sent_ns is not None:
                sent_ns = self._first_request.sent_ns
            if self._call.whole_ns is not None and limits.first_token_ms is not None:
                return (
                    "first token",
                    sent_ns,
                    limits.first_token_ms + self._call.whole_ns // NS_PER_MS,
                )
            if not self._status:
                return "head", sent_ns, limits.head_ms
            return "first token", sent_ns, limits.first_token_ms
        if self._pending is None:
            return "between tokens", self._timeline.last_activity_ns, limits.stall_ms
        if self._pending.paused:  # the caller does not read
            return "between tokens", self._timeline.last_activity_ns, None
        return (
            "between tokens",
            max(self._timeline.last_activity_ns, self._pending.resumed_ns),
            limits.stall_ms,
        )

    def _next_deadline(self) -> int | None:
        """Return the earliest deadline that would pass if nothing more arrived."""
        if self._complete:
            return self._last_ns + LINGER_NS
        if self._finished_ns is not None:
            return self._due(self._finished_ns, FINISHED_NS // NS_PER_MS)
        _, since_ns, limit_ms = self._waiting_for()
        due_ns = self._due(since_ns, limit_ms)
        if self._rate_check is None or (self._pending is not None and self._pending.paused):
            return due_ns
        return self._rate_check.due_ns if due_ns is None else min(due_ns, self._rate_check.due_ns)

    def _due(self, since_ns: int, limit_ms: int | None) -> int | None:
        """Return the deadline of a phase that began at `since_ns`, or that of the call if it is
        earlier."""
        deadline_ns = self.deadline_ns
        if limit_ms is None:
            return deadline_ns
        due_ns = since_ns + limit_ms * NS_PER_MS
        return due_ns if deadline_ns is None else min(due_ns, deadline_ns)

    def _overdue(self, due_ns: int) -> Fault:
        phase, since_ns, limit_ms = self._waiting_for()
        if due_ns == self.deadline_ns:
            return overdue(phase, due_ns - self._timeline.start_ns)
        return overdue(phase, due_ns - since_ns, limit_ms)

    # Called by the caller.

    def record_first_request(self, exchange: Exchange) -> None:
        """Record that `exchange` has sent a request before the actual one. The attempt's times
        begin with it."""
        self._first_request = _sending(exchange)

    def request_sent(self, exchange: Exchange) -> None:
        """Record that transport has written the first byte. From now on deadlines apply."""
        if self.observation is not None:  # it failed while it was written
            exchange.close()
            return
        self._exchange = exchange
        first, since_ns = self._first_request, exchange.sent_ns
        if first is not None and first.sent_ns is not None:
            since_ns = first.sent_ns
        due_ns = self._due(since_ns, self._config.timeouts.head_ms)
        if due_ns is not None:
            self._config.timers.set(self, due_ns, exchange.sent_ns)

    def abandon(self, fault: Fault | None, at: int) -> None:
        """End without a reply: transport could not send the request (`fault`), or the caller gave
        up (None)."""
        self._complete = True
        self._settle(at, fault, cancelled=fault is None)

    async def first_token(self) -> None:
        """Return when the first token has arrived or the stream ended well; raise the `Fault`
        otherwise."""
        timeline = self._timeline
        while not timeline.has_token and not self._complete and self.observation is None:
            await self._woken()
        if not timeline.has_token:
            if self._fault is not None:
                raise self._fault
            self.empty = self._complete

    def _woken(self) -> "asyncio.Future[None]":
        self._waiter = asyncio.get_running_loop().create_future()
        return self._waiter

    @property
    def complete(self) -> bool:
        return self._complete and self._fault is None

    @property
    def token_ns(self) -> int:
        return self._timeline.last_activity_ns

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

    async def collected(self) -> list[Event]:
        self._gathers = True  # wakes up once, not for each token
        while self.observation is None:
            await self._woken()
        return self.arrived()

    async def finished(self) -> None:
        if self._buffer is not None:
            self._buffer = None
            self._decoder.in_runs = self._transcoder is None  # nobody reads the events one by one
            if self._exchange is not None and self._pending is None and self._decoder.in_runs:
                self._exchange.take_packets = self._packets_received
        pending, self._pending = self._pending, None
        if pending is not None and pending.paused and self._exchange is not None:
            self._resume_reading(pending, self._exchange)
        while self.observation is None:
            await self._woken()

    async def read(self) -> bytes:
        pending = self._pending
        if pending is None:
            raise RuntimeError(
                "read() needs a target that was connected with raw=True, or a watched call"
            )
        # to wake up once, not for each token
        gathers = self._gathers = not self._call.stream and self._buffer is None
        least = pending.limit if gathers else 0
        while pending.size <= least and not self._complete and self.observation is None:
            await self._woken()
        if not pending.size:
            if self._fault is not None:
                raise self._fault
            return b""
        data = pending.take()
        if pending.paused and self._exchange is not None:
            self._resume_reading(pending, self._exchange)
        return data

    def pass_on(self, take: Callable[[bytes], bool]) -> None:
        if self._buffer is None and self.observation is None:  # afterwards it would only be a cycle
            self._take = take

    def _resume_reading(self, pending: PendingBytes, exchange: Exchange) -> None:
        """Read the provider's socket again. The time that the reader took is not the provider's."""
        now_ns = clock.now_ns()
        pending.resume(exchange, now_ns)
        if self._rate_check is not None:
            self._rate_check.restart(now_ns)
        self._restart_timer()

    async def aclose(self) -> None:
        if self.observation is not None or (self._complete and self._fault is None):
            return  # ended; or complete, and the timer waits for the end of the body
        self._settle(self._last_ns, cancelled=not self._complete)


class MeteredAttempt(Attempt, eq=False, kw_only=True):
    """An attempt of a call whose cost is limited: its meter is read every `METERED_BYTES` of the
    body."""

    _metered_at: int = 0  # bytes of the body
    _metered_texts: int = 0  # content events whose characters are counted
    _characters: int = 0
    _media_characters: int = 0

    def body_received(self, at: int, lag: int, source: ArrivalClock, data: bytes) -> None:
        Attempt.body_received(self, at, lag, source, data)
        size = self._timeline.body_bytes
        if size - self._metered_at >= METERED_BYTES and not self._complete:
            self._metered_at = size
            self._read_meter(at)

    def _take_events(self, events: list[Event], *, last: bool = False) -> None:
        for event in events:
            if isinstance(event, Token) and event.kind in _MEDIA:
                self._media_characters += len(event.text)
        Attempt._take_events(self, events, last=last)

    def _read_meter(self, at: int) -> None:
        lengths, meter = self._timeline.lengths, self._call.notes.meter
        self._characters += sum(lengths[self._metered_texts :])
        self._metered_texts = len(lengths)
        tokens = max(
            len(lengths), (self._characters - self._media_characters) // CHARACTERS_PER_TOKEN
        )
        if meter is not None and (fault := meter(self.target, tokens)) is not None:
            self._break(at, fault)
