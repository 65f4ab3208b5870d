"""Knowledge of one target's prompt cache, from its calls of sessions: how long it keeps a prompt,
and what a hit saves.

Tokens are those that the gateway estimates for a prompt, so that one unit holds for all targets; of
the provider's count only the cached share is used.
"""

from bisect import bisect_right
from math import exp, exp2, inf, log, sqrt
from operator import mul

from msgspec import Struct

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.session import CallSession
from splitsecond.routing.targets.conversations import MIN_CACHED, CachedPrompt
from splitsecond.routing.targets.samples import HALF_LIFE_NS, REMEMBERED

AGES_S = (30, 60, 120, 180, 240, 300, 420, 600, 900, 1800, 3600, inf)
"""The ends of the classes of time since the last use of a prompt."""
PRIOR = (0.95, 0.95, 0.94, 0.93, 0.92, 0.9, 0.5, 0.4, 0.3, 0.25, 0.15, 0.05)
"""The assumed share of a prompt that is still cached, before a target has shown it. Anthropic
documents 5 minutes since the last use, OpenAI 5 to 10 minutes and at most an hour; others do not
say."""
WAITS = (0.732, 0.076, 0.06, 0.036, 0.017, 0.009, 0.017, 0.011, 0.013, 0.012, 0.012, 0.006)
"""The share of turns in each class in 710 recorded sessions of an agent."""
PRIOR_WEIGHT = 2.0
"""So many observed turns in a class weigh as much as the prior."""
KEPT = 0.96
"""Each turn in a class reduces the weight of those before it: together they count for at most
25."""
MAX_NEWS = 0.01
"""The shares are computed again when the latest turns have changed one of them by about so much."""
START_NS, NEW_NS, CACHED_NS = 500 * NS_PER_MS, 100_000.0, 5_000.0
"""The assumed time to first token before a target has shown it: half a second, and 10,000 new
tokens in another."""
FIT_EVERY_NS = 50 * NS_PER_MS
"""Of more turns than that, the others say nothing about times that is worth the work."""
LEVEL_PER_MIN = 0.01
"""The variance by which the logarithm of a target's speed changes in a minute: a tenth in one, a
third in ten."""
SINGLE_PER_MIN = 0.001
"""The same for each of the three coefficients alone."""
SOON_MIN = 0.25
"""Within so many minutes, time changes nothing."""
CLIPPED_AT = 2.5
"""Standard deviations at which a surprising time is cut off, so that single slow turns do not tilt
the fit."""
RUN = 3
"""So many surprising times in a row, on the same side, mean that the speed has changed."""
_AGES_NS = [end_s * NS_PER_S for end_s in AGES_S[:-1]]
MAX_LOAD = 3.0
"""The most by which requests in flight change an expected time, either way."""
_LOAD_SMOOTHING = 1 / 64
_NOISE_SMOOTHING = 1 / 32
_MIN_NOISE, _MAX_NOISE = 0.05, 1.0


class CacheLifetime:
    """The share of a prompt that is still cached, by the time since its last use.

    A share never rises with age: a hit after an hour is one for all shorter times, too.
    """

    __slots__ = ("_found", "_news", "_shares", "_tries", "later")

    def __init__(self) -> None:
        self._tries = [0.0] * len(AGES_S)
        self._found = [0.0] * len(AGES_S)
        self._news = 0.0  # how far the shares are from what the latest turns say
        self._shares: list[float]
        self.later: float
        """The mean share at the later turns of a session that stays."""
        self._fit()

    def add(self, age_ns: float, share: float) -> None:
        at = bisect_right(_AGES_NS, age_ns)
        self._tries[at] = self._tries[at] * KEPT + 1
        self._found[at] = self._found[at] * KEPT + share
        if share < 0.5:  # hits at a greater age were before the lifetime became shorter, or chance
            for older in range(at + 1, len(AGES_S)):
                self._tries[older] *= KEPT
                self._found[older] *= KEPT
        self._news += abs(share - self._shares[at]) / (self._tries[at] + PRIOR_WEIGHT)
        if self._news > MAX_NEWS:
            self._fit()

    def share(self, age_ns: float) -> float:
        return self._shares[bisect_right(_AGES_NS, age_ns)]

    def kept_share(self, age_ns: float) -> float:
        """Return the share if it is at least half of what a young prompt finds, else 0."""
        share = self._shares[bisect_right(_AGES_NS, age_ns)]
        return share if 2 * share >= self._shares[0] else 0.0

    def variance(self, age_ns: float) -> float:
        at = bisect_right(_AGES_NS, age_ns)
        share = self._shares[at]
        return share * (1 - share) / (self._tries[at] + PRIOR_WEIGHT + 1)

    @property
    def lasts_s(self) -> float:
        """The time in seconds that prompts are kept; infinite: longer than any wait so far."""
        return max(end for end in AGES_S if self.kept_share(end * NS_PER_S - 1))

    def _fit(self) -> None:
        pools: list[tuple[float, float, int]] = []  # share, weight and number of classes
        before, prior_before = 1.0, 1.0
        for tries, hits, prior in zip(self._tries, self._found, PRIOR, strict=True):
            weight = PRIOR_WEIGHT + tries
            share = (PRIOR_WEIGHT * before * prior / prior_before + hits) / weight
            before, prior_before = share, prior
            pool = share, weight, 1
            while pools and pools[-1][0] < pool[0]:
                left, left_weight, count = pools.pop()
                weight = left_weight + pool[1]
                pool = (left * left_weight + pool[0] * pool[1]) / weight, weight, count + pool[2]
            pools.append(pool)
        self._shares = [share for share, _, count in pools for _ in range(count)]
        self.later = sum(map(mul, WAITS, self._shares))
        self._news = 0.0


