"""Load from the nodes of a Ray cluster: messages about faulty nodes, and three nodes on this
machine."""

import asyncio
import os
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from benchmarks.ray_bench import ray_cluster
from msgspec.structs import replace
from tests.cases import each_case
from tests.ports import free_ports
from tests.processes import Process

from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.runs import ray_nodes
from splitsecond.benchmark.runs.ray_nodes import RayNode, RayPipe, check_nodes, description
from splitsecond.benchmark.runs.settings import BenchSettings
from splitsecond.core.errors import CallerFault
from splitsecond.log.store.folder import read_observations, read_readings, read_run
from splitsecond.simulator.process import RunningProvider

LONGEST_S = 180
"""Ray takes about half a minute to start on a busy machine with two cores."""

# Without a cluster.


@pytest.mark.parametrize("on", ["ray", "ray:auto", "ray://head:10001", "ray://10.0.0.7:10001"])
def test_addresses_of_clusters(on: str) -> None:
    BenchSettings(on=on).check()


@each_case(
    "on", ["head", "ray://head", "ray://head:port", "http://head:10001", "ray://head:1/x", "ray:"]
)
def test_invalid_cluster_address_is_refused(on: str) -> None:
    with pytest.raises(CallerFault, match="expected ray://HOST:10001, or ray for the cluster"):
        BenchSettings(on=on).check()


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    async def connect() -> None:
        async with ray_nodes.ray_nodes("ray"):
            pass

    with pytest.raises(CallerFault) as caught:
        asyncio.run(connect())
    assert caught.value.hint == "pip install 'splitsecond[ray]'"


def node(**changes: Any) -> RayNode:
    return RayNode("4b3bdac9", None, replace(description(), **changes))


def test_a_node_with_another_version_is_refused() -> None:
    with pytest.raises(
        CallerFault, match=r"node 4b3bdac9 has splitsecond 0\.0\.1, this machine has"
    ):
        check_nodes([node(), node(version="0.0.1")], False, [])


def test_node_without_a_requested_packet_clock_is_refused() -> None:
    without = [node(packet_clock="not allowed")]
    check_nodes(without, False, [])
    with pytest.raises(CallerFault, match="not available on node 4b3bdac9: not allowed"):
        check_nodes(without, True, [])


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/v1", "http://localhost:9/v1", "http://[::1]:9/v1"]
)
def test_local_target_is_refused_with_a_remote_node(url: str) -> None:
    check_nodes([node()], False, [url])
    check_nodes([node(machine="another")], False, ["http://10.0.0.7:8000/v1"])
    with pytest.raises(
        CallerFault, match="is an address of this machine, which node 4b3bdac9 cannot reach"
    ):
        check_nodes([node(machine="another")], False, ["http://10.0.0.7:8000/v1", url])


class FakeRelay:
    """A relay that answers `read` with `answers`, one after the other."""

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)

    def __getattr__(self, name: str) -> Any:
        class Method:
            remote = staticmethod(lambda *arguments: self.answer(name))

        return Method

    async def answer(self, name: str) -> object:
        if name != "read":
            return 1 if name == "start" else None
        answer = self.answers.pop(0) if self.answers else b""
        if isinstance(answer, Exception):
            raise answer
        return zlib.compress(answer) if answer else b""


def lines_of(*answers: bytes | Exception) -> tuple[list[bytes], str]:
    """Return the lines that a pipe gives, and how it says that it ended."""

    async def read() -> tuple[list[bytes], str]:
        pipe = RayPipe(FakeRelay(*answers), "4b3bdac9")
        await pipe.start([])
        lines = []
        while (line := await pipe.read_line()) is not None:
            lines.append(line)
        assert await pipe.read_line() is None
        ending = await pipe.ending()
        await pipe.stop()
        return lines, ending

    return asyncio.run(read())


def test_lines_are_joined_from_any_parts_of_the_relay() -> None:
    pytest.importorskip("ray")
    assert lines_of(b"one\ntw", b"o", b"\n", b"three\nfour\nhalf") == (
        [b"one", b"two", b"three", b"four"],
        "on node 4b3bdac9: ",
    )


def test_a_cancelled_reader_loses_no_line() -> None:
    """When a run is cancelled, its workers are asked to stop, and their last reports are read."""
    pytest.importorskip("ray")

    class SlowRelay(FakeRelay):
        async def answer(self, name: str) -> object:
            if name == "read":
                await waited.wait()
            return await super().answer(name)

    async def read() -> list[bytes | None]:
        pipe = RayPipe(SlowRelay(b"one\n", b"two\n"), "4b3bdac9")
        await pipe.start([])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pipe.read_line(), 0)
        waited.set()
        lines = [await pipe.read_line() for _ in range(3)]
        await pipe.stop()
        return lines

    waited = asyncio.Event()
    assert asyncio.run(read()) == [b"one", b"two", None]


