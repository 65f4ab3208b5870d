"""The floor of an answer's speed: finds streams that are alive and too slow.

The rate is that of the last `over_ns`, and it is first taken when that time has passed since the
first token. A pause longer than half of it does not count as slowness: models that reason between
two parts of an answer send no token meanwhile, and the stall limit decides how long they may be
silent. After such a pause, and after a pause of the reader, the time begins again.

A check happens eight times in each `over_ns`, so a token costs nothing.
"""

from bisect import bisect_right
from collections.abc import Sequence

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.service import RateFloor

CHARACTERS_PER_TOKEN = 4
"""About as many as in English text. Only for chunks with several tokens, as a chunk counts as one
token at least."""
CHECKS = 8


class RateCheck:
    """Checks of one answer against its floor. `arrivals` and `lengths` (characters) of its chunks
    only grow.

    `due_ns`: the time of the next check.
    """

    __slots__ = ("_arrivals", "_floor", "_lengths", "_seen", "_since_ns", "_start", "due_ns")

    def __init__(self, floor: RateFloor, arrivals: Sequence[int], lengths: Sequence[int]) -> None:
        self._floor = floor
        self._arrivals = arrivals
        self._lengths = lengths
        self._seen = 0
        self._start = 0  # no token before it counts any more
        self.restart(arrivals[0])

    def restart(self, now_ns: int) -> None:
        self._since_ns = now_ns
        self.due_ns = now_ns + self._floor.over_ns

    def rate(self, now_ns: int) -> float | None:
        """Return the tokens per second if they are too few. If not, set `due_ns` to a later
        time."""
        arrivals, over_ns = self._arrivals, self._floor.over_ns
        pause_ns = over_ns // 2
        for number in range(max(self._seen, 1), len(arrivals)):
            if arrivals[number] - arrivals[number - 1] > pause_ns:
                self._since_ns = max(self._since_ns, arrivals[number])
        self._seen = len(arrivals)
        if now_ns - arrivals[-1] > pause_ns:
            # the pause has not ended, and after it `over_ns` have to pass
            self.due_ns = now_ns + over_ns
            return None
        self.due_ns = self._since_ns + over_ns
        if now_ns < self.due_ns:
            return None
        self._start = bisect_right(arrivals, now_ns - over_ns, self._start)
        chunks = len(arrivals) - self._start
        tokens = max(chunks, sum(self._lengths[self._start :]) / CHARACTERS_PER_TOKEN)
        rate = tokens * NS_PER_S / over_ns
        if rate < self._floor.tokens_per_s:
            return rate
        self.due_ns = now_ns + over_ns // CHECKS
        return None
