"""The priority of a worker: the best that the system allows, and never one that could starve the
machine.

Nothing here changes the priority of the process that runs the tests.
"""

import os
import resource
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from splitsecond.benchmark.load import priority

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these priorities")


THREADS = (16, 17)


class System(SimpleNamespace):
    """The calls that change priorities, with what they were given. `real_time`, `nice`: what is
    allowed."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, autogroup: Path, *, real_time: bool, nice: int = 0
    ) -> None:
        self.real_time, self.nice = real_time, nice
        self.scheduler: dict[int, int] = {}
        self.niceness = 0
        self.limits: dict[int, Any] = {resource.RLIMIT_NICE: (20 - nice, 20 - nice)}
        self.autogroup = autogroup
        self.handlers: dict[int, Any] = {}
        monkeypatch.setattr(priority, "_AUTOGROUP", autogroup)
        monkeypatch.setattr(os, "sched_setscheduler", self.set_scheduler)
        monkeypatch.setattr(
            os, "sched_getscheduler", lambda pid: self.scheduler.get(THREADS[0], os.SCHED_OTHER)
        )
        monkeypatch.setattr(os, "listdir", lambda path: [str(thread) for thread in THREADS])
        monkeypatch.setattr(os, "setpriority", self.set_niceness)
        monkeypatch.setattr(os, "getpriority", lambda which, who: self.niceness)
        monkeypatch.setattr(resource, "getrlimit", lambda name: self.limits.get(name, (-1, -1)))
        monkeypatch.setattr(resource, "setrlimit", self.limits.__setitem__)
        monkeypatch.setattr(signal, "signal", self.handlers.__setitem__)

    def set_scheduler(self, pid: int, policy: int, parameters: os.sched_param) -> None:
        if policy != os.SCHED_OTHER and not self.real_time:
            raise PermissionError("no CAP_SYS_NICE")
        self.scheduler[pid] = policy

    def set_niceness(self, which: int, who: int, nice: int) -> None:
        if nice < self.nice:
            raise PermissionError("no CAP_SYS_NICE")
        self.niceness = nice


def test_a_worker_is_real_time_where_it_may_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system = System(monkeypatch, tmp_path / "autogroup", real_time=True)
    assert priority.raise_priority() == "real time"
    assert system.scheduler == dict.fromkeys(THREADS, os.SCHED_RR)
    assert not system.autogroup.exists()


def test_real_time_priority_ends_if_the_worker_never_sleeps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    system = System(monkeypatch, tmp_path / "autogroup", real_time=True)
    priority.raise_priority()
    assert system.limits[resource.RLIMIT_RTTIME] == (priority.LONGEST_RUN_US, -1)
    system.handlers[signal.SIGXCPU](signal.SIGXCPU, None)
    assert system.scheduler == dict.fromkeys(THREADS, os.SCHED_OTHER)
    assert priority.priority() == "normal"
    assert priority.raise_priority() == "real time"  # before the next block


@pytest.mark.parametrize(("allowed", "words"), [(-20, "nice -20"), (-5, "nice -5"), (0, "normal")])
def test_worker_without_real_time_takes_the_best_nice_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: int, words: str
) -> None:
    system = System(monkeypatch, tmp_path / "autogroup", real_time=False, nice=allowed)
    assert priority.raise_priority() == words
    assert system.limits.keys() == {resource.RLIMIT_NICE}
    assert system.autogroup.exists() is (allowed < 0)  # else other sessions would not notice it
