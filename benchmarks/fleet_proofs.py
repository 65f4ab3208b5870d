"""Proofs about a fleet of gateways, on loopback, with a real PostgreSQL server. `benchmarks.fleet
--show` runs them.

probes: A target is down for two minutes, and each request to it takes 2.5 s to fail. Three gateways
with two workers each have clients all the time. Once all circuit breakers are open, at most one
request to the target is in flight at any time. Then the database is killed for a minute: at most
one for each gateway. No client notices anything.

restart: Three gateways are drained and started anew, one after another, twice, while clients with
open connections stream answers of a second. A client takes the next gateway if a connection is
refused, or closed before any byte of a response. No call fails, no answer breaks off, and each call
is in the log once.

throughput: CPU time for each request of one gateway, by process, at the rate that this machine
handles; and of the exchanges of 20 members. The arithmetic for 20 gateways with 500 requests/s each
follows from both.

log: The members of 20 gateways with 500 calls/s each write into one server (`fleet_log`).
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from msgspec import Struct
from tests.store.server import Server

from benchmarks import fleet_log
from benchmarks.fleet_cpu import children, own_s, seconds, tree_s
from splitsecond.core import clock
from splitsecond.gateway.fleet.learned import Opening, Speed, TargetReport, histogram
from splitsecond.gateway.fleet.member import FleetMember
from splitsecond.gateway.fleet.settings import FleetSettings, LimitedKey
from splitsecond.gateway.fleet.view import WorkerReport
from splitsecond.gateway.records.fleet_ceilings import FleetCeilings
from splitsecond.gateway.records.session_budgets import SessionCounters
from splitsecond.gateway.records.shared_counters import SharedCounters

GATEWAYS, WORKERS = 3, 2
PORT = 8850
START_S = 120.0
CLIENTS = 4
"""Of each gateway."""
PAUSE_S = 0.2
FAIL_S = 2.5
OUTAGE_S, SETTLE_S, AWAY_S = 120.0, 45.0, 60.0
ALONE_S = 20.0
"""Time after which a gateway has noticed that the database is away, and turns that it gave before
are over."""
STREAM_S = 1.0
FLEET = 20
RATE = 500
TARGETS = 20
LOAD_S, CONNECTIONS = 20.0, 16
EXCHANGES_S = 20.0
BODY = json.dumps(
    {"model": "fast", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}
).encode()
STREAMED = BODY.replace(b"{", b'{"stream": true, ', 1)
CHUNK = b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m",\
"choices":[{"index":0,"delta":\
{"content":"word "},"finish_reason":null}]}\n\n'
LAST = b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m",\
"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n\
data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[],\
"usage":{"prompt_tokens":1,"completion_tokens":4,"total_tokens":5}}\n\ndata: [DONE]\n\n'
WHOLE = b'{"id":"x","object":"chat.completion","created":1,"model":"m",\
"choices":[{"index":0,"message":{"role":"assistant","content":"word word"},\
"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}}'


class ProviderRequest(Struct):
    """A request to the provider, from its arrival to its answer."""

    begin_ns: int
    end_ns: int


class Provider:
    """A provider that answers in four tokens over `stream_s`, or fails after `FAIL_S` while it is
    `down`."""

    def __init__(self, stream_s: float = 0.02) -> None:
        self.down = False
        self.failed: list[ProviderRequest] = []
        self.answered = 0
        self._stream_s = stream_s

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serve while the context is open. Gives the base URL."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=1000)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Cancelled at the end: asyncio 3.11 would print a traceback.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = int(head.partition("content-length: ")[2].partition("\r")[0])
                await self._answer(writer, await reader.readexactly(length))
                await writer.drain()
        writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        if self.down:
            asked = ProviderRequest(clock.now_ns(), 0)
            self.failed.append(asked)
            await asyncio.sleep(FAIL_S)
            asked.end_ns = clock.now_ns()
            writer.write(
                b"HTTP/1.1 500 Down\r\ncontent-type: application/json\r\ncontent-length: "
                b"2\r\n\r\n{}"
            )
            return
        self.answered += 1
        if b'"stream":true' not in body.replace(b" ", b""):
            head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            writer.write((head % len(WHOLE)).encode() + WHOLE)
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: "
            b"chunked\r\n\r\n"
        )
        for piece in (CHUNK, CHUNK, CHUNK, CHUNK + LAST):
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await asyncio.sleep(self._stream_s / 3 if piece is CHUNK else 0)
        writer.write(b"0\r\n\r\n")


class Broken(Exception):
    """An answer that did not end well, or an error of the gateway."""


class Client:
    """A client with a list of gateways. It keeps its connection, and connects to the next gateway
    when that is lost."""

    def __init__(self, ports: list[int], body: bytes) -> None:
        self._ports, self._body = ports, body
        self._place = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.retried = 0
        self.calls: list[str] = []

    async def call(self) -> None:
        """Make one call. Raises `Broken`."""
        for _ in range(3 * len(self._ports)):
            try:
                reader, writer = await self._connected()
                writer.write(_request(self._body))
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            except (OSError, asyncio.IncompleteReadError) as error:
                if isinstance(error, asyncio.IncompleteReadError) and error.partial:
                    raise Broken(
                        f"the head of a response was truncated: {error.partial!r}"
                    ) from None
                self.retried += 1
                self.close()
                self._place += 1
                await asyncio.sleep(0.05)
                continue
            await self._read(reader, head)
            return
        raise Broken("no gateway takes a connection")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            port = self._ports[self._place % len(self._ports)]
            self._streams = await asyncio.open_connection("127.0.0.1", port)
        return self._streams

    async def _read(self, reader: asyncio.StreamReader, head: str) -> None:
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        try:
            if "content-length" in fields:
                body = await reader.readexactly(int(fields["content-length"]))
            else:
                body = await reader.readuntil(b"0\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Broken(f"an answer was truncated: {error}") from None
        if head.split()[1] != "200" or (b"chunked" in head.encode() and b"[DONE]" not in body):
            raise Broken(f"{head.splitlines()[0]}: {body[-300:]!r}")
        self.calls.append(fields["x-request-id"])
        if fields.get("connection") == "close":
            self.close()


def _request(body: bytes) -> bytes:
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
    )
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Machine:
    """Gateways as processes, each with a folder below `folder`."""

    def __init__(
        self, folder: Path, url: str, policy: str, providers: dict[str, str], workers: int = WORKERS
    ) -> None:
        self._folder, self._url = folder, url
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        named = "\n".join(
            f"  {name}: {{base_url: '{address}'}}" for name, address in providers.items()
        )
        self._configuration = (
            f"listen: {{workers: {workers}, port: PORT}}\nshared: env:SHARED_URL\nlog: "
            f"env:SHARED_URL\n"
            f"providers:\n{named}\nroutes: {{fast: {{policy: '{policy}'}}}}\n"
        )

    def start(self, number: int) -> None:
        folder = self._folder / f"g{number}"
        folder.mkdir(exist_ok=True)
        (folder / "splitsecond.yaml").write_text(
            self._configuration.replace("PORT", str(PORT + number))
        )
        with (folder / "output").open("ab") as output:
            self.processes[number] = subprocess.Popen(
                [sys.executable, "-m", "splitsecond.cli", "serve"],
                cwd=folder,
                env=os.environ | {"SHARED_URL": self._url},
                stdout=output,
                stderr=output,
            )

    async def ready(self, number: int) -> None:
        """Wait until gateway `number` takes connections. Raises `Broken` after `START_S`."""
        give_up_ns = clock.now_ns() + round(START_S * clock.NS_PER_S)
        while clock.now_ns() < give_up_ns and self.processes[number].poll() is None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", PORT + number)
                writer.close()
                return
            await asyncio.sleep(0.2)
        raise Broken(f"gateway {number} does not start:\n{self.output(number)}")

    async def drain(self, number: int) -> int:
        """Let a gateway end in order. Return its exit code."""
        self.processes[number].terminate()
        return await asyncio.to_thread(self.processes[number].wait)

    def output(self, number: int) -> str:
        return (self._folder / f"g{number}" / "output").read_text()


@contextlib.asynccontextmanager
async def running(machine: Machine, number: int = GATEWAYS) -> AsyncIterator[list[str]]:
    """Run gateways. The list that it gives takes what was wrong at their end."""
    wrong: list[str] = []
    try:
        for each in range(number):
            machine.start(each)
        for each in range(number):
            await machine.ready(each)
        yield wrong
        wrong += [
            f"gateway {each} ended with {code}"
            for each in machine.processes
            if (code := await machine.drain(each))
        ]
        wrong += [
            text for each in machine.processes if "Traceback" in (text := machine.output(each))
        ]
    finally:
        for process in machine.processes.values():
            process.kill()


async def probes(folder: Path, server: Server) -> list[str]:
    """Count the requests to a target that is down. Return what was wrong."""
    main, backup = Provider(), Provider()
    async with main.serving() as main_url, backup.serving() as backup_url:
        policy = 'fallback("main/m", "backup/m")'
        machine = Machine(
            folder, server.database(), policy, {"main": main_url, "backup": backup_url}
        )
        async with running(machine) as wrong:
            clients = [
                Client([PORT + each], BODY) for each in range(GATEWAYS) for _ in range(CLIENTS)
            ]
            tasks = [asyncio.create_task(_repeat(each, wrong)) for each in clients]
            await asyncio.sleep(5)
            main.down, down_ns = True, clock.now_ns()
            await asyncio.sleep(SETTLE_S)
            open_ns = clock.now_ns()
            await asyncio.sleep(OUTAGE_S)
            killed_ns = clock.now_ns()
            server.stop()
            await asyncio.sleep(ALONE_S)
            alone_ns = clock.now_ns()
            await asyncio.sleep(AWAY_S)
            server.start()
            back_ns, before = clock.now_ns(), main.answered
            main.down = False
            give_up_ns = back_ns + START_S * clock.NS_PER_S
            while main.answered < before + 50 and clock.now_ns() < give_up_ns:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            returned_s = (clock.now_ns() - back_ns) / clock.NS_PER_S
            await _end(tasks, clients)
    opening = [each for each in main.failed if down_ns <= each.begin_ns < open_ns]
    shared = [each for each in main.failed if open_ns <= each.begin_ns < killed_ns]
    alone = [each for each in main.failed if alone_ns <= each.begin_ns < back_ns]
    print(
        f"{sum(len(each.calls) for each in clients):,} calls by {GATEWAYS} "
        f"gateways of {WORKERS} workers"
    )
    print(
        f"while circuit breakers opened ({SETTLE_S:g} s): {len(opening)} requests to the target "
        f"that is down"
    )
    print(f"then, for {OUTAGE_S:g} s: {len(shared)} probes, at most {most_at_once(shared)} at once")
    print(
        f"database killed, from the {ALONE_S:g}th second on: {len(alone)} probes in {AWAY_S:g} s, "
        f"at most ",
        end="",
    )
    print(f"{most_at_once(alone)} at once")
    print(f"the target served 50 answers within {returned_s:.0f} s of its return")
    if not shared or not alone:
        wrong.append("there were no probes")
    if most_at_once(shared) > 1:
        wrong.append(f"{most_at_once(shared)} probes at once")
    if most_at_once(alone) > GATEWAYS:
        wrong.append(f"{most_at_once(alone)} probes at once while the database was away")
    return wrong


def most_at_once(asked: list[ProviderRequest]) -> int:
    """Return how many requests were in flight at once at most."""
    changes = sorted(
        [(each.begin_ns, 1) for each in asked] + [(each.end_ns or 1 << 62, -1) for each in asked]
    )
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


async def _repeat(client: Client, wrong: list[str], pause_s: float = PAUSE_S) -> None:
    while True:
        try:
            await client.call()
        except Broken as error:
            wrong.append(str(error))
            client.close()
        await asyncio.sleep(pause_s)


async def _end(tasks: list["asyncio.Task[None]"], clients: list[Client]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for client in clients:
        client.close()


async def restart(folder: Path, server: Server) -> list[str]:
    """Restart all gateways, one after another, under load. Return what was wrong."""
    provider, url = Provider(STREAM_S), server.database()
    async with provider.serving() as address:
        machine = Machine(folder, url, '"main/m"', {"main": address})
        async with running(machine) as wrong:
            ports = [PORT + each for each in range(GATEWAYS)]
            clients = [
                Client(ports[place:] + ports[:place], STREAMED)
                for place in range(GATEWAYS)
                for _ in range(20)
            ]
            tasks = [asyncio.create_task(_repeat(each, wrong, 0.01)) for each in clients]
            await asyncio.sleep(5)
            for turn in range(2 * GATEWAYS):
                begin_ns = clock.now_ns()
                if code := await machine.drain(turn % GATEWAYS):
                    wrong.append(f"gateway {turn % GATEWAYS} ended with {code}")
                ended_ns = clock.now_ns()
                machine.start(turn % GATEWAYS)
                await machine.ready(turn % GATEWAYS)
                seconds = [
                    (later - begin_ns) / clock.NS_PER_S for later in (ended_ns, clock.now_ns())
                ]
                calls = sum(len(each.calls) for each in clients)
                print(
                    f"  drained in {seconds[0]:.1f} s, ready again after {seconds[1]:.1f} s; "
                    f"{calls:,} calls",
                    flush=True,
                )
                await asyncio.sleep(2)
            await _end(tasks, clients)
    logged = Counter(str(call) for (call,) in server.execute(url, "SELECT call FROM calls"))
    answered = [call for each in clients for call in each.calls]
    missing = [call for call in answered if logged[call] != 1]
    print(
        f"{len(answered):,} calls, {sum(each.retried for each in clients)} connections taken "
        f"anew, {len(wrong)} lost;",
        end="",
    )
    print(f" {len(missing)} not in the log, or more than once")
    return [*wrong, *([f"{len(missing)} calls are not once in the log"] if missing else [])]


async def throughput(folder: Path, server: Server) -> list[str]:
    """Measure the CPU time of a request and of an exchange, and say what 20 gateways need. Return
    what was wrong."""
    provider = Provider(0.0)
    async with provider.serving() as address:
        machine = Machine(folder, server.database(), '"main/m"', {"main": address}, workers=1)
        async with running(machine, 1) as wrong:
            clients = [Client([PORT], BODY) for _ in range(CONNECTIONS)]
            tasks = [asyncio.create_task(_repeat(each, wrong, 0)) for each in clients]
            await asyncio.sleep(3)
            before, calls = (
                _cpu_s(machine.processes[0].pid, server),
                sum(len(each.calls) for each in clients),
            )
            begin_ns = clock.now_ns()
            await asyncio.sleep(LOAD_S)
            seconds = (clock.now_ns() - begin_ns) / clock.NS_PER_S
            after, calls = (
                _cpu_s(machine.processes[0].pid, server),
                sum(len(each.calls) for each in clients) - calls,
            )
            await _end(tasks, clients)
    print(
        f"one gateway with one worker and the log: {calls / seconds:,.0f} requests/s on "
        f"{os.cpu_count()} cores,"
    )
    print("  which the clients and the provider of this program share with it")
    each_s = {role: (after[role] - before.get(role, 0.0)) / calls for role in after}
    for role, cpu_s in each_s.items():
        print(f"  {role:13} {cpu_s * 1e6:6.0f} µs of CPU time for each request")
    exchange_s, database_s, report_bytes = await _exchanges(folder, server)
    print(
        f"  with {TARGETS} targets and keys each: {exchange_s * 1e3:.1f} ms of CPU time for an "
        f"exchange, once a second,"
    )
    print(f"  {database_s * 1e3:.1f} ms of the database; a report has {report_bytes:,} bytes")
    total = RATE * FLEET
    gateways = total * (each_s["worker"] + each_s["hub"]) + FLEET * exchange_s
    database = total * each_s["database"] + FLEET * database_s
    print(
        f"{FLEET} gateways × {RATE} requests/s = {total:,} requests/s, {total * 86_400:,} rows of "
        f"calls a day:"
    )
    print(
        f"  {gateways:.1f} cores of gateways ({gateways / FLEET:.2f} each) and {database:.1f} "
        f"cores of the database"
    )
    print(
        f"  one worker handles {1 / each_s['worker']:,.0f} requests/s at most; one core of the "
        f"database ",
        end="",
    )
    print(f"{1 / each_s['database']:,.0f} rows/s")
    return wrong


async def _exchanges(folder: Path, server: Server) -> tuple[float, float, int]:
    """Run the members of 20 gateways in this process. Return the CPU time of an exchange in them
    and in the database, and the bytes of a report."""
    times = histogram((1.2**each * 1e6, False, 1.0) for each in range(40))
    speed = Speed(times, times, tokens=100.0, answers=40.0)
    report = TargetReport(
        good_s=0.1, speed=speed, opening=Opening(1.0, 5.0, "5 failures in a row"), wants=True
    )
    targets, url, processes = (
        {f"provider/{each}": report for each in range(TARGETS)},
        server.database(),
        [],
    )
    keys = tuple(LimitedKey(f"key {each}", 6000) for each in range(TARGETS))
    for number in range(FLEET):
        settings = FleetSettings(
            url=url,
            gateway=f"g{number}",
            instance=f"{number}",
            counters=SharedCounters.create(2),
            ceilings=FleetCeilings.create(2),
            budgets=SessionCounters.create(2),
            workers=2,
            keys=keys,
        )
        processes.append(FleetMember(settings, print))
    ending = asyncio.Event()
    tasks = [asyncio.create_task(process.run(ending)) for process in processes]

    async def workers() -> None:
        while True:
            for each in processes:
                each.learning.reports[0] = WorkerReport(clock.now_ns(), targets)
            await asyncio.sleep(1)

    writing = asyncio.create_task(workers())
    await asyncio.sleep(5)
    written = (
        "SELECT coalesce(sum(n_tup_ins + n_tup_upd), 0) FROM pg_stat_user_tables WHERE "
        "relname LIKE '%_learned'"
    )
    before, before_s, ((first,),) = tree_s(server.pid), own_s(), server.execute(url, written)
    await asyncio.sleep(EXCHANGES_S)
    exchange_s, database_s, ((last,),) = (
        own_s() - before_s,
        tree_s(server.pid) - before,
        server.execute(url, written),
    )
    exchanges = max(int(str(last)) - int(str(first)), 1)
    print(
        f"{exchanges:,} of {FLEET * EXCHANGES_S:g} exchanges of {FLEET} "
        f"members, all in this process"
    )
    ((length,),) = server.execute(url, "SELECT max(octet_length(learned)) FROM splitsecond_learned")
    writing.cancel()
    ending.set()
    await asyncio.wait(tasks)
    for each in tasks:
        each.result()
    return exchange_s / exchanges, database_s / exchanges, int(str(length))


def _cpu_s(gateway: int, server: Server) -> dict[str, float]:
    """Return the CPU time of the processes of a gateway, and of the database, by their role."""
    found = {"supervisor": seconds(gateway), "database": tree_s(server.pid)}
    roles = {"splitsecond.gateway": "worker", "gateway.hub": "hub"}
    for pid in children(gateway):
        command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
        role = next(
            roles[word] for word in ("gateway.hub", "splitsecond.gateway") if word in command
        )
        found[role] = found.get(role, 0.0) + seconds(pid)
    return found


PROOFS: dict[str, Callable[[Path, Server], Coroutine[Any, Any, list[str]]]] = {
    "probes": probes,
    "restart": restart,
    "throughput": throughput,
    "log": fleet_log.log,
}
