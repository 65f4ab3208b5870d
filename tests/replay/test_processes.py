"""Replays in processes of their own give what they give in this one."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from msgspec import to_builtins
from tests.replay.logs import alternating, write
from tests.replay.test_what_if import HEDGE, ONLY_A, asked, read

from splitsecond.core.errors import CallerFault
from splitsecond.replay import processes
from splitsecond.replay.processes import MIN_CALLS, Sent, replays
from splitsecond.replay.running import ReplayedCalls

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})


def empty(pid: int) -> ReplayedCalls:
    none = np.zeros(0, np.int64)
    return ReplayedCalls(
        ttft_ns=np.array([pid]), total_ns=none, failed=none == 1, target=none, usd=none / 1.0,
        basis=none, attempts=(none, none, none),
    )  # fmt: skip


def test_the_answer_is_that_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    write(file, alternating(800))
    logged = read(file)
    one = asked(logged, ONLY_A, HEDGE)
    monkeypatch.setattr(processes, "MIN_CALLS", 0)
    assert to_builtins(asked(logged, ONLY_A, HEDGE)) == to_builtins(one)


def test_each_job_has_a_process_and_counts_its_calls() -> None:
    counted: list[int] = []

    def job(sent: Sent) -> ReplayedCalls:
        sent(500)
        return empty(os.getpid())

    found = replays([job, job, job], MIN_CALLS, counted.append)
    assert len({int(each.ttft_ns[0]) for each in found} - {os.getpid()}) == 3
    assert counted == [500, 500, 500]


def test_a_process_that_ends_early_is_reported() -> None:
    def killed(sent: Sent) -> ReplayedCalls:
        os.kill(os.getpid(), signal.SIGKILL)
        return empty(0)

    with pytest.raises(CallerFault, match="ended early"):
        replays([killed, killed], MIN_CALLS, lambda calls: None)


def test_a_bug_in_a_process_is_raised() -> None:
    def broken(sent: Sent) -> ReplayedCalls:
        raise ZeroDivisionError("a bug")

    with pytest.raises(RuntimeError, match="ZeroDivisionError: a bug"):
        replays([broken, broken], MIN_CALLS, lambda calls: None)
