"""Record of one attempt: made once when it ends, frozen, never updated.

All times are monotonic nanoseconds; a run stores one wall-clock time together with its monotonic
time, so that they can be dated. What did not happen is None. Metrics (TTFT, TPS, …) are not stored
but computed here, so that they are defined once.

An observation contains no price (prices change; costs are computed from the token counts and the
price of a date) and no text of prompts or answers.

The strings after the fields are the source of docs/reference/observations.md.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.events import RateLimits

Outcome = Literal["ok", "failed", "cancelled"]
Role = Literal["measured", "warmup", "cooldown", "calibration", "winner", "loser"]
LOAD_ROLES: tuple[Role, ...] = ("warmup", "measured", "cooldown")
"""The roles of the requests that make the load of a condition."""
ArrivalClock = Literal["packets", "kernel", "process"]
"""What arrival times were taken from: the packets that brought the bytes, the kernel's stamp of a
read (that of its last packet), or this process's clock at the read."""
TokenSource = Literal["usage", "tokenizer", "events", "estimate", ""]

BURST_SHARE, BURST_NS = 0.02, 10 * NS_PER_MS
"""Most tokens of an answer arrived at once if they did in this last share of its time, or within
this time."""
REFUSED = 400
"""From this status on, a response is an error, which is not billed."""


class PacketCounts(Struct, frozen=True, omit_defaults=True):
    """What the packet clock has seen.

    Packets of all streams; those `lost` because the ring was full; and of our own streams those
    that came early (`reordered`), those without new bytes (`repeated`: retransmissions), and reads
    whose packets were not in the ring (`missed`), which have the kernel's time.
    """

    packets: int = 0
    lost: int = 0
    reordered: int = 0
    repeated: int = 0
    missed: int = 0

    def since(self, before: "PacketCounts") -> "PacketCounts":
        return PacketCounts(
            self.packets - before.packets,
            self.lost - before.lost,
            self.reordered - before.reordered,
            self.repeated - before.repeated,
            self.missed - before.missed,
        )


class FaultRecord(Struct, frozen=True, omit_defaults=True):
    type: str
    """Who is at fault: `CallerFault`, `ProviderFault`, `NetworkFault`, `TimedOut`, `Overloaded`,
    `AllFailed` or `InternalFault`."""
    kind: str
    """A fixed word to count by, such as `http_429`, `refused` or `truncated`."""
    phase: str
    """How far the request had come, such as `connect` or `first token`."""
    message: str
    """What happened."""
    status: int = 0
    """The HTTP status of the response, 0 without one."""
    hint: str = ""
    """What to try."""
    retry_after_ns: int | None = None
    """How long the provider asks us to wait."""


