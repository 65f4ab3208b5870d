"""One stream in, one observation out.

`Timeline` is fed by whoever runs the attempt, in the order in which things happen, and gives its `Observation` once.
It never reads the clock: each moment arrives with the event. `took` runs once for each socket read of a measurement,
so it does little: it appends the arrival and the length of each content event and leaves all arithmetic to the end.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from splitsecond.errors import Fault, ProviderFault
from splitsecond.events import Broken, Done, Event, Finish, RateLimits, Token, TokenRun, Usage
from splitsecond.timing.observation import FaultRecord, Observation, Outcome, TokenSource


def record_fault(fault: Fault) -> FaultRecord:
    """A fault as it is kept in an observation."""
    return FaultRecord(
        type=type(fault).__name__,
        kind=fault.kind,
        phase=fault.phase,
        message=fault.message,
        status=getattr(fault, "status", 0),
        hint=fault.hint,
        retry_after_ns=getattr(fault, "retry_after_ns", None),
    )


class Sending(Struct, frozen=True):
    """How the request went out; `sent_ns` None: it did not. See `Observation` for the fields."""

    sent_ns: int | None = None
    dns_ns: int = 0
    tcp_ns: int = 0
    tls_ns: int = 0
    reused: bool = False
    resent: bool = False
    rtt_ns: int | None = None


_UNSAID = Usage(0)


class Timeline(Struct, kw_only=True):
    """The moments of one attempt, while they happen. `observe` closes the book.

    `attempt`, `call`, `target`, `due_ns`, `start_ns`, `streamed` are as in `Observation`. `has_token`: the first token
    has arrived. `ended_well`, `broken`: what the stream said of its own end. `limits`: what its head said of those.
    """

    attempt: str
    call: str
    target: str
    due_ns: int = 0
    start_ns: int = 0
    streamed: bool = True
    has_token: bool = False
    ended_well: bool = False
    broken: Fault | None = None
    limits: RateLimits | None = None
    _status: int = 0
    _head_ns: int | None = None
    _first_event_ns: int | None = None
    _first_answer_ns: int | None = None
    _token_at: list[int] = []
    _lengths: list[int] = []
    _so_far: list[int] = []
    _usage: Usage = _UNSAID
    _finish_reason: str = ""
    _done_marker: bool = False
    _events: int = 0
    _body_bytes: int = 0
    _reads: int = 0
    _lag_max_ns: int = 0
    _lag_sum_ns: int = 0
    _kernel_time: bool = True
    _max_read_tokens: int = 0

    @property
    def last_activity_ns(self) -> int:
        """When the last content event arrived, 0 before the first. A ping does not count: it is not progress."""
        return self._token_at[-1] if self._token_at else 0

    def head(self, at: int, status: int) -> None:
        """The status line and headers arrived."""
        self._head_ns = at
        self._status = status

    def read(self, lag: int, kernel_time: bool, size: int) -> None:
        """One socket read that brought `size` bytes of the body, `lag` ns after they had reached this machine."""
        self._reads += 1
        self._body_bytes += size
        self._lag_sum_ns += lag
        if lag > self._lag_max_ns:
            self._lag_max_ns = lag
        if not kernel_time:
            self._kernel_time = False

    def took(self, events: Sequence[Event]) -> None:
        """The events that one read completed."""
        number, tokens = len(events), 0
        for event in events:
            if isinstance(event, Token):
                tokens += 1
                self._token_at.append(event.at)
                self._lengths.append(len(event.text))
                if self._first_answer_ns is None and event.kind != "reasoning":
                    self._first_answer_ns = event.at
                if event.tokens_so_far is not None:
                    self._so_far.append(event.tokens_so_far)
            elif isinstance(event, Finish):
                self._finish_reason = event.reason
            elif isinstance(event, Usage):
                self._usage = event
            elif isinstance(event, Done):
                self._done_marker = event.marker
                self.ended_well = True
            elif isinstance(event, TokenRun):
                run = len(event.lengths)
                number += run - 1
                tokens += run
                self._token_at.extend([event.at] * run)
                self._lengths.extend(event.lengths)
                if self._first_answer_ns is None:
                    self._first_answer_ns = event.at
            elif isinstance(event, Broken):
                self.broken = event.fault
        if number and self._first_event_ns is None:
            self._first_event_ns = events[0].at
        self._events += number
        if tokens > self._max_read_tokens:
            self.has_token = True
            self._max_read_tokens = tokens

    def observe(
        self,
        *,
        end_ns: int,
        fault: Fault | None = None,
        cancelled: bool = False,
        sending: Sending,
        server_timings: dict[str, float] | None = None,
    ) -> Observation:
        """The observation of this attempt, which ended at `end_ns`.

        A fault given here or seen on the stream makes it "failed"; so does an answer that ended well without one
        token (kind "empty_answer"), because nothing about its speed can be said. Otherwise `cancelled` says that we
        closed it before its end.
        """
        fault, token_at, usage = fault or self.broken, self._token_at, self._usage
        if fault is None and not cancelled and not token_at:
            fault = ProviderFault(
                f"the answer ended without a single token (finish reason {self._finish_reason or 'not given'!r})",
                kind="empty_answer",
                phase="first token",
                status=self._status,
            )
        outcome: Outcome = "failed" if fault else "cancelled" if cancelled else "ok"
        output_tokens, source = self._count()
        first_ns = last_ns = None
        if token_at:
            first_ns, last_ns = token_at[0], token_at[-1]
        return Observation(
            id=self.attempt,
            call=self.call,
            target=self.target,
            outcome=outcome,
            due_ns=self.due_ns,
            start_ns=self.start_ns,
            reused=sending.reused,
            rtt_ns=sending.rtt_ns,
            sent_ns=sending.sent_ns,
            head_ns=self._head_ns,
            first_event_ns=self._first_event_ns,
            first_token_ns=first_ns,
            first_answer_ns=self._first_answer_ns,
            last_token_ns=last_ns,
            end_ns=end_ns,
            token_at=token_at,
            token_lengths=self._lengths,
            streamed=self.streamed,
            status=self._status,
            finish_reason=self._finish_reason,
            done_marker=self._done_marker,
            input_tokens=usage.input_tokens,
            output_tokens=output_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            token_source=source,
            events=self._events,
            body_bytes=self._body_bytes,
            lag_max_ns=self._lag_max_ns,
            lag_sum_ns=self._lag_sum_ns,
            reads=self._reads,
            kernel_time=self._kernel_time and self._reads > 0,
            max_read_tokens=self._max_read_tokens,
            server_timings=server_timings or {},
            limits=self.limits,
            **self._rare(fault, sending),
        )

    def _rare(self, fault: Fault | None, sending: Sending) -> dict[str, Any]:
        """Fields that most observations leave as they are by themselves; each that is given costs a step or two."""
        fields: dict[str, Any] = {}
        if fault is not None:
            fields["fault"] = record_fault(fault)
        if not sending.reused or sending.resent:
            fields |= {name: getattr(sending, name) for name in ("dns_ns", "tcp_ns", "tls_ns", "resent")}
        if self._so_far and len(self._so_far) == len(self._token_at):
            fields["tokens_so_far"] = self._so_far
        return fields

    def _count(self) -> tuple[int | None, TokenSource]:
        """N and where it comes from: the provider's usage, its running count, else the number of content events."""
        if self._usage.output_tokens is not None:
            return self._usage.output_tokens, "usage"
        if self._so_far:
            return self._so_far[-1], "usage"
        if self._token_at:
            return len(self._token_at), "events"
        return None, ""
