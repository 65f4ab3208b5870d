"""How each target stands now: whether it is well, how fast it is, and what is known of it."""

from collections.abc import Callable, Mapping
from random import Random

from splitsecond.policy.facts import Facts
from splitsecond.service import Service
from splitsecond.timing.observation import Observation


class Standing:
    """Of all targets of one process."""

    def __init__(
        self, facts: Mapping[str, Facts] | Callable[[str], Facts] | None = None, *, chance: Random | None = None
    ):
        self._facts: Callable[[str], Facts] = facts if callable(facts) else (facts or {}).get  # type: ignore[assignment]

    def observe(self, observation: Observation) -> None:
        """An attempt has ended."""

    def facts(self, target: str) -> Facts:
        """What is known of `target`."""
        return self._facts(target) or Facts()

    def guard(self, target: str, service: Service, among: frozenset[str]) -> Service:
        """`service`, which is not asked while `target` is down and another of `among` is not."""
        return service
