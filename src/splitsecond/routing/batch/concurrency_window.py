"""Adaptive limit on the requests in flight: as many as the targets accept.

The limit follows TCP's congestion window (Jacobson, "Congestion Avoidance and Control", 1988). At
first each success adds one, so the window doubles with each round. A rejection for load, such as
HTTP 429, halves the window; after that a whole window of successes adds one. Targets often reject
many requests of one window together, so only a request that was sent after the last cut can cut
again. If a target asks for a wait, all requests wait.
"""

import asyncio

from splitsecond.core import clock

FIRST = 4
"""Size of the window at the start."""


class ConcurrencyWindow:
    """Limits the requests in flight.

    `most`: the upper bound of the window. `cuts`: how often the window was halved. `widest`: the
    most requests that were in flight together.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.cuts = 0
        self.in_flight = 0
        self.widest = 0
        self._size = float(min(FIRST, most))
        self._cut_ns = 0
        # when the window was last full: successes in a window that is not full do not justify a
        # wider one
        self._full_ns = -1
        self._closed_until_ns = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def size(self) -> int:
        return int(self._size + 1e-9)

    async def enter(self) -> int:
        while True:
            pause_ns = self._closed_until_ns - clock.now_ns()
            if pause_ns > 0:
                await asyncio.sleep(pause_ns / clock.NS_PER_S)
            elif self.in_flight < self.size:
                self.in_flight += 1
                self.widest = max(self.widest, self.in_flight)
                entered_ns = clock.now_ns()
                if self.in_flight >= self.size:
                    self._full_ns = entered_ns
                return entered_ns
            else:
                change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(change)
                await change

    def leave(self, entered_ns: int, *, refused: bool = False, wait_ns: int = 0) -> None:
        self.in_flight -= 1
        now_ns = clock.now_ns()
        if refused:
            self._closed_until_ns = max(self._closed_until_ns, now_ns + wait_ns)
            if entered_ns >= self._cut_ns:
                self._size = max(1.0, self._size / 2)
                self._cut_ns = now_ns
                self.cuts += 1
        elif self._cut_ns <= entered_ns <= self._full_ns:
            self._size = min(float(self.most), self._size + (1 / self.size if self.cuts else 1))
        for change in self._waiting:
            if not change.done():
                change.set_result(None)
        self._waiting.clear()