class LoadEffect:
    """By how much each further request in flight slows a target: the slope of its times over their
    number."""

    __slots__ = ("_covariance", "_mean", "_variance")

    def __init__(self) -> None:
        self._mean = self._variance = self._covariance = 0.0

    def factor(self, in_flight: int) -> float:
        """Return the expected time with so many requests in flight, divided by that with the usual
        number."""
        if self._covariance <= 0:
            return 1.0
        slope = self._covariance / (self._variance + 1)
        return min(max(1 + slope * (in_flight - self._mean), 1 / MAX_LOAD), MAX_LOAD)

    def add(self, in_flight: int, surprise: float) -> None:
        """Learn from a turn that took longer than with the usual number by this share."""
        more = in_flight - self._mean
        self._mean += more * _LOAD_SMOOTHING
        self._variance += (more * more - self._variance) * _LOAD_SMOOTHING
        self._covariance += (more * surprise - self._covariance) * _LOAD_SMOOTHING


def remaining_share(age_ns: float) -> float:
    """Return the share of a deviation from the usual speed that is left when it was measured so
    long ago.

    What slowed a target passes. So one that was slow when it was last asked is tried again.
    """
    return exp2(-max(age_ns, 0.0) / HALF_LIFE_NS)


class PrefillFit:
    """TTFT = a + b × new + c × cached tokens, in ns, and the uncertainty of the three.

    A Kalman filter: each turn corrects the coefficients by their uncertainty, and time makes them
    less certain again. What changes is mostly the speed as a whole, so a turn that found all in the
    cache corrects b as well.
    """

    __slots__ = (
        "_aa", "_ab", "_ac", "_at_ns", "_bb", "_bc", "_cc", "_run", "_usual", "a", "b", "c",
        "fresh", "noise", "turns",
    )  # fmt: skip

    def __init__(self) -> None:
        self.a, self.b, self.c = float(START_NS), NEW_NS, CACHED_NS
        self._aa, self._bb, self._cc = self.a**2, self.b**2, self.c**2
        self._ab = self._ac = self._bc = 0.0
        self._at_ns = 0
        self._run = 0
        self._usual = self.a, self.b, self.c
        self.noise = 0.3
        """Standard deviation of the logarithm of a time around the fit."""
        self.turns = 0
        self.fresh = 0
        """How many turns had mostly new tokens."""

    def ttft_ns(self, new: float, cached: float) -> float:
        return self.a + self.b * new + self.c * cached

    def expected(self, now_ns: int) -> tuple[float, float, float]:
        """Return a, b and c as expected now, by what is left of the deviation from the usual
        ones."""
        a, b, c = self._usual
        left = remaining_share(now_ns - self._at_ns)
        return a + (self.a - a) * left, b + (self.b - b) * left, c + (self.c - c) * left

    def variance(self, calls: float, new: float, cached: float, now_ns: int) -> float:
        """Return the variance of the time of so many calls that have so many tokens together."""
        spread = calls * (calls * self._aa + 2 * (new * self._ab + cached * self._ac)) + (
            new * (new * self._bb + 2 * cached * self._bc) + cached * cached * self._cc
        )
        mean = calls * self.a + new * self.b + cached * self.c
        return min(
            max(spread, 0.0) + LEVEL_PER_MIN * self._minutes(now_ns) * mean * mean, mean * mean
        )

    def add(self, new: float, cached: float, ttft_ns: float, now_ns: int) -> None:
        self._become_older(now_ns)
        self.turns += 1
        self.fresh += new >= 4 * cached and new >= MIN_CACHED
        gain_a = self._aa + new * self._ab + cached * self._ac
        gain_b = self._ab + new * self._bb + cached * self._bc
        gain_c = self._ac + new * self._bc + cached * self._cc
        expected = self.ttft_ns(new, cached)
        variance = max(gain_a + new * gain_b + cached * gain_c, 0.0) + (self.noise * expected) ** 2
        surprise, limit = ttft_ns - expected, CLIPPED_AT * sqrt(variance)
        self._count_surprise(surprise, limit)
        surprise = min(max(surprise, -limit), limit)
        self.a = max(self.a + gain_a / variance * surprise, NS_PER_MS)
        self.b = max(self.b + gain_b / variance * surprise, 1.0)
        self.c = min(max(self.c + gain_c / variance * surprise, 0.0), self.b)
        self._aa -= gain_a * gain_a / variance
        self._ab -= gain_a * gain_b / variance
        self._ac -= gain_a * gain_c / variance
        self._bb -= gain_b * gain_b / variance
        self._bc -= gain_b * gain_c / variance
        self._cc -= gain_c * gain_c / variance
        share = 1 / min(self.turns, REMEMBERED)
        a, b, c = self._usual
        self._usual = a + (self.a - a) * share, b + (self.b - b) * share, c + (self.c - c) * share
        relative = min(max((ttft_ns - self.ttft_ns(new, cached)) / expected, -1.0), 1.0)
        noise = self.noise**2 + (relative * relative - self.noise**2) * _NOISE_SMOOTHING
        self.noise = min(max(sqrt(noise), _MIN_NOISE), _MAX_NOISE)

    def _count_surprise(self, surprise: float, limit: float) -> None:
        if abs(surprise) < limit / 2:
            self._run = 0
            return
        self._run = max(self._run, 0) + 1 if surprise > 0 else min(self._run, 0) - 1
        if abs(self._run) >= RUN:
            self._spread(1.0, 0.0)
            self._run = 0

    def _become_older(self, now_ns: int) -> None:
        minutes = self._minutes(now_ns)
        if minutes >= SOON_MIN:
            self._spread(LEVEL_PER_MIN * minutes, SINGLE_PER_MIN * minutes)
        if minutes >= SOON_MIN or not self._at_ns:
            self._at_ns = now_ns

    def _minutes(self, now_ns: int) -> float:
        return max(now_ns - self._at_ns, 0) / (60 * NS_PER_S) if self._at_ns else 0.0

    def _spread(self, together: float, single: float) -> None:
        a, b, c = self.a, self.b, self.c
        self._aa += (together + single) * a * a
        self._bb += (together + single) * b * b
        self._cc += (together + single) * c * c
        self._ab += together * a * b
        self._ac += together * a * c
        self._bc += together * b * c
        by_a, by_b, by_c = _bounded(self._aa, a), _bounded(self._bb, b), _bounded(self._cc, c)
        if by_a * by_b * by_c < 1:
            self._aa *= by_a * by_a
            self._bb *= by_b * by_b
            self._cc *= by_c * by_c
            self._ab *= by_a * by_b
            self._ac *= by_a * by_c
            self._bc *= by_b * by_c


