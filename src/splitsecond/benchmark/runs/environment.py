import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from splitsecond import __version__
from splitsecond.benchmark.runs.server_software import gpus

PACKAGES = ("uvloop", "httptools", "msgspec", "numpy")
REGION_VARIABLES = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "GOOGLE_CLOUD_REGION",
    "FLY_REGION",
    "VERCEL_REGION",
)
LOCALTIME = Path("/etc/localtime")
ZONES = "zoneinfo/"


def environment(place: str = "", servers: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return the machine and the versions for `run.json`. No host name, no user name, no address.

    `place`: where the machine stands, if the user says so. `servers`: the software of the servers,
    by target.
    """
    return {
        "location": location(place),
        "servers": dict(servers or {}),
        "gpus": gpus(),
        "splitsecond": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "frequency_governor": _file_text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def location(
    given: str = "", environment: Mapping[str, str] = os.environ, localtime: Path = LOCALTIME
) -> str:
    """Return the location of this machine in words: `given`, a cloud's region, or its time zone; ""
    if unknown."""
    if given:
        return given
    for variable in REGION_VARIABLES:
        if region := environment.get(variable, "").strip():
            return f"{region} ({variable})"
    zone = environment.get("TZ", "").removeprefix(":").strip()
    if not zone and localtime.is_symlink():
        zone = str(localtime.readlink()).partition(ZONES)[2]
    return f"time zone {zone}" if zone else ""


def _processor() -> str:
    for line in _file_text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _file_text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8").strip()
    except OSError:  # another system, or a container that hides the file
        return ""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
