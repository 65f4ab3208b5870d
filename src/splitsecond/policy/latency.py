"""How long a target takes to its first token, learned from calls that were not all waited out.

Calls that were closed before the first token (a hedge won, the caller left, a deadline passed) tell only that it would
have come later. To leave them out makes a slow target look fast, since the slow ones are just those that are closed;
to count them as if the token had come then does the same. They are censored samples, and the quantile is that of the
Kaplan-Meier estimate, which lets a sample that was closed at t count among those under way until t.

Where so many are censored that the wanted quantile lies beyond everything that was waited for, the longest wait is
given: the quantile is at least that.
"""

from collections import deque
from collections.abc import Iterable

REMEMBERED = 1000
"""The latest samples. They age by number only: a target that is asked rarely is judged by what it did long ago."""
_REFRESH = 16
"""A quantile is worked out anew when this part (one in so many) of the samples is new."""


class Latencies:
    """The times to the first token of the latest calls, and the quantile that leaves `share` of them beyond."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._samples: deque[tuple[int, bool]] = deque(maxlen=REMEMBERED)
        self._new = 0
        self._quantile_ns: int | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, ns: int, *, censored: bool = False) -> None:
        """One call: the first token came after `ns`; or, `censored`, it had not come by then."""
        self._samples.append((ns, censored))
        self._new += 1

    def quantile_ns(self) -> int | None:
        """The time that `share` of the calls exceed. None: there is no sample."""
        if self._samples and (self._quantile_ns is None or self._new * _REFRESH >= len(self._samples)):
            self._quantile_ns = survival_quantile(self._samples, self._share)
            self._new = 0
        return self._quantile_ns


def survival_quantile(samples: Iterable[tuple[int, bool]], share: float) -> int:
    """The least time at which no more than `share` are still waiting, by Kaplan and Meier; else the longest time.

    `samples` are pairs of a time and whether it is censored; at least one.
    """
    ordered = sorted(samples)  # at equal times those that ended come before those that were closed
    waiting = 1.0
    for place, (ns, censored) in enumerate(ordered):
        if not censored:
            waiting *= 1 - 1 / (len(ordered) - place)
            if waiting <= share + 1e-9:
                return ns
    return ordered[-1][0]
