"""The folder of a run: `run.json`, `observations.jsonl`, `readings.jsonl`, `server.jsonl` where a
server told what it did, and the reports made from them.

Each observation is appended as soon as it is known, one line in one write; `run.json` is replaced
as a whole, by rename. A crash or a full disk can cost the line that is being written, never an
earlier one, and readers ignore an incomplete last line.

The contents of `run.json` and `server.jsonl` are defined in `benchmark`; here they are any structs.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, content_faults, file_faults
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading

T = TypeVar("T")


class _Dated(msgspec.Struct):
    """The beginning of a run, which `findings.Run` has as text."""

    began: Annotated[datetime, msgspec.Meta(tz=True)]


class _Beginning(_Dated):
    """The beginning of a run on both clocks, so that its measurements can be dated."""

    began_ns: int


_LIVE_ROLES = ("measured", "winner", "loser")
"""Roles of attempts that show how fast a target is."""

RUN = "run.json"
OBSERVATIONS = "observations.jsonl"
READINGS = "readings.jsonl"
SERVER = "server.jsonl"
_PRIVATE = 0o600
"""The mode of these files: they describe the machine and the command line, and quote providers.
Reports are public."""
MAX_NUMBER = 10**18
"""Bound of the integers in a run: 31 years in nanoseconds. Reports compute with 64 bits."""
_MAY_BE_LARGER = re.compile(rb"[0-9]{19}")


class RunFolder:
    """The folder of one run, open for appending. Use it as a context manager, or `close` it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._created = False
        self._encoder = msgspec.json.Encoder(enc_hook=list)  # for arrays
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._observations = os.open(path / OBSERVATIONS, flags, _PRIVATE)
        self._readings = os.open(path / READINGS, flags, _PRIVATE)
        self._server = -1  # opened by the first record, so that a run without them has no file

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Create a new folder. Raises `CallerFault` if it cannot be written, or already contains a
        run."""
        hint = "Use another folder."
        with file_faults(f"cannot write the run to {path}", kind="unwritable_folder", hint=hint):
            created = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            if (path / RUN).exists() or (path / OBSERVATIONS).exists():
                raise CallerFault(f"{path} already contains a run", kind="folder_taken", hint=hint)
            folder = cls(path)
        folder._created = created
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an existing run, to report on it again. Raises `CallerFault` if it
        cannot be written."""
        with file_faults(f"cannot write to {path}", kind="unwritable_folder"):
            return cls(path)

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, observation: Observation) -> None:
        """Append one observation. Raises `OSError` if the disk refuses it (full, removed)."""
        _append(self._observations, self._encoder.encode(observation))

    def add_reading(self, reading: InstrumentReading) -> None:
        """Append a reading of the instrument for one block. Raises `OSError`."""
        _append(self._readings, self._encoder.encode(reading))

    def add_server(self, record: msgspec.Struct) -> None:
        """Append a record of what a server told about itself. Raises `OSError`."""
        if self._server < 0:
            self._server = os.open(
                self.path / SERVER, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _PRIVATE
            )
        _append(self._server, self._encoder.encode(record))

    def write_run(self, run: msgspec.Struct) -> None:
        """Replace `run.json` atomically. Raises `OSError`."""
        self.write(RUN, msgspec.json.format(self._encoder.encode(run), indent=1))

    def write(self, name: str, data: bytes) -> Path:
        """Write a file of the folder atomically; return its path. Raises `OSError`."""
        target = self.path / name
        unfinished = self.path / f".{name}.part"
        try:
            unfinished.unlink(missing_ok=True)  # a leftover file would keep its old mode
            mode = _PRIVATE if name in (RUN, OBSERVATIONS) else 0o666
            with open(
                unfinished, "xb", opener=lambda path, flags: os.open(path, flags, mode)
            ) as file:
                file.write(data)
            unfinished.replace(target)
        except OSError:
            # an incomplete file is useless, and a full disk needs the space
            unfinished.unlink(missing_ok=True)
            raise
        return target

    def write_observations(
        self, observations: Iterable[Observation], readings: Iterable[InstrumentReading] = ()
    ) -> None:
        """Replace all observations and all readings of the instrument. Raises `OSError`."""
        self.write(OBSERVATIONS, self._encoder.encode_lines(observations))
        self.write(READINGS, self._encoder.encode_lines(readings))

    def discard(self) -> None:
        """Close and remove the files of the run, and its folder if `create` made it and it is
        empty."""
        self.close()
        for name in (RUN, OBSERVATIONS, READINGS, SERVER):
            with contextlib.suppress(OSError):  # it is gone, or the disk takes no change
                (self.path / name).unlink()
        if self._created:
            with contextlib.suppress(OSError):  # it contains other files
                self.path.rmdir()

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        for descriptor in (self._observations, self._readings, self._server):
            if descriptor >= 0:
                os.close(descriptor)
        self._observations = self._readings = self._server = -1


