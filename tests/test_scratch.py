"""Temporary folders: those of dead processes are removed, those of living ones never."""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.processes import Process

from splitsecond.core import scratch
from splitsecond.core.scratch import scratch_folder

pytestmark = pytest.mark.system
OWNER = """
import subprocess, sys
from splitsecond.core.scratch import scratch_folder

with scratch_folder() as scratch:
    if "child" in sys.argv:
        subprocess.Popen(["cat"], stdout=subprocess.DEVNULL, pass_fds=[scratch.lock])
    print(scratch.path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def owner(*arguments: str) -> "Process[str]":
    return Process([sys.executable, "-c", OWNER, *arguments], stdin=PIPE, stdout=PIPE, text=True)


def test_scratch_folder_is_removed_at_the_end(place: Path) -> None:
    with scratch_folder("kind-") as scratch:
        assert scratch.path.parent == place
        assert scratch.path.name.startswith("splitsecond-kind-")
        assert scratch.path.stat().st_mode & 0o777 == 0o700
    assert list(place.iterdir()) == []


def test_only_folders_of_dead_processes_are_removed(place: Path) -> None:
    with owner() as living, owner() as killed:
        kept, left = (Path(each.read_line().strip()) for each in (living, killed))
        killed.kill()
        killed.wait()
        assert left.is_dir()
        with scratch_folder() as scratch:
            assert set(place.iterdir()) == {kept, scratch.path}


def test_folder_is_kept_while_a_child_holds_its_lock(place: Path) -> None:
    with owner("child") as parent:
        kept = Path(parent.read_line().strip())
        parent.kill()
        parent.wait()
        with scratch_folder():
            assert kept.is_dir()  # `cat` lives as long as our end of its input is open
        assert parent.stdin
        parent.stdin.close()
    # Nothing says when the kernel has ended `cat`; the folder is for the next one to remove.


def test_folders_without_a_dead_owner_are_left_alone(place: Path) -> None:
    for name, lock in (("splitsecond-none", None), ("splitsecond-new", ""), ("other", "1")):
        (place / name).mkdir()
        if lock is not None:
            (place / name / "owner.lock").write_text(lock)
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "owner.lock").write_text("1")
    (place / "splitsecond-link").symlink_to(elsewhere)
    (place / "splitsecond-file").write_text("")
    before = sorted(os.listdir(place))
    with scratch_folder():
        pass
    assert sorted(os.listdir(place)) == before
    assert (elsewhere / "owner.lock").exists()


def test_folder_is_in_memory_without_space_on_any_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", refuse)
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path)
    with scratch_folder() as made:
        assert made.path.parent == tmp_path
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path / "none")
    with pytest.raises(FileNotFoundError), scratch_folder():
        pass


def test_removed_folder_raises_nothing_at_its_end(place: Path) -> None:
    with scratch_folder() as made:
        shutil.rmtree(made.path)
    assert list(place.iterdir()) == []