class TokenPace:
    """The time per output token: a Kalman filter of its logarithm, and the mean of that.

    The more alike the answers are, the sooner a change shows.
    """

    __slots__ = ("_at_ns", "_log", "_mean", "_noise", "_variance", "turns")

    def __init__(self) -> None:
        self._log = self._mean = 0.0
        self._variance = 1.0
        self._noise = 0.1  # variance of an answer's logarithm
        self._at_ns = 0
        self.turns = 0

    def expected_ns(self, now_ns: int, deviations: float = 0.0) -> float:
        """Return the expected time per token; of an answer that is so many standard deviations
        slower."""
        deviation = (self._log - self._mean) * remaining_share(now_ns - self._at_ns)
        return exp(self._mean + deviation + deviations * sqrt(self._noise))

    def add(self, tpot_ns: float, now_ns: int) -> None:
        self.turns += 1
        if self.turns == 1:
            self._log = log(max(tpot_ns, 1.0))
            self._mean = self._log
        minutes = max(now_ns - self._at_ns, 0) / (60 * NS_PER_S)
        variance = min(self._variance + LEVEL_PER_MIN * minutes, 1.0)
        surprise = log(max(tpot_ns, 1.0)) - self._log
        limit = CLIPPED_AT * sqrt(variance + self._noise)
        surprise = min(max(surprise, -limit), limit)
        self._noise += (
            max(surprise * surprise - variance, _MIN_NOISE**2) - self._noise
        ) * _NOISE_SMOOTHING
        gain = variance / (variance + self._noise)
        self._log += gain * surprise
        self._mean += (self._log - self._mean) / min(self.turns, REMEMBERED)
        self._variance = (1 - gain) * variance
        self._at_ns = now_ns


