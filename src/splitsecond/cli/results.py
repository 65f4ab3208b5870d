"""Output of results. A file that cannot be written is reported, and everything else is still written."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console

from splitsecond.benchmark.findings.findings import Run
from splitsecond.cli.interruption import discard_output
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.log.store.folder import RUN, RunFolder

REPORT = "report.html"


class Output(msgspec.Struct, frozen=True, kw_only=True):
    folder: Path | None = None
    json: str = ""
    csv: str = ""
    markdown: str = ""
    html: bool = True
    png: bool = False

    def check(self) -> None:
        """Raise `CallerFault` if a file cannot be written, or if two go to standard output."""
        files = {"--json": self.json, "--csv": self.csv, "--markdown": self.markdown}
        if [*files.values()].count("-") > 1:
            names = " and ".join(option for option, where in files.items() if where == "-")
            raise CallerFault(f"{names} cannot both go to standard output", kind="bad_option", hint="Name a file.")
        for option, where in files.items():
            if where != "-":
                check_file(where, option)

    def screen(self) -> Console:
        return Console(stderr="-" in (self.json, self.csv, self.markdown))

    def write(self, result: object, records: Callable[[], Iterable[object]], tables: Callable[[Console], None]) -> None:
        """Write the files that are asked for. Raises `CallerFault` if one cannot be written."""
        from splitsecond.benchmark.report.exports import csv_text, markdown_text

        write_json(result, self.json)
        if self.csv:
            _write(csv_text(records()).encode(), self.csv, "--csv")
        if self.markdown:
            _write(markdown_text(tables).encode(), self.markdown, "--markdown")


def check_json(where: str) -> None:
    """Raise `CallerFault` if `write_json` cannot write there. Called before the work, not after it."""
    Output(json=where).check()


def check_file(where: str, option: str) -> None:
    """Raise `CallerFault` if the file that `option` names cannot be written. "" is no file."""
    if not where:
        return
    path = Path(where)
    if path.is_dir():
        raise _unwritable(where, "it is a folder", option)
    if not path.parent.is_dir():
        raise _unwritable(where, f"there is no folder {path.parent}", option)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(where, "permission denied", option)


def write_file(data: bytes, where: str, option: str) -> None:
    try:
        Path(where).write_bytes(data)
    except OSError as error:
        raise _unwritable(where, error.strerror or str(error), option) from None


def write_json(result: object, where: str) -> None:
    """Write structs, or lists or dicts of them, as JSON: to a file, for "-" to standard output, for "" nowhere.

    Raises `CallerFault` if the file cannot be written.
    """
    if where:
        _write(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n", where, "--json")


def _write(data: bytes, where: str, option: str) -> None:
    if where != "-":
        write_file(data, where, option)
        return
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(where, error.strerror or str(error), option) from None


def show(
    run: Run,
    observations: Sequence[Observation],
    folder: RunFolder,
    output: Output,
    *,
    screen: Console | None = None,
) -> bool:
    from splitsecond.benchmark.report.exports import run_records
    from splitsecond.benchmark.report.terminal import run_table

    files: list[Path] = []
    failed: list[str] = []
    with _noting(failed, folder.path / RUN):
        folder.write_run(run)
    with _noting(failed, output.json):
        output.write(run, lambda: run_records(run), lambda console: run_table(run, console))
        files += [Path(where) for where in (output.json, output.csv, output.markdown) if where not in ("", "-")]
    if output.html:
        from splitsecond.benchmark.report.run_page import render_run

        with _noting(failed, folder.path / REPORT):
            files.append(folder.write(REPORT, render_run(run, observations).encode()))
    if output.png:
        from splitsecond.benchmark.report.plot_frame import legends
        from splitsecond.benchmark.report.plots import plots_of
        from splitsecond.core.pages.png import save_png

        with _noting(failed, folder.path):
            files += save_png(plots_of(run, observations), legends(run), folder.path)
    console = screen or output.screen()
    with _noting(failed, "the terminal"):
        run_table(run, console, files)
    for line in failed:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    return not failed


@contextmanager
def _noting(failed: list[str], where: Path | str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        from splitsecond.benchmark.runs.measuring import (
            cannot_write,  # imports the load generator: not for each command
        )

        failed.append(cannot_write(where, error))
    except CallerFault as fault:
        failed.append(fault.message)


def _unwritable(where: str, why: str, option: str) -> CallerFault:
    return CallerFault(
        f"cannot write to {where}: {why}", kind="unwritable_file", hint=f"Name another file with {option}."
    )
