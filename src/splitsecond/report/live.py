"""Progress while a benchmark runs: for each condition a bar, done of total, running medians, errors; for all of them
the time to go, and the money so far.

There is no thread and no timer: a frame is drawn when an observation comes in and the last frame is `REFRESH_NS` old.
A frame takes some milliseconds in which no socket is read; arrivals stamped by the kernel do not feel that, and the
frames are few. Where the console is no terminal nothing is printed at all.
"""

from bisect import insort
from collections.abc import Callable, Mapping
from statistics import median

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from splitsecond import clock
from splitsecond.analysis.cost import usd
from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.report.rows import number, printable
from splitsecond.timing.observation import Observation

REFRESH_NS = NS_PER_S // 4
SPARE_LINES = 5
"""Lines of the screen that are left to the headings and to the prompt."""
BARS = (10, 20)
"""How long a bar is where the console has fewer than `NARROW` columns, and where it has not."""
NARROW = 100


KNOWN_SHARE = 0.05
"""Before this share of the requests has ended, their pace says nothing of the others."""


class _Row:
    """What is known so far of one condition."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.errors = 0
        self.ttft_ms: list[float] = []
        self.tps: list[float] = []

    def add(self, observation: Observation) -> None:
        self.done += 1
        if not observation.ok:
            self.errors += 1
            return
        if observation.ttft_ns is not None:
            insort(self.ttft_ms, observation.ttft_ns / NS_PER_MS)
        if observation.tps is not None:
            insort(self.tps, observation.tps)


class Progress:
    """Shows how far a run is. Call `start`, then `observed` for each observation, and `stop` whatever happens.

    `spent_usd`: what it has cost so far.
    """

    def __init__(self, console: Console, spent_usd: Callable[[], float] = float) -> None:
        self._console = console
        self._spent_usd = spent_usd
        self._rows: dict[str, _Row] = {}
        self._live: Live | None = None
        self._began = self._drawn = 0
        self._open_ended = False

    def start(self, totals: Mapping[str, int]) -> None:
        """Begin; `totals` says how many measured requests each condition will send; none: see `expect`."""
        self._rows = {condition: _Row(total) for condition, total in totals.items()}
        self._open_ended = not totals
        self._began = clock.now_ns()
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
            self._draw()

    def expect(self, condition: str, requests: int) -> None:
        """So many requests more are to come of a condition, which may be a new one: nobody knew how many there are."""
        self._rows.setdefault(condition, _Row(0)).total += requests

    def observed(self, observation: Observation) -> None:
        """One more request has ended; those that are not measured (warm-up, calibration) are not counted."""
        row = self._rows.get(observation.condition)
        if row is None or observation.role != "measured":
            return
        row.add(observation)
        if clock.now_ns() - self._drawn >= REFRESH_NS:
            self._draw()

    def note(self, text: str) -> None:
        """Say something that stays above the bars."""
        if self._live:
            self._live.console.print(Text(printable(text), "dim"))

    def stop(self) -> None:
        """Take the bars away. Calling it again, or without `start`, does nothing."""
        if self._live:
            self._draw()
            self._live.stop()
            self._live = None

    def _draw(self) -> None:
        self._drawn = clock.now_ns()
        if self._live:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        done, total = sum(r.done for r in self._rows.values()), sum(r.total for r in self._rows.values())
        spent = self._spent_usd()
        money = f", {usd(spent)} so far" if spent else ""
        known = f"{done}" if self._open_ended else f"{done}/{total}"
        heading = f"{known} requests{self._time_to_go(done, total)}{money}"
        table = Table(title=heading, title_justify="left", title_style="", box=None, pad_edge=False, header_style="dim")
        table.add_column("", overflow="ellipsis", no_wrap=True)
        bar = BARS[self._console.width >= NARROW]
        table.add_column("", width=bar)
        for heading in ("\ndone", "TTFT\np50 ms", "TPS\np50", "\nerrors"):
            table.add_column(heading, justify="right", no_wrap=True, min_width=max(map(len, heading.split("\n"))))
        for condition, row in self._in_sight():
            table.add_row(
                Text(printable(condition)),
                ProgressBar(total=max(row.total, 1), completed=row.done, width=bar),
                f"{row.done}/{row.total}",
                number(median(row.ttft_ms) if row.ttft_ms else None),
                number(median(row.tps) if row.tps else None),
                Text(str(row.errors), "red" if row.errors else "dim"),
            )
        return table

    def _in_sight(self) -> list[tuple[str, _Row]]:
        """The rows that the screen has room for: those under way before those to come, what is done last."""
        room = max(self._console.height - SPARE_LINES, 1)
        if len(self._rows) <= room:
            return list(self._rows.items())
        return sorted(self._rows.items(), key=lambda item: (item[1].done >= item[1].total, not item[1].done))[:room]

    def _time_to_go(self, done: int, total: int) -> str:
        """By the pace so far, once there is one."""
        if self._open_ended or done < total * KNOWN_SHARE or done >= total:
            return ""
        seconds = round((clock.now_ns() - self._began) * (total - done) / done / NS_PER_S)
        return f", about {seconds // 60}:{seconds % 60:02d} to go"