def _bounded(variance: float, value: float) -> float:
    """Return the factor that reduces a standard deviation to the value itself: nothing is less
    certain than that."""
    most = max(value, 1.0) ** 2
    return sqrt(most / variance) if variance > most else 1.0


class TurnAtTarget(Struct, frozen=True):
    """A turn of a session that was sent to a target. `prompt`: the tokens of its prompt; `before`:
    what the target was sent of the session before; None: nothing."""

    session: CallSession
    prompt: int
    before: CachedPrompt | None
    in_flight: int
    began_ns: int

    @property
    def cached(self) -> int:
        """The tokens of the prompt that the target had been sent before."""
        return 0 if self.before is None else min(self.before.tokens, self.session.reusable_tokens)

    @property
    def age_ns(self) -> float:
        """How long before this turn."""
        return inf if self.before is None else max(self.began_ns - self.before.at_ns, 0)


class PromptCacheModel:
    """What one target's turns have shown of its prompt cache."""

    __slots__ = ("_fitted_ns", "_reports", "fit", "lifetime", "load", "pace", "written")

    def __init__(self) -> None:
        self.lifetime = CacheLifetime()
        self.fit = PrefillFit()
        self.load = LoadEffect()
        self.pace = TokenPace()
        self.written = 0.0
        """The share of new tokens that are charged as written to the cache."""
        self._fitted_ns = -inf  # turns of the log may be older than this clock
        self._reports = False  # whether it has reported cached tokens

    def expected_ns(self, turn: TurnAtTarget) -> float:
        """Return the expected time to the first token of a turn, by the latest turns."""
        sent = turn.cached
        hit = self.lifetime.share(turn.age_ns) * sent if sent else 0.0
        return self.fit.ttft_ns(turn.prompt - hit, hit)

    def learn(self, turn: TurnAtTarget, observation: Observation, now_ns: int) -> None:
        ttft_ns = observation.ttft_cold_ns if observation.streamed else None
        if (
            ttft_ns is None
            and not self._reports
            and observation.cached_tokens is None
            and observation.cache_write_tokens is None
        ):
            return  # as of a whole answer without these figures
        sent = turn.cached
        cached = self._cached(turn.prompt, sent, observation, ttft_ns)
        if cached is None:
            return
        if sent >= MIN_CACHED:
            self.lifetime.add(turn.age_ns, min(cached / sent, 1.0))
        if ttft_ns is not None and now_ns - self._fitted_ns >= FIT_EVERY_NS:
            self._fitted_ns = now_ns
            surprise = ttft_ns / self.fit.ttft_ns(turn.prompt - cached, cached) - 1
            self.fit.add(
                turn.prompt - cached, cached, ttft_ns / self.load.factor(turn.in_flight), now_ns
            )
            self.load.add(turn.in_flight, min(surprise, 1.0))
            if (tpot_ns := observation.tpot_ns) is not None and observation.outcome == "ok":
                self.pace.add(tpot_ns, now_ns)
        written = observation.cache_write_tokens
        if written is not None and observation.input_tokens and (new := turn.prompt - cached) > 0:
            share = min(written / observation.input_tokens * turn.prompt / new, 1.0)
            self.written += (share - self.written) / 8

    def _cached(
        self, prompt: int, sent: int, observation: Observation, ttft_ns: int | None
    ) -> float | None:
        """Return the tokens of a prompt that were cached; None: not known. `sent`: those that the
        target had been sent before.

        Where a target reports none, its time decides: between that of a prompt that is all new and
        that of a hit.
        """
        if observation.cached_tokens is not None and observation.input_tokens:
            self._reports = self._reports or observation.cached_tokens > 0
            return min(observation.cached_tokens / observation.input_tokens, 1.0) * prompt
        if self._reports or sent < MIN_CACHED:
            return 0.0
        fit = self.fit
        saved = fit.b * sent
        if ttft_ns is None or fit.fresh < RUN or saved < 2 * fit.noise * (fit.a + fit.b * prompt):
            return None
        return min(max((fit.a + fit.b * prompt - ttft_ns) / saved, 0.0), 1.0) * sent
