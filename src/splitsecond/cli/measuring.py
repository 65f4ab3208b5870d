"""From a plan to a run on disk and on the screen: what `bench` and `demo` share.

What was measured is kept first and shown second. Every observation goes to memory and to the run's folder as it comes.
If the folder fails (a full disk), the run stops there and says so, and what is in memory is still reported; so it is
after Ctrl-C.
"""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from splitsecond import __version__, clock
from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.findings import Run
from splitsecond.analysis.run import summarise
from splitsecond.analysis.slo import Slo, parse_slo
from splitsecond.analysis.statements import statements
from splitsecond.cli.machine import environment
from splitsecond.errors import CallerFault, Fault
from splitsecond.load.conductor import Note, conduct
from splitsecond.load.plan import Plan
from splitsecond.load.workload import Workload
from splitsecond.report.live import Progress
from splitsecond.store.folder import RunFolder, read_observations, read_readings, read_run
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation
from splitsecond.upstream.spec import TargetSpec

REPORT = "report.html"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, as `run.json` keeps it under `asked`: enough to run it again and to recompute its findings.

    `command` is the command line, `settings` its options by name.
    """

    command: list[str]
    settings: dict[str, Any]
    targets: list[TargetSpec]
    conditions: list[AskedCondition]
    slo: str = ""
    notes: list[str] = []


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Where the results go: a folder (None: `runs/ID`), a JSON file besides ("-": standard output), pictures or not."""

    folder: Path | None = None
    json: str = ""
    html: bool = True
    png: bool = False


class Recorder:
    """Takes what the workers report, keeps it in memory and in the run's folder, and shows the progress."""

    def __init__(self, folder: RunFolder, progress: Progress) -> None:
        self.observations: list[Observation] = []
        self.readings: list[InstrumentReading] = []
        self.notes: list[str] = []
        self._folder = folder
        self._progress = progress
        self._failed = False

    def observed(self, observation: Observation) -> None:
        """One attempt has ended. Raises `CallerFault` where it cannot be written: once, as it ends the run."""
        self.observations.append(observation)
        self._keep(lambda: self._folder.add(observation))
        self._progress.observed(observation)

    def read(self, reading: InstrumentReading) -> None:
        """The instrument's reading of one block."""
        self.readings.append(reading)
        self._keep(lambda: self._folder.add_reading(reading))

    def noted(self, note: Note) -> None:
        """Something a reader should know."""
        text = f"{note.condition or note.target}: {note.text}"
        self.notes.append(text)
        self._progress.note(text)

    def _keep(self, write: Any) -> None:
        if self._failed:
            return
        try:
            write()
        except OSError as error:
            self._failed = True
            raise CallerFault(
                f"cannot write to {self._folder.path}: {error.strerror}; stopped, what was measured so far is reported",
                kind="disk",
                hint="Free some space, or name another folder with --out.",
            ) from error


def new_run_id() -> str:
    """A name for a run that sorts by time: "20261120-190746-3fa"."""
    moment = clock.wall_time()
    return f"{moment:%Y%m%d-%H%M%S}-{clock.now_ns() // clock.NS_PER_US % 4096:03x}"


