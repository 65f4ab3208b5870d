"""The GPUs of this machine, by a fake of NVIDIA's library."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from splitsecond.benchmark.server_view.gpus import Gpus


class NVMLError(Exception):
    pass


def fake_nvml(*, gpus: int = 2, energy: bool = True, old_name: bool = False) -> ModuleType:
    """NVML with GPUs that draw 300 and 310 W, the second of which is slowed down by its power
    cap."""

    def energy_of(gpu: int) -> int:
        if not energy:
            raise NVMLError("Not Supported")
        return 5_000_000 + gpu

    nvml = ModuleType("pynvml")
    functions = {
        "NVMLError": NVMLError,
        "NVML_CLOCK_SM": 1,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: gpus,
        "nvmlDeviceGetHandleByIndex": lambda place: place,
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=100 - 50 * gpu, memory=1),
        "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=10_000, total=80_000),
        "nvmlDeviceGetPowerUsage": lambda gpu: 300_000 + 10_000 * gpu,
        "nvmlDeviceGetTotalEnergyConsumption": energy_of,
        "nvmlDeviceGetClockInfo": lambda gpu, kind: 1980 - 500 * gpu,
    }
    reasons = (
        "nvmlDeviceGetCurrentClocksThrottleReasons"
        if old_name
        else "nvmlDeviceGetCurrentClocksEventReasons"
    )
    for name, value in {**functions, reasons: lambda gpu: 0x4 * gpu}.items():
        setattr(nvml, name, value)
    return nvml


@pytest.mark.parametrize("old_name", [False, True])
def test_values_of_all_gpus_become_one(monkeypatch: pytest.MonkeyPatch, old_name: bool) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(old_name=old_name))
    assert Gpus().values() == pytest.approx(
        {
            "gpus": 2,
            "gpu_use": 0.75,
            "gpu_memory_bytes": 20_000,
            "power_w": 610,
            "energy_j": 10_000.001,
            "clock_mhz": 1480,
            "power_capped": 1,
            "heat_capped": 0,
        }
    )


def test_value_that_a_gpu_does_not_report_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(energy=False))
    assert "energy_j" not in Gpus().values()
    assert "power_w" in Gpus().values()


def test_machine_without_a_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(gpus=0))
    with pytest.raises(OSError, match="sees no GPU"):
        Gpus()


def test_missing_library_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(OSError, match=r"splitsecond\[gpu\]"):
        Gpus()


def test_driver_that_does_not_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = fake_nvml()

    def fails() -> None:
        raise NVMLError("Driver Not Loaded")

    monkeypatch.setattr(nvml, "nvmlInit", fails)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(OSError, match="Driver Not Loaded"):
        Gpus()
