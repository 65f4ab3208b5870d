"""A wall clock that shows noon when a test begins: tests about days give the same figures at any
time of day.

Only this process has it, and with `noon_of_processes` Python processes that the test starts.
SQLite's and PostgreSQL's own functions show the real time. Noon is in the past, so the arrival of a
packet, which the kernel dates, counts as the moment at which it is read.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from splitsecond.core import clock

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@contextmanager
def from_noon() -> Iterator[None]:
    """Let the wall clock of this process go on from `NOON`, as fast as the real one."""
    offset_ns = int(NOON.timestamp()) * clock.NS_PER_S - time.monotonic_ns()
    with clock.using(time.monotonic_ns, lambda: time.monotonic_ns() + offset_ns):
        yield


@pytest.fixture
def noon() -> Iterator[None]:
    """The same for one test."""
    with from_noon():
        yield


@pytest.fixture
def noon_of_processes(noon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for one test and the Python processes that it starts."""
    folders = [str(Path(__file__).with_name("noon_of_children")), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
    monkeypatch.setenv("SPLITSECOND_TEST_WALL_OFFSET_NS", str(clock.wall_offset_ns()))


@pytest.fixture(scope="module")
def noon_of_module() -> Iterator[None]:
    """The same for all tests and fixtures of a module."""
    with from_noon():
        yield
