"""A run's folder loses no complete line."""

import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.benchmark.rows.records import Run
from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import FaultRecord, Observation, Role
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.log.store.folder import (
    OBSERVATIONS,
    RunFolder,
    read_observations,
    read_readings,
    read_run,
    seeds,
)

OBSERVATION = Observation(
    id="a.1", call="a", target="x/y", condition="x/y "
    "c=1", start_ns=5, sent_ns=10, first_token_ns=20, last_token_ns=40,
    end_ns=41, token_at=[20, 40], token_lengths=[2, 3], output_tokens=2, token_source="usage",
)  # fmt: skip
FAILED = Observation(
    id="b.1", call="b", target="x/y", outcome="failed",
    fault=FaultRecord(type="ProviderFault", kind="http_429", phase="head", message="slow down",
    status=429),
)  # fmt: skip


def test_run_folder_is_read_as_written(tmp_path: Path) -> None:
    reading = InstrumentReading(condition="x/y c=1", begin_ns=1, end_ns=2, cpu_ns=3)
    with RunFolder.create(tmp_path / "run") as folder:
        folder.add(OBSERVATION)
        folder.add(FAILED)
        folder.add_reading(reading)
        folder.write_run(Run(id="r1", began="2026-01-01T00:00:00Z", began_ns=7))
    assert read_observations(tmp_path / "run") == [OBSERVATION.compact(), FAILED.compact()]
    assert read_readings(tmp_path / "run") == [reading]
    run = read_run(tmp_path / "run", Run)
    assert (run.id, run.schema, run.finished) == ("r1", "splitsecond.run/1", False)
    assert read_run(tmp_path / "run" / "run.json", Run) == run


@given(cut=st.integers(min_value=0, max_value=2000))
def test_truncated_file_keeps_every_complete_line(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut")
    with RunFolder(path) as folder:
        for _ in range(3):
            folder.add(OBSERVATION)
    file = path / OBSERVATIONS
    data = file.read_bytes()[:cut]
    file.write_bytes(data)
    assert read_observations(path) == [OBSERVATION.compact()] * data.count(b"\n")


@pytest.mark.parametrize(
    "line",
    [b"{nonsense}", b'{"id": "a.2", "call": "a", "target": "x/y", "token_at": [%d]}' % 2**63],
)
def test_a_damaged_line_is_named(tmp_path: Path, line: bytes) -> None:
    with RunFolder(tmp_path) as folder:
        folder.add(OBSERVATION)
    with (tmp_path / OBSERVATIONS).open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(CallerFault, match=r"observations\.jsonl:2: "):
        read_observations(tmp_path)


def test_folder_with_a_run_is_refused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run").close()
    with pytest.raises(CallerFault, match="already contains a run"):
        RunFolder.create(tmp_path / "run")


def test_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CallerFault, match="cannot write the run"):
        RunFolder.create(tmp_path / "file" / "run")


def test_folder_that_is_not_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CallerFault, match="no run at"):
        read_run(tmp_path, Run)
    (tmp_path / "run.json").write_text('{"id": 3}')
    with pytest.raises(CallerFault, match="not a run of this version"):
        read_run(tmp_path, Run)


def test_a_run_gives_seeds_with_their_age(tmp_path: Path) -> None:
    second = clock.NS_PER_S
    measured: dict[int, Role] = {
        30: "measured",
        2: "warmup",
        10: "loser",
        1: "calibration",
        20: "winner",
    }
    with RunFolder.create(tmp_path) as folder:
        for end_s, role in measured.items():
            folder.add(
                Observation(
                    id=f"{end_s}", call="a", target="x/y", role=role, end_ns=(1000 + end_s) * second
                )
            )
        folder.write_run(
            Run(id="r1", began="2026-01-01T00:00:00.500+00:00", began_ns=1000 * second)
        )
    moment = datetime(2026, 1, 1, 0, 1, 0, 500000, tzinfo=UTC)
    with clock.using(lambda: 5, lambda: int(moment.timestamp() * 1e9)):
        assert [(o.id, age) for o, age in seeds(tmp_path)] == [
            ("10", 50.0),
            ("20", 40.0),
            ("30", 30.0),
        ]
    with clock.using(lambda: 5, lambda: 0):  # a clock that was set back
        assert {age for _, age in seeds(tmp_path)} == {0.0}


@pytest.mark.parametrize("began", ["", "yesterday", "2026-01-01T00:00:00"])
def test_a_run_without_its_date_gives_no_seeds(tmp_path: Path, began: str) -> None:
    with RunFolder.create(tmp_path) as folder:
        folder.write_run(Run(id="r1", began=began, began_ns=7))
    with pytest.raises(CallerFault, match=r"not a run of this version.*\$\.began"):
        seeds(tmp_path)


def test_a_full_disk_is_an_error_of_the_append(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.close()
    folder._observations = -1
    with pytest.raises(OSError, match="Bad file"):
        folder.add(OBSERVATION)


def test_full_disk_leaves_complete_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def fill_up(descriptor: int, data: memoryview) -> int:
        if not bytes(data).startswith(b"{"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[:10])

    with RunFolder(tmp_path) as folder:
        folder.add(OBSERVATION)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fill_up)
            with pytest.raises(OSError, match="No space"):
                folder.add(FAILED)
        folder.add(FAILED)
    assert read_observations(tmp_path) == [OBSERVATION.compact(), FAILED.compact()]


def test_discarded_run_removes_its_own_files(tmp_path: Path) -> None:
    for kept in ("new", "mine"):
        if kept == "mine":
            (tmp_path / "mine").mkdir()
        with RunFolder.create(tmp_path / kept) as folder:
            folder.add(OBSERVATION)
            folder.discard()
    with RunFolder.create(tmp_path / "shared") as folder:
        (folder.path / "notes.txt").touch()
        folder.discard()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "mine", "shared", "shared/notes.txt"
    ]  # fmt: skip


def test_failed_write_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with RunFolder.create(tmp_path) as folder, pytest.raises(OSError, match="No space"):
        folder.write("report.html", b"...")
    assert {path.name for path in tmp_path.iterdir()} == {"observations.jsonl", "readings.jsonl"}


def test_files_other_than_the_report_are_readable_by_owner_only(tmp_path: Path) -> None:
    (tmp_path / ".run.json.part").write_text("left by a crash, for all to read")
    with RunFolder.create(tmp_path) as folder:
        folder.write_run(Run(id="r1", began="2026-01-01T00:00:00Z", began_ns=7))
        page = folder.write("report.html", b"")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes.pop(page.name) & 0o400
    assert modes == {"run.json": 0o600, "observations.jsonl": 0o600, "readings.jsonl": 0o600}