def test_a_lost_node_is_the_end_of_its_lines() -> None:
    exceptions = pytest.importorskip("ray.exceptions")
    lines, ending = lines_of(b"one\ntw", exceptions.ActorUnavailableError("gone", b"0" * 16))
    assert lines == [b"one"]
    assert ending.startswith("on node 4b3bdac9: lost the node: ")


class FakeRay:
    """A fake of Ray's client. `endings` says for each connection whether it is kept or raises an
    exception."""

    util = SimpleNamespace(
        placement_group_table=lambda group: {"bundles_to_node_id": {0: "4b3bdac9" * 2}}
    )

    def __init__(self, *endings: Exception | None) -> None:
        self.endings = list(endings)
        self.connections = 0
        self.connected = False

    def is_initialized(self) -> bool:
        return self.connected

    def init(self, address: str, **options: object) -> None:
        assert not self.connected
        self.connected = True
        self.connections += 1

    def shutdown(self) -> None:
        self.connected = False

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 1.0}}]

    def remote(self, actor: type) -> Any:
        relay = SimpleNamespace(describe=SimpleNamespace(remote=lambda: None))
        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=lambda: relay))

    def get(self, of: object, timeout: float) -> object:
        if of == "group":
            return None
        ending = self.endings.pop(0)
        if ending is not None:
            raise ending
        return [msgspec.json.encode(description())]


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeRay]:
    """Put a `FakeRay` with these endings in the place of Ray."""
    groups = pytest.importorskip("ray.util.placement_group")
    monkeypatch.setattr(
        groups, "placement_group", lambda *a, **options: SimpleNamespace(ready=lambda: "group")
    )
    monkeypatch.setattr(groups, "remove_placement_group", lambda group: None)

    def made(*endings: Exception | None) -> FakeRay:
        ray = FakeRay(*endings)
        monkeypatch.setattr(ray_nodes, "_ray", lambda: ray)
        return ray

    return made


async def names_of_nodes() -> list[str]:
    async with ray_nodes.ray_nodes("ray://head:10001") as nodes:
        return [each.name for each in nodes]


def lost_connections() -> list[Exception]:
    """Return what Ray raises when a connection ends while relays start."""
    exceptions = pytest.importorskip("ray.exceptions")
    return [exceptions.ActorDiedError(), ConnectionError("the data client has disconnected.")]


def test_connection_lost_before_relays_run_is_retried(fake_ray: Callable[..., FakeRay]) -> None:
    ray = fake_ray(*lost_connections(), None)
    assert asyncio.run(names_of_nodes()) == ["4b3bdac9"]
    assert (ray.connections, ray.connected) == (3, False)


def test_connection_retries_are_bounded(fake_ray: Callable[..., FakeRay]) -> None:
    ray = fake_ray(*lost_connections() * 2)
    with pytest.raises(
        CallerFault, match="no connection to the Ray cluster at ray://head:10001: The actor died"
    ):
        asyncio.run(names_of_nodes())
    assert (ray.connections, ray.connected) == (ray_nodes.CONNECTIONS, False)


def test_connection_of_the_caller_is_not_retried(fake_ray: Callable[..., FakeRay]) -> None:
    ray = fake_ray(*lost_connections())
    ray.connected = True
    with pytest.raises(CallerFault, match="no connection to the Ray cluster"):
        asyncio.run(names_of_nodes())
    assert (ray.connections, ray.connected) == (0, True)


def test_node_without_splitsecond_is_reported_without_retry(
    fake_ray: Callable[..., FakeRay],
) -> None:
    exceptions = pytest.importorskip("ray.exceptions")
    ray = fake_ray(
        exceptions.RayActorError(error_msg="No module named 'splitsecond'", actor_init_failed=True)
    )
    with pytest.raises(
        CallerFault, match="a node of the Ray cluster cannot run splitsecond: No module named"
    ):
        asyncio.run(names_of_nodes())
    assert (ray.connections, ray.connected) == (1, False)


# With a cluster of three nodes.

ENVIRONMENT = os.environ | {
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
}


