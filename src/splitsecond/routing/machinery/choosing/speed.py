"""Ranking of branches by the expected time of a call's answer.

The expected time is that of the first token, for a prompt of this length, plus a time per token for
as many tokens as recent answers have: the same number for all branches, so that no target looks
fast because its answers are short.

Each expectation is drawn from the uncertainty around the estimate (Thompson sampling, 1933).
Samples lose weight with age, so a target without recent requests is tried again by itself.

If every call went to the best branch, all of them would go to one target, which may then no longer
be the best. So of branches that are nearly equal, two are drawn and the one with fewer requests in
flight is taken (Mitzenmacher, "The Power of Two Choices", 2001), and a branch with more requests in
flight than usual counts as slower, by a factor of up to two, until it has shown that it handles
them.
"""

from collections.abc import Sequence
from math import inf
from operator import attrgetter

from splitsecond.core import clock
from splitsecond.core.service import Call
from splitsecond.core.upstream.prompt_size import input_tokens, output_tokens
from splitsecond.routing.machinery.choosing.branch import Branch, usual_output_tokens
from splitsecond.routing.machinery.choosing.exploration import Exploration
from splitsecond.routing.machinery.choosing.ttl_cache import TtlCache, about
from splitsecond.routing.targets.estimate import SpeedEstimate
from splitsecond.routing.targets.target_states import TargetStates

NEARLY = 1.1
"""Expectations within this factor are equal: their difference is less than their uncertainty."""
OUTPUT_REFRESH_NS = clock.NS_PER_S
"""How often the typical length of answers is computed: it changes slowly, and takes many
samples."""


class Prospect:
    """A branch with its expected time for one call.

    `score` is in ns; infinite if nothing is known. `age_ns`: the age of the latest sample behind
    it. `explored`: it is not the best.
    """

    __slots__ = ("age_ns", "branch", "explored", "score")

    def __init__(self, branch: Branch, score: float = inf, *, explored: bool = False) -> None:
        self.branch = branch
        self.score = score
        self.age_ns: float = inf
        self.explored = explored

    def __str__(self) -> str:
        speed = "speed unknown" if self.score == inf else f"{self.score / 1e6:.3g} ms"
        return f"{self.branch.label}, {speed}{', explored' if self.explored else ''}"


class SpeedRanking:
    """Ranks branches `by` the time of the whole answer ("total"), of its first token ("ttft") or
    per token ("tps").

    `at` is the quantile of those times, 0.95 for one that is rarely exceeded; None for their mean.
    """

    def __init__(self, states: TargetStates, *, by: str, at: float | None) -> None:
        self._states = states
        self._by = by
        self._at = at
        self._random = states.chance
        self._exploration = Exploration()
        self._cache: TtlCache[list[Prospect]] = TtlCache()
        self._output_tokens: list[float] = []
        self._output_refreshed_ns = -OUTPUT_REFRESH_NS

    def ranked(self, call: Call, among: Sequence[Branch]) -> list[Prospect]:
        self._exploration.record_call()
        if len(among) < 2:
            return list(map(Prospect, among))
        now_ns = clock.now_ns()
        ranked = list(self._by_score(call, among, now_ns))
        explored = self._exploration.pick(
            ((each.branch, each.age_ns) for each in ranked[1:]), now_ns
        )
        if explored is None:
            ranked.insert(0, ranked.pop(self._best_place(ranked)))
            return ranked
        (prospect,) = (each for each in ranked if each.branch is explored)
        return [
            Prospect(explored, prospect.score, explored=True),
            *(each for each in ranked if each is not prospect),
        ]

    def typical_output_tokens(
        self, call: Call, among: Sequence[Branch], now_ns: int
    ) -> list[float]:
        if now_ns - self._output_refreshed_ns >= OUTPUT_REFRESH_NS:
            self._output_tokens = usual_output_tokens(call, among, self._states)
            self._output_refreshed_ns = now_ns
        return self._output_tokens

    def _by_score(self, call: Call, among: Sequence[Branch], now_ns: int) -> Sequence[Prospect]:
        tokens_in = about(input_tokens(call))
        tokens_out = output_tokens(call, self.typical_output_tokens(call, among, now_ns))
        key = call.stream, tokens_in, tokens_out, *among
        ranked = self._cache.get(key, now_ns)
        if ranked is None:
            ranked = self._prospects(among, tokens_in, tokens_out, now_ns, stream=call.stream)
            ranked.sort(key=attrgetter("score"))
            self._cache.put(key, ranked)
        return ranked

    def _prospects(
        self, among: Sequence[Branch], tokens_in: int, tokens_out: int, now_ns: int, *, stream: bool
    ) -> list[Prospect]:
        candidates = [
            (Prospect(branch), branch.estimates(self._states, stream=stream)) for branch in among
        ]
        per_token = [
            ns
            for _, branch_estimates in candidates
            for each in branch_estimates
            if (ns := each.tpot_ns(self._at)) is not None
        ]
        mean_tpot_ns = sum(per_token) / len(per_token) if per_token else 0.0
        for prospect, estimates in candidates:
            branch = prospect.branch
            slowdown = branch.slowdown(branch.in_flight(self._states), now_ns)
            for estimate in estimates:
                expected_ns = self._expected_ns(estimate, tokens_in, tokens_out, mean_tpot_ns)
                if expected_ns is None:
                    continue
                score = slowdown * expected_ns * estimate.draw(self._random)
                if score < prospect.score:
                    prospect.score, prospect.age_ns = score, estimate.age_ns
        return [prospect for prospect, _ in candidates]

    def _expected_ns(
        self, estimate: SpeedEstimate, tokens_in: int, tokens_out: int, mean_tpot_ns: float
    ) -> float | None:
        if self._by == "tps":
            return estimate.tpot_ns(self._at)
        ttft_ns = estimate.ttft_ns(self._at, input_tokens=tokens_in)
        if ttft_ns is None:
            return None
        ttft_ns *= estimate.own_load_factor()
        if self._by == "ttft":
            return ttft_ns
        tpot_ns = estimate.tpot_ns(self._at)
        return ttft_ns + tokens_out * (mean_tpot_ns if tpot_ns is None else tpot_ns)

    def _best_place(self, ranked: Sequence[Prospect]) -> int:
        limit = ranked[0].score * NEARLY
        equals = sum(prospect.score <= limit for prospect in ranked)
        if equals < 2:
            return 0
        first, second = (
            int(self._random.random() * equals),
            int(self._random.random() * (equals - 1)),
        )
        second += second >= first
        in_flight = [ranked[place].branch.in_flight(self._states) for place in (first, second)]
        return first if in_flight[0] <= in_flight[1] else second
