"""Turns of probes: which worker of the whole fleet may find out whether a target is up again.

In the database each target has at most one gateway with the turn, for `LEASE_S`, and that gateway
gives it to one of its workers for `TURN_S` at a time. Both are renewed about once a second while
the worker has calls for the target, and for as long as its probe is in flight. A worker that does
not use its turn for `HOLD_S` although the probe is due, and a worker whose probe has just failed,
loses it to the next worker, for which the target may be up.

A turn is passed on only when it is over and a later report of the worker shows that it has no probe
in flight. So two workers never probe at once, as long as their gateways reach the database.
"""

from collections.abc import Mapping

from msgspec import Struct

from splitsecond.core.clock import NS_PER_S
from splitsecond.gateway.fleet.learned import TargetReport

LEASE_S = 15.0
"""How long a gateway has a turn without renewing it. In fleet time, of which 5 s may pass at once
(`shared_limit`)."""
TURN_S = 3.0
"""How long after an exchange has begun a probe may begin. Less than the lease by more than 5 s."""
HOLD_S = 5.0
"""How long a worker keeps a turn that it does not use."""
PAUSE_S = 2.0
"""How long a gateway leaves a turn to others after its workers have not used it."""

Workers = Mapping[int, Mapping[str, TargetReport]]


class _Held(Struct):
    """A turn of this gateway. `since_ns`: since when the worker could have used it. `until_ns`:
    before which time a probe may begin. `ending`: it is not renewed."""

    worker: int
    since_ns: int
    until_ns: int = 0
    ending: bool = False


class Turns:
    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._paused_ns: dict[str, int] = {}
        self._probed: set[str] = set()

    def claims(self, workers: Workers, made_ns: Mapping[int, int], now_ns: int) -> list[str]:
        """Return the targets for which the gateway wants to have or keep the turn."""
        self._paused_ns = {
            name: until_ns for name, until_ns in self._paused_ns.items() if now_ns < until_ns
        }
        wanting: dict[str, list[int]] = {}
        probing: dict[str, list[int]] = {}
        for number, targets in sorted(workers.items()):
            for name, report in targets.items():
                if report.probing:
                    probing.setdefault(name, []).append(number)
                elif report.wants:
                    wanting.setdefault(name, []).append(number)
        for name in [*self._held]:
            self._check(
                name, workers, probing.get(name, []), wanting.get(name, []), made_ns, now_ns
            )
        for name in [*probing, *wanting]:
            if name not in self._held and name not in self._paused_ns:
                self._held[name] = _Held((probing.get(name) or wanting[name])[0], now_ns)
        self._probed = {
            name for name, numbers in probing.items() if self._held[name].worker not in numbers
        }
        return sorted(self._held)

    def granted(self, names: set[str], begin_ns: int) -> dict[str, tuple[int, int]]:
        turns = {}
        for name in names & self._held.keys() - self._probed:
            held = self._held[name]
            if not held.ending:
                held.until_ns = begin_ns + round(TURN_S * NS_PER_S)
                turns[name] = held.worker, held.until_ns
        return turns

    def _check(
        self,
        name: str,
        workers: Workers,
        probing: list[int],
        wanting: list[int],
        made_ns: Mapping[int, int],
        now_ns: int,
    ) -> None:
        held = self._held[name]
        if held.worker in probing:
            held.since_ns, held.ending = now_ns, False
            return
        wants = held.worker in wanting
        if wants and not workers[held.worker][name].due:
            held.since_ns = now_ns
        unused = now_ns - held.since_ns >= HOLD_S * NS_PER_S
        held.ending = held.ending or unused or not wants
        is_over = (
            made_ns.get(held.worker, 0) >= held.until_ns
            or now_ns - held.until_ns >= LEASE_S * NS_PER_S
        )
        if not held.ending or not is_over:
            return
        later = [each for each in wanting if each > held.worker]
        if later:
            self._held[name] = _Held(later[0], now_ns)
        else:
            del self._held[name]
            self._paused_ns[name] = now_ns + round(PAUSE_S * NS_PER_S)
