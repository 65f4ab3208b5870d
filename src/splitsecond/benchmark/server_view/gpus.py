"""The GPUs of this machine, by NVIDIA's library NVML (`nvidia-ml-py`, the extra `gpu`). Only this
module imports it."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from splitsecond.benchmark.server_view.engines import combined

INSTALL = "pip install 'splitsecond[gpu]'"
POWER, HEAT = 0x04 | 0x80, 0x20 | 0x40
"""Bits of NVML's reasons for a lower clock: a power cap of the software, a power brake of the
hardware; and heat."""


class Gpus:
    """All GPUs that NVML sees. Raises `OSError` if there is none, or NVML is not installed."""

    def __init__(self) -> None:
        try:
            self._nvml: Any = import_module("pynvml")
        except ImportError as error:
            raise OSError(f"NVIDIA's library is not installed: {INSTALL}") from error
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._devices = [self._nvml.nvmlDeviceGetHandleByIndex(place) for place in range(count)]
        except self._nvml.NVMLError as error:
            raise OSError(f"NVML: {error}") from error
        if not self._devices:
            raise OSError("NVML sees no GPU")

    def values(self) -> dict[str, float]:
        """Return the values of all GPUs by term. What a GPU does not report is left out."""
        nvml = self._nvml
        readers: dict[str, Callable[[Any], float]] = {
            "gpu_use": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu / 100,
            "gpu_memory_bytes": lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
            "power_w": lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
            "energy_j": lambda gpu: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) / 1000,
            "clock_mhz": lambda gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
            "power_capped": lambda gpu: float(bool(self._reasons(gpu) & POWER)),
            "heat_capped": lambda gpu: float(bool(self._reasons(gpu) & HEAT)),
        }
        values = {"gpus": float(len(self._devices))}
        for term, read in readers.items():
            try:
                values[term] = combined(term, [float(read(gpu)) for gpu in self._devices])
            except nvml.NVMLError:  # this GPU does not report it
                continue
        return values

    def _reasons(self, gpu: Any) -> int:
        name = "nvmlDeviceGetCurrentClocksEventReasons"  # before NVML 12.2 another name
        read = (
            getattr(self._nvml, name, None) or self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        )
        return int(read(gpu))
