"""A watch: one round after another, each a run of its own, judged by those before it, and what they say together.

A round that fails as a whole (no network, a key that was withdrawn) is kept as such, and the next one is tried; where
only some targets cannot be measured, the others are. After each round the page and the JSON are written anew, so that
whatever ends a watch costs nothing of what was found out. Two things end one before its time: a folder that cannot be
written, and money.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.text import Text

from splitsecond import clock
from splitsecond.analysis.cost import usd
from splitsecond.analysis.findings import ConditionFindings, Run
from splitsecond.analysis.gate import Gate
from splitsecond.analysis.watching import History, Round, WatchFindings, minute
from splitsecond.analysis.wording import counted_as, listed, row
from splitsecond.cli.measuring import FolderFailed, Job, Taken, take
from splitsecond.cli.pricing import Allowance, CostReached, Meter, announce_rounds, tokens_of_prompts
from splitsecond.cli.results import REPORT, cannot_write, write_json
from splitsecond.cli.targets import advised
from splitsecond.errors import CallerFault, Fault
from splitsecond.load.calibration import in_words
from splitsecond.load.plan import without
from splitsecond.load.timetable import rounds, sleep_until
from splitsecond.report.rounds import round_lines
from splitsecond.report.rows import printable
from splitsecond.store.folder import RUN, RunFolder, read_run

T = TypeVar("T")

REMEMBERED = 2000
"""Rounds that a new one is judged by, at most, and shown with: hourly ones of nearly three months."""
S_PER_DAY = 24 * 3600


class _Spent(msgspec.Struct):
    """All that is asked of a round that is older."""

    cost_usd: float | None = None


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the rounds are kept, how often there is one, what all may cost, and what is written beside them."""

    folder: Path
    every_ns: int
    most_usd: float | None = None
    json: str = ""
    html: bool = True

    @property
    def every_s(self) -> float:
        """The same in seconds."""
        return self.every_ns / clock.NS_PER_S


