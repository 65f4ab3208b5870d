"""A run as a folder: `run.json`, `observations.jsonl`, `readings.jsonl`, and the reports made from them.

Strategy: what was measured is worth more than what is said about it. Each observation is appended as soon as it is
known, one line in one write; `run.json` is replaced as a whole, by rename. A crash or a full disk can cost the line
that was being written, never an earlier one, and a reader passes over a last line that was cut.

`run.json` belongs to `analysis`; here it is any struct.
"""

import contextlib
import os
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation

T = TypeVar("T")


class _Begun(msgspec.Struct):
    """One moment of a run on both clocks, so that what it measured can be dated."""

    began: Annotated[datetime, msgspec.Meta(tz=True)]
    began_ns: int


_TELLING = ("measured", "winner", "loser")

RUN = "run.json"
OBSERVATIONS = "observations.jsonl"
READINGS = "readings.jsonl"


class RunFolder:
    """One run's folder, open for appending. Use as a context manager, or `close` it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._made = False
        self._encoder = msgspec.json.Encoder()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._observations = os.open(path / OBSERVATIONS, flags, 0o644)
        self._readings = os.open(path / READINGS, flags, 0o644)

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Makes a new folder. Raises `CallerFault` where it cannot be written, or holds a run already."""
        try:
            made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            if (path / RUN).exists() or (path / OBSERVATIONS).exists():
                raise CallerFault(
                    f"{path} holds a run already", kind="folder_taken", hint="Name another folder with --out."
                )
            folder = cls(path)
        except OSError as error:
            raise CallerFault(
                f"cannot write the run to {path}: {error.strerror or error}",
                kind="unwritable_folder",
                hint="Name another folder with --out.",
            ) from None
        folder._made = made
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of a run that is there, to report on it anew. Raises `CallerFault` where it cannot be written."""
        try:
            return cls(path)
        except OSError as error:
            raise CallerFault(f"cannot write to {path}: {error.strerror or error}", kind="unwritable_folder") from None

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, observation: Observation) -> None:
        """Appends one observation. Raises `OSError` where the disk refuses it (full, gone)."""
        _append(self._observations, self._encoder.encode(observation))

    def add_reading(self, reading: InstrumentReading) -> None:
        """Appends what the instrument said of itself in one block. Raises `OSError`."""
        _append(self._readings, self._encoder.encode(reading))

    def write_run(self, run: msgspec.Struct) -> None:
        """Replaces `run.json`, whole or not at all. Raises `OSError`."""
        self.write(RUN, msgspec.json.format(self._encoder.encode(run), indent=1))

    def write(self, name: str, data: bytes) -> Path:
        """Puts a file into the folder, whole or not at all; returns its path. Raises `OSError`."""
        target = self.path / name
        unfinished = self.path / f".{name}.part"
        try:
            unfinished.write_bytes(data)
            unfinished.replace(target)
        except OSError:
            unfinished.unlink(missing_ok=True)  # a part of a file is of no use, and a full disk needs its room
            raise
        return target

    def discard(self) -> None:
        """Closes and removes what was written of the run, and its folder if `create` made it and it is empty."""
        self.close()
        for name in (RUN, OBSERVATIONS, READINGS):
            (self.path / name).unlink(missing_ok=True)
        if self._made:
            with contextlib.suppress(OSError):  # something of another's is in it
                self.path.rmdir()

    def close(self) -> None:
        """Closes the files. Calling it again does nothing."""
        for descriptor in (self._observations, self._readings):
            if descriptor >= 0:
                os.close(descriptor)
        self._observations = self._readings = -1


def _append(descriptor: int, line: bytes) -> None:
    data = memoryview(line + b"\n")
    while data:  # a disk that is filling up takes a part of a line first, and refuses the rest in the next write
        data = data[os.write(descriptor, data) :]


def read_run(path: Path, kind: type[T]) -> T:
    """`run.json` of a run, given its folder or the file itself. Raises `CallerFault` where it is not one."""
    file = path / RUN if path.is_dir() else path
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except OSError as error:
        raise CallerFault(
            f"no run at {path}: {error.strerror}", kind="no_run", hint="A run is a folder with run.json in it."
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallerFault(f"{file} is not a run of this version: {error}", kind="bad_run") from None


def read_observations(path: Path) -> list[Observation]:
    """Every whole observation of a run's folder, in the order in which they ended."""
    return _read_lines(path / OBSERVATIONS, Observation)


def read_readings(path: Path) -> list[InstrumentReading]:
    """Every whole reading of a run's folder."""
    return _read_lines(path / READINGS, InstrumentReading)


def seeds(path: Path) -> list[tuple[Observation, float]]:
    """What a run measured, for an estimate of each target's speed: with the age in seconds, the oldest first.

    Warm-up and calibration are left out. Raises `CallerFault` where `path` is no run.
    """
    run = read_run(path, _Begun)
    since_s = (clock.wall_time() - run.began).total_seconds()
    kept = [o for o in read_observations(path) if o.role in _TELLING]
    aged = [(o, max(0.0, since_s - (o.end_ns - run.began_ns) / clock.NS_PER_S)) for o in kept]
    return sorted(aged, key=lambda one: -one[1])


def _read_lines(file: Path, kind: type[T]) -> list[T]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CallerFault(f"cannot read {file}: {error.strerror}", kind="no_run") from None
    whole, _, _cut = data.rpartition(b"\n")
    decoder = msgspec.json.Decoder(kind)
    found = []
    for number, line in enumerate(whole.split(b"\n") if whole else (), start=1):
        try:
            found.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise CallerFault(f"{file}:{number}: {error}", kind="bad_run") from None
    return found
