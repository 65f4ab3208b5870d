"""Benchmark LLM endpoints with a measured error, and route live traffic to the fastest.

The Python API is loaded when it is used, so that ``import splitsecond`` takes no time.
docs/python.md explains it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from splitsecond import sync as sync
    from splitsecond.api.batch import BatchRun as BatchRun
    from splitsecond.api.batch import batch as batch
    from splitsecond.api.benchmarks import bench as bench
    from splitsecond.api.benchmarks import capacity as capacity
    from splitsecond.api.benchmarks import watch as watch
    from splitsecond.api.commands import CommandResult as CommandResult
    from splitsecond.api.commands import cost as cost
    from splitsecond.api.commands import import_log as import_log
    from splitsecond.api.commands import recommend as recommend
    from splitsecond.api.commands import speed as speed
    from splitsecond.api.connection import ChatReply as ChatReply
    from splitsecond.api.connection import Connection as Connection
    from splitsecond.api.connection import connect as connect
    from splitsecond.api.replays import what_if as what_if
    from splitsecond.api.results import BenchRun as BenchRun
    from splitsecond.api.results import Estimate as Estimate
    from splitsecond.api.results import compare as compare
    from splitsecond.api.results import load as load
    from splitsecond.benchmark.runs.settings import Server as Server
    from splitsecond.core.catalog.price import Price as Price
    from splitsecond.core.errors import CallerFault as CallerFault
    from splitsecond.core.errors import Fault as Fault
    from splitsecond.core.service import Call as Call
    from splitsecond.core.service import Reply as Reply
    from splitsecond.core.service import Service as Service
    from splitsecond.routing.construction.user_policies import policy as policy

_EXPORTS = {
    "BatchRun": "api.batch",
    "batch": "api.batch",
    "bench": "api.benchmarks",
    "capacity": "api.benchmarks",
    "watch": "api.benchmarks",
    "CommandResult": "api.commands",
    "cost": "api.commands",
    "import_log": "api.commands",
    "recommend": "api.commands",
    "speed": "api.commands",
    "ChatReply": "api.connection",
    "Connection": "api.connection",
    "connect": "api.connection",
    "policy": "routing.construction.user_policies",
    "BenchRun": "api.results",
    "Estimate": "api.results",
    "compare": "api.results",
    "load": "api.results",
    "what_if": "api.replays",
    "Price": "core.catalog.price",
    "CallerFault": "core.errors",
    "Fault": "core.errors",
    "Server": "benchmark.runs.settings",
    "Call": "core.service",
    "Reply": "core.service",
    "Service": "core.service",
}
"""The modules of the public names."""

__all__ = ["__version__", "sync", *_EXPORTS]  # strings, all of them


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    if name == "sync":
        return import_module(f"{__name__}.sync")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
