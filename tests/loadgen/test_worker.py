"""One worker process: it follows its input, ignores Ctrl-C, and reports everything before it
exits."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE

import msgspec
import pytest
from tests.processes import Process
from tests.waiting import WITHIN_S

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.messages import (
    Command,
    Configure,
    ObservationReport,
    ReadingReport,
    Report,
    SendBlock,
    SetWorkload,
    Stop,
    TaskEnded,
    fault_from_record,
)
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.errors import (
    AllFailed,
    CallerFault,
    Fault,
    NetworkFault,
    Overloaded,
    ProviderFault,
    TimedOut,
)
from splitsecond.core.loading import module_command
from splitsecond.core.timing.timeline import record_fault
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.simulator.process import RunningProvider

FAKE_WORKER = (sys.executable, str(Path(__file__).with_name("fake_worker.py")))


@contextmanager
def worker(model: str) -> Iterator[Process[bytes]]:
    """A worker that is in the middle of a block: five requests are done, one hangs if the model is
    "hangs"."""
    with Process[bytes](FAKE_WORKER, stdin=PIPE, stdout=PIPE) as process:
        say(process, Configure([TargetSpec(name="t", base_url="http://t.example", model=model)], 3))
        say(process, SetWorkload("t", Workload(run="r")))
        say(
            process,
            SendBlock(RequestBlock(condition="t@c1", target="t", requests=6, concurrency=1)),
        )
        yield process


def say(process: Process[bytes], command: Command) -> None:
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(command) + b"\n")
    process.stdin.flush()


def hear(process: Process[bytes]) -> Report | None:
    line = process.read_line()
    return msgspec.json.decode(line, type=Report) if line else None


def outcomes(process: Process[bytes], count: int) -> list[str]:
    found: list[str] = []
    for _ in range(count):
        report = hear(process)
        assert isinstance(report, ObservationReport)
        found.append(report.observation.outcome)
    return found


@pytest.mark.system
def test_worker_reports_requests_then_reading_then_end() -> None:
    with worker("quick") as process:
        assert outcomes(process, 6) == ["ok"] * 6
        read = hear(process)
        assert isinstance(read, ReadingReport)
        assert (read.reading.worker, read.reading.pid, read.reading.condition) == (
            3,
            process.pid,
            "t@c1",
        )
        assert hear(process) == TaskEnded()
        say(process, Stop())
        assert hear(process) is None
        assert process.wait(WITHIN_S) == 0


@pytest.mark.system
def test_a_worker_closes_its_connections_before_it_exits(simulated: RunningProvider) -> None:
    target = TargetSpec(name="t", base_url=simulated.base_url, model=simulated.model)
    real = (
        sys.executable,
        "-W",
        "always::ResourceWarning",
        *module_command("splitsecond.benchmark.load.worker")[1:],
    )
    with Process[bytes](real, stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        say(process, Configure([target], 1))
        say(process, SetWorkload("t", Workload(run="r", output_tokens=2)))
        say(
            process,
            SendBlock(RequestBlock(condition="t@c1", target="t", requests=2, concurrency=1)),
        )
        assert outcomes(process, 2) == ["ok"] * 2
        say(process, Stop())
        assert process.wait(WITHIN_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.mark.parametrize("way", ["stop", "end of input", "SIGTERM"])
@pytest.mark.system
def test_stopped_worker_cancels_and_reports_open_requests(way: str) -> None:
    with worker("hangs") as process:
        assert outcomes(process, 5) == ["ok"] * 5
        process.send_signal(signal.SIGINT)
        if way == "stop":
            say(process, Stop())
        elif way == "SIGTERM":
            process.send_signal(signal.SIGTERM)
        else:
            assert process.stdin is not None
            process.stdin.close()
        assert outcomes(process, 1) == ["cancelled"]
        assert isinstance(hear(process), ReadingReport)
        assert hear(process) is None
        assert process.wait(WITHIN_S) == 0


@pytest.mark.parametrize(
    "fault",
    [
        CallerFault("m", kind="k", phase="queue", target="t", hint="h", status=404),
        ProviderFault("m", kind="http_403", phase="head", target="t", hint="h", status=403),
        NetworkFault("m", kind="dns", phase="dns", target="t", hint="h"),
        TimedOut("m", phase="head", target="t", hint="h"),
    ],
)
def test_fault_survives_the_transfer_to_the_parent(fault: Fault) -> None:
    revived = fault_from_record(record_fault(fault), "t")
    assert type(revived) is type(fault)
    assert str(revived) == str(fault)
    assert (revived.kind, revived.phase) == (fault.kind, fault.phase)
    assert getattr(revived, "status", None) == getattr(fault, "status", None)


def test_fault_of_another_type_keeps_its_message() -> None:
    for fault in (AllFailed([Overloaded("full")]), Overloaded("full")):
        assert str(fault_from_record(record_fault(fault), "")) == str(fault)