def _append(descriptor: int, line: bytes) -> None:
    """Append a line, all of it or nothing. Raises `OSError`."""
    data = memoryview(line + b"\n")
    left = data
    try:
        # a disk that fills up writes a part of the line first, and refuses the rest in the next
        # write
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        if len(left) < len(data):
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - len(data) + len(left))
        raise


def read_run(path: Path, kind: type[T]) -> T:
    """Read `run.json`, given the folder of a run or the file itself. Raises `CallerFault` if it is
    not one."""
    file = path / RUN if path.is_dir() else path
    if file != path and not file.exists():
        runs = sorted(each.parent for each in path.glob(f"*/{RUN}"))
        latest = f", such as {runs[-1]}" if runs else ": it has run.json in it"
        raise CallerFault(
            f"no run at {path}: the folder has no run.json",
            kind="no_run",
            hint=f"Name the folder of a run{latest}.",
        )
    hint = "A run is a folder with run.json in it."
    with file_faults(f"no run at {path}", kind="no_run", hint=hint):
        data = file.read_bytes()
    if file.name != RUN and not data.lstrip().startswith(b"{"):
        raise CallerFault(f"{file} is no run, and no JSON", kind="bad_run", hint=hint)
    with content_faults(f"{file} is not a run of this version", kind="bad_run"):
        msgspec.json.decode(data, type=_Dated)
        return _decoded(data, msgspec.json.Decoder(kind))


def read_observations(path: Path) -> list[Observation]:
    """Read every complete observation of a run's folder, in the order in which they ended."""
    return _read_lines(path / OBSERVATIONS, Observation, Observation.compact)


def read_readings(path: Path) -> list[InstrumentReading]:
    return _read_lines(path / READINGS, InstrumentReading, lambda reading: reading)


def read_server(path: Path, kind: Any) -> list[Any]:
    """Read every complete record of what servers told during a run, each a `kind`; none if there is
    no such file."""
    file = path / SERVER
    return _read_lines(file, kind, lambda record: record) if file.exists() else []


def seeds(path: Path) -> list[tuple[Observation, float]]:
    """Return the observations of a run that show how fast its targets are, with their age in
    seconds, oldest first.

    Warm-up and calibration are left out. Raises `CallerFault` if `path` is not a run.
    """
    run = read_run(path, _Beginning)
    since_s = (clock.wall_time() - run.began).total_seconds()
    live = [o for o in read_observations(path) if o.role in _LIVE_ROLES]
    aged = [(o, max(0.0, since_s - (o.end_ns - run.began_ns) / clock.NS_PER_S)) for o in live]
    return sorted(aged, key=lambda one: -one[1])


def _read_lines(file: Path, kind: type[T], convert: Callable[[T], T]) -> list[T]:
    with file_faults(f"cannot read {file}", kind="no_run"):
        data = file.read_bytes()
    whole, _, _cut = data.rpartition(b"\n")
    decoder = msgspec.json.Decoder(kind)
    records = []
    for number, line in enumerate(whole.split(b"\n") if whole else (), start=1):
        with content_faults(f"{file}:{number}", kind="bad_run"):
            records.append(convert(_decoded(line, decoder)))
    return records


def _decoded(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Return what `data` describes. Raises an error of the parser, or `ValueError` for an integer
    that is too large."""
    decoded = decoder.decode(data)
    if _MAY_BE_LARGER.search(data) and _has_larger(msgspec.json.decode(data)):
        raise ValueError(f"an integer is not below {MAX_NUMBER:,}")
    return decoded


def _has_larger(value: Any) -> bool:
    """Return whether `value` has an integer outside the bound. The options of the command line may
    be any numbers."""
    if isinstance(value, dict):
        return any(_has_larger(each) for name, each in value.items() if name != "settings")
    if isinstance(value, list):
        return any(map(_has_larger, value))
    return isinstance(value, int) and abs(value) >= MAX_NUMBER
