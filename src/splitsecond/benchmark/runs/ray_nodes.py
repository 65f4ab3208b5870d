"""The nodes of a Ray cluster, for load from several machines. Needs the extra ``splitsecond[ray]``.

One actor on each node, placed by a placement group (STRICT_SPREAD), starts worker processes and
relays the bytes of their standard streams. It keeps what a worker reports until it is asked for, so
many reports travel in one answer. If the actor or this process dies, Ray ends the actor, and the
closed pipe its workers. Everything of Ray that blocks runs in threads. Ray is imported when
`ray_nodes` is entered.
"""

import asyncio
import ipaddress
import itertools
import logging
import platform
import warnings
import zlib
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from splitsecond import __version__
from splitsecond.benchmark.load.worker_pool import WorkerLost
from splitsecond.benchmark.runs.environment import environment
from splitsecond.benchmark.runs.targets import in_thread
from splitsecond.core.child_process import ChildProcess
from splitsecond.core.errors import CallerFault
from splitsecond.core.loading import module_command
from splitsecond.core.transport.packets import packet_clock_refusal

PLACED_S = 60
CONNECTIONS = 3
"""Most attempts to connect and to start the relays. A busy head may be too slow to start a server
for us in the half minute that Ray allows, or close the connection later; all actors of the
connection end with it."""
SLOW_HEAD = "Initialization failure from server"
MAX_BYTES = 1 << 22
FASTEST = 1
"""Level of zlib: a relay takes processor time from the machine that measures."""
MODULE = "splitsecond.benchmark.load.worker"
BOOT = Path("/proc/sys/kernel/random/boot_id")


class NodeDescription(msgspec.Struct, frozen=True, kw_only=True):
    """A node's description of itself. `machine` is the same for two nodes of one machine.

    `packet_clock`: why it is not available there; "": it is.
    """

    version: str
    python: str
    machine: str
    packet_clock: str
    environment: dict[str, object]


class Relay:
    """The actor of a node: it starts worker processes and relays the bytes of their standard
    streams."""

    def __init__(self) -> None:
        self._pipes: dict[int, ChildProcess] = {}
        self._numbers = itertools.count(1)

    async def describe(self) -> bytes:
        return msgspec.json.encode(description())

    async def start(self, arguments: Sequence[str]) -> int:
        number = next(self._numbers)
        self._pipes[number] = await ChildProcess.start(
            *module_command(MODULE), *arguments, longest_line=MAX_BYTES
        )
        return number

    async def write(self, number: int, data: bytes) -> None:
        await self._pipes[number].write(zlib.decompress(data))

    async def read(self, number: int) -> bytes:
        """Return the compressed output of a worker since the last call, b"" at its end. Waits for
        some."""
        data = await self._pipes[number].read(MAX_BYTES)
        return zlib.compress(data, FASTEST) if data else b""

    async def ending(self, number: int) -> str:
        return await self._pipes[number].ending()

    async def stop(self, number: int) -> None:
        await self._pipes[number].stop()


def description() -> NodeDescription:
    return NodeDescription(
        version=__version__,
        python=platform.python_version(),
        machine=_machine(),
        packet_clock=packet_clock_refusal(),
        environment=environment(),
    )


def _machine() -> str:
    try:
        return BOOT.read_text("ascii").strip()
    except OSError:  # only Linux has this file
        return platform.node()


class RayNode:
    def __init__(self, name: str, relay: Any, described: NodeDescription) -> None:
        self.name = name
        self.described = described
        self._relay = relay

    async def start(self, arguments: Sequence[str]) -> "RayPipe":
        pipe = RayPipe(self._relay, self.name)
        await pipe.start(arguments)
        return pipe


