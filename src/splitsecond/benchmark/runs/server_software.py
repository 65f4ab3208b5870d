"""The software of servers that users run, and the GPUs of this machine: what makes two runs
comparable.

Hosted providers tell nothing, so they are not asked.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from splitsecond.core.errors import provider_word
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.wording import SIMULATED
from splitsecond.routing.configuration.discovery import LIST_ERRORS, OWNERS, fetch, listed_models

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
    asked = {
        n: s
        for n, s in specs.items()
        if s.base_url.startswith("http://") and not n.startswith(SIMULATED)
    }
    if not asked:
        return {}
    with ThreadPoolExecutor(len(PATHS)) as pool:
        return {name: words for name, spec in asked.items() if (words := _software(spec, pool))}


def _software(spec: TargetSpec, pool: ThreadPoolExecutor) -> str:
    root = spec.base_url.rstrip("/").removesuffix("/v1")
    answers = pool.map(lambda path: _answer(root + path), PATHS)
    for describe, answer in zip(PATHS.values(), answers, strict=True):
        name, version, device = describe(answer)
        if isinstance(version, str) and version:
            known = "" if "unknown" in version else provider_word(version, LONGEST)
            on = (
                f"on {provider_word(device, LONGEST)}" if isinstance(device, str) and device else ""
            )
            return " ".join(filter(None, (name or _owner(spec), known, on)))
    return ""


def _answer(url: str) -> Answer:
    try:
        found = msgspec.json.decode(fetch(url, timeout_s=TIMEOUT_S))
    except LIST_ERRORS:
        return {}
    return found if isinstance(found, dict) else {}


def _owner(spec: TargetSpec) -> str:
    try:
        listed = listed_models(spec.base_url, timeout_s=TIMEOUT_S)
    except LIST_ERRORS:
        return "version"
    provider = OWNERS.get(listed[0].owned_by, "") if listed else ""
    return NAMES.get(provider, "version")


def gpus(folder: Path = GPUS) -> list[str]:
    found = []
    for information in sorted(folder.glob("*/information")):
        try:
            lines = information.read_text("utf-8").splitlines()
        except OSError:
            continue
        found += [
            value.strip()
            for name, _, value in (line.partition(":") for line in lines)
            if name == "Model"
        ]
    return found
