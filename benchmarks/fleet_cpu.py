"""CPU time of processes, for the benchmarks of fleets."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS


def tree_s(pid: int) -> float:
    """Return the CPU time of a process and of its children."""
    return seconds(pid) + sum(map(seconds, children(pid)))


def own_s() -> float:
    """Return the CPU time of this process."""
    times = os.times()
    return times.user + times.system
