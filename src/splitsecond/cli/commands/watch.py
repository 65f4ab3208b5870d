from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from splitsecond.benchmark.findings.gate import parse_gate
from splitsecond.benchmark.findings.watching import WatchFindings, minute
from splitsecond.benchmark.report.live import LiveProgress
from splitsecond.benchmark.report.terminal import round_lines
from splitsecond.benchmark.report.watch_page import render_watch
from splitsecond.benchmark.runs.cost_meter import CostMeter
from splitsecond.benchmark.runs.measuring import FolderFailed
from splitsecond.benchmark.runs.option_forms import interval
from splitsecond.benchmark.runs.planning import watch_jobs
from splitsecond.benchmark.runs.settings import WatchSettings, at_least_one
from splitsecond.benchmark.runs.watching import (
    MeasuredRound,
    Watch,
    WatchListener,
    accept_drifts,
    drifting_for_the_worse,
)
from splitsecond.cli.console import Console
from splitsecond.cli.files import check_json, write_json
from splitsecond.cli.interruption import Interruption
from splitsecond.cli.options import of_results
from splitsecond.cli.plan_file import PLAN, plan_text, planned
from splitsecond.cli.results import Output
from splitsecond.cli.run_options import TargetOptions, with_options
from splitsecond.cli.run_results import REPORT
from splitsecond.core import clock
from splitsecond.core.errors import cannot_write
from splitsecond.core.pages.figure_cells import safe_text


class WatchOptions(TargetOptions):
    of = WatchSettings

    out: Annotated[Path, of_results(metavar="FOLDER", help="The folder of all rounds.")] = Path(
        "watch"
    )
    accept: Annotated[
        bool,
        of_results("--accept", help="Acknowledge the drifts in the folder, and measure nothing."),
    ] = False


@with_options(WatchOptions)
def watch(options: WatchOptions) -> None:
    """Repeat a benchmark on a schedule, and report drift.

    \b
    splitsecond watch groq/openai/gpt-oss-120b cerebras/gpt-oss-120b --every 3h --max-cost 20
    splitsecond watch --base-url http://127.0.0.1:8000/v1 --model mine --every 30m --ignore-eos
    splitsecond watch groq/openai/gpt-oss-120b --times 1 --fail-if 'ttft_ms.p95 > +20%'
    splitsecond watch watch/plan.toml

    Each round is a run in a folder of its own, for `report`, `compare` and the gateway's warm
    start. Rounds that are in the folder already count as past rounds, so a watch that is started
    again continues. A round is judged by at least 8 rounds before it: one round outside its usual
    range is unusual, a lasting change is a drift. --max-cost covers all rounds in the folder. With
    --times the exit code is 1 if a --fail-if holds, if a target has drifted for the worse at the
    end, or if the last round failed as a whole. A drift that stays is reported, with this exit
    code, until somebody acknowledges it with --accept.
    """
    options = planned(options)
    check_json(options.json)
    every_ns = interval(options.every, "--every")
    plan = plan_text(options, "watch")
    screen = WatchScreen(options.out, Output(json=options.json, html=options.html), plan)
    if options.accept:
        screen.accepted(*accept_drifts(options.out, every_ns, screen))
        return
    at_least_one(times=options.times)
    gates = [parse_gate(text) for text in options.fail_if or ()]
    settings = options.settings(WatchSettings)
    with ExitStack() as started:
        job = watch_jobs(settings, started, options.recorded(plan=plan))
        rounds = Watch(job, options.out, every_ns, screen, max_cost=options.max_cost, gates=gates)
        code = screen.run(rounds, options.times)
    raise typer.Exit(code)


class WatchScreen(WatchListener):
    def __init__(self, folder: Path, output: Output, plan: str = "") -> None:
        """`plan`: the file that repeats the watch; "": none is written."""
        self._plan = plan
        self._page = folder / REPORT
        self._output = output
        self._screen = Console(stderr=True)
        self._console = Console(stderr=output.json == "-")
        self._waiting = ""
        self._begun = False
        self._breached = False
        self._last: MeasuredRound | None = None
        self._watch: Watch | None = None

    def run(self, watch: Watch, times: int | None) -> int:
        """Run the watch; return the exit code. Raises the `Fault` that ends it early, or
        `Interrupted`."""
        self._watch = watch
        with Interruption() as stop:
            try:
                stop.run(self._all(watch, times))
                stop.check()
            finally:
                self._clear()
                if self._output.json == "-" and self._begun:
                    write_json(watch.findings, "-")
        return self._code(watch)

    async def _all(self, watch: Watch, times: int | None) -> None:
        async for _ in watch.rounds(times):
            pass

    def progress(self, meter: CostMeter) -> LiveProgress:
        self._clear()
        self._begun = True
        return LiveProgress(self._screen, lambda: meter.spent_usd)

    def waiting(self, due_ns: int) -> None:
        if self._screen.is_terminal:
            due = clock.wall_time() + timedelta(seconds=(due_ns - clock.now_ns()) / clock.NS_PER_S)
            self._waiting = f"the next round is at {due:%Y-%m-%d %H:%M} UTC; Ctrl-C ends the watch"
            self._screen.print(Text(self._waiting, "dim"), end="\r")

    def note(self, text: str, *, warning: bool = False) -> None:
        self._clear()
        self._print(self._screen, text, "yellow" if warning else "")

    def ended(self, ended: MeasuredRound) -> None:
        judged = ended.judged
        self._last = ended
        if judged.failed:
            self._print(
                self._console, f"{minute(judged.at)}  the round failed: {judged.failed}", "red"
            )
        else:
            for line in round_lines(judged, ended.news):
                whole = not self._console.is_terminal  # for programs that read it
                for number, part in enumerate(
                    [line] if whole else line.wrap(self._console, self._console.width - 4)
                ):
                    self._console.print(Text("    " if number else "") + part, soft_wrap=True)
        for breach in ended.breaches:
            self._breached = True
            self._print(self._console, f"FAILED: {breach}", "bold red")
        for text in ended.unchecked:
            self._print(self._console, text, "yellow")
        assert self._watch is not None
        self._write(self._watch.findings)
        if self._plan:
            self._replace(self._page.with_name(PLAN), self._plan)

    def accepted(self, drifts: Sequence[str], findings: WatchFindings) -> None:
        """Show the drifts that were accepted, and write the files without them."""
        for drift in drifts:
            self._print(self._console, f"accepted: {drift}", "green")
        if not drifts:
            self._print(self._console, "No drift is open.", "yellow")
        self._write(findings)
        if self._output.json == "-":
            write_json(findings, "-")

    def _write(self, findings: WatchFindings) -> None:
        if self._output.json != "-":
            write_json(findings, self._output.json)
        if self._output.html:
            self._replace(self._page, render_watch(findings))

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        unfinished = path.with_suffix(".part")
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
        except OSError as error:
            raise FolderFailed(cannot_write(path, error), kind="disk", phase="queue") from None

    def _code(self, watch: Watch) -> int:
        if self._output.html:
            self._print(self._console, str(self._page), "cyan")
        judged = self._last.judged if self._last else None
        failed = judged is not None and bool(judged.failed)
        drifting = judged is not None and drifting_for_the_worse(watch.findings, judged.rows)
        return int(failed or self._breached or drifting)

    def _clear(self) -> None:
        if self._waiting:
            self._screen.print(" " * len(self._waiting), end="\r")
            self._waiting = ""

    @staticmethod
    def _print(console: Console, text: str, style: str) -> None:
        console.print(Text(safe_text(text), style), soft_wrap=True)
