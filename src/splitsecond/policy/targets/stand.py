"""How one target stands: its health, what is left of its rate limit, how fast it is, and what is under way there.

`Key` is what targets of one account share: a key that is refused is refused for all of them.
"""

from random import Random
from typing import Literal, NamedTuple

from msgspec import Struct

from splitsecond.clock import NS_PER_S
from splitsecond.policy.targets.estimate import Estimate
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.health import LASTS_NS, Health
from splitsecond.policy.targets.quota import Quota
from splitsecond.policy.targets.silence import Silence
from splitsecond.policy.targets.verdict import Verdict, verdict
from splitsecond.service import Reply
from splitsecond.timing.observation import Observation

NEVER_NS = 1 << 62
KEY_AGAIN_NS = 300 * NS_PER_S
"""How often a key that has worked, or an account without credit, is tried again."""
LAST_RESORT_NS = 20 * NS_PER_S
"""How often a target that is down is asked because all others have failed for the same call."""
PATIENCE = 3
"""Times its usual longest wait for a first token, while it is not known to be well."""
LEAST_PATIENCE_NS = 10 * NS_PER_S
RATE_LIMITED = "http_429"
"""The kind of the fault that says so."""

Word = Literal["up", "down", "probing", "returning", "limited", "locked"]


class Key:
    """Whether an account's key is taken. `until_ns`: when it may be tried again, 0: it is not refused."""

    __slots__ = ("_refused_ns", "reason", "until_ns", "worked")

    def __init__(self) -> None:
        self.until_ns = 0
        self.reason = ""
        self.worked = False
        self._refused_ns = 0

    def taken(self, began_ns: int) -> None:
        """A request that began at `began_ns` was answered with it."""
        self.worked = True
        if began_ns > self._refused_ns:
            self.until_ns = 0

    def refused(self, now_ns: int, reason: str, *, for_good: bool) -> None:
        """The provider refused it. `for_good`: only another key helps, or another account."""
        self._refused_ns = now_ns
        self.until_ns = NEVER_NS if for_good and not self.worked else now_ns + KEY_AGAIN_NS
        self.reason = reason


class Probe(NamedTuple):
    """The request that finds out whether a target is well, once its answer has begun."""

    reply: Reply
    call: str
    began_ns: int
    first_ns: int


class Described(Struct, frozen=True, kw_only=True):
    """How a target stands, for people and for metrics. Times in ns, None where nothing is known.

    `state`: "up"; "down" until it may be probed in `until_ns`; "probing", with one request; "returning", with a part of
    its traffic; "limited", its rate limit used up; "locked", its key refused (`until_ns` None: for good). `reason` says
    why, in a few words. `samples`: what is known of its speed is worth so many fresh requests.
    """

    target: str
    state: Word
    until_ns: int | None = None
    reason: str = ""
    in_flight: int = 0
    samples: float = 0.0
    ttft_p50_ns: float | None = None
    ttft_p95_ns: float | None = None
    tpot_ns: float | None = None
    requests_left: int | None = None
    tokens_left: int | None = None