class SessionTurn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The place of a request in a session of a bench, and how much of its prompt is new.

    A session ends with its `last` request, or with one that failed (`outcome` "failed"). Any other
    was cut off at the end of measuring. One whose first request `primes` was joined in the middle:
    its turns before were not sent.
    """

    session: str
    """Identifies the session within its run."""
    branch: str = ""
    """The sub-agent of the session that sent the request; empty for the main conversation."""
    turn: int = 1
    """The number of the request within its branch, from 1."""
    new_tokens: int = 0
    """Planned input tokens that no earlier request contained."""
    reusable_tokens: int = 0
    """Planned input tokens that a prompt cache without limits would contain: the ideal."""
    wait_ns: int = 0
    """The planned tool time between the end of the answer before and this request."""
    primes: bool = False
    """Whether the request only fills the prompt cache, before the measured turns of its session."""
    last: bool = False
    """Whether it is the last request of its session."""


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt: one request to one target. A call may need several (race, retry).

    Order of the times: due <= start <= sent <= head <= first_event <= first_token <= last_token <=
    end.
    """

    id: str
    """Identifies the attempt: the id of its call and a number; `CALL.0` is the record of a policy's
    whole call."""
    call: str
    """The id of the call."""
    target: str
    """The target, or the policy for the record of a whole call."""
    condition: str = ""
    """The condition of the run, such as target and concurrency, that the attempt belongs to."""
    round: int = 0
    """The round of the run, from 1, in which it was sent; 0 outside a run's rounds."""
    inputs: int = 0
    """The texts to embed or the documents to rank that a run sent; 0 for a request whose answer is
    text."""
    valid: bool | None = None
    """Whether a run found the answer valid: of the schema, with a right call of a tool, or as
    expected. None: not checked."""
    node: str = ""
    """The node that sent it; empty in a run of one machine. Its times are on the clock of the
    machine that led the run, shifted by the difference of the two clocks, so that differences
    between them are those of the node's own clock."""
    # msgspec would leave a plain default out of the JSON
    role: Role = field(default_factory=lambda: "measured")
    """Why it was sent. `warmup` and `cooldown` requests keep the load complete around the measured
    ones; `winner` and `loser` are attempts of one call of a policy."""
    turn: SessionTurn | None = None
    """Where in a session it was sent; None outside sessions."""
    outcome: Outcome = "ok"
    """`cancelled`: we closed it before its end."""
    fault: FaultRecord | None = None
    """What failed."""
    streamed: bool = True
    """Whether the answer was requested as a stream. If not, its first token is all of it."""

    due_ns: int = 0
    """When the schedule wanted to send the request; 0 without a schedule."""
    start_ns: int = 0
    """When the call came in, before any connecting."""
    dns_ns: int = 0
    """Duration of the name lookup; 0 on a reused connection."""
    tcp_ns: int = 0
    """Duration of the TCP handshake; 0 on a reused connection."""
    tls_ns: int = 0
    """Duration of the TLS handshake; 0 on a reused connection."""
    reused: bool = False
    """Whether an open connection was reused."""
    resent: bool = False
    """Whether the request was sent again, because the server had closed the first connection
    without answering."""
    rtt_ns: int | None = None
    """The kernel's smoothed round-trip time of the connection (TCP_INFO), if the system reports
    it."""
    sent_ns: int | None = None
    """When the first byte of the request was written to a ready connection."""
    written_ns: int | None = None
    """When the kernel had taken the last byte of the request; None if it took all bytes at once."""
    head_ns: int | None = None
    """When the status line and headers arrived."""
    first_event_ns: int | None = None
    """When the first event of the stream arrived, with or without content."""
    first_token_ns: int | None = None
    """When the first content arrived."""
    first_answer_ns: int | None = None
    """When the first content that is not reasoning arrived."""
    last_token_ns: int | None = None
    """When the last content arrived."""
    end_ns: int = 0
    """When the attempt ended."""

    token_at: Sequence[int] = []
    """The arrival of each content event."""
    token_lengths: Sequence[int] = []
    """The characters in each content event, to divide the tokens among events that contain
    several."""
    tokens_so_far: Sequence[int] = []
    """The provider's running count of output tokens at each content event, if it sends one."""

    status: int = 0
    """The HTTP status, 0 without a response."""
    finish_reason: str = ""
    """Why the answer ended, in the provider's words."""
    done_marker: bool = False
    """Whether the end mark of the API format was received."""
    input_tokens: int | None = None
    """Tokens of the prompt, by the provider's count, cached ones included."""
    output_tokens: int | None = None
    """Tokens of the answer, reasoning included."""
    reasoning_tokens: int | None = None
    """Output tokens that were reasoning."""
    unstreamed_tokens: int | None = None
    """Output tokens without content of their own, besides reasoning that was not shown at all: what
    a streamed summary of the reasoning leaves out, and the token that ends an answer."""
    cached_tokens: int | None = None
    """Input tokens read from the provider's prompt cache."""
    cache_write_tokens: int | None = None
    """Input tokens written to the provider's prompt cache."""
    cache_write_1h_tokens: int | None = None
    """Of these, the tokens that were written for an hour (Anthropic), which cost more."""
    token_source: TokenSource = ""
    """Where `output_tokens` comes from: the provider's usage, a tokenizer, or the number of content
    events. `events`: the usage was missing, followed by content, or far below the number of events;
    N may be too small. `estimate`: the provider reported counts that cannot be true, so all counts
    are our own: output by content events or characters, and in the log of the gateway input by
    bytes."""

    events: int = 0
    """The number of events in the stream."""
    body_bytes: int = 0
    """The bytes of the response body."""
    lag_max_ns: int = 0
    """The longest time that received bytes waited until we read them: the lateness of the
    instrument."""
    lag_sum_ns: int = 0
    """The sum of these times over all reads."""
    reads: int = 0
    """The number of socket reads; with the packet clock, of packets."""
    kernel_time: bool = False
    """Whether arrivals are receive timestamps of the kernel; otherwise they are the clock when the
    read began."""
    packet_time: bool = False
    """Whether each arrival is the timestamp of the packet that brought it; otherwise that of the
    last packet of a read.
    """
    first_merged_ns: int = 0
    """By how much the first token was dated back, because it was read together with later ones; 0
    if it was not."""
    sparse: bool = False
    """Whether several packets were read together on purpose, without the packet clock: then the
    times of the tokens between the first and the last are upper bounds, and gaps between tokens are
    not known."""
    last_merged_ns: int = 0
    """By how much the last token can have come earlier than recorded, because it was read together
    with later packets; 0 if its time is exact."""
    max_read_tokens: int = 0
    """The most content events in one read: a burst, or we were late."""
    server_timings: dict[str, float] = {}
    """What the server reports about its own time, by its own names and in its own units."""
    tier: str = ""
    """The speed tier that served the request, in the provider's word (OpenAI's `service_tier`,
    Anthropic's `speed`); empty if the answer does not say."""
    odd_fields: list[str] = []
    """What of the answer was not as its API format says, and did not matter: names of fields with
    unusual values, and `finish_reason` if the reason is unknown."""
    limits: RateLimits | None = None
    """What the provider reports about its rate limits in the headers."""

    def compact(self) -> "Observation":
        """Return this observation with arrays instead of lists: less than a third of the memory.

        JSON has no arrays, so encode it before. Raises `OverflowError` for a number that no worker
        reports.
        """
        kinds = {"token_at": "q", "token_lengths": "I", "tokens_so_far": "I"}
        lists = {name: numbers for name in kinds if (numbers := getattr(self, name))}
        return replace(
            self, **{name: array(kinds[name], numbers) for name, numbers in lists.items()}
        )

    @property
    def clock(self) -> ArrivalClock:
        return "packets" if self.packet_time else "kernel" if self.kernel_time else "process"

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    @property
    def closed_by_us(self) -> bool:
        """Whether we closed the attempt: its answer was not wanted any more, or a deadline
        passed."""
        return is_closed_by_us(self.outcome, "" if self.fault is None else self.fault.type)

    @property
    def closed_early(self) -> bool:
        """Whether we closed the attempt after its request was sent and before its output was
        counted."""
        source = self.token_source
        if source == "usage":  # as nearly always
            return False
        fault_type = "" if self.fault is None else self.fault.type
        return is_closed_early(self.sent_ns is not None, self.outcome, fault_type, source)

    @property
    def unbilled(self) -> bool:
        """Whether the attempt is not billed: it was not sent, or refused before its first token."""
        if self.first_token_ns is not None:  # as nearly always
            return False
        return is_unbilled(self.sent_ns is not None, False, self.status)

    @property
    def ttft_ns(self) -> int | None:
        """Time to first token: first_token − sent."""
        if self.first_token_ns is None or self.sent_ns is None:
            return None
        return self.first_token_ns - self.sent_ns

    @property
    def ttft_ms(self) -> float | None:
        return _ms(self.ttft_ns)

    @property
    def ttft_sent_ns(self) -> int | None:
        """Time to first token from when the kernel had taken the last byte of the request."""
        if self.first_token_ns is None or self.sent_ns is None:
            return None
        return max(self.first_token_ns - max(self.sent_ns, self.written_ns or 0), 0)

    @property
    def ttft_cold_ns(self) -> int | None:
        """Time to first token including the set-up of the connection: TTFT plus DNS, TCP and
        TLS."""
        if self.first_token_ns is None or self.sent_ns is None:
            return None
        return self.first_token_ns - self.sent_ns + self.dns_ns + self.tcp_ns + self.tls_ns

    @property
    def ttft_due_ns(self) -> int | None:
        """Time to first token counted from when the request was due: free of coordinated
        omission."""
        if self.first_token_ns is None or not self.due_ns:
            return None
        return self.first_token_ns - self.due_ns

    @property
    def first_answer_after_ns(self) -> int | None:
        """Time to first answer: first_answer − sent; the first token that is not reasoning."""
        if self.first_answer_ns is None or self.sent_ns is None:
            return None
        return self.first_answer_ns - self.sent_ns

    @property
    def e2e_ns(self) -> int | None:
        """End to end: last_token − sent."""
        if self.last_token_ns is None or self.sent_ns is None:
            return None
        return self.last_token_ns - self.sent_ns

    @property
    def e2e_ms(self) -> float | None:
        return _ms(self.e2e_ns)

    @property
    def latency_ns(self) -> int | None:
        """Latency of an answer that is no text: end − sent."""
        return None if self.sent_ns is None else self.end_ns - self.sent_ns

    @property
    def latency_due_ns(self) -> int | None:
        """Latency of an answer that is no text, from when the request was due: end − due."""
        return self.end_ns - self.due_ns if self.due_ns else None

    @property
    def response_ns(self) -> int | None:
        """Response time, end to end from when the request was due (service time is `e2e_ns`)."""
        if self.last_token_ns is None or not self.due_ns:
            return None
        return self.last_token_ns - self.due_ns

    @property
    def late_ns(self) -> int | None:
        """How late the request left: sent − due. Our own lateness plus connecting and waiting for a
        free slot."""
        if self.sent_ns is None or not self.due_ns:
            return None
        return self.sent_ns - self.due_ns

    @property
    def streamed_tokens(self) -> int | None:
        """N: output tokens that were streamed. What was billed but not streamed does not count."""
        if self.output_tokens is None:
            return None
        hidden_reasoning = (
            (self.reasoning_tokens or 0) if self.first_answer_ns == self.first_token_ns else 0
        )
        return max(self.output_tokens - hidden_reasoning - (self.unstreamed_tokens or 0), 0)

    @property
    def first_event_tokens(self) -> int:
        """n1: tokens that arrived with the first one; N if so many arrived at once that the speed
        is not known.

        Tokens that arrived at once were held back somewhere, for about the time that so many take.
        If that is more than half of the time between the first token and the last, a short time
        says nothing about the speed.

        The provider's running count is exact, if there is one. With fewer events than tokens, they
        are the events' share of the characters; otherwise one for each event.
        """
        n, events, at_once = self.streamed_tokens, len(self.token_lengths), self.max_read_tokens
        if not events or not self.token_at or n is None:
            return max(self.tokens_so_far[0], 1) if self.tokens_so_far else 1
        if events == 1 and self.token_lengths[0] and not self.tokens_so_far:
            return max(n, 1)  # all of them, as in an answer that is not streamed
        first = bisect_right(self.token_at, self.token_at[0]) if at_once > 1 else 1
        if len(self.tokens_so_far) == events:
            first = self.tokens_so_far[first - 1]
        elif n > events:
            characters = max(sum(self.token_lengths), 1)
            first = round(n * sum(self.token_lengths[:first]) / characters)
            at_once = max(at_once, round(n * max(self.token_lengths) / characters))
        first = max(first, 1)
        held_back = 0 if self.sparse else max(at_once, first) - 1
        if 2 * held_back <= n - first:
            return first
        span = self.token_at[-1] - self.token_at[0]
        return max(n, 1) if span <= max(BURST_SHARE * (self.e2e_ns or 0), BURST_NS) else first

    @property
    def tps(self) -> float | None:
        """Tokens per second after the first token: (N − n1) / (last_token − first_token).

        None, not 0, below two tokens, or if all arrived at once.
        """
        if self.first_token_ns is None or self.last_token_ns is None:
            return None
        span = self.last_token_ns - self.first_token_ns
        n = self.streamed_tokens if span > 0 else None
        if n is None:
            return None
        tokens = n - self.first_event_tokens
        return tokens * 1e9 / span if tokens >= 1 else None

    @property
    def tpot_ns(self) -> float | None:
        """Time per output token, 1/TPS."""
        tps = self.tps
        return None if tps is None else 1e9 / tps

    @property
    def total_tps(self) -> float | None:
        """Return total TPS, the production speed: output tokens / (end − start).

        It counts from the arrival of the call, connecting and waiting included, so a target that
        answers after a fallback is charged for the wait. None for a request that failed or has no
        count, or a count of 0.
        """
        if not self.ok or not self.output_tokens or self.end_ns <= self.start_ns:
            return None
        return self.output_tokens * 1e9 / (self.end_ns - self.start_ns)

    @property
    def gaps_ns(self) -> list[int]:
        """ITL, raw: the gaps between content events, in order."""
        return [b - a for a, b in zip(self.token_at, self.token_at[1:], strict=False)]


def is_closed_by_us(outcome: str, fault_type: str) -> bool:
    return outcome == "cancelled" or (outcome == "failed" and fault_type == "TimedOut")


def is_closed_early(sent: bool, outcome: str, fault_type: str, token_source: str) -> bool:
    return sent and token_source != "usage" and is_closed_by_us(outcome, fault_type)


def is_unbilled(sent: bool, has_token: bool, status: int) -> bool:
    return not has_token and (not sent or status >= REFUSED)


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / 1e6
