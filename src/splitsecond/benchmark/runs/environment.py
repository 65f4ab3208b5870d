import os
import platform
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from splitsecond import __version__
from splitsecond.core.errors import provider_word
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wording import SIMULATED
from splitsecond.routing.configuration.discovery import LIST_ERRORS, OWNERS, fetch, listed_models

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
    place: str = "", environment: Mapping[str, str] = os.environ, localtime: Path = LOCALTIME
) -> str:
    """Return the location of this machine in words: `place`, a cloud's region, or its time zone; ""
    if unknown."""
    if place:
        return place
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


TIMEOUT_S = 2.0
LONGEST = 40
GPUS = Path("/proc/driver/nvidia/gpus")
NAMES = {"vllm": "vLLM", "llamacpp": "llama.cpp", "ollama": "Ollama", "sglang": "SGLang"}

Answer = Mapping[str, Any]
_NOTHING: tuple[str, Any, Any] = ("", None, None)
PATHS: Mapping[str, Callable[[Answer], tuple[str, Any, Any]]] = {
    "/props": lambda its: ("llama.cpp", its.get("build_info"), None),
    "/api/version": lambda its: ("Ollama", its.get("version"), None),
    "/get_server_info": lambda its: ("SGLang", its.get("version"), its.get("device")),
    "/info": lambda its: (
        ("TGI", its.get("version"), its.get("model_device_type")) if "router" in its else _NOTHING
    ),
    "/version": lambda its: ("", its.get("version"), None),
}


def server_software(specs: Mapping[str, TargetSpec]) -> dict[str, str]:
    """Return what the servers of these targets run, such as "vLLM 0.11.0", by target, if they tell
    it.

    Only servers without TLS are asked: they are those of the user. No answer within `TIMEOUT_S` is
    no answer.
    """
    own_specs = {
        n: s
        for n, s in specs.items()
        if s.base_url.startswith("http://") and not n.startswith(SIMULATED)
    }
    if not own_specs:
        return {}
    with ThreadPoolExecutor(len(PATHS)) as pool:
        return {name: words for name, spec in own_specs.items() if (words := _software(spec, pool))}


def _software(spec: TargetSpec, pool: ThreadPoolExecutor) -> str:
    root = spec.base_url.rstrip("/").removesuffix("/v1")
    answers = pool.map(lambda path: _answer(root + path), PATHS)
    for describe, answer in zip(PATHS.values(), answers, strict=True):
        name, version, device = describe(answer)
        if isinstance(version, str) and version:
            release = "" if "unknown" in version else provider_word(version, LONGEST)
            on = (
                f"on {provider_word(device, LONGEST)}" if isinstance(device, str) and device else ""
            )
            return " ".join(filter(None, (name or _owner(spec), release, on)))
    return ""


def _answer(url: str) -> Answer:
    try:
        body = msgspec.json.decode(fetch(url, timeout_s=TIMEOUT_S))
    except LIST_ERRORS:
        return {}
    return body if isinstance(body, dict) else {}


def _owner(spec: TargetSpec) -> str:
    try:
        listed = listed_models(spec.base_url, timeout_s=TIMEOUT_S)
    except LIST_ERRORS:
        return "version"
    provider = OWNERS.get(listed[0].owned_by, "") if listed else ""
    return NAMES.get(provider, "version")


def gpus(folder: Path = GPUS) -> list[str]:
    models = []
    for information in sorted(folder.glob("*/information")):
        try:
            lines = information.read_text("utf-8").splitlines()
        except OSError:
            continue
        models += [
            value.strip()
            for name, _, value in (line.partition(":") for line in lines)
            if name == "Model"
        ]
    return models