class Stand:
    """Of one target."""

    __slots__ = (
        "_last_resort_ns", "_probe", "_silence", "estimates", "facts", "health", "key", "name", "number", "quota",
        "under_way", "waiting",
    )  # fmt: skip

    def __init__(self, name: str, facts: Facts, key: Key, chance: Random) -> None:
        self.name = name
        self.facts = facts
        self.key = key
        self.health = Health(chance)
        self.quota: Quota | None = None
        self.estimates: dict[bool, Estimate] = {}
        self.number = 0
        self.under_way: dict[str, int] = {}
        """The number of the attempt that is under way, by its call."""
        self.waiting: dict[bool, dict[str, int]] = {True: {}, False: {}}
        """Since when each call waits for its first token, streamed or not; the first to begin first."""
        self._last_resort_ns = -LAST_RESORT_NS
        self._probe: Probe | None = None
        self._silence: Silence | None = None

    def begun(self, call: str, stream: bool, now_ns: int) -> None:
        """An attempt for `call` goes to the target."""
        self.number = self.under_way[call] = self.number + 1
        self.waiting[self._mode(stream)][call] = now_ns

    def replied(self, call: str, stream: bool, reply: Reply, now_ns: int) -> None:
        """The first token of `reply` has come."""
        self._silence = None
        mode = self._mode(stream)
        began_ns = self.waiting[mode].pop(call, None)
        if began_ns is None:
            began_ns = self._waits_no_more(call, stream)
        estimate = self.estimates.get(mode)
        if estimate is not None and began_ns is not None:
            estimate.waited(now_ns - began_ns, now_ns)
        if self.health.probe == call and began_ns is not None and not reply.empty:
            self._probe = Probe(reply, call, began_ns, now_ns)

    def left(self, call: str, stream: bool) -> None:
        """It failed, or was given up. Where it left an observation this has been said."""
        self._waits_no_more(call, stream)
        self.under_way.pop(call, None)
        self.health.released(call)

    def observe(self, observation: Observation, now_ns: int) -> None:
        """An attempt has ended."""
        call = observation.call
        number = self.under_way.pop(call, None)
        if self.health.probe:
            self.health.released(call)
        estimate = self.estimates.get(observation.streamed)
        if estimate is None:
            estimate = self.estimates[observation.streamed] = Estimate(self.waiting[observation.streamed])
        estimate.observe(observation)
        limits = observation.limits
        if limits is not None and number is not None:
            if self.quota is None:
                self.quota = Quota()
            self.quota.told(limits, observation.head_ns or now_ns, number)
        if observation.outcome == "ok":
            began_ns = observation.sent_ns or now_ns
            if self.key.until_ns or not self.key.worked:
                self.key.taken(began_ns)
            self.health.answered(now_ns, began_ns)
            if self.quota is not None:
                self.quota.used((observation.input_tokens or 0) + (observation.output_tokens or 0))
        else:
            self._judge(verdict(observation), observation, now_ns)

    def overdue(self, now_ns: int, began_ns: int) -> None:
        """Whoever asked gave up, as the time for the first token was over."""
        self.health.failed(now_ns, began_ns, "no token in the time that a policy gives")

    def lost(self, stream: bool, input_tokens: int, now_ns: int, began_ns: int) -> None:
        """It was closed before its token, because another has brought one."""
        silence = self._silence
        if silence is None:
            if (estimate := self.estimates.get(self._mode(stream))) is None:
                return
            silence = self._silence = Silence(estimate)
        if silence.lost(now_ns - began_ns, input_tokens):
            self.health.suspected(now_ns, began_ns, f"no token in {silence.races} races that others have won")

    def _judge(self, says: Verdict, observation: Observation, now_ns: int) -> None:
        fault, began_ns = observation.fault, observation.sent_ns or now_ns
        reason = fault.kind if fault is not None else ""
        match says:
            case "ill":
                self.health.failed(now_ns, began_ns, reason)
            case "limited":
                self.health.limited(now_ns, began_ns, fault.retry_after_ns if fault is not None else None, reason)
            case "unserved":
                self.health.unserved(now_ns, began_ns, reason)
            case "unpaid" | "locked":
                self.key.refused(now_ns, reason, for_good=says == "locked")

    # What may be done.

    def is_troubled(self) -> bool:
        """Whether anything must be looked at before the target is asked."""
        return self.health.state != "closed" or self.quota is not None or self.key.until_ns != 0

    @property
    def on_trial(self) -> bool:
        """Whether it was ill, and whoever asks it finds out if it still is."""
        return self.health.state != "closed" or self.key.until_ns != 0

    def until_ns(self, now_ns: int) -> int:
        """When it may be asked again; 0: it may be now."""
        key_ns = self.key.until_ns
        if key_ns > now_ns:
            return key_ns
        if self._down(now_ns):
            return self.health.until_ns
        return 0 if self.quota is None else self.quota.short_until_ns(now_ns, self.number)

    def _down(self, now_ns: int) -> bool:
        """Whether it is down. An answer to its probe that goes on long enough is noticed here, when somebody asks."""
        probe = self._probe
        if probe is not None:
            if self.health.probe != probe.call:
                self._probe = None
            elif probe.reply.token_ns - probe.first_ns >= LASTS_NS:
                self._probe = None
                self.health.lasted(now_ns, probe.began_ns)
        return self.health.down(now_ns)

    def barred(self, now_ns: int) -> bool:
        """Whether it must not be asked even where nothing else is left."""
        return self.locked(now_ns) or self.health.told(now_ns)

    def locked(self, now_ns: int) -> bool:
        """Whether the provider refused our key or account."""
        return self.key.until_ns > now_ns

    def rate_limited(self, now_ns: int) -> bool:
        """Whether that is why it may not be asked."""
        if self.locked(now_ns):
            return False
        if self.health.down(now_ns):
            return self.health.reason.endswith(RATE_LIMITED)
        return self.quota is not None and self.quota.short_until_ns(now_ns, self.number) > 0

    def taken(self, call: str, now_ns: int) -> None:
        """`call` goes there: as the probe, where one is due."""
        if self.health.state == "open" and not self.health.probe:
            self.health.probe = call
        if self.key.until_ns:
            self.key.until_ns = now_ns + KEY_AGAIN_NS  # the others wait for what becomes of this one

    def last_resort(self, now_ns: int) -> bool:
        """Whether it may be asked although it is down, because all others have failed for this call."""
        if now_ns - self._last_resort_ns < LAST_RESORT_NS:
            return False
        self._last_resort_ns = now_ns
        return True

    def patience_ns(self, stream: bool, input_tokens: int) -> int | None:
        """How long a request that is to find out whether it is well may wait for its token, where others could answer.
        None: there is nothing to tell by."""
        estimate = self.estimates.get(self._mode(stream))
        longest_ns = None if estimate is None else estimate.times().longest_ns(input_tokens)
        return None if longest_ns is None else max(round(PATIENCE * longest_ns), LEAST_PATIENCE_NS)

    def why(self, now_ns: int) -> str:
        """Why it may not be asked, in a few words; "" where it may."""
        until_ns = self.until_ns(now_ns)
        if not until_ns:
            return ""
        if until_ns == NEVER_NS:
            return f"its key was refused ({self.key.reason}), which only the configuration can change"
        again = f"for {max(until_ns - now_ns, 0) / NS_PER_S:.1f} s"
        if self.locked(now_ns):
            return f"its key or account was refused ({self.key.reason}), {again}"
        if self.health.down(now_ns):
            return f"down ({self.health.reason}), {again if until_ns > now_ns else 'one request is trying it'}"
        return f"its rate limit is used up, {again}"

    def described(self, now_ns: int) -> Described:
        """All of it."""
        until_ns = self.until_ns(now_ns)
        estimate = self.estimates.get(True) or self.estimates.get(False)
        requests, tokens = (None, None) if self.quota is None else self.quota.left(now_ns, self.number)
        return Described(
            target=self.name,
            state=self._word(now_ns, until_ns),
            until_ns=None if until_ns in (0, NEVER_NS) else max(until_ns - now_ns, 0),
            reason=self.why(now_ns) or self.health.reason,
            in_flight=len(self.under_way),
            samples=0.0 if estimate is None else estimate.samples,
            ttft_p50_ns=None if estimate is None else estimate.ttft_ns(),
            ttft_p95_ns=None if estimate is None else estimate.ttft_ns(0.95),
            tpot_ns=None if estimate is None else estimate.tpot_ns(),
            requests_left=requests,
            tokens_left=tokens,
        )

    def _word(self, now_ns: int, until_ns: int) -> Word:
        if self.locked(now_ns):
            return "locked"
        if self.health.state == "open":
            return "probing" if self.health.probe and now_ns >= self.health.until_ns else "down"
        if until_ns:
            return "limited"
        return "returning" if self.health.share(now_ns) < 1 else "up"

    def _waits_no_more(self, call: str, stream: bool) -> int | None:
        began_ns = self.waiting[self._mode(stream)].pop(call, None)
        if began_ns is None and not stream:  # how it answers was not known when the attempt began
            began_ns = self.waiting[True].pop(call, None)
        return began_ns

    def _mode(self, stream: bool) -> bool:
        """Whether an answer will be streamed to us: as far as is known all are."""
        return stream or False not in self.estimates