@pytest.fixture(scope="module")
def cluster(system: None) -> Iterator[str]:
    """The address of a cluster of three nodes."""
    pytest.importorskip("ray")
    with ray_cluster() as address:
        yield address


def bench(cluster: str, simulated: RunningProvider, out: Path, *more: str) -> Process[str]:
    """Start a benchmark over the cluster."""
    command = [
        sys.executable,
        "-m",
        "splitsecond.cli",
        "bench",
        "--base-url",
        simulated.base_url,
        "--model",
        "quick",
    ]
    command += ["--on", cluster, "--out", str(out), "--name", "quick", "--no-html", *more]
    return Process[str](
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


@pytest.mark.xdist_group("ray")
def test_three_nodes_send_the_load_of_one(
    cluster: str, simulated: RunningProvider, tmp_path: Path
) -> None:
    with bench(
        cluster, simulated, tmp_path, "-c", "6", "--rate", "30", "-n", "60",
        "--output-tokens", "16", "--verbose",
    ) as process:  # fmt: skip
        out, err = process.communicate(timeout=LONGEST_S)
        assert process.returncode == 0, out + err
    run = read_run(tmp_path, Run)
    closed, open_loop = (row.requests for row in run.conditions)
    # a round of an open loop measures at least 20 response times
    assert (closed, open_loop >= 60) == (60, True)
    assert "3 nodes sent the requests" in " ".join(out.split())
    observations = read_observations(tmp_path)
    for row in run.conditions:
        assert [part.requests for part in row.nodes] == [
            sum(
                o.node == part.node
                for o in observations
                if (o.condition, o.role) == (row.condition, "measured")
            )
            for part in row.nodes
        ]
        assert sum(part.requests for part in row.nodes) == row.requests
        assert len(row.nodes) == 3
        for part in row.nodes:
            assert part.instrument.lag_p99_ms is not None
            # All nodes are this machine, so the difference of the clocks is 0.
            assert part.clock_error_ms is not None
            assert abs(part.clock_offset_ms or 0) <= part.clock_error_ms
    assert [row["name"] for row in run.environment["nodes"]] == [
        part.node for part in sorted_parts(run)
    ]


def sorted_parts(run: Run) -> Sequence[Any]:
    names = [row["name"] for row in run.environment["nodes"]]
    return sorted(run.conditions[0].nodes, key=lambda part: names.index(part.node))


@pytest.mark.xdist_group("ray")
def test_lost_node_is_reported_and_the_others_continue(
    cluster: str, simulated: RunningProvider, tmp_path: Path
) -> None:
    # The four rounds after the first take ten seconds: a busy machine has that much time to end the
    # node in them.
    load = ("-c", "6", "-n", "300", "--rounds", "5", "--output-tokens", "100")
    with bench(cluster, simulated, tmp_path, *load) as process:
        until(lambda: len(_readings(tmp_path)) >= 3, process)
        victim = _readings(tmp_path)[0]
        os.kill(_parent(victim.pid), 9)  # the relay; its worker ends with it
        out, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 1, out + err
    run = read_run(tmp_path, Run)
    assert not run.finished
    (row,) = run.conditions
    (lost,) = [part for part in row.nodes if part.invalid]
    assert (lost.node, lost.requests >= 20) == (victim.node, True)
    assert "What it had finished is kept." in lost.invalid[0]
    by_round = Counter(o.round for o in read_observations(tmp_path) if o.role == "measured")
    assert by_round[5] == 60
    until(lambda: not Path(f"/proc/{victim.pid}").exists())


def test_unreachable_cluster_is_reported(
    simulated: RunningProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    for name in ("INITIAL", "MAX"):  # of three attempts
        monkeypatch.setitem(ENVIRONMENT, f"RAY_CLIENT_{name}_CONNECTION_TIMEOUT_S", "1")
    (port,) = free_ports(1)
    with bench(
        f"ray://127.0.0.1:{port}", simulated, tmp_path / "run", "-c", "1", "-n", "5"
    ) as process:
        out, err = process.communicate(timeout=LONGEST_S)
    assert process.returncode == 2
    assert f"no connection to the Ray cluster at ray://127.0.0.1:{port}" in " ".join(err.split())
    assert "Traceback" not in out + err


def until(holds: Callable[[], bool], process: Process[str] | None = None) -> None:
    """Wait until it holds, at most `LONGEST_S`, or as long as the process runs."""
    end = time.monotonic() + LONGEST_S
    while not holds():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.1)


def _readings(folder: Path) -> list[Any]:
    return read_readings(folder) if (folder / "readings.jsonl").exists() else []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
