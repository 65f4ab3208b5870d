"""How each target stands now: whether it is well, how fast it is, and what is known of it."""

from collections.abc import Callable, Iterable, Mapping
from random import Random

from splitsecond import clock
from splitsecond.policy.estimate import Estimate
from splitsecond.policy.facts import Facts
from splitsecond.service import Service
from splitsecond.timing.observation import Observation


class Standing:
    """Of all targets of one process. It must be told of each attempt that ends (`observe`)."""

    def __init__(
        self, facts: Mapping[str, Facts] | Callable[[str], Facts] | None = None, *, chance: Random | None = None
    ):
        self._facts: Callable[[str], Facts] = facts if callable(facts) else (facts or {}).get  # type: ignore[assignment]
        self._chance = chance or Random()
        self._estimates: dict[tuple[str, bool], Estimate] = {}

    def observe(self, observation: Observation) -> None:
        """An attempt has ended."""
        self._estimates.setdefault((observation.target, True), Estimate()).observe(observation)

    def seed(self, observations: Iterable[Observation], age_ns: int | Callable[[Observation], int]) -> None:
        """What was observed elsewhere, `age_ns` ago: it tells how fast targets are until they are asked."""
        now_ns, by_target = clock.now_ns(), dict[str, list[tuple[int, Observation]]]()
        for observation in observations:
            age = age_ns if isinstance(age_ns, int) else age_ns(observation)
            by_target.setdefault(observation.target, []).append((now_ns - max(age, 0), observation))
        for name, dated in by_target.items():
            self._estimates.setdefault((name, True), Estimate()).seed(dated)

    def facts(self, target: str) -> Facts:
        """What is known of `target`."""
        return self._facts(target) or Facts()

    def available(self, target: str) -> bool:
        """Whether `target` may be asked: it is not down, its key was not refused, its rate limit is not used up."""
        return True

    def why_not(self, target: str) -> str:
        """Why it is not available, in a few words; "" where it is."""
        return ""

    def in_flight(self, target: str) -> int:
        """How many attempts at `target` have begun and not ended."""
        return 0

    def estimate(self, target: str, *, stream: bool = True) -> Estimate | None:
        """How fast `target` is where the answer is streamed, or not. None: nothing is known.

        Where only the other of the two is known, that is given.
        """
        estimates = self._estimates
        return estimates.get((target, stream)) or estimates.get((target, not stream))

    def guard(self, target: str, service: Service, among: frozenset[str]) -> Service:
        """`service`, which is not asked while `target` is down and another of `among` is not."""
        return service