class RayPipe:
    """The standard streams of a worker on a node. When the node is lost, they are at their end."""

    def __init__(self, relay: Any, node: str) -> None:
        self._relay = relay
        self._node = node
        self._number = 0
        self._reading: asyncio.Task[bytes] | None = None
        """The next call of `read`, which is made before its answer is needed: that halves the time
        of a round trip."""
        self._lines: deque[bytes] = deque()
        self._tail: list[bytes] = []
        self._lost = ""

    async def start(self, arguments: Sequence[str]) -> None:
        number = await self._call("start", list(arguments))
        if number is None:
            raise WorkerLost(
                f"worker {await self.ending()}",
                kind="worker_lost",
                phase="queue",
                hint="`ray list nodes` and the node's logs may show the cause.",
            )
        self._number = number
        self._read_ahead()

    async def write(self, data: bytes) -> None:
        """Send `data`. If the node is lost nothing is sent, and the next `read_line` returns at
        once."""
        await self._call("write", self._number, zlib.compress(data, FASTEST))

    async def read_line(self) -> bytes | None:
        while not self._lines:
            data = None if self._reading is None else await asyncio.shield(self._reading)
            if not data:
                self._reading = None
                return None
            self._read_ahead()
            first, *others = data.split(b"\n")
            self._tail.append(first)
            if others:
                self._lines.append(b"".join(self._tail))
                self._lines.extend(others[:-1])
                self._tail = [others[-1]]
        return self._lines.popleft()

    async def ending(self) -> str:
        how = None if self._lost else await self._call("ending", self._number)
        return f"on node {self._node}: {how or self._lost}"

    async def stop(self) -> None:
        if not self._lost:
            await self._call("stop", self._number)
        if self._reading is not None:
            await self._reading

    def _read_ahead(self) -> None:
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> bytes:
        packed = await self._answer("read", self._number)
        return await asyncio.to_thread(zlib.decompress, packed) if packed else b""

    async def _call(self, method: str, *arguments: object) -> Any:
        """Return what a method of the relay returns; None if the node is lost.

        Ray cannot cancel a call, so the call goes on when this is cancelled.
        """
        return await asyncio.shield(asyncio.create_task(self._answer(method, *arguments)))

    async def _answer(self, method: str, *arguments: object) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return await getattr(self._relay, method).remote(*arguments)
        except RayTaskError as error:
            self._lost = f"its relay failed: {_in_words(error)}"
        except (RayError, ConnectionError) as error:
            self._lost = f"lost the node: {_in_words(error)}"
        return None


@asynccontextmanager
async def ray_nodes(
    on: str, *, most: int | None = None, packets: bool = False, base_urls: Iterable[str] = ()
) -> AsyncIterator[list[RayNode]]:
    """Connect to the cluster `on` and yield at most `most` of its nodes that have a processor.

    With `packets`, every node must have the packet clock. Raises `CallerFault`, also for a node
    that cannot reach `base_urls`.
    """
    ray = _ray()
    owned = not ray.is_initialized()
    for left in reversed(range(CONNECTIONS)):
        placed = _Placed()
        try:
            try:
                if owned:
                    await in_thread(partial(_connect, ray, on))
                await in_thread(partial(_place, ray, most, placed))
            except _ConnectionLost as lost:
                if left and owned:
                    continue
                raise _no_cluster(on, str(lost)) from None
            check_nodes(placed.nodes, packets, base_urls)
            yield placed.nodes
            return
        finally:
            await in_thread(partial(_remove, ray, placed))
            if owned:
                await in_thread(ray.shutdown)


class _ConnectionLost(Exception):
    """The head did not keep the connection until every relay had started. Another connection may
    succeed."""


class _Placed(msgspec.Struct):
    group: Any = None
    nodes: list[RayNode] = []


def _ray() -> Any:
    try:
        import ray
        import ray.util.client
    except ImportError as error:
        raise CallerFault(
            f"load from other machines needs Ray: {error}",
            kind="no_extra",
            hint="pip install 'splitsecond[ray]'",
        ) from None
    return ray


