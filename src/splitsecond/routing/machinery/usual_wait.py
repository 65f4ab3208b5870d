"""The default limit for the first token of a branch, if other branches can answer in its place.

A careful operator would set one: without it, a target that has fallen silent holds its calls for
minutes. The limit is ten times the 95th percentile of the branch's recent times to first token, at
least `MIN_NS`, so that it ends no healthy attempt. While nothing is known of the branch, it is
`UNKNOWN_NS` and the time that a slow server needs to read the prompt. Models that reason before
their first token, and send nothing while they do, have no limit but those of their target: their
wait depends on the question.
"""

from collections.abc import Sequence

from splitsecond.core import clock
from splitsecond.core.service import Call
from splitsecond.core.upstream.prompt_size import input_tokens
from splitsecond.routing.machinery.choosing.branch import Branch
from splitsecond.routing.machinery.choosing.ttl_cache import TtlCache, about
from splitsecond.routing.targets.target_states import TargetStates

TIMES_P95 = 10
MIN_NS = 10 * clock.NS_PER_S
UNKNOWN_NS = 12 * clock.NS_PER_S
UNKNOWN_PER_TOKEN_NS = 2 * clock.NS_PER_MS
"""For each token of the prompt: a server that reads 500 tokens per second."""
_REFRESH_NS = clock.NS_PER_S
_ANY = -1
"""In place of the tokens of a prompt: its length does not matter."""
_REASONING_FIELDS = frozenset({"reasoning_effort", "reasoning", "thinking", "enable_thinking"})


class UsualWait:
    """The default limit for the first token of `branch`, while one of the `later` branches is
    available."""

    def __init__(self, branch: Branch, later: Sequence[Branch], states: TargetStates) -> None:
        self._branch = branch
        self._later = later
        self._states = states
        self._limits: TtlCache[int] = TtlCache(_REFRESH_NS)

    def __call__(self, call: Call) -> int | None:
        for branch in self._later:
            if branch.available(self._states, call):
                break
        else:
            return None
        if not _REASONING_FIELDS.isdisjoint(call.body):
            return None
        now_ns = clock.now_ns()
        limit_ns = self._limits.get((call.stream, _ANY), now_ns)
        if limit_ns is None:
            tokens = about(input_tokens(call))
            limit_ns = self._limits.get((call.stream, tokens), now_ns)
            if limit_ns is None:
                limit_ns, prompt_matters = self._limit(call.stream, tokens)
                self._limits.put((call.stream, tokens if prompt_matters else _ANY), limit_ns)
        return limit_ns or None

    def _limit(self, stream: bool, tokens: int) -> tuple[int, bool]:
        states, names = self._states, self._branch.names
        if any(states.info(name).reasons_silently for name in names):
            return 0, False
        estimates = [states.estimate(name, stream=stream) for name in names]
        usual = [each and each.ttft_ns(0.95, input_tokens=tokens) for each in estimates]
        unknown_ns = UNKNOWN_NS + tokens * UNKNOWN_PER_TOKEN_NS
        limit_ns = round(
            max(
                (max(TIMES_P95 * ns, MIN_NS) if ns else unknown_ns for ns in usual),
                default=unknown_ns,
            )
        )
        return limit_ns, not all(usual) or any(
            each is not None and each.grows_with_prompt for each in estimates
        )