def measure(
    *,
    run_id: str,
    plan: Plan,
    specs: Mapping[str, TargetSpec],
    workload: Workload,
    input_tokens: int,
    settings: dict[str, Any],
    slo: str,
    output: Output,
    processes: int | None = None,
) -> int:
    """Runs the plan, keeps it, shows it. Returns the exit code. Raises the `Fault` of a target that cannot be measured.

    1: all requests to a target failed, or the folder did; 130: interrupted.
    """
    limits = parse_slo(slo) if slo else None
    conditions = [
        AskedCondition(
            condition=c.condition,
            target=c.target,
            concurrency=c.load.concurrency,
            rate=c.load.rate,
            output_tokens=workload.output_tokens,
            cache_reuse=workload.reuse_cache,
        )
        for c in plan.conditions
    ]
    asked = Asked(
        command=["splitsecond", *sys.argv[1:]],
        settings=settings,
        targets=list(specs.values()),
        conditions=conditions,
        slo=slo,
    )
    run = Run(
        id=run_id,
        began=clock.wall_time().isoformat(timespec="milliseconds"),
        began_ns=clock.now_ns(),
        version=__version__,
        asked=msgspec.to_builtins(asked),
        environment=environment(),
    )
    progress = Progress(Console(stderr=True))
    fault: Fault | None = None
    interrupted = False
    with RunFolder.create(output.folder or Path("runs") / run_id) as folder:
        recorder = Recorder(folder, progress)
        folder.write_run(run)
        progress.start({c.condition: c.requests for c in plan.conditions})
        try:
            asyncio.run(
                conduct(
                    plan,
                    specs,
                    workload,
                    input_tokens=input_tokens,
                    on_observation=recorder.observed,
                    on_reading=recorder.read,
                    on_note=recorder.noted,
                    most_processes=processes,
                )
            )
            run.finished = True
        except KeyboardInterrupt:
            interrupted = True
        except Fault as error:
            if not any(o.role == "measured" for o in recorder.observations):
                raise
            fault = error
        finally:
            progress.stop()
        run.asked["notes"] = recorder.notes
        conclude(run, conditions, recorder.observations, recorder.readings, limits)
        show(run, recorder.observations, folder, output)
    if fault is not None:
        raise fault
    if interrupted:
        return 130
    return 1 if any(c.requests and c.errors == c.requests for c in run.conditions) else 0


def conclude(
    run: Run,
    conditions: Sequence[AskedCondition],
    observations: Sequence[Observation],
    readings: Sequence[InstrumentReading],
    slo: Slo | None,
) -> None:
    """Puts the findings into `run`."""
    run.conditions = summarise(conditions, observations, readings, slo=slo)
    run.statements = statements(run.conditions, observations)
    by_target: dict[str, list[str]] = {}
    for note in run.asked.get("notes", ()):
        place, _, text = note.partition(": ")
        by_target.setdefault(place, []).append(text)
    for condition in run.conditions:
        condition.notes += by_target.get(condition.condition, []) + by_target.get(condition.target, [])


def recompute(path: Path, *, slo: str = "") -> tuple[Run, list[Observation]]:
    """A run's findings anew from its observations, under the limits `slo` or those it was asked for.

    Raises `CallerFault` where the folder holds no run.
    """
    run = read_run(path, Run)
    try:
        asked = msgspec.convert(run.asked, Asked)
    except msgspec.ValidationError as error:
        raise CallerFault(f"{path}: what was asked cannot be read: {error}", kind="bad_run") from None
    observations = read_observations(path)
    limits = slo or asked.slo
    conclude(run, asked.conditions, observations, read_readings(path), parse_slo(limits) if limits else None)
    return run, observations


def show(
    run: Run,
    observations: Sequence[Observation],
    folder: RunFolder,
    output: Output,
    *,
    quiet_output: bool = False,
) -> None:
    """Writes `run.json`, the report and what else was asked for, and prints the tables.

    Where JSON goes to standard output, or `quiet_output` says so, the tables go to standard error.
    """
    from splitsecond.report.terminal import run_table

    console = Console(stderr=quiet_output or output.json == "-")
    files: list[Path] = []
    try:
        folder.write_run(run)
        if output.html:
            from splitsecond.report.html import render

            files.append(folder.write(REPORT, render(run, observations).encode()))
        if output.png:
            from splitsecond.report.pictures import save_png

            files += save_png(run, observations, folder.path)
        write_json(run, output.json)
    except OSError as error:
        console.print(f"cannot write all of the results: {error}", style="red")
    run_table(run, console, files)


def write_json(result: object, where: str) -> None:
    """Writes structs, or lists or dicts of them, as JSON: to a file, for "-" to standard output, for "" nowhere.

    Raises `OSError`.
    """
    if not where:
        return
    data = msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"
    if where == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        Path(where).write_bytes(data)
