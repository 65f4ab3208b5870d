"""How many requests are under way at once: as many as the targets take without complaint.

As TCP finds the width of a path that nobody tells it (Jacobson, "Congestion Avoidance and Control", 1988): at first
each answer lets one more in, so that the window doubles with each round. A refusal for load halves it; from then on a
whole window of answers lets one more in. Of the requests that were under way together many are refused together, which
is one complaint: only one that was sent after the last cut cuts again. Who is told when to come again waits until then,
and all others with it.
"""

import asyncio

from splitsecond import clock

FIRST = 4


class Window:
    """At most `most` at once. `size` is how many may be now, `cuts` how often that was halved."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.cuts = 0
        self.in_flight = 0
        self.widest = 0
        self._size = float(min(FIRST, most))
        self._cut_ns = 0
        self._full_ns = -1  # when the last place was taken: a window that is not filled says nothing of a wider one
        self._closed_until_ns = 0
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def size(self) -> int:
        """At least 1."""
        return int(self._size + 1e-9)

    async def enter(self) -> int:
        """Waits for a place; returns when it was given (ns), for `leave`."""
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
                turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append(turn)
                await turn

    def leave(self, entered_ns: int, *, refused: bool = False, wait_ns: int = 0) -> None:
        """A request is over. `refused`: for load; then nobody is sent for `wait_ns`."""
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
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
        self._waiting.clear()
