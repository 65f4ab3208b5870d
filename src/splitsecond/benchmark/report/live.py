"""Progress of a benchmark: for each condition a bar, a count, running medians and errors; the time
left and the cost.

There is no thread and no timer: a frame, which takes some milliseconds, is drawn when an
observation arrives and the last frame is `REFRESH_NS` old.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from statistics import median
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as BarProgress
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.money.cost import usd
from splitsecond.core.observation import Observation
from splitsecond.core.pages.figure_cells import number, safe_text

REFRESH_NS = NS_PER_S // 4
LINE_NS = 10 * NS_PER_S
WAIT_NS = 60 * NS_PER_S
"""Time between two lines where no request ends, as in the pauses between rounds."""
SPARE_LINES = 5
BARS = (10, 20)
NARROW = 100
KNOWN_SHARE = 0.05


class _ConditionProgress:
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


class LiveProgress:
    """Progress display of a run, as `Progress`. `spent_usd` returns the cost so far."""

    def __init__(self, console: Console, spent_usd: Callable[[], float] = float) -> None:
        self._console = console
        self._spent_usd = spent_usd
        self._rows: dict[str, _ConditionProgress] = {}
        self._live: Live | None = None
        self._show: Any = None  # IPython's `display`, and its handle of the output
        self._cell: Any = None
        self._began = self._drawn = 0
        self._open_ended = False
        self._stage = ""

    def start(self, totals: Mapping[str, int]) -> None:
        self._rows = {condition: _ConditionProgress(total) for condition, total in totals.items()}
        self._open_ended = not totals
        self._began = self._drawn = clock.now_ns()
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
            self._draw()
        elif self._console.is_jupyter:
            self._show = import_module("IPython.display").display
            self._cell = self._show(self._table(), display_id=True)

    def expect(self, condition: str, requests: int) -> None:
        self._rows.setdefault(condition, _ConditionProgress(0)).total += requests

    def stage(self, text: str) -> None:
        self._stage = text
        if self._live or self._cell or clock.now_ns() - self._drawn >= WAIT_NS:
            self._draw()

    def observed(self, observation: Observation) -> None:
        row = self._rows.get(observation.condition)
        if row is None or observation.role != "measured":
            return
        row.add(observation)
        if clock.now_ns() - self._drawn >= (REFRESH_NS if self._live or self._cell else LINE_NS):
            self._draw()

    def note(self, text: str) -> None:
        if self._live:
            self._live.console.print(Text(safe_text(text), "dim"))
        elif self._cell:
            self._show(Text(safe_text(text), "dim"))
        else:
            self._console.print(Text(safe_text(text)), soft_wrap=True)

    def stop(self) -> None:
        """Remove the bars; in a notebook they stay as they are. Calling it again, or without
        `start`, does nothing."""
        if self._live:
            self._draw()
            self._live.stop()
            self._live = None
        elif self._cell:
            self._draw()
            self._cell = None

    def _draw(self) -> None:
        self._drawn = clock.now_ns()
        if self._live:
            self._live.update(self._table(), refresh=True)
        elif self._cell:
            self._cell.update(self._table())
        else:
            self._console.print(self._heading(), soft_wrap=True)

    def _heading(self) -> str:
        done, total = (
            sum(r.done for r in self._rows.values()),
            sum(r.total for r in self._rows.values()),
        )
        spent = self._spent_usd()
        money = f", {usd(spent)} so far" if spent else ""
        progress = f"{done:,}" if self._open_ended else f"{done:,}/{total:,}"
        stage = f"{safe_text(self._stage)}; " if self._stage else ""
        return f"{stage}{progress} requests{self._time_left(done, total)}{money}"

    def _table(self) -> Table:
        table = Table(
            title=self._heading(),
            title_justify="left",
            title_style="",
            box=None,
            pad_edge=False,
            header_style="dim",
        )
        table.add_column("", overflow="ellipsis", no_wrap=True)
        bar = BARS[self._console.width >= NARROW]
        table.add_column("", width=bar)
        for heading in ("\ndone", "TTFT\np50 ms", "TPS\np50", "\nerrors"):
            table.add_column(
                heading, justify="right", no_wrap=True, min_width=max(map(len, heading.split("\n")))
            )
        for condition, row in self._visible_rows():
            table.add_row(
                Text(safe_text(condition)),
                ProgressBar(total=max(row.total, 1), completed=row.done, width=bar),
                f"{row.done}" if self._open_ended else f"{row.done}/{row.total}",
                number(median(row.ttft_ms) if row.ttft_ms else None),
                number(median(row.tps) if row.tps else None),
                Text(str(row.errors), "red" if row.errors else "dim"),
            )
        return table

    def _visible_rows(self) -> list[tuple[str, _ConditionProgress]]:
        room = max(self._console.height - SPARE_LINES, 1)
        if len(self._rows) <= room:
            return list(self._rows.items())
        return sorted(
            self._rows.items(), key=lambda item: (item[1].done >= item[1].total, not item[1].done)
        )[:room]

    def _time_left(self, done: int, total: int) -> str:
        if self._open_ended or done < total * KNOWN_SHARE or done >= total:
            return ""
        seconds = round((clock.now_ns() - self._began) * (total - done) / done / NS_PER_S)
        return f", about {seconds // 60}:{seconds % 60:02d} left"


class BatchProgress:
    def __init__(self, console: Console) -> None:
        self._bar = BarProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    @contextmanager
    def display(self, total: int) -> Iterator[None]:
        self._task = self._bar.add_task("", total=total)
        with self._bar:
            yield

    def update(self, ended: int, status: str) -> None:
        self._bar.update(self._task, completed=ended, description=status)
