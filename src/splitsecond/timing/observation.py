"""What one attempt turned out to be: made once when it ends, frozen, never updated.

All times are monotonic nanoseconds; a run keeps one wall-clock moment beside its monotonic one, so that they can be
dated. What did not happen is None. Figures (TTFT, TPS, …) are not stored but computed here, by the definitions
below, so that no two places can disagree on them.

An observation holds no price (prices change; cost is computed from the token counts with the price's date) and no
prompt or answer text.
"""

from typing import Literal

from msgspec import Struct

from splitsecond.events import RateLimits

Outcome = Literal["ok", "failed", "cancelled"]
Role = Literal["measured", "warmup", "calibration", "probe", "winner", "loser"]
TokenSource = Literal["usage", "tokenizer", "events", ""]


class FaultRecord(Struct, frozen=True, omit_defaults=True):
    """A `Fault` at rest: its type's name, its fixed `kind`, its phase, and what it said."""

    type: str
    kind: str
    phase: str
    message: str
    status: int = 0
    hint: str = ""
    retry_after_ns: int | None = None


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt: one request to one target. A call may need several (race, retry).

    Connection: `dns_ns`, `tcp_ns`, `tls_ns` are durations, 0 when the connection was `reused`. `rtt_ns` is the
    kernel's smoothed round-trip time of the connection (TCP_INFO), None where the system has none. `resent`: the
    first connection turned out dead before anything was answered, so the request went out again.

    Order of the moments: due <= start <= sent <= head <= first_event <= first_token <= last_token <= end. `start` is
    when the call came in (before any connecting), `sent` the first byte of the request on a ready connection.

    `token_at` holds the arrival of each content event, `token_lengths` the characters it carried (to share out N over
    events that carried several tokens), `tokens_so_far` the provider's running count where it sends one.

    `lag_*`: how long arrived bytes waited until we looked at them; the instrument's own lateness. `kernel_time`: the
    arrivals are kernel receive timestamps; otherwise they are the clock at the top of the read callback.
    `max_read_tokens`: the most content events that came out of one read (a burst, or we were late).

    `limits`: what the provider said of its rate limits, in the answer's headers.

    `streamed`: the answer was asked for as a stream. Where not, its first token is all of it.
    """

    id: str
    call: str
    target: str
    condition: str = ""
    role: Role = "measured"
    outcome: Outcome = "ok"
    fault: FaultRecord | None = None
    streamed: bool = True

    due_ns: int = 0
    start_ns: int = 0
    dns_ns: int = 0
    tcp_ns: int = 0
    tls_ns: int = 0
    reused: bool = False
    resent: bool = False
    rtt_ns: int | None = None
    sent_ns: int | None = None
    head_ns: int | None = None
    first_event_ns: int | None = None
    first_token_ns: int | None = None
    first_answer_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int = 0

    token_at: list[int] = []
    token_lengths: list[int] = []
    tokens_so_far: list[int] = []

    status: int = 0
    finish_reason: str = ""
    done_marker: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    token_source: TokenSource = ""

    events: int = 0
    body_bytes: int = 0
    lag_max_ns: int = 0
    lag_sum_ns: int = 0
    reads: int = 0
    kernel_time: bool = False
    max_read_tokens: int = 0
    server_timings: dict[str, float] = {}
    limits: RateLimits | None = None

    @property
    def ok(self) -> bool:
        """Whether the answer came whole."""
        return self.outcome == "ok"

    @property
    def ttft_ns(self) -> int | None:
        """Time to first token: first_token − sent."""
        if self.first_token_ns is None or self.sent_ns is None:
            return None
        return self.first_token_ns - self.sent_ns

    @property
    def ttft_cold_ns(self) -> int | None:
        """Time to first token with the connection's set-up: DNS, TCP and TLS added to TTFT."""
        if self.first_token_ns is None or self.sent_ns is None:
            return None
        return self.first_token_ns - self.sent_ns + self.dns_ns + self.tcp_ns + self.tls_ns

    @property
    def ttft_due_ns(self) -> int | None:
        """Time to first token counted from when the request was due: free of coordinated omission."""
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
    def response_ns(self) -> int | None:
        """Response time, end to end from when the request was due (service time is `e2e_ns`)."""
        if self.last_token_ns is None or not self.due_ns:
            return None
        return self.last_token_ns - self.due_ns

    @property
    def late_ns(self) -> int | None:
        """How late the request left: sent − due. Our own lateness plus connecting and waiting for a free slot."""
        if self.sent_ns is None or not self.due_ns:
            return None
        return self.sent_ns - self.due_ns

    @property
    def streamed_tokens(self) -> int | None:
        """N: output tokens that were streamed. Reasoning that was billed but never shown does not count."""
        if self.output_tokens is None:
            return None
        hidden_reasoning = (self.reasoning_tokens or 0) if self.first_answer_ns == self.first_token_ns else 0
        return max(self.output_tokens - hidden_reasoning, 0)

    @property
    def first_event_tokens(self) -> int:
        """n1: tokens in the first content event.

        The provider's running count says it exactly where there is one. Where there are fewer events than tokens the
        first event's share of the characters tells; else it is 1.
        """
        if self.tokens_so_far:
            return max(self.tokens_so_far[0], 1)
        n, events = self.streamed_tokens, len(self.token_lengths)
        if n is None or events == 0 or n <= events:
            return 1
        return max(1, round(n * self.token_lengths[0] / max(sum(self.token_lengths), 1)))

    @property
    def tps(self) -> float | None:
        """Tokens per second after the first token: (N − n1) / (last_token − first_token).

        None, not 0, below two tokens or when all arrived at once.
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
        """Production speed: N / (end − start), connection and wait included; successful requests only."""
        if not self.ok or self.output_tokens is None or self.end_ns <= self.start_ns:
            return None
        return self.output_tokens * 1e9 / (self.end_ns - self.start_ns)

    @property
    def gaps_ns(self) -> list[int]:
        """ITL, raw: the gaps between content events, in order."""
        return [b - a for a, b in zip(self.token_at, self.token_at[1:], strict=False)]
