"""Messages between the parent and a worker process: one JSON object a line, tagged with its type.

The parent starts with `Configure`, then gives one task at a time (`Calibrate`, `SendBlock`). The
worker answers each with any number of reports, and then one `TaskEnded`. A held block has a
`MeasuredEnded` among them, which waits for `Release`. Between two tasks the worker answers
`ReadClock` with a `ClockReport`. `Stop`, the end of the input or SIGTERM cancel the current task:
its requests in flight are observed as cancelled.
"""

from typing import cast

from msgspec import Struct

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.calibration import Calibrated
from splitsecond.benchmark.load.cost_lease import CostLease
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.errors import CallerFault, Fault, NetworkFault, Phase, ProviderFault, TimedOut
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.routing.construction.user_policies import PolicyFile


class Configure(Struct, frozen=True, tag=True):
    targets: list[TargetSpec]
    worker: int
    policies: list[str] = []
    policy_file: PolicyFile | None = None


class Calibrate(Struct, frozen=True, tag=True):
    targets: list[str]
    workload: Workload
    input_tokens: int
    pilot: bool = False


class SetWorkload(Struct, frozen=True, tag=True):
    target: str
    workload: Workload


class SendBlock(Struct, frozen=True, tag=True):
    """Task: send a block. With `held`, its cool-downs go on after its last measured request until
    `Release`. With a `lease`, it costs no more than that."""

    block: RequestBlock
    held: bool = False
    lease: CostLease | None = None


class Release(Struct, frozen=True, tag=True):
    """Command: the measured requests of all parts of the block have ended, so close the
    cool-downs."""


class Stop(Struct, frozen=True, tag=True):
    """Command: cancel the current task and exit."""


class ReadClock(Struct, frozen=True, tag=True):
    """Command: report what the monotonic clock of your machine shows."""


Command = Configure | Calibrate | SetWorkload | SendBlock | Stop | ReadClock | Release


class ObservationReport(Struct, frozen=True, tag=True):
    observation: Observation


class ReadingReport(Struct, frozen=True, tag=True):
    reading: InstrumentReading


class CalibrationDone(Struct, frozen=True, tag=True):
    target: str
    calibrated: Calibrated


class CalibrationFailed(Struct, frozen=True, tag=True):
    target: str
    fault: FaultRecord


class MeasuredEnded(Struct, frozen=True, tag=True):
    """Report: the measured requests of a held block have ended."""


class TaskEnded(Struct, frozen=True, tag=True):
    """Report: the task has ended. `abandoned` is the reason not to send the rest of the block's
    condition; `spent`: it is that the lease was spent."""

    abandoned: str = ""
    spent: bool = False


class ClockReport(Struct, frozen=True, tag=True):
    """Report: the monotonic clock of the worker's machine showed `now_ns` when it got
    `ReadClock`."""

    now_ns: int


Report = (
    ObservationReport
    | ReadingReport
    | CalibrationDone
    | CalibrationFailed
    | TaskEnded
    | ClockReport
    | MeasuredEnded
)


_FAULTS = {fault.__name__: fault for fault in (CallerFault, ProviderFault, NetworkFault, TimedOut)}


def fault_from_record(record: FaultRecord, target: str) -> Fault:
    kind_of_fault = _FAULTS.get(record.type, ProviderFault)
    phase = cast(Phase, record.phase)
    fault = kind_of_fault(
        record.message, kind=record.kind, phase=phase, target=target, hint=record.hint
    )
    if isinstance(fault, CallerFault | ProviderFault):
        fault.status = record.status
    return fault
