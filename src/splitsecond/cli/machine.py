"""The machine and the versions that a run was made with, for `run.json`: what a reader needs to judge or repeat it."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from splitsecond import __version__

PACKAGES = ("uvloop", "httptools", "msgspec", "numpy", "uvicorn")


def environment() -> dict[str, object]:
    """Names and versions only: no host name, no user, no address."""
    return {
        "splitsecond": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "frequency_governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _processor() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError:  # another system, or a container that hides it
        return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