def _connect(ray: Any, on: str) -> None:
    address = on if "://" in on else "auto"
    # it warns that it sets no signal handlers in a thread
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):  # the error says the same
            ray.init(address, logging_level="ERROR", log_to_driver=False, configure_logging=False)
    except (
        ConnectionError,
        RuntimeError,
        ValueError,
    ) as error:  # also of other versions of Ray or Python
        if SLOW_HEAD in str(error):
            raise _ConnectionLost(_in_words(error)) from None
        raise _no_cluster(on, _in_words(error)) from None


def _no_cluster(on: str, reason: str) -> CallerFault:
    return CallerFault(
        f"no connection to the Ray cluster at {on}: {reason}",
        kind="no_cluster",
        hint="Is its head running (`ray start --head`), with the same versions of Ray and Python "
        "as here?",
    )


def _place(ray: Any, most: int | None, placed: _Placed) -> None:
    try:
        _start_relays(ray, most, placed)
    except ConnectionError as error:
        raise _ConnectionLost(_in_words(error)) from None


def _start_relays(ray: Any, most: int | None, placed: _Placed) -> None:
    from ray.exceptions import GetTimeoutError, RayActorError, RayError
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    able = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    count = min(len(able), most or len(able))
    if not count:
        raise CallerFault(
            "no node of the Ray cluster has a processor", kind="no_nodes", hint="Add a node."
        )
    placed.group = group = placement_group([{"CPU": 1}] * count, strategy="STRICT_SPREAD")
    actor = ray.remote(Relay)
    try:
        ray.get(group.ready(), timeout=PLACED_S)
        strategies = [
            PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=i)
            for i in range(count)
        ]
        relays = [
            actor.options(num_cpus=1, scheduling_strategy=strategy).remote()
            for strategy in strategies
        ]
        described = ray.get([relay.describe.remote() for relay in relays], timeout=PLACED_S)
        places = ray.util.placement_group_table(group)["bundles_to_node_id"]
    except GetTimeoutError:
        raise CallerFault(
            f"not all of {count} nodes of the Ray cluster had a free processor within {PLACED_S} s",
            kind="no_nodes",
            hint="`ray status` shows what uses them; `--processes` limits the number of nodes.",
        ) from None
    except RayError as error:
        # it ended with the connection
        if isinstance(error, RayActorError) and not error.actor_init_failed:
            raise _ConnectionLost(_in_words(error)) from None
        raise CallerFault(
            f"a node of the Ray cluster cannot run splitsecond: {_in_words(error)}",
            kind="bad_node",
            hint=f"Install splitsecond {__version__} on every node.",
        ) from None
    placed.nodes = [
        RayNode(places[place][:8], relay, msgspec.json.decode(its, type=NodeDescription))
        for place, (relay, its) in enumerate(zip(relays, described, strict=True))
    ]


def check_nodes(nodes: Sequence[RayNode], packets: bool, base_urls: Iterable[str]) -> None:
    here = _machine()
    local = next((url for url in base_urls if _is_loopback(url)), "")
    for node in nodes:
        its = node.described
        if its.version != __version__:
            raise CallerFault(
                f"node {node.name} has splitsecond {its.version}, this machine has {__version__}",
                kind="bad_node",
                hint="Install the same version on every node.",
            )
        if packets and its.packet_clock:
            raise CallerFault(
                f"clock: the packet clock is not available on node {node.name}: {its.packet_clock}",
                kind="no_packet_clock",
                param="clock",
                hint="`splitsecond doctor`, run there, says how to allow it.",
            )
        if local and its.machine != here:
            raise CallerFault(
                f"{local} is an address of this machine, which node {node.name} cannot reach",
                kind="unreachable_target",
                hint="Name a server that every node can reach; sim/ and engine/ targets run on "
                "this machine only.",
            )


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    with suppress(ValueError):  # the host is a name, not an address
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def _remove(ray: Any, placed: _Placed) -> None:
    if placed.group is None:
        return
    from ray.exceptions import RayError
    from ray.util.placement_group import remove_placement_group

    with suppress(RayError, ConnectionError):
        remove_placement_group(placed.group)  # ends the actors in it


def _in_words(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return " ".join(dict.fromkeys((lines[0], lines[-1]))).rstrip(".")
