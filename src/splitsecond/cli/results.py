"""Where results go: into the run's folder, to a file of JSON, to the screen.

Whatever cannot be written is said, and costs nothing of the rest.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console

from splitsecond.analysis.findings import Run
from splitsecond.errors import CallerFault
from splitsecond.store.folder import RUN, RunFolder
from splitsecond.timing.observation import Observation

REPORT = "report.html"


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Where the results go: a folder (None: `runs/ID`), a JSON file besides ("-": standard output), pictures or not."""

    folder: Path | None = None
    json: str = ""
    html: bool = True
    png: bool = False


def check_json(where: str) -> None:
    """Raises `CallerFault` where `write_json` could not write: before the work, not after it."""
    if where in ("", "-"):
        return
    path = Path(where)
    if path.is_dir():
        raise _unwritable(where, "it is a folder")
    if not path.parent.is_dir():
        raise _unwritable(where, f"there is no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(where, "permission denied")


def write_json(result: object, where: str) -> None:
    """Writes structs, or lists or dicts of them, as JSON: to a file, for "-" to standard output, for "" nowhere.

    Raises `CallerFault` where the file cannot be written.
    """
    if not where:
        return
    data = msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n"
    try:
        if where == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            Path(where).write_bytes(data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _unwritable(where, error.strerror or str(error)) from None


def show(
    run: Run,
    observations: Sequence[Observation],
    folder: RunFolder,
    output: Output,
    *,
    quiet_output: bool = False,
) -> bool:
    """Writes `run.json`, the report and what else was asked for, prints the tables; returns whether all was written.

    Where JSON goes to standard output, or `quiet_output` says so, the tables go to standard error.
    """
    from splitsecond.report.terminal import run_table

    files: list[Path] = []
    failed: list[str] = []
    with _noting(failed, folder.path / RUN):
        folder.write_run(run)
    with _noting(failed, output.json):
        write_json(run, output.json)
    if output.html:
        from splitsecond.report.html import render

        with _noting(failed, folder.path / REPORT):
            files.append(folder.write(REPORT, render(run, observations).encode()))
    if output.png:
        from splitsecond.report.pictures import save_png

        with _noting(failed, folder.path):
            files += save_png(run, observations, folder.path)
    console = Console(stderr=quiet_output or output.json == "-")
    run_table(run, console, files)
    for line in failed:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    return not failed


def cannot_write(where: Path | str, error: OSError) -> str:
    """What to say of a file or folder that could not be written."""
    return f"cannot write to {where}: {error.strerror or error}"


@contextmanager
def _noting(failed: list[str], where: Path | str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        failed.append(cannot_write(where, error))
    except CallerFault as fault:
        failed.append(fault.message)


def _unwritable(where: str, why: str) -> CallerFault:
    return CallerFault(f"cannot write to {where}: {why}", kind="unwritable_file", hint="Name another file with --json.")
