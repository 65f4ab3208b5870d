"""State of one target: circuit breaker, rate limit, measured speed, and the requests in flight.

Targets of one account share its `AccountKey`: a key that is refused is refused for all of them.
Only an error code of the provider refuses a key. A status that the model, the size or the content
of one request can cause (401, 402, 403, 404, 429, 500) is about the target, and as far as is known
only about that client or that size.
"""

from itertools import islice
from random import Random
from typing import Literal, NamedTuple

from msgspec import Struct

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import KEY_REFUSED
from splitsecond.core.events import RateLimits
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Reply
from splitsecond.core.session import CallSession
from splitsecond.routing.targets.circuit_breaker import PROBE_PROGRESS_NS, CircuitBreaker
from splitsecond.routing.targets.conversations import MIN_CACHED, Conversations, replaces
from splitsecond.routing.targets.credit import KEY_RETRY_NS, CreditLimit
from splitsecond.routing.targets.estimate import SpeedEstimate
from splitsecond.routing.targets.headroom import RateLimitHeadroom
from splitsecond.routing.targets.prompt_cache import PromptCacheModel, TurnAtTarget
from splitsecond.routing.targets.silence_detector import SilenceDetector
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.verdict import AttemptVerdict, verdict
from splitsecond.routing.targets.whole_answers import PATIENCE, WholeAnswers

NEVER_NS = 1 << 62
MAX_LATE = 8
"""How many turns in flight are examined for lateness, the oldest."""
LAST_RESORT_NS = 20 * NS_PER_S
"""How often a target that is down is asked because all others have failed for the same call."""
PROBE_PATIENCE = 3
"""The timeout of a probe, as a multiple of the 95th percentile of the target's time to first
token."""
MIN_PROBE_TIMEOUT_NS = 10 * NS_PER_S
RATE_LIMITED = "http_429"
"""The kind of fault of a request that exceeded a rate limit."""

StateName = Literal[
    "up", "untested", "degraded", "down", "probing", "returning", "limited", "locked"
]


class AccountKey:
    """State of an account's key: a provider accepts it, or has refused it.

    `refused_until_ns`: when the key may be tried again; 0: it is not refused.
    """

    __slots__ = ("_refused_ns", "reason", "refused_until_ns", "worked")

    def __init__(self) -> None:
        self.refused_until_ns = 0
        self.reason = ""
        self.worked = False
        self._refused_ns = 0

    def record_accepted(self, began_ns: int) -> None:
        self.worked = True
        if began_ns > self._refused_ns:
            self.refused_until_ns = 0

    def record_refused(self, now_ns: int, reason: str) -> None:
        self._refused_ns = now_ns
        self.refused_until_ns = now_ns + KEY_RETRY_NS if self.worked else NEVER_NS
        self.reason = reason


class Probe(NamedTuple):
    reply: Reply
    attempt: str
    began_ns: int
    first_ns: int


class TargetStatus(Struct, frozen=True, kw_only=True):
    """Summary of a target's state, for people and for metrics. Durations in ns; None: unknown.

    `state`: "up"; "untested", never asked and its speed unknown; "degraded", asked although a tenth
    or more of its latest attempts failed; "down", until a probe is allowed in `until_ns`;
    "probing", with one request; "returning", with a part of its traffic; "limited", its rate limit
    used up; "locked", its key refused (`until_ns` None: forever). `reason`: the cause, in a few
    words. `samples`: how many fresh requests the estimate of its speed is worth.
    `ttft_p50_is_bound`: the true TTFT is greater, because requests were closed before their first
    token (lost races).
    """

    target: str
    state: StateName
    until_ns: int | None = None
    reason: str = ""
    in_flight: int = 0
    samples: float = 0.0
    ttft_p50_ns: float | None = None
    ttft_p95_ns: float | None = None
    ttft_p50_is_bound: bool = False
    ttft_p95_is_bound: bool = False
    tpot_ns: float | None = None
    requests_left: int | None = None
    tokens_left: int | None = None


