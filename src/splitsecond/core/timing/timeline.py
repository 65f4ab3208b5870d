"""Timeline of one attempt: records events as they happen, and makes the observation at the end.

`record_events` runs once for each socket read of a measurement, so it does little: it appends the
arrival and the length of each content event, and leaves all arithmetic to the end.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core.errors import Fault, ProviderFault, provider_word
from splitsecond.core.events import (
    Broken,
    Done,
    Event,
    Finish,
    RateLimits,
    Token,
    TokenRun,
    Usage,
    WholeText,
)
from splitsecond.core.finish_reasons import LONGEST_REASON
from splitsecond.core.observation import (
    ArrivalClock,
    FaultRecord,
    Observation,
    Outcome,
    Role,
    TokenSource,
)
from splitsecond.core.service import RateFloor
from splitsecond.core.timing.rate_floor import RateCheck
from splitsecond.core.timing.unstreamed import unstreamed_tokens


def record_fault(fault: Fault) -> FaultRecord:
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
    sent_ns: int | None = None
    written_ns: int = 0
    dns_ns: int = 0
    tcp_ns: int = 0
    tls_ns: int = 0
    reused: bool = False
    resent: bool = False
    rtt_ns: int | None = None


MAX_EVENTS_PER_TOKEN = 10
"""Content events for each token of a count that can be true: some servers split a token into its
bytes."""
_UNSAID = Usage(0)
_PRECISION: dict[ArrivalClock, int] = {"process": 0, "kernel": 1, "packets": 2}


class Timeline(Struct, kw_only=True):
    """The times of one attempt while it runs. `observe` makes its observation.

    `call`, `target`, `condition`, `role`, `due_ns`, `start_ns`, `streamed` are as in `Observation`,
    `attempt` is its id. `has_token`: the first token has arrived. `ended_well`, `broken`: how the
    stream ended. `limits`: the rate limits in the headers.
    """

    attempt: str
    call: str
    target: str
    condition: str = ""
    role: Role = "measured"
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
    _events_at_usage: int | None = None
    _finish_reason: str = ""
    _done_marker: bool = False
    _events: int = 0
    _body_bytes: int = 0
    _reads: int = 0
    _lag_max_ns: int = 0
    _lag_sum_ns: int = 0
    _clock: ArrivalClock = "packets"
    _max_read_tokens: int = 0
    _first_read_tokens: int = 0
    _first_read_packets: int = 1
    _first_read_after_ns: int = 0
    _sparse: bool = False
    _last_merged_ns: int = 0

    @property
    def body_bytes(self) -> int:
        return self._body_bytes

    @property
    def last_activity_ns(self) -> int:
        return self._token_at[-1] if self._token_at else 0

    @property
    def lengths(self) -> Sequence[int]:
        return self._lengths

    @property
    def has_finish(self) -> bool:
        return bool(self._finish_reason)

    def rate_check(self, floor: RateFloor) -> RateCheck:
        return RateCheck(floor, self._token_at, self._lengths)

    def record_head(self, at: int, status: int) -> None:
        self._head_ns = at
        self._status = status

    def record_read(self, lag: int, clock: ArrivalClock, size: int) -> None:
        self._body_bytes += size
        self._reads += 1
        self._lag_sum_ns += lag
        if lag > self._lag_max_ns:
            self._lag_max_ns = lag
        if clock != self._clock and _PRECISION[clock] < _PRECISION[self._clock]:
            self._clock = clock

    def record_packets(self, times: Sequence[int], read_ns: int, size: int) -> None:
        self._body_bytes += size
        self._reads += len(times)
        self._lag_sum_ns += len(times) * read_ns - sum(times)
        self._lag_max_ns = max(self._lag_max_ns, read_ns - times[0])

    def record_first_read(self, packets: int, after_ns: int) -> None:
        """Record that the read with the first token, whose events were recorded, held `packets`
        packets.

        All of them arrived after `after_ns`.
        """
        self._first_read_packets, self._first_read_after_ns = packets, after_ns
        self._first_read_tokens = len(self._token_at)

    def record_sparse_read(self, events: Sequence[Event], packets: int, after_ns: int) -> None:
        """Record that `events`, which were recorded, were read together on purpose, in a read of
        `packets` packets.

        No events: only texts. All packets arrived after `after_ns`. If tokens are followed by other
        events, the last token came before the time of the read; otherwise its packet was the last
        one.
        """
        self._sparse = True
        last = events[-1] if events else None
        if last is None or isinstance(last, Token | TokenRun):
            self._last_merged_ns = 0
        elif self._token_at and self._token_at[-1] == last.at:
            self._last_merged_ns = last.at - after_ns if packets > 1 else 0

    def expected_at(self, number: int) -> int:
        token_at = self._token_at
        gaps = max(len(token_at) - 1, 1)
        return token_at[-1] + (number - len(token_at)) * (token_at[-1] - token_at[0]) // gaps

    def record_events(self, events: Sequence[Event]) -> None:
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
            elif isinstance(event, TokenRun):
                run = len(event.lengths)
                times = event.times or [event.at] * run
                number += run - 1
                tokens += 1 if event.times else run
                self._token_at.extend(times)
                self._lengths.extend(event.lengths)
                if self._first_answer_ns is None:
                    self._first_answer_ns = times[0]
            elif isinstance(event, WholeText):
                number += 3
                tokens = 1
                self._token_at = [event.at]
                self._lengths = [event.length]
                self._first_answer_ns = event.at
                self._finish_reason = provider_word(event.reason, LONGEST_REASON)
                self._usage = event.usage
                self.ended_well = True
            else:
                self._record_end(event)
        if number and self._first_event_ns is None:
            self._first_event_ns = events[0].at
        self._events += number
        if tokens > self._max_read_tokens:
            self.has_token = True
            self._max_read_tokens = tokens

    def _record_end(self, event: Event) -> None:
        if isinstance(event, Finish):
            self._finish_reason = provider_word(event.reason, LONGEST_REASON)
        elif isinstance(event, Usage):
            self._usage = event
            self._events_at_usage = len(self._token_at)
        elif isinstance(event, Done):
            self._done_marker = event.marker
            self.ended_well = True
        elif isinstance(event, Broken):
            self.broken = event.fault

    def record_texts(self, at: int, lengths: Sequence[int]) -> None:
        number = len(lengths)
        self._events += number
        self._token_at += [at] * number
        self._lengths += lengths
        if self._first_answer_ns is None:
            self._first_answer_ns = at
        if number > self._max_read_tokens:
            self._max_read_tokens = number

    def observe(
        self,
        *,
        end_ns: int,
        fault: Fault | None = None,
        cancelled: bool = False,
        sending: Sending,
        server_timings: dict[str, float] | None = None,
        tier: str = "",
        odd_fields: Sequence[str] = (),
    ) -> Observation:
        """Return the observation of this attempt, which ended at `end_ns`.

        It is "failed" if there is a `fault` or the stream reported one, or if the answer ended well
        without a token (kind "empty_answer"), because then it has no speed. Otherwise `cancelled`
        means that we closed it before its end. `tier`: the speed tier that served it; `odd_fields`:
        see `Observation`.
        """
        fault, token_at, usage = fault or self.broken, self._token_at, self._usage
        if fault is None and not cancelled and not token_at:
            fault = ProviderFault(
                f"the answer ended without a single token (finish reason "
                f"{self._finish_reason or 'not given'!r})",
                kind="empty_answer",
                phase="first token",
                status=self._status,
            )
        outcome: Outcome = "failed" if fault else "cancelled" if cancelled else "ok"
        output_tokens, source = self._count()
        first_ns = last_ns = None
        merged_ns = self._date_back() if self._first_read_packets > 1 else 0
        if token_at:
            first_ns, last_ns = token_at[0], token_at[-1]
        # In three parts: for more than 15 keyword arguments Python builds a dictionary, which takes
        # far longer.
        begun = Observation(
            id=self.attempt,
            call=self.call,
            target=self.target,
            condition=self.condition,
            role=self.role,
            outcome=outcome,
            streamed=self.streamed,
            due_ns=self.due_ns,
            start_ns=self.start_ns,
            reused=sending.reused,
            rtt_ns=sending.rtt_ns,
            sent_ns=sending.sent_ns,
            head_ns=self._head_ns,
            first_event_ns=self._first_event_ns,
            first_token_ns=first_ns,
        )
        answered = replace(
            begun,
            first_answer_ns=self._first_answer_ns,
            last_token_ns=last_ns,
            end_ns=end_ns,
            token_at=token_at,
            token_lengths=self._lengths,
            status=self._status,
            finish_reason=self._finish_reason,
            done_marker=self._done_marker,
            input_tokens=usage.input_tokens,
            output_tokens=output_tokens,
            reasoning_tokens=usage.reasoning_tokens,
            cached_tokens=usage.cached_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            cache_write_1h_tokens=usage.cache_write_1h_tokens,
            token_source=source,
        )
        observation = replace(
            answered,
            events=self._events,
            body_bytes=self._body_bytes,
            lag_max_ns=self._lag_max_ns,
            lag_sum_ns=self._lag_sum_ns,
            reads=self._reads,
            kernel_time=self._clock != "process" and self._reads > 0,
            max_read_tokens=self._max_read_tokens,
            server_timings=server_timings or {},
            tier=tier,
            limits=self.limits,
        )
        rare = self._rare(fault, sending, merged_ns, output_tokens)
        if odd_fields:
            rare["odd_fields"] = list(odd_fields)
        return replace(observation, **rare) if rare else observation

    def _date_back(self) -> int:
        """Date back the tokens of the read with the first one, if its packets were merged; return
        by how much.

        The read has the time of its last packet. With several packets and tokens, the first token
        came earlier: by the mean gap between the later tokens for each packet between them, but
        after the headers and after the socket was last seen empty.
        """
        token_at, together = self._token_at, self._first_read_tokens
        merged = min(together, self._first_read_packets) - 1
        if merged < 1 or len(token_at) <= together:
            return 0
        at = token_at[0]
        gap_ns = (token_at[-1] - at) / (len(token_at) - together)
        head_ns = self._head_ns if self._head_ns is not None and self._head_ns < at else 0
        first_ns = min(max(at - round(merged * gap_ns), head_ns, self._first_read_after_ns), at)
        token_at[:together] = [
            at - (at - first_ns) * (together - 1 - i) // (together - 1) for i in range(together)
        ]
        if self._first_event_ns == at:
            self._first_event_ns = first_ns
        if self._head_ns == at:
            self._head_ns = first_ns
        if self._first_answer_ns == at:
            self._first_answer_ns = first_ns
        return at - first_ns

    def _rare(
        self, fault: Fault | None, sending: Sending, merged_ns: int, output_tokens: int | None
    ) -> dict[str, Any]:
        """Return the fields that have their defaults in most observations. Passing all of them
        would cost time."""
        fields: dict[str, Any] = {}
        if fault is not None:
            fields["fault"] = record_fault(fault)
        if not sending.reused or sending.resent:
            fields["dns_ns"], fields["tcp_ns"] = sending.dns_ns, sending.tcp_ns
            fields["tls_ns"], fields["resent"] = sending.tls_ns, sending.resent
        if sending.written_ns:
            fields["written_ns"] = sending.written_ns
        usage, so_far, events = self._usage, self._so_far, len(self._token_at)
        has_counts = bool(so_far) and len(so_far) == events and not usage.implausible
        if has_counts:
            fields["tokens_so_far"] = so_far
        # Without reasoning, only the token that ends an answer has no content of its own.
        if usage.reasoning_tokens or output_tokens == events + 1:
            unstreamed = unstreamed_tokens(
                output_tokens,
                usage.reasoning_tokens,
                token_at=self._token_at,
                lengths=self._lengths,
                first_answer_ns=self._first_answer_ns,
                finish_reason=self._finish_reason,
                counted=has_counts,
            )
            if unstreamed:
                fields["unstreamed_tokens"] = unstreamed
        if self._clock == "packets" and self._reads:
            fields["packet_time"] = True
        if merged_ns:
            fields["first_merged_ns"] = merged_ns
        if self._sparse:
            fields |= {"sparse": True, "last_merged_ns": self._last_merged_ns}
        return fields

    def _count(self) -> tuple[int | None, TokenSource]:
        """Return N and its source: the provider's usage, its running count, or the number of
        content events.

        A usage of 0 next to content is not a count, and one that cannot be true is replaced by the
        number of events. Usage that was followed by content is not final, and one far below the
        number of events is not of this answer: then the larger number is at most too small, and its
        source is "events".
        """
        events, usage = len(self._token_at), self._usage
        if usage.implausible:
            return events, "estimate"
        if output := usage.output_tokens:
            final = self._events_at_usage in (None, events)
            if final and output * MAX_EVENTS_PER_TOKEN >= events:
                return output, "usage"
            hidden = (
                (usage.reasoning_tokens or 0) if self._first_answer_ns == self._token_at[0] else 0
            )
            return max(output, hidden + events), "events"
        if output == 0 and not any(self._lengths):  # vectors and rankings have no characters
            return 0, "usage"
        if self._so_far and self._so_far[-1]:
            complete = len(self._so_far) == events
            return (
                (self._so_far[-1], "usage")
                if complete
                else (max(self._so_far[-1], events), "events")
            )
        return (events, "events") if events else (None, "")
