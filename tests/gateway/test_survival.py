"""Errors of this program in a reload, a timer, an observer or a background task end only the step
that they are in."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.test_metrics import samples, value
from tests.gateway.test_supervisor import bound_at_a_free_port
from tests.upstream.scripted_client import FINISH, ScriptedClient
from tests.upstream.test_attempt import SPEC

from splitsecond.core import internal_errors
from splitsecond.core.child_process import ChildProcess
from splitsecond.core.errors import say
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.core.serving.accepting import Accepting
from splitsecond.core.serving.server import HttpServer
from splitsecond.core.transport import packets
from splitsecond.core.transport.exchange import Origin
from splitsecond.core.transport.packets import PacketRing
from splitsecond.core.transport.polling import BatchedPoller
from splitsecond.core.transport.pool import Pool
from splitsecond.core.upstream.target import connect
from splitsecond.gateway import __main__ as worker_program
from splitsecond.gateway.fleet.member import FleetMember
from splitsecond.gateway.fleet.worker_exchange import WorkerExchange
from splitsecond.gateway.hub.settings import HubSettings
from splitsecond.gateway.process import simulation, supervisor
from splitsecond.gateway.process import worker as worker_module
from splitsecond.gateway.process.hub_process import HubProcess
from splitsecond.gateway.process.reload import ConfigSource, ConfigWatcher
from splitsecond.gateway.process.service_manager import ServiceManager
from splitsecond.gateway.process.slot import WorkerSlot
from splitsecond.gateway.process.supervisor import Supervisor, WorkerProcess
from splitsecond.gateway.process.worker import GatewayWorker
from splitsecond.gateway.records.exposition import exposed
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.metric_fields import MetricCounts
from splitsecond.gateway.records.metrics import Metrics, WorkerMetrics
from splitsecond.log.store.call_record import CallRecord
from splitsecond.routing.configuration.reading import read
from splitsecond.routing.configuration.settings import GatewaySettings, encode
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.routing.router.router import Router
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.virtual_time import run_virtual

WANTED = read("routes: {fast: {policy: vllm/x}}", {})


class Failing:
    """A function that raises `KeyError`, the first `times` that it is called, and counts its
    calls."""

    def __init__(
        self, times: int = sys.maxsize, then: Callable[..., Any] = lambda *_, **__: None
    ) -> None:
        self.calls = 0
        self._times = times
        self._then = then

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls <= self._times:
            raise KeyError("a prompt")
        return self._then(*arguments, **named)


def failing_task(times: int = sys.maxsize) -> Callable[..., Awaitable[None]]:
    """The same as a coroutine."""
    fail = Failing(times)

    async def run(*arguments: Any, **named: Any) -> None:
        fail()

    return run


async def for_s(task: Awaitable[object], seconds: float) -> None:
    """Run a task that does not end by itself for some seconds."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(task, seconds)


# Reload.


@pytest.mark.parametrize("where", ["load", "apply"])
def test_reload_that_raises_keeps_the_old_settings(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], error_counts: dict[str, int]
) -> None:
    file = tmp_path / "splitsecond.yaml"
    file.write_text("routes: {}")
    running = ConfigSource(file, {}).load()
    fail = Failing(2)
    done = asyncio.Semaphore(0)

    class Source(ConfigSource, frozen=True):
        def load(self, checks: Any = ()) -> GatewaySettings:
            if where == "load":
                fail()
            return super().load(checks)

    class Manager(ServiceManager):
        def ready(self) -> None:
            done.release()

    async def apply(settings: GatewaySettings) -> None:
        if where == "apply":
            fail()

    async def main() -> None:
        watcher = ConfigWatcher(Source(file, {}), running, apply, Manager(say, {}))
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watcher.run())
            file.write_text("routes: {fast: {policy: vllm/x}}")
            for _ in range(2):
                watcher.now()
                await done.acquire()
                assert watcher.running is running
            watcher.now()
            await done.acquire()
            assert watcher.running.routes == WANTED.routes
            watching.cancel()

    asyncio.run(main())
    said = capsys.readouterr().err
    assert said.count("internal error (KeyError). The old configuration keeps running.") == 2
    assert "raise KeyError" in said  # the traceback
    assert said.count("is loaded: 1 route, 0 keys") == 1
    assert error_counts == {"reload": 2}


def test_settings_that_no_worker_can_read_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with bound_at_a_free_port() as listening:
        running = GatewaySettings()
        service = Supervisor(ConfigSource(None, {}), running, [listening], [WorkerSlot()])
        monkeypatch.setattr(supervisor, "encode", Failing())
        with pytest.raises(KeyError):
            asyncio.run(service._apply(WANTED))
        assert service._settings is running