class Session:
    """`job` makes that of each round, by its number from 0; `gates` are held against every round."""

    def __init__(self, job: Callable[[int], Job], settings: Settings, gates: Sequence[Gate]) -> None:
        self._job = job
        self._settings = settings
        self._gates = gates
        self._history = History()
        self._screen = Console(stderr=True)
        self._console = Console(stderr=settings.json == "-")
        self._breached = False
        self._failed = False
        self._rows: list[ConditionFindings] = []

    def run(self, times: int | None) -> int:
        """Takes `times` rounds (None: until Ctrl-C); returns the exit code. Raises the `Fault` that ended it early."""
        first = self._job(0)
        count, spent = self._recall()
        allowance = Allowance(prices=first.prices, most_usd=self._settings.most_usd)
        money = announce_rounds(
            first.plan,
            first.workload,
            allowance,
            first.specs,
            input_tokens=first.input_tokens,
            per_day=S_PER_DAY / self._settings.every_s,
            spent_usd=spent,
        )
        if allowance.most_usd is not None and spent > allowance.most_usd:
            raise CostReached(
                f"the rounds in {self._settings.folder} have cost {usd(spent)}, allowed are {usd(allowance.most_usd)}",
                kind="cost_reached",
                phase="queue",
                hint="Allow more with --max-cost, or watch in another folder with --out.",
            )
        if count:
            self._say(f"Going on after {counted_as(count, 'round', 'rounds')} in {self._settings.folder}.", "dim")
        if money:
            self._say(money)
        meter = Meter(allowance, spent, prompt_tokens=tokens_of_prompts(first.workload, first.input_tokens))
        try:
            for number, left_out in enumerate(rounds(self._settings.every_ns, times, self._wait)):
                if left_out:
                    lost = counted_as(left_out, "round was", "rounds were")
                    self._say(f"{lost} left out, as the one before took longer than --every.", "yellow")
                self._round(self._job(number), meter)
        finally:
            if self._settings.json == "-":
                write_json(self._found(), "-")
        return self._code()

    def _recall(self) -> tuple[int, float]:
        """Judges the rounds that are in the folder already: how many, and what they cost. Says which cannot be read."""
        folders = sorted(path.parent for path in self._settings.folder.glob(f"*/{RUN}"))
        older = self._readable(folders[:-REMEMBERED], _Spent)
        past = self._readable(folders[-REMEMBERED:], Run)
        for run in sorted(past, key=lambda run: run.began):
            self._history.add(Round.of(run))
        spent = [each.cost_usd or 0.0 for each in older] + [run.cost_usd or 0.0 for run in past]
        return len(past), sum(spent)

    def _readable(self, folders: Sequence[Path], kind: type[T]) -> list[T]:
        found = []
        for folder in folders:
            try:
                found.append(read_run(folder, kind))
            except CallerFault as fault:
                self._say(f"left out of the past: {fault}", "yellow")
        return found

    def _wait(self, due_ns: int) -> None:
        left_ns = due_ns - clock.now_ns()
        if left_ns <= 0 or not self._screen.is_terminal:
            sleep_until(due_ns)
            return
        due = clock.wall_time() + timedelta(seconds=left_ns / clock.NS_PER_S)
        text = f"the next round is at {due:%Y-%m-%d %H:%M} UTC; Ctrl-C ends the watch"
        self._screen.print(Text(text, "dim"), end="\r")
        try:
            sleep_until(due_ns)
        finally:
            self._screen.print(" " * len(text), end="\r")

    def _round(self, job: Job, meter: Meter) -> None:
        """Measures one round, keeps it, judges it, shows it."""
        began = clock.wall_time()
        with RunFolder.create(self._settings.folder / f"{began:%Y-%m-%dT%H%M%SZ}") as folder:
            taken = self._taken(job, folder, meter)
            if taken.interrupted and not taken.pressed:
                folder.discard()
                raise KeyboardInterrupt
            try:
                folder.write_run(taken.run)
            except OSError as error:
                raise FolderFailed(cannot_write(folder.path, error), kind="disk", phase="queue") from None
        self._judge(taken)
        if taken.interrupted:
            raise KeyboardInterrupt
        if isinstance(taken.fault, CostReached | FolderFailed):
            raise taken.fault

    def _taken(self, job: Job, folder: RunFolder, meter: Meter) -> Taken:
        """The round; where some targets cannot be measured at all, that of the others."""
        taken = take(job, folder, meter, self._screen)
        notes: list[str] = []
        while (fault := self._hopeless(taken)) is not None:
            left = without(job.plan, taken.refused)
            if not left.lanes or left == job.plan:
                taken.run.invalid = [self._words(fault, job)]
                break
            notes += [*taken.run.asked["notes"], self._words(fault, job)]
            job = msgspec.structs.replace(job, plan=left)
            taken = take(job, folder, meter, self._screen, notes=notes)
        return taken

    @staticmethod
    def _hopeless(taken: Taken) -> Fault | None:
        """Why nothing could be measured, unless it is of our own doing."""
        ours = taken.pressed or taken.interrupted or isinstance(taken.fault, CostReached | FolderFailed)
        return None if ours else taken.fault

    @staticmethod
    def _words(fault: Fault, job: Job) -> str:
        return f"{fault.target}: {in_words(advised(fault, job.specs.get(fault.target)))}"

    def _judge(self, taken: Taken) -> None:
        run = taken.run
        one = Round.of(run)
        usual = self._history.usual(one.rows)
        news = self._history.add(one)
        self._rows, self._failed = one.rows, bool(one.failed)
        if one.failed:
            self._tell(f"{minute(one.at)}  the round failed: {one.failed}", "red")
        else:
            for line in round_lines(one, news):
                self._console.print(line, soft_wrap=True)
        self._hold_gates(one, usual)
        self._write()

    def _hold_gates(self, one: Round, usual: Sequence[ConditionFindings]) -> None:
        if not one.finished and not one.failed:
            return
        known = {row(each) for each in usual}
        unknown = [name for each in one.rows if (name := row(each)) not in known]
        for gate in self._gates:
            for breach in gate.check(one.rows, usual if gate.relative else None):
                self._breached = True
                self._tell(f"FAILED: {breach}", "bold red")
            if gate.relative and unknown:
                self._tell(f"{gate.text!r} cannot be checked yet for {listed(unknown)}: too few rounds.", "yellow")

    def _write(self) -> None:
        """The page and the JSON."""
        found = self._found()
        if self._settings.json != "-":
            write_json(found, self._settings.json)
        if not self._settings.html:
            return
        from splitsecond.report.watch import render_watch

        page = self._settings.folder / REPORT
        unfinished = page.with_suffix(".part")
        try:
            unfinished.write_text(render_watch(found), encoding="utf-8")
            unfinished.replace(page)
        except OSError as error:
            raise FolderFailed(cannot_write(page, error), kind="disk", phase="queue") from None

    def _found(self) -> WatchFindings:
        return self._history.findings(self._settings.every_s)

    def _code(self) -> int:
        """1: the last round failed as a whole, a gate was missed, or one of its rows has drifted for the worse."""
        if self._settings.html:
            self._tell(str(self._settings.folder / REPORT), "cyan")
        watched = {row(each) for each in self._rows}
        lines = self._found().lines
        drifting = any(line.drifting is not None and line.drifting.worse for line in lines if line.name in watched)
        return int(self._failed or self._breached or drifting)

    def _say(self, text: str, look: str = "") -> None:
        """Something about the watch itself."""
        self._screen.print(Text(printable(text), look), soft_wrap=True)

    def _tell(self, text: str, look: str) -> None:
        """Something that was found out."""
        self._console.print(Text(printable(text), look), soft_wrap=True)