class TargetState:
    __slots__ = (
        "_again", "_last_resort_ns", "_probe", "_silences", "_since_ns", "_streams_all", "_unsure",
        "_whole",
        "_whole_answers", "breaker", "conversations", "credit", "estimates", "headroom",
        "in_flight", "info", "key",
        "name", "prompt_cache", "sent", "siblings", "turns", "waiting", "wanted_ns",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        info: TargetInfo,
        key: AccountKey,
        random: Random,
        siblings: "list[TargetState] | None" = None,
        conversations: Conversations | None = None,
        *,
        since_ns: int = 0,
    ) -> None:
        """`siblings`: the states of all targets at the same host. `conversations`: of all targets.
        `since_ns`: when the target became another server; earlier attempts and the reports of other
        workers are about the one before."""
        self.siblings = siblings if siblings is not None else []
        self.conversations = conversations if conversations is not None else Conversations()
        self.name = name
        self.info = info
        self.key = key
        self.breaker = CircuitBreaker(random)
        if since_ns:
            self.breaker.distrust_reports(since_ns)
        self._since_ns = since_ns
        self.headroom: RateLimitHeadroom | None = None
        self.credit: dict[str, CreditLimit] = {}
        """By client: requests for which the account had too little credit."""
        self.estimates: dict[bool, SpeedEstimate] = {}
        """Estimates by whether the answer is streamed."""
        self.sent = 0
        """How many attempts were sent; also the number of the latest one."""
        self.in_flight: dict[str, tuple[int, str, int]] = {}
        """By the key of each attempt in flight (see `record_start`): its number, its client, and
        how many others were in flight when it was sent."""
        self.waiting: dict[bool, dict[str, int]] = {True: {}, False: {}}
        """Since when each attempt waits for its first token, streamed or not; the oldest first."""
        self.wanted_ns = -NEVER_NS
        """When a call could last not go to the target because it was down."""
        self.prompt_cache = PromptCacheModel()
        self.turns: dict[str, TurnAtTarget] = {}
        """The attempts in flight that are turns of sessions, by their keys."""
        # keys of the attempts in flight that are not the first of their calls
        self._again: set[str] = set()
        self._last_resort_ns = -LAST_RESORT_NS
        self._probe: Probe | None = None
        self._silences: dict[str, SilenceDetector] = {}  # by client
        # keys of the attempts in flight that request a whole answer by choice
        self._whole: set[str] = set()
        self._whole_answers: WholeAnswers | None = None
        # keys of the attempts in flight that may get a whole answer, or a stream
        self._unsure: set[str] = set()
        # whether the target has streamed the answer to a call that is not streamed
        self._streams_all = False

    def whole_ns(self, call: Call, random: Random, now_ns: int) -> int | None:
        estimate = self.estimates.get(True)
        if estimate is None or False in self.estimates:
            return None
        if self._whole_answers is None:
            self._whole_answers = WholeAnswers()
        return self._whole_answers.allowed_ns(call, estimate, random, now_ns)

    def serves(self, call: str) -> bool:
        return call in self.in_flight or any(key.rpartition(".")[0] == call for key in self._again)

    def record_start(
        self,
        attempt: str,
        stream: bool,
        now_ns: int,
        client: str = "",
        *,
        again: bool = False,
        whole: bool = False,
    ) -> None:
        """Record that an attempt is sent to the target. `attempt` is its key: the id of its call
        or, if the call has attempted the target before (`again`), its own id. `client`: whose call
        it is. `whole`: it requests a whole answer by choice."""
        if again:
            self._again.add(attempt)
        self.sent = sent = self.sent + 1
        self.in_flight[attempt] = sent, client, len(self.in_flight)
        if whole:
            self._whole.add(attempt)
            return
        mode = self._mode(stream)
        self.waiting[mode][attempt] = now_ns
        if mode and not stream and not self._streams_all:
            self._unsure.add(attempt)
            self.waiting[mode][attempt] += self._whole_answer_ns()

    def record_turn(self, attempt: str, session: CallSession, now_ns: int) -> None:
        reusable = session.reusable_tokens
        prompt = session.new_tokens + reusable
        before = self.conversations.before(session, self.name) if reusable >= MIN_CACHED else None
        self.turns[attempt] = TurnAtTarget(session, prompt, before, len(self.in_flight), now_ns)

    def seed_turn(self, attempt: Observation, session: CallSession, came_ns: int) -> None:
        """Learn from an earlier turn, whose call came in at `came_ns` and got a first token."""
        self.record_turn(attempt.id, session, came_ns)
        turn, first_ns = self.turns.pop(attempt.id), came_ns + (attempt.first_token_ns or 0)
        self.prompt_cache.learn(turn, attempt, first_ns)
        tokens = turn.prompt + (attempt.output_tokens or 0)
        cached = self.conversations.at_targets(session).get(self.name, {}).get(session.agent)
        if cached is None or replaces(cached, session, tokens):
            self.conversations.receive(session.id, [(self.name, session.agent, tokens, first_ns)])

    def lateness(self, now_ns: int) -> float:
        """Return how many times as long as expected the turns wait that have no token yet; 1.0: not
        longer.

        A single one may be late by chance.
        """
        if len(self.turns) < 2:
            return 1.0
        waiting = self.waiting[True]
        late = [
            turn for attempt, turn in islice(self.turns.items(), MAX_LATE) if attempt in waiting
        ]
        if len(late) < 2:
            return 1.0
        waited_ns = sum(now_ns - turn.began_ns for turn in late)
        return max(waited_ns / sum(map(self.prompt_cache.expected_ns, late)), 1.0)

    def record_first_token(self, attempt: str, stream: bool, reply: Reply, now_ns: int) -> None:
        if self._silences:
            self._silences.clear()
        mode = self._mode(stream)
        began_ns = self.waiting[mode].pop(attempt, None)
        if began_ns is None:
            began_ns = self._stop_waiting(attempt, stream)
        estimate = self.estimates.get(mode)
        if estimate is not None and began_ns is not None:
            estimate.record_first_token(now_ns - began_ns, now_ns)
        if self.breaker.probe_attempt == attempt and began_ns is not None and not reply.empty:
            self._probe = Probe(reply, attempt, began_ns, now_ns)

    def record_no_reply(self, attempt: str, stream: bool) -> None:
        self._stop_waiting(attempt, stream)
        self._whole.discard(attempt)
        self._unsure.discard(attempt)
        self._again.discard(attempt)
        if self.turns:
            self.turns.pop(attempt, None)
        self.in_flight.pop(attempt, None)
        self.breaker.release_probe(attempt)

    def observe(self, observation: Observation, now_ns: int) -> None:
        attempt = observation.call
        if self._again and observation.id in self._again:
            attempt = observation.id
            self._again.remove(attempt)
        number, client, load = self.in_flight.pop(attempt, (None, "", None))
        if number is None and (observation.sent_ns or observation.start_ns) < self._since_ns:
            return
        if attempt in self._unsure:
            self._unsure.remove(attempt)
            self._streams_all = self._streams_all or observation.streamed
        if self.breaker.probe_attempt:
            self.breaker.release_probe(attempt)
        if attempt in self._whole:
            self._whole.remove(attempt)
            self._silences.clear()
        else:
            self.estimate(observation.streamed).observe(observation, load)
        if self.turns:
            self._observe_turn(self.turns.pop(attempt, None), observation, now_ns)
        if observation.limits is not None and number is not None:
            self._observe_limits(observation.limits, observation.head_ns or now_ns, number)
        if observation.outcome == "ok":
            self._record_answer(observation, now_ns, client)
        else:
            self._apply_verdict(verdict(observation), observation, now_ns, client)

    def _observe_limits(self, limits: RateLimits, head_ns: int, number: int) -> None:
        if self.headroom is None:
            self.headroom = RateLimitHeadroom()
        self.headroom.observe(limits, head_ns, number)

    def _observe_turn(
        self, turn: TurnAtTarget | None, observation: Observation, now_ns: int
    ) -> None:
        if turn is None or observation.first_token_ns is None:
            return
        self.prompt_cache.learn(turn, observation, now_ns)
        tokens = turn.prompt + (observation.output_tokens or 0)
        self.conversations.remember(turn.session, self.name, tokens, observation.first_token_ns)

    def _record_answer(self, observation: Observation, now_ns: int, client: str) -> None:
        began_ns = observation.sent_ns or now_ns
        if self.key.refused_until_ns or not self.key.worked:
            self.key.record_accepted(began_ns)
        was_open = self.breaker.state == "open"
        self.breaker.record_success(now_ns, began_ns, client)
        if was_open and self.breaker.state != "open":
            self._bring_siblings_forward(now_ns)
        if self.headroom is not None:
            self.headroom.record_tokens(
                (observation.input_tokens or 0) + (observation.output_tokens or 0)
            )

    def record_timeout(self, now_ns: int, began_ns: int, client: str) -> None:
        self.breaker.record_failure(
            now_ns, began_ns, "no token in the time that a policy gives", client
        )

    def record_lost_race(
        self, stream: bool, input_tokens: int, now_ns: int, began_ns: int, client: str
    ) -> None:
        silence = self._silences.get(client)
        if silence is None:
            if (estimate := self.estimates.get(self._mode(stream))) is None:
                return
            silence = self._silences[client] = SilenceDetector(estimate)
        if silence.record_loss(now_ns - began_ns, input_tokens):
            words = f"no token in {silence.races} races that others have won"
            self.breaker.record_silence(now_ns, began_ns, words, client)

    def record_unpaid(self, call: Call, now_ns: int) -> None:
        for client in [client for client, limit in self.credit.items() if limit.until_ns <= now_ns]:
            if client != call.client:
                del self.credit[client]
        self.credit.setdefault(call.client, CreditLimit()).record_refused(call, now_ns)

    def record_paid(self, call: Call) -> None:
        if self._credit_refused(call) is not None:
            del self.credit[call.client]

    def _apply_verdict(
        self, attempt_verdict: AttemptVerdict, observation: Observation, now_ns: int, client: str
    ) -> None:
        fault, began_ns = observation.fault, observation.sent_ns or now_ns
        reason = fault.kind if fault is not None else ""
        if observation.sent_ns is None:
            client = ""  # no request has caused this
        match attempt_verdict:
            case "failing":
                self.breaker.record_failure(now_ns, began_ns, reason, client)
            case "limited":
                wait_ns = fault.retry_after_ns if fault is not None else None
                self.breaker.record_rate_limit(now_ns, began_ns, wait_ns, reason, client)
            case "locked" if reason == KEY_REFUSED:
                self.key.record_refused(now_ns, reason)
            case "unserved" | "locked":
                content = attempt_verdict == "unserved"
                self.breaker.record_not_served(
                    now_ns, began_ns, reason, client, may_be_request=content
                )

    def needs_check(self) -> bool:
        return (
            self.breaker.state != "closed"
            or self.headroom is not None
            or self.key.refused_until_ns != 0
            or bool(self.credit)
        )

    def on_trial(self, call: Call) -> bool:
        down = self.breaker.state != "closed" and self.breaker.concerns(call.client)
        return down or self.key.refused_until_ns != 0 or self._credit_refused(call) is not None

    def unavailable_until_ns(self, now_ns: int, client: str | None = None) -> int:
        key_ns = self.key.refused_until_ns
        if key_ns > now_ns:
            return key_ns
        if self._is_down(now_ns, client):
            return self.breaker.open_until_ns
        return 0 if self.headroom is None else self.headroom.exhausted_until_ns(now_ns, self.sent)

    def _is_down(self, now_ns: int, client: str | None) -> bool:
        probe = self._probe
        if probe is not None:
            if self.breaker.probe_attempt != probe.attempt:
                self._probe = None
            elif probe.reply.token_ns - probe.first_ns >= PROBE_PROGRESS_NS:
                self._probe = None
                self.breaker.record_progress(now_ns, probe.began_ns)
                self._bring_siblings_forward(now_ns)
        return self.breaker.is_down(now_ns, client)

    def _bring_siblings_forward(self, now_ns: int) -> None:
        for sibling in self.siblings:
            if sibling is not self:
                sibling.breaker.bring_forward(now_ns)

    def must_not_be_asked(self, now_ns: int, client: str) -> bool:
        return self.is_locked(now_ns) or self.breaker.must_wait(now_ns, client)

    def lacks_credit(self, call: Call, now_ns: int) -> bool:
        limit = self._credit_refused(call)
        return limit is not None and now_ns < limit.until_ns

    def _credit_refused(self, call: Call) -> CreditLimit | None:
        limit = self.credit.get(call.client) if self.credit else None
        return limit if limit is not None and limit.covers(call) else None

    def is_locked(self, now_ns: int) -> bool:
        return self.key.refused_until_ns > now_ns

    def is_rate_limited(self, now_ns: int, client: str) -> bool:
        if self.is_locked(now_ns):
            return False
        if self.breaker.is_down(now_ns, client):
            return self.breaker.reason.endswith(RATE_LIMITED)
        return self.headroom is not None and self.headroom.exhausted_until_ns(now_ns, self.sent) > 0

    def admit(self, attempt: str, now_ns: int, call: Call) -> None:
        if (
            self.breaker.state == "open"
            and not self.breaker.probe_attempt
            and self.breaker.concerns(call.client)
        ):
            self.breaker.probe_attempt = attempt
        if (limit := self._credit_refused(call)) is not None:
            limit.until_ns = now_ns + KEY_RETRY_NS  # others of this size wait for the outcome
        if self.key.refused_until_ns:
            # other calls wait for the outcome of this one
            self.key.refused_until_ns = now_ns + KEY_RETRY_NS

    def take_last_resort(self, now_ns: int) -> bool:
        if now_ns - self._last_resort_ns < LAST_RESORT_NS:
            return False
        self._last_resort_ns = now_ns
        return True

    def probe_timeout_ns(self, stream: bool, input_tokens: int) -> int | None:
        estimate = self.estimates.get(self._mode(stream))
        longest_ns = (
            None if estimate is None else estimate.expected_times().longest_ns(input_tokens)
        )
        return (
            None
            if longest_ns is None
            else max(round(PROBE_PATIENCE * longest_ns), MIN_PROBE_TIMEOUT_NS)
        )

    def unavailable_reason(self, now_ns: int, client: str | None = None) -> str:
        until_ns = self.unavailable_until_ns(now_ns, client)
        if not until_ns:
            return ""
        if until_ns == NEVER_NS:
            return (
                f"its key was refused ({self.key.reason}), which only the configuration can change"
            )
        again = f"for another {max(until_ns - now_ns, 0) / NS_PER_S:,.1f} s"
        if self.is_locked(now_ns):
            return f"its key was refused ({self.key.reason}), {again}"
        if self.breaker.is_down(now_ns, client):
            probing = (
                "one request is probing it"
                if self.breaker.probe_attempt
                else "another worker may probe it"
            )
            whom = f" for client {self.breaker.client}" if self.breaker.client else ""
            return f"down{whom} ({self.breaker.reason}), {again if until_ns > now_ns else probing}"
        return f"its rate limit is used up, {again}"

    def status(self, now_ns: int) -> TargetStatus:
        until_ns = self.unavailable_until_ns(now_ns)
        estimate = self.estimates.get(True) or self.estimates.get(False)
        requests, tokens = (
            (None, None) if self.headroom is None else self.headroom.remaining(now_ns, self.sent)
        )
        return TargetStatus(
            target=self.name,
            state=self._state_name(now_ns, until_ns),
            until_ns=None if until_ns in (0, NEVER_NS) else max(until_ns - now_ns, 0),
            reason=self.unavailable_reason(now_ns)
            or self.breaker.reason
            or self.breaker.degradation(now_ns),
            in_flight=len(self.in_flight),
            samples=0.0 if estimate is None else estimate.samples,
            ttft_p50_ns=None if estimate is None else estimate.ttft_ns(),
            ttft_p95_ns=None if estimate is None else estimate.ttft_ns(0.95),
            ttft_p50_is_bound=estimate is not None and estimate.ttft_is_bound(),
            ttft_p95_is_bound=estimate is not None and estimate.ttft_is_bound(0.95),
            tpot_ns=None if estimate is None else estimate.tpot_ns(),
            requests_left=requests,
            tokens_left=tokens,
        )

    def _state_name(self, now_ns: int, until_ns: int) -> StateName:
        if self.is_locked(now_ns):
            return "locked"
        if self.breaker.state == "open":
            return (
                "probing"
                if self.breaker.probe_attempt and now_ns >= self.breaker.open_until_ns
                else "down"
            )
        if until_ns:
            return "limited"
        if self.breaker.traffic_share(now_ns) < 1:
            return "returning"
        if not self.sent and not self.estimates:
            return "untested"
        return "degraded" if self.breaker.degradation(now_ns) else "up"

    def _stop_waiting(self, attempt: str, stream: bool) -> int | None:
        began_ns = self.waiting[self._mode(stream)].pop(attempt, None)
        # whether it streams was not known when the attempt began
        if began_ns is None and not stream:
            began_ns = self.waiting[True].pop(attempt, None)
        return began_ns

    def _whole_answer_ns(self) -> int:
        estimate = self.estimates.get(True)
        tokens, tpot_ns = (
            (None, None) if estimate is None else (estimate.output_tokens(), estimate.tpot_ns())
        )
        return round(PATIENCE * (tokens or 0.0) * (tpot_ns or 0.0))

    def estimate(self, streamed: bool) -> SpeedEstimate:
        if (speed := self.estimates.get(streamed)) is None:
            speed = self.estimates[streamed] = SpeedEstimate(self.waiting[streamed], self.in_flight)
        return speed

    def _mode(self, stream: bool) -> bool:
        return stream or False not in self.estimates
