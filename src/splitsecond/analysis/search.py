"""Which load to try next, given what came of those before: a search for the heaviest one that a server bears.

No clock, no sockets, no statistics: a load is a number, what came of it a word. From the first load on each next one is
twice as heavy, until one does not hold; then the gap between the heaviest that holds and the lightest that does not is
halved (by ratio: loads are compared by how many times heavier they are) until it is narrow. So no load is more than
twice as heavy as one that held, and a server that breaks is hardly pressed beyond it.

On the way up it would be waste to be sure of each load, as what bears a heavier one bears it too, and the lightest are
the slowest to ask: a few requests, as many of which keep to the limits as should, make a load promising, and that is
enough to go on. Where it turns out to be the heaviest, it is tried again until it is sure.

Near the edge a load may stay undecided, however often it is asked. Then there are two gaps, one on each side of what is
undecided, and both are closed: the answer is two loads, one that surely holds and one that surely does not.

A load that the client could not drive says nothing. It is tried once more, as the client may have been disturbed; if
that says nothing either, heavier ones would not. A server that broke is left alone: the search ends.
"""

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Verdict = Literal["holds", "promising", "undecided", "fails", "breaks", "invalid"]
"""What came of a load: the limits surely hold; they held, but for too few requests to be sure; they did not, for too
few to be sure; they surely do not hold; the server fails its requests; the figures must not be trusted."""
PRECISION = 0.1
"""How narrow a gap must be, as a share of its lighter end, before it is left as it is."""
DIGITS = 3
"""Of a rate. A concurrency is a whole number."""
CEILINGS: tuple[Verdict, ...] = ("fails", "breaks", "invalid")


class Edges(Struct, frozen=True):
    """What a search knows: the heaviest load that holds, the lightest above it that does not, and what is undecided
    between them, in order. None: there is none."""

    holds: float | None
    ceiling: float | None
    undecided: list[float]


def edges(verdicts: Mapping[float, Verdict], *, promising: Verdict = "undecided") -> Edges:
    """Where the limits stop to hold. What holds above a load that does not is chance, or the server had its moments:
    the lightest that does not is believed. What holds above an undecided one decides that. `promising`: what a load
    counts as that is.
    """
    verdicts = {load: promising if verdict == "promising" else verdict for load, verdict in verdicts.items()}
    ceiling = min((load for load, verdict in verdicts.items() if verdict in CEILINGS), default=None)
    below = {load: v for load, v in verdicts.items() if ceiling is None or load < ceiling}
    holds = max((load for load, verdict in below.items() if verdict == "holds"), default=None)
    undecided = sorted(load for load, v in below.items() if v == "undecided" and (holds is None or load > holds))
    return Edges(holds, ceiling, undecided)


class Search:
    """Gives loads to try from `first` to at most `last`; `told` what came of each. `whole`: loads are whole numbers."""

    def __init__(self, first: float, last: float, *, whole: bool, precision: float = PRECISION) -> None:
        self.verdicts: dict[float, Verdict] = {}
        """By load, what came of it last."""
        self._first, self._last = first, last
        self._whole = whole
        self._precision = precision
        self._again: float | None = None  # a load that says nothing, and has not been tried twice
        self._broken = False

    def next(self) -> float | None:
        """The load to try; None where enough is known."""
        if self._broken:
            return None
        if self._again is not None:
            return self._again
        if not self.verdicts:
            return self._first
        known = edges(self.verdicts, promising="holds")
        found = None
        if known.undecided:
            found = self._between(known.holds, known.undecided[0])
        if found is None and (last := max((known.holds or 0, *known.undecided))):
            found = self._above(last, known.ceiling)
        if found is None and known.holds is not None and self.verdicts[known.holds] == "promising":
            return known.holds
        return found

    def climbs(self, load: float) -> bool:
        """Whether `load` is on the way up: the heaviest so far, so that it is enough that it is promising."""
        return all(load > other for other in self.verdicts)

    def told(self, load: float, verdict: Verdict) -> None:
        """What came of `load`. Where it should have been made sure, what is only promising is undecided."""
        again = self.verdicts.get(load) == "invalid"
        self.verdicts[load] = "undecided" if verdict == "promising" and not self.climbs(load) else verdict
        self._again = load if verdict == "invalid" and not again else None
        self._broken = verdict == "breaks"

    def _above(self, load: float, ceiling: float | None) -> float | None:
        """Between the two; twice as heavy where there is no ceiling yet."""
        if ceiling is not None:
            return self._between(load, ceiling)
        return min(2 * load, self._last) if load < self._last else None

    def _between(self, low: float | None, high: float) -> float | None:
        """A load in a gap that is too wide; None where it is narrow, or open below."""
        if low is None or high <= low * (1 + self._precision):
            return None
        middle = math.sqrt(low * high)
        found = min(max(round(middle), low + 1), high - 1) if self._whole else float(f"{middle:.{DIGITS}g}")
        return found if low < found < high else None
