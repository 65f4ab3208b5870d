"""How each target stands now: whether it is well, how fast it is, and what is known of it.

Learned from the observations of all attempts of this process, and from nothing else. Policies ask it whom to choose
(`available`, `estimate`), and every attempt goes through its guard, which does not ask who is down while somebody else
could answer the call:

- A target that is down, or whose rate limit is used up, is refused while another of those that may serve the call
  stands. Refused means `Overloaded` of kind "ejected": nothing was sent, and the policy goes to the next one.
- The last one is never refused for being down: when none stands, the one that may be probed first is asked, and the
  others are not. So of a call for which anybody may be asked somebody is.
- Two things are refused even then. A target that itself said when to come again is left alone until then, and one whose
  key is refused until the configuration changes (then its `Standing` is made anew).
- A call that was at a target does not go there again while that is open.
- Whether one that was down is well again is found out with somebody's call, as there are no others. Where that fails
  before its first token its fault says that it was `on_trial`, and a policy that has another target asks that.
- When those that stand have failed for a call, one that is down may be asked for it, three times a minute: it may be
  the only answer there is, and must not become a way to hammer a target that is down.
"""

from collections.abc import Callable, Iterable, Mapping
from random import Random
from weakref import WeakValueDictionary

from splitsecond import clock
from splitsecond.policy.escalations import Escalations
from splitsecond.policy.targets.estimate import Estimate
from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.guard import Guard
from splitsecond.policy.targets.stand import Described, Key, Stand
from splitsecond.service import Service
from splitsecond.timing.observation import Observation

MOST_STANDS = 2048
"""Clients may name targets themselves, and what is kept of them is bounded."""


class Standing:
    """Of all targets of one process. It must be told of each attempt that ends (`observe`)."""

    def __init__(
        self, facts: Mapping[str, Facts] | Callable[[str], Facts] | None = None, *, chance: Random | None = None
    ):
        self._facts: Callable[[str], Facts | None] = facts if callable(facts) else (facts or {}).get
        self.chance = chance or Random()
        """What policies that choose draw by too."""
        self._stands: dict[str, Stand] = {}
        self._keys: dict[str, Key] = {}
        self._cascades: WeakValueDictionary[str, Escalations] = WeakValueDictionary()

    def observe(self, observation: Observation) -> None:
        """An attempt has ended."""
        stand = self._stands.get(observation.target) or self.stand(observation.target)
        stand.observe(observation, clock.now_ns())

    def seed(self, observations: Iterable[Observation], age_ns: int | Callable[[Observation], int]) -> None:
        """What was observed elsewhere, `age_ns` ago: it tells how fast targets are until they are asked."""
        now_ns, dated = clock.now_ns(), dict[tuple[str, bool], list[tuple[int, Observation]]]()
        for observation in observations:
            age = age_ns if isinstance(age_ns, int) else age_ns(observation)
            kind = observation.target, observation.streamed
            dated.setdefault(kind, []).append((now_ns - max(age, 0), observation))
        for (name, streamed), found in dated.items():
            stand = self.stand(name)
            stand.estimates.setdefault(streamed, Estimate(stand.waiting[streamed])).seed(found)

    def renew(self, facts: Callable[[str], Facts | None], rekeyed: Callable[[str], bool] = lambda _: False) -> None:
        """Other facts hold from here on. What is known of targets stays.

        `rekeyed`: whether a target is asked with another key than before; what was held against the old one is
        forgotten, and what was left of its rate limit.
        """
        self._facts = facts
        stands = list(self._stands.values())
        anew = {stand.name for stand in stands if rekeyed(stand.name)}
        for stand in stands:
            if stand.name in anew:
                self._keys.pop(stand.facts.account, None)
        for stand in stands:
            stand.facts = facts(stand.name) or Facts()
            if stand.facts.account:
                stand.key = self._keys.setdefault(stand.facts.account, Key())
            elif stand.name in anew:
                stand.key = Key()
            if stand.name in anew:
                stand.quota = None

    def facts(self, target: str) -> Facts:
        """What is known of `target` before it is asked."""
        stand = self._stands.get(target)
        return stand.facts if stand is not None else self._facts(target) or Facts()

    def available(self, target: str) -> bool:
        """Whether `target` may be asked: it is not down, its key was not refused, its rate limit is not used up."""
        stand = self._stands.get(target)
        return stand is None or not stand.is_troubled() or not stand.until_ns(clock.now_ns())

    def why_not(self, target: str) -> str:
        """Why it is not available, in a few words; "" where it is."""
        stand = self._stands.get(target)
        return "" if stand is None else stand.why(clock.now_ns())

    def in_flight(self, target: str) -> int:
        """How many attempts at `target` have begun, through a guard, and not ended."""
        stand = self._stands.get(target)
        return 0 if stand is None else len(stand.under_way)

    def estimate(self, target: str, *, stream: bool = True) -> Estimate | None:
        """How fast `target` is where the answer is streamed, or not. None: nothing is known.

        Where only the other of the two is known, that is given.
        """
        stand = self._stands.get(target)
        return None if stand is None else stand.estimates.get(stream) or stand.estimates.get(not stream)

    def describe(self, target: str) -> Described:
        """How `target` stands, for people and for metrics."""
        stand = self._stands.get(target)
        return Described(target=target, state="up") if stand is None else stand.described(clock.now_ns())

    def guard(self, target: str, service: Service, among: frozenset[str]) -> Service:
        """`service`, which is not asked while `target` is down and another of `among` is not."""
        others = tuple(name for name in sorted(among) if name != target)
        return Guard(service, target, others, self.stand, self.chance)

    def escalations(self, cascade: str) -> Escalations:
        """How often the cascade that is written like this escalates: known here, so that it outlives a change of the
        configuration, and whoever tries a policy out has it too. Kept as long as somebody holds it."""
        found = self._cascades.get(cascade)
        if found is None:
            found = self._cascades[cascade] = Escalations()
        return found

    def cascades(self) -> Mapping[str, Escalations]:
        """All of them, as they are written."""
        return dict(self._cascades)

    def stand(self, target: str) -> Stand:
        """How `target` stands."""
        stand = self._stands.get(target)
        if stand is None:
            if len(self._stands) >= MOST_STANDS:
                self._forget()
            facts = self._facts(target) or Facts()
            key = self._keys.setdefault(facts.account, Key()) if facts.account else Key()
            stand = self._stands[target] = Stand(target, facts, key, self.chance)
        return stand

    def _forget(self) -> None:
        """Forget the first that is well and has nothing under way."""
        for name, stand in self._stands.items():
            if not stand.under_way and not stand.is_troubled():
                del self._stands[name]
                return
