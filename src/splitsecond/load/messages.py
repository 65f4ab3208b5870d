"""What the parent and a worker process say to each other: one JSON object a line, tagged with its type.

The parent starts with `Begin`, then gives one task at a time (`Prepare`, `Send`); the worker answers each with any
number of `Observed`, `Read`, `Prepared` and `Refused`, and then one `Ended`. `Stop`, the end of the input or SIGTERM
cancel the task under way: what it had in flight is observed as cancelled, and the worker leaves.
"""

from typing import cast

from msgspec import Struct

from splitsecond.errors import CallerFault, Fault, NetworkFault, Phase, ProviderFault, TimedOut
from splitsecond.load.block import Block
from splitsecond.load.calibration import Calibrated
from splitsecond.load.workload import Workload
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import FaultRecord, Observation
from splitsecond.upstream.spec import TargetSpec


class Begin(Struct, frozen=True, tag=True):
    """Connect to these targets. `worker` numbers the processes of a run; `policies` are expressions over targets."""

    targets: list[TargetSpec]
    worker: int
    policies: list[str] = []


class Prepare(Struct, frozen=True, tag=True):
    """Send the first requests to these targets and make their workloads, with prompts of `input_tokens`."""

    targets: list[str]
    workload: Workload
    input_tokens: int


class Learn(Struct, frozen=True, tag=True):
    """What requests to a target say."""

    target: str
    workload: Workload


class Send(Struct, frozen=True, tag=True):
    """Send a block."""

    block: Block


class Stop(Struct, frozen=True, tag=True):
    """Cancel what is under way, and leave."""


Command = Begin | Prepare | Learn | Send | Stop


class Observed(Struct, frozen=True, tag=True):
    """One attempt has ended."""

    observation: Observation


class Read(Struct, frozen=True, tag=True):
    """What the instrument says of itself in a block."""

    reading: InstrumentReading


class Prepared(Struct, frozen=True, tag=True):
    """A target can be measured."""

    target: str
    calibrated: Calibrated


class Refused(Struct, frozen=True, tag=True):
    """A target cannot be measured."""

    target: str
    fault: FaultRecord


class Ended(Struct, frozen=True, tag=True):
    """The task is done. `abandoned`: why the rest of the block's condition should not be sent."""

    abandoned: str = ""


Report = Observed | Read | Prepared | Refused | Ended


_FAULTS = {fault.__name__: fault for fault in (CallerFault, ProviderFault, NetworkFault, TimedOut)}


def revive(record: FaultRecord, target: str) -> Fault:
    """The fault that `record` was made of, in another process."""
    kind_of_fault = _FAULTS.get(record.type, ProviderFault)
    phase = cast(Phase, record.phase)
    fault = kind_of_fault(record.message, kind=record.kind, phase=phase, target=target, hint=record.hint)
    if isinstance(fault, CallerFault | ProviderFault):
        fault.status = record.status
    return fault