def test_worker_that_fails_to_update_leaves_others_alone(error_counts: dict[str, int]) -> None:
    updated: list[object] = []

    class Worker:
        def __init__(self, fail: bool) -> None:
            self.fail = fail

        async def apply(self, settings: GatewaySettings) -> bool:
            await asyncio.sleep(0 if self.fail else 1)
            if self.fail:
                raise ValueError("the line is too long")
            updated.append(settings)
            return True

    with bound_at_a_free_port() as listening:
        service = Supervisor(ConfigSource(None, {}), GatewaySettings(), [listening], [WorkerSlot()])
        service._workers = {0: Worker(True), 1: Worker(False)}  # type: ignore[dict-item]
        run_virtual(service._apply(WANTED))
    assert updated == [WANTED]
    assert error_counts == {"reload": 1}


def test_worker_that_fails_to_change_serves_by_its_old_settings(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], error_counts: dict[str, int]
) -> None:
    async def main() -> None:
        worker = GatewayWorker(GatewaySettings())
        monkeypatch.setattr(worker_module, "KeyLimits", Failing(1, KeyLimits))
        worker_program.apply(worker, encode(WANTED))
        assert worker.router.routes.names(None) == []
        worker_program.apply(worker, encode(WANTED))
        assert worker.router.routes.names(None) == ["fast"]
        worker.close()

    asyncio.run(main())
    assert capfd.readouterr().out.splitlines() == ["REFUSED internal error (KeyError)", "READY"]
    assert error_counts == {"reload": 1}


def test_variables_that_are_not_utf_8_reach_no_worker() -> None:
    settings = GatewaySettings(environment={"BINARY": "\udcff", "\udcfe": "x", "KEY": "é"})
    assert b'"environment":{"KEY":"\xc3\xa9"}' in encode(settings)


# Tasks of the supervisor.


def test_worker_that_fails_to_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error_counts: dict[str, int],
) -> None:
    with bound_at_a_free_port() as listening:
        service = Supervisor(ConfigSource(None, {}), GatewaySettings(), [listening], [WorkerSlot()])
        monkeypatch.setattr(WorkerProcess, "start", failing_task())
        service._been_ready.add(0)
        run_virtual(for_s(service._run_slot(WorkerSlot(), listening), 60))
    assert error_counts["task"] > 10
    assert "worker 0 cannot start: internal error; it is tried again." in capsys.readouterr().err


def test_child_process_that_fails_to_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, error_counts: dict[str, int]
) -> None:
    async def main() -> None:
        kept = HubProcess(HubSettings(socket="hub"))
        async with kept.running():
            await asyncio.sleep(30)

    monkeypatch.setattr(ChildProcess, "start", failing_task())
    run_virtual(main())
    assert error_counts == {"task": 11}


def test_simulator_that_fails_to_start_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, error_counts: dict[str, int]
) -> None:
    monkeypatch.setattr(simulation, "_connected", failing_task())
    with socket.socket() as listening:
        run_virtual(for_s(simulation._keep_running(listening, asyncio.Event(), at_once=False), 9.5))
    assert error_counts == {"task": 7}


def test_gateway_does_not_wait_for_a_simulator_that_cannot_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(*command: str, **options: object) -> ChildProcess:
        raise OSError("no memory")

    async def main(listening: socket.socket) -> None:
        async with (
            asyncio.timeout(1),
            simulation.simulator(listening, read("routes: {a: {policy: sim/groq}}", {})),
        ):
            pass

    monkeypatch.setattr(ChildProcess, "start", start)
    with socket.socket() as listening:
        run_virtual(main(listening))


def test_watchdog_is_notified_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch, error_counts: dict[str, int]
) -> None:
    manager = ServiceManager(say, {"WATCHDOG_USEC": "10000000"})
    monkeypatch.setattr(manager, "_notify", fail := Failing(1))
    run_virtual(for_s(manager.keep_alive(), 19))
    assert fail.calls == 5
    assert error_counts == {"task": 1}


# Tasks of a worker.


def test_worker_learns_prices_after_errors(
    monkeypatch: pytest.MonkeyPatch, error_counts: dict[str, int]
) -> None:
    learned: list[float] = []

    async def learn_prices(router: Router, targets: object) -> None:
        learned.append(asyncio.get_running_loop().time())
        fail()

    async def main() -> None:
        worker = GatewayWorker(WANTED)
        await for_s(worker.learn(), 100)
        worker.close()

    fail = Failing(2)
    monkeypatch.setattr(Router, "warm_start", failing_task())
    monkeypatch.setattr(Router, "learn_prices", learn_prices)
    run_virtual(main())
    assert error_counts == {"task": 3}
    assert len(learned) == 3


def test_worker_exchanges_after_errors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error_counts: dict[str, int]
) -> None:
    async def main() -> None:
        exchange = WorkerExchange(
            TargetStates(TargetDirectory(GatewaySettings()).facts), lambda report: None
        )
        monkeypatch.setattr(exchange, "step", fail)
        await for_s(exchange.run(), 2.9)

    fail = Failing(2)
    run_virtual(main())
    assert fail.calls == 6
    assert error_counts == {"task": 2}


