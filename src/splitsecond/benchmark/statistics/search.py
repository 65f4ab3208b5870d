"""Search for the heaviest load that a server handles: which load to try next, given the verdicts on
those before.

Loads double until one fails. Then the gap between the heaviest that holds and the lightest that
fails is halved (by ratio) until it is narrow. A few requests that meet the limits often enough make
a load promising, which is enough to go on; the heaviest of these is tried again until it is
certain.

A load may stay undecided, however often it is tried. Then the gap below it is closed, so that the
result is a load that surely holds, but not the gap above it. A load that the client could not drive
shows nothing. It is tried once more; if that fails too, heavier loads would fail as well.
"""

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

Verdict = Literal["holds", "promising", "undecided", "fails", "breaks", "invalid"]
"""Verdict, in order: the limits surely hold; they held, or did not hold, with too few requests to
be sure; they surely do not hold; the server fails its requests; the figures must not be trusted."""
PRECISION = 0.1
"""Width at which a gap between two concurrencies is narrow enough, as a share of its lighter
end."""
RATE_PRECISION = 0.05
"""The same for rates: finer, because a rate within 10% of the capacity stays undecided for long."""
DIGITS = 3
CEILINGS: tuple[Verdict, ...] = ("fails", "breaks", "invalid")


class Edges(Struct, frozen=True):
    """Result of a search: the heaviest load that holds, the lightest above it that does not, and
    the undecided between them. None: there is no such load."""

    holds: float | None
    ceiling: float | None
    undecided: list[float]


def edges(verdicts: Mapping[float, Verdict], *, promising: Verdict = "undecided") -> Edges:
    """Return where the limits stop holding.

    A load that holds above one that fails is chance or a moment of the server: the lightest failure
    counts. A load that holds above an undecided one decides it. `promising`: the verdict as which a
    promising load counts.
    """
    verdicts = {
        load: promising if verdict == "promising" else verdict for load, verdict in verdicts.items()
    }
    ceiling = min((load for load, verdict in verdicts.items() if verdict in CEILINGS), default=None)
    below = {load: v for load, v in verdicts.items() if ceiling is None or load < ceiling}
    holds = max((load for load, verdict in below.items() if verdict == "holds"), default=None)
    undecided = sorted(
        load for load, v in below.items() if v == "undecided" and (holds is None or load > holds)
    )
    return Edges(holds, ceiling, undecided)


class Search:
    """Search from load `first` to at most `last`. `next` returns the load to try, `record` takes
    its verdict.

    `whole`: loads are whole numbers.
    """

    def __init__(
        self, first: float, last: float, *, whole: bool, precision: float | None = None
    ) -> None:
        self.verdicts: dict[float, Verdict] = {}
        self._first, self._last = first, last
        self._whole = whole
        self._precision = precision or (PRECISION if whole else RATE_PRECISION)
        self._again: float | None = None  # an invalid load that has not been tried twice
        self._promising: set[float] = set()  # loads that were promising once
        self._broken = False

    def next(self) -> float | None:
        if self._broken:
            return None
        if self._again is not None:
            return self._again
        if not self.verdicts:
            return self._first
        bounds = edges(self.verdicts, promising="holds")
        load = None
        if bounds.undecided:
            load = self._between(bounds.holds, bounds.undecided[0])
        if load is None and (last := max((bounds.holds or 0, *bounds.undecided))):
            load = (
                None
                if bounds.undecided and bounds.ceiling is not None
                else self._above(last, bounds.ceiling)
            )
        if load is None and bounds.holds is not None and self.verdicts[bounds.holds] == "promising":
            return bounds.holds
        return load

    @property
    def remaining(self) -> tuple[float, float]:
        bounds = edges(self.verdicts, promising="holds")
        low = self._first if bounds.holds is None else bounds.holds
        return low, self._last if bounds.ceiling is None else bounds.ceiling

    def loads_left(self) -> int:
        low, high = self.remaining
        if high <= low:
            return 0
        limited = any(verdict in CEILINGS for verdict in self.verdicts.values())
        doublings = 0 if limited else math.ceil(math.log2(high / low))
        gap = high / low if limited else min(2.0, high / low)
        halvings = max(math.ceil(math.log2(math.log(gap) / math.log1p(self._precision))), 0)
        if self._whole and limited:
            halvings = min(halvings, math.ceil(math.log2(high - low)))
        return doublings + halvings

    def confirms(self, load: float) -> bool:
        return load in self._promising

    def record(self, load: float, verdict: Verdict) -> None:
        """Record the verdict on `load`. One that is still only promising at its second try counts
        as undecided."""
        again = self.verdicts.get(load) == "invalid"
        self.verdicts[load] = (
            "undecided" if verdict == "promising" and self.confirms(load) else verdict
        )
        if verdict == "promising":
            self._promising.add(load)
        self._again = load if verdict == "invalid" and not again else None
        self._broken = verdict == "breaks"

    def _above(self, load: float, ceiling: float | None) -> float | None:
        if ceiling is not None:
            return self._between(load, ceiling)
        return min(2 * load, self._last) if load < self._last else None

    def _between(self, low: float | None, high: float) -> float | None:
        if low is None or high <= low * (1 + self._precision):
            return None
        middle = math.sqrt(low * high)
        load = (
            min(max(round(middle), low + 1), high - 1)
            if self._whole
            else float(f"{middle:.{DIGITS}g}")
        )
        return load if low < load < high else None
