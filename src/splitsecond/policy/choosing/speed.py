"""Which of several branches will be fastest for a call, by what is known of their targets and by luck.

The time of an answer is its first token's, for a prompt of this length, plus a time per token for as many tokens as
answers have lately: the same number for all, so that no target looks fast because it says little.

Each expectation is drawn by chance from around what is known (Thompson, 1933), the wider the less is known: samples
lose weight with age, so a target that nobody has asked for long is tried again by itself. Whatever the odds, some calls
go to branches of which nothing is known lately (see `exploring`).

Whoever always takes the best sends everybody to the same target, which then may be the best no longer, and learns it
when it is too late. So of branches that are nearly equal two are drawn and the one with less under way is taken
(Mitzenmacher, "The Power of Two Choices", 2001); and one with more under way than is usual for it counts as slower, up
to twice, until it has shown that it bears them. Calls that fail count too: what fails soon is not fast.
"""

from collections.abc import Sequence
from math import inf

from splitsecond import clock
from splitsecond.policy.choosing.branch import Branch
from splitsecond.policy.choosing.exploring import Exploring
from splitsecond.policy.choosing.glance import Glance, about
from splitsecond.policy.choosing.prompt_size import input_tokens, output_tokens
from splitsecond.policy.targets.estimate import Estimate
from splitsecond.policy.targets.standing import Standing
from splitsecond.service import Call

NEARLY = 1.1
"""Within this factor two expectations are equal: the difference is less than what is known of them."""
FAILURE_COSTS = 5
"""Answers' worth of time: a target that fails every fifth call must be twice as fast to be asked."""
MOST_CROWDED = 2.0
"""A branch that is better by more than this factor gets all calls at once."""
COUNTED_EVERY_NS = clock.NS_PER_S
"""How often it is looked up how long answers are: it changes slowly, and is worked out from many samples."""


class Prospect:
    """What is expected of a branch for one call. `score` is in ns, and infinite where nothing is known."""

    __slots__ = ("age_ns", "branch", "score")

    def __init__(self, branch: Branch) -> None:
        self.branch = branch
        self.score = inf
        self.age_ns: float = inf

    def __str__(self) -> str:
        return f"{self.branch.label}, " + ("speed unknown" if self.score == inf else f"{self.score / 1e6:.3g} ms")


class Speeds:
    """Ranks branches `by` the time of the whole answer ("total"), of its first token ("ttft") or per token ("tps").

    `at` is the quantile of those times: 0.5 for the usual one, 0.95 for one that is rarely exceeded.
    """

    def __init__(self, standing: Standing, *, by: str, at: float) -> None:
        self._standing = standing
        self._by = by
        self._at = at
        self._chance = standing.chance
        self._exploring = Exploring()
        self._lately: Glance[list[Prospect]] = Glance()
        self._usual: list[float] = []
        self._counted_ns = -COUNTED_EVERY_NS

    def ranked(self, call: Call, among: Sequence[Branch]) -> list[Prospect]:
        """A prospect for each, the one to ask first in front."""
        self._exploring.called()
        if len(among) < 2:
            return list(map(Prospect, among))
        now_ns = clock.now_ns()
        ranked = list(self._ranked_lately(call, among, now_ns))
        turn = self._exploring.turn(((each.branch, each.age_ns) for each in ranked[1:]), now_ns)
        place = self._of_equals(ranked) if turn is None else [each.branch for each in ranked].index(turn)
        ranked.insert(0, ranked.pop(place))
        return ranked

    def usual_output(self, call: Call, among: Sequence[Branch], now_ns: int) -> list[float]:
        """How long answers are at the targets of each branch, as far as that is known."""
        if now_ns - self._counted_ns >= COUNTED_EVERY_NS:
            found = [each for branch in among for each in branch.estimates(self._standing, stream=call.stream)]
            self._usual = [tokens for estimate in found if (tokens := estimate.output_tokens()) is not None]
            self._counted_ns = now_ns
        return self._usual

    def _ranked_lately(self, call: Call, among: Sequence[Branch], now_ns: int) -> Sequence[Prospect]:
        """Ranked by score, with the luck of a moment ago if that still holds."""
        tokens_in = about(input_tokens(call))
        tokens_out = output_tokens(call, self.usual_output(call, among, now_ns))
        key = call.stream, tokens_in, tokens_out, *among
        ranked = self._lately.get(key, now_ns)
        if ranked is None:
            ranked = self._prospects(among, tokens_in, tokens_out, now_ns, stream=call.stream)
            ranked.sort(key=_score)
            self._lately.put(key, ranked)
        return ranked

    def _prospects(
        self, among: Sequence[Branch], tokens_in: int, tokens_out: int, now_ns: int, *, stream: bool
    ) -> list[Prospect]:
        known = [(Prospect(branch), branch.estimates(self._standing, stream=stream)) for branch in among]
        per_token = [ns for _, found in known for each in found if (ns := each.tpot_ns(self._at)) is not None]
        spare_ns = sum(per_token) / len(per_token) if per_token else 0.0  # so that it makes no difference
        for prospect, estimates in known:
            harder = self._harder(prospect.branch, now_ns)
            for estimate in estimates:
                expected_ns = self._expected_ns(estimate, tokens_in, tokens_out, spare_ns)
                if (
                    expected_ns is not None
                    and (score := harder * expected_ns * estimate.draw(self._chance)) < prospect.score
                ):
                    prospect.score, prospect.age_ns = score, estimate.age_ns
        return [prospect for prospect, _ in known]

    def _harder(self, branch: Branch, now_ns: int) -> float:
        """By which factor the branch is worse than it is fast: it fails, or everybody is being sent there just now."""
        crowded = min(branch.crowded(self._standing, now_ns), MOST_CROWDED)
        return crowded * (1 + FAILURE_COSTS * branch.failing(now_ns))

    def _expected_ns(self, estimate: Estimate, tokens_in: int, tokens_out: int, spare_ns: float) -> float | None:
        """What the target is judged by. `spare_ns` is a time per token for one whose own is not known."""
        if self._by == "tps":
            return estimate.tpot_ns(self._at)
        ttft_ns = estimate.ttft_ns(self._at, input_tokens=tokens_in)
        if ttft_ns is None or self._by == "ttft":
            return ttft_ns
        tpot_ns = estimate.tpot_ns(self._at)
        return ttft_ns + tokens_out * (spare_ns if tpot_ns is None else tpot_ns)

    def _of_equals(self, ranked: Sequence[Prospect]) -> int:
        """The place of the best; of several that are nearly so, the one with less under way of two drawn by chance."""
        limit = ranked[0].score * NEARLY
        equals = sum(prospect.score <= limit for prospect in ranked)
        if equals < 2:
            return 0
        first, second = int(self._chance.random() * equals), int(self._chance.random() * (equals - 1))
        second += second >= first
        under_way = [ranked[place].branch.in_flight(self._standing) for place in (first, second)]
        return first if under_way[0] <= under_way[1] else second


def _score(prospect: Prospect) -> float:
    return prospect.score