def test_fleet_member_exchanges_after_errors(error_counts: dict[str, int]) -> None:
    steps: list[int] = []

    class Broken(FleetMember):
        def __init__(self) -> None:
            """It has no settings."""

        async def step(self) -> None:
            steps.append(1)
            if len(steps) == 4:
                ending.set()
            raise KeyError

        async def _leave(self) -> None:
            steps.append(5)

    async def main() -> None:
        await Broken().run(ending)

    ending = asyncio.Event()
    run_virtual(main())
    assert steps == [1, 1, 1, 1, 5]
    assert error_counts == {"task": 4}


# Timers and callbacks.


def test_sockets_of_a_batch_are_read_though_one_raises(error_counts: dict[str, int]) -> None:
    async def main() -> None:
        poller = BatchedPoller(asyncio.get_running_loop())
        pairs = [socket.socketpair() for _ in range(2)]
        for near, far in pairs:
            far.send(b"x")
            poller.watch(near.fileno(), reads[near is pairs[1][0]])
            poller.gather(near.fileno())
            poller.rest(near.fileno(), 1)
        await done.wait()
        poller.close()
        for near, far in pairs:
            near.close()
            far.close()

    done = asyncio.Event()
    reads = Failing(), Failing(0, done.set)
    asyncio.run(main())
    assert error_counts["callback"] == reads[0].calls >= 1


def test_idle_connections_are_closed_though_one_raises(error_counts: dict[str, int]) -> None:
    closed: list[str] = []

    class Connection:
        origin = Origin.parse("http://x")
        idle_limit_s = None

        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            pool.closed(self)  # type: ignore[arg-type]
            raise KeyError

    async def main() -> None:
        for name in ("one", "two"):
            pool.released(Connection(name))  # type: ignore[arg-type]
        await asyncio.sleep(2)

    pool = Pool(1)
    run_virtual(main())
    assert closed == ["one", "two"]
    assert error_counts == {"callback": 2}


def test_packets_are_taken_from_the_ring_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        closed = True

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: None)
        ring = PacketRing(loop)
        monkeypatch.setattr(ring, "drain", drain)
        await asyncio.sleep(10.5 * packets.DRAIN_S)
        ring.close()

    drain = Failing(3)
    monkeypatch.setattr(packets, "_open_ring", lambda blocks: (None, Memory()))
    run_virtual(main())
    assert drain.calls == 10


def test_accepting_resumes_later_if_descriptors_are_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accepting = Accepting(1_000, print)
    accepting.paused = True
    monkeypatch.setattr(accepting, "may_resume", lambda: True)
    server = HttpServer([], drain_s=1, on_end=lambda: None, accepting=accepting)
    tries: list[float] = []

    async def listen() -> None:
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 3:
            raise OSError(24, "Too many open files")

    monkeypatch.setattr(server, "_listen", listen)
    run_virtual(for_s(server._run(), 5))
    assert len(tries) == 3
    assert not accepting.paused


# Observers.


def test_observers_that_raise_do_not_break_an_answer(error_counts: dict[str, int]) -> None:
    observed: list[Observation] = []

    async def main() -> None:
        client = ScriptedClient()
        target = connect(SPEC, Failing(), environment={}, client=client.as_client())
        call = Call(id="c", body={"messages": []}, start_ns=0)
        call.notes.observer = observed.append
        waiting = asyncio.ensure_future(target(call))
        exchange = await client.exchange()
        exchange.head()
        exchange.text("hello")
        exchange.body(FINISH)
        reply = await waiting
        exchange.end()
        await reply.finished()
        assert reply.observation is not None

    run_virtual(main())
    assert [each.outcome for each in observed] == ["ok"]
    assert error_counts == {"observer": 1}


def test_a_record_reaches_all_sinks_though_one_raises(error_counts: dict[str, int]) -> None:
    records: list[CallRecord] = []
    tracker = CallTracker(Failing(), records.append, charge=Failing())
    call = Call(id="c", body={}, start_ns=0)
    open_call = tracker.open(call, "fast", Failing())
    call.notes.attempts = 1
    assert call.notes.observer is not None
    call.notes.observer(Observation(id="c.1", call="c", target="a/x"))
    tracker.close(open_call, 200)
    assert [each.route for each in records] == ["fast"]
    assert error_counts == {"observer": 3}  # the charge, the release, a sink


# The metric.


def test_errors_of_all_processes_are_counted(error_counts: dict[str, int]) -> None:
    supervisor = WorkerMetrics(None, MetricCounts(internal_errors={"reload": 2}))
    internal_errors.counts["task"] = 1
    found = samples(exposed(Metrics(), [supervisor]))
    assert value(found, "internal_errors_total", where="reload") == 2
    assert value(found, "internal_errors_total", where="task") == 1
    assert value(found, "process_cpu_seconds_total", pid="1") is None
