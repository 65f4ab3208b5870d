"""A fleet of gateways with faults: `python -m benchmarks.fleet` (as root, ten minutes; `--minutes
60` for an hour).

`--show probes`, `restart`, `throughput` and `log` run the other proofs (`fleet_proofs`), in one to
five minutes each.

Three gateways with two workers each run in network namespaces of their own and share a real
PostgreSQL server. Clients ask each of them for several times the limit of their key, all the time.
Meanwhile the server is killed, stopped and slow, gateways are cut off from it, killed and
restarted, in random order and for random times.

The exit code is 1 unless all of this is true:

  - in no minute of the database's clock do the gateways together admit more than the key's limit
  - over all minutes without a fault, they admit at least 90% of it
  - a key never spends more than its limit of US dollars and the last call of each worker
  - every admitted call is in the log, but for those of the last second before a gateway was killed

`--compressed` leaves a second or two between faults that last 12 seconds at most, so that six
minutes have as many faults as an hour. No minute is without a fault then, so the share of the limit
that is used is not checked.

Without the right to create network namespaces, `--plain` runs the gateways as plain processes; none
is cut off then.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from msgspec import Struct
from tests.store.server import Server

from benchmarks import fleet_proofs
from splitsecond.core import clock

GATEWAYS = 3
WORKERS = 2
LIMIT = 600
USD = 0.5
CALL_USD = 0.001
NETWORK = "10.77.0"
DATABASE = f"{NETWORK}.2"
PORT, DATABASE_PORT, PROVIDER_PORT = 8800, 5433, 9001
KEYS = {"web": "a-key-for-the-fleet-1", "budget": "a-key-for-the-fleet-2"}
CLIENTS = 4
PAUSE_S = 0.2
SLOW_S = 0.25
START_S = 180.0
CALM_S = 130.0
"""Time before the first fault, and after the last one."""
EXPECTED = ("200", "429")
ENDS = (0, -signal.SIGTERM)
"""How a gateway ends that gets SIGTERM; the second one if it has just been started."""
BORDER = 3
"""Requests that clients date into the minute before or after: they know only when the response
came."""
FAULTS = (
    "database killed",
    "database stopped",
    "database slow",
    "gateway cut off",
    "gateway killed",
    "gateway restarted",
)
DURATIONS_S = (2.0, 8.0, 20.0, 45.0, 200.0)
PAUSES_S = (0.5, 5.0, 15.0, 40.0)
COMPRESSED_DURATIONS_S = (0.5, 2.0, 5.0, 12.0)
COMPRESSED_PAUSES_S = (0.5, 1.0, 2.0)
COMPRESSED_CALM_S = 30.0
PROFILE = """
title = "Fleet"
model = "m"
source = "a benchmark"
measured = "2026-11"
output_tokens = 2
[[table]]
concurrency = 1
ttft_ms = { p50 = 5, p95 = 10 }
tps = { p50 = 1000, p95 = 900 }
"""
CONFIGURATION = f"""
listen: {{host: 0.0.0.0, port: PORT, workers: {WORKERS}}}
shared: DATABASE
log: DATABASE
keys:
- {{name: web, key: env:WEB, requests_per_minute: {LIMIT}}}
- {{name: budget, key: env:BUDGET, usd_per_day: {USD}}}
providers:
  local: {{base_url: "PROVIDER", price: {{input_usd: 0, output_usd: {CALL_USD / 2 * 1e6}}}}}
routes: {{fast: {{policy: '"local/m"'}}}}
"""


class Admitted(Struct, frozen=True):
    """A response to a client of gateway `gateway`, at a time of the wall clock."""

    at_s: float
    gateway: int
    key: str
    call: str


class Relay:
    """A TCP relay to the server's socket. It can delay what passes in each direction."""

    def __init__(self, socket: Path) -> None:
        self.delay_s = 0.0
        self._socket = socket

    async def serve(self, host: str) -> asyncio.Server:
        return await asyncio.start_server(self._accept, host, DATABASE_PORT)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_server = await asyncio.open_unix_connection(str(self._socket))
        except OSError:
            writer.close()
            return
        # at the end; asyncio 3.11 would print a traceback
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(self._pass(reader, to_server[1]), self._pass(to_server[0], writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        writer.close()


class Fleet:
    """The gateways' processes, and the faults."""

    def __init__(
        self, folder: Path, server: Server, relay: Relay, *, plain: bool, random: Random
    ) -> None:
        self._folder = folder
        self._server = server
        self._relay = relay
        self._plain = plain
        self._random = random
        self._database_down = False
        self.processes: list[subprocess.Popen[bytes]] = []
        self.killed: list[tuple[float, int]] = []
        self.wrong: list[str] = []
        """Gateways that ended by themselves, or with an error."""
        self._stopped: set[int] = set()
        """Gateways that a fault has ended, and will start again."""
        self.faulty: set[int] = set()
        """Minutes with a fault, or after one."""

    def address(self, number: int) -> tuple[str, int]:
        return ("127.0.0.1", PORT + number) if self._plain else (f"{NETWORK}.{10 + number}", PORT)

    def start(self, number: int) -> subprocess.Popen[bytes]:
        own_name = ["unshare", "--uts", "sh", "-c", f'hostname {name(number)} && exec "$@"', "sh"]
        before = [] if self._plain else ["ip", "netns", "exec", name(number), *own_name]
        folder = self._folder / str(number)
        with (folder / "output").open("ab") as output:
            return subprocess.Popen(
                [*before, sys.executable, "-m", "splitsecond.cli", "serve"],
                cwd=folder,
                env=os.environ
                | {"WEB": KEYS["web"], "BUDGET": KEYS["budget"], "TMPDIR": str(self._folder)},
                stdout=output,
                stderr=output,
            )

    async def keep_running(self) -> None:
        """Start gateways again that have ended by themselves, as a service manager does."""
        while True:
            for number, process in enumerate(self.processes):
                if number not in self._stopped and (code := process.poll()) is not None:
                    self.wrong.append(
                        f"{clock.wall_time():%X} gateway {number} ended by itself with {code}"
                    )
                    self.processes[number] = self.start(number)
            await asyncio.sleep(1)

    async def fault(self, kind: str, seconds: float) -> None:
        """Let one fault happen, and end it."""
        number = self._random.randrange(GATEWAYS)
        begin_s = wall_s()
        print(
            f"  {kind}{f' ({number})' if kind.startswith('gateway') else ''} for {seconds:g} s",
            flush=True,
        )
        match kind:
            case "database killed":
                self._server.stop()
                await asyncio.sleep(seconds)
                self._server.start()  # clients wait meanwhile: a second
            case "database stopped":
                self._server.signal(signal.SIGSTOP)
                await asyncio.sleep(seconds)
                self._server.signal(signal.SIGCONT)
            case "database slow":
                self._relay.delay_s = SLOW_S
                await asyncio.sleep(seconds)
                self._relay.delay_s = 0.0
            case "gateway cut off":
                route(number, "add")
                await asyncio.sleep(seconds)
                route(number, "del")
            case "gateway killed":
                self._stopped.add(number)
                self.processes[number].kill()
                self.killed.append((wall_s(), number))
                self.processes[number].wait()
                await asyncio.sleep(min(seconds, 20))
                self.processes[number] = self.start(number)
                self._stopped.discard(number)
            case _:
                self._stopped.add(number)
                self.processes[number].terminate()
                code = await asyncio.to_thread(self.processes[number].wait)
                if code not in ENDS:
                    self.wrong.append(
                        f"{clock.wall_time():%X} gateway {number} was "
                        f"restarted and ended with {code}"
                    )
                self.processes[number] = self.start(number)
                self._stopped.discard(number)
        print(f"    over after {wall_s() - begin_s:.1f} s", flush=True)
        self.faulty |= set(range(int(begin_s // 60), int((wall_s() + 150) // 60) + 1))


def wall_s() -> float:
    """Return the database's clock: this machine's."""
    return clock.wall_time().timestamp()


def name(number: int) -> str:
    return f"ssfleet{number}"


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


def route(number: int, change: str) -> None:
    """Cut gateway `number` off from the database, or connect it again. Clients still reach it."""
    ip("-n", name(number), "route", change, "blackhole", f"{DATABASE}/32")


@contextlib.contextmanager
def network() -> Iterator[None]:
    """A bridge with an address for the clients and one for the database, and a namespace for each
    gateway."""
    remove_network()  # of a run that was killed
    try:
        ip("link", "add", "ssfleet", "type", "bridge")
        for last in (1, 2):
            ip("address", "add", f"{NETWORK}.{last}/24", "dev", "ssfleet")
        ip("link", "set", "ssfleet", "up")
        for number in range(GATEWAYS):
            ip("netns", "add", name(number))
            ip(
                "link",
                "add",
                f"ssf{number}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name(number),
            )
            ip("link", "set", f"ssf{number}", "master", "ssfleet", "up")
            ip("-n", name(number), "address", "add", f"{NETWORK}.{10 + number}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name(number), "link", "set", device, "up")
        yield
    finally:
        remove_network()


def remove_network() -> None:
    """Remove what `network` has made, and end what still runs in it: a namespace lives as long as
    its processes."""
    for number in range(GATEWAYS):
        found = subprocess.run(
            ["ip", "netns", "pids", name(number)], check=False, capture_output=True, text=True
        )
        for pid in found.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        ip("link", "delete", f"ssf{number}", check=False)
        ip("netns", "delete", name(number), check=False)
    ip("link", "delete", "ssfleet", check=False)


async def client(
    fleet: Fleet,
    number: int,
    key: str,
    admitted: list[Admitted],
    statuses: Counter[str],
    unexpected: list[str],
) -> None:
    """Ask one gateway, again and again, until cancelled."""
    body = b'{"model": "fast", "max_tokens": 2, "messages": [{"role": "user", "content": "Hi"}]}'
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer %s\r\ncontent-length: %d\r\n\r\n" % (KEYS[key].encode(), len(body))
    ) + body
    while True:
        try:
            reader, writer = await asyncio.wait_for(
                asyncio.open_connection(*fleet.address(number)), 5
            )
        except OSError:
            statuses["no connection"] += 1
            await asyncio.sleep(PAUSE_S)
            continue
        try:
            while True:
                writer.write(request)
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
                at_s, status = wall_s(), head[0].split()[1]
                fields = dict(line.split(": ", 1) for line in head[1:] if line)
                answer = await reader.readexactly(int(fields["content-length"]))
                statuses[status] += 1
                if status not in EXPECTED:
                    unexpected.append(
                        f"{clock.wall_time():%X} gateway {number} answered {status}: "
                        f"{answer[:300]!r}"
                    )
                if status == "200":
                    admitted.append(Admitted(at_s, number, key, fields["x-request-id"]))
                await asyncio.sleep(PAUSE_S)
        except (OSError, asyncio.IncompleteReadError):
            statuses["broken"] += 1
        finally:
            writer.close()


async def run(folder: Path, server: Server, socket: Path, given: argparse.Namespace) -> list[str]:
    """Run the fleet and its clients. Return what was wrong."""
    plain, random = given.plain, Random(given.seed)
    relay = Relay(socket)
    host = "127.0.0.1" if plain else DATABASE
    await relay.serve(host)
    database = server.database()
    url = f"postgresql://tester@{host}:{DATABASE_PORT}/{database.partition('?')[0].rpartition('/')[2]}"
    fleet = Fleet(folder, server, relay, plain=plain, random=random)
    provider_host = "127.0.0.1" if plain else f"{NETWORK}.1"
    (folder / "profile.toml").write_text(PROFILE)
    command = [
        sys.executable,
        "-m",
        "splitsecond.simulator",
        str(folder / "profile.toml"),
        "--host",
        provider_host,
    ]
    provider = subprocess.Popen([*command, "--port", str(PROVIDER_PORT)], stdout=subprocess.DEVNULL)  # noqa: ASYNC220
    for number in range(GATEWAYS):
        (folder / str(number)).mkdir()
        text = CONFIGURATION.replace("PORT", str(PORT + (number if plain else 0))).replace(
            "DATABASE", url
        )
        text = text.replace("PROVIDER", f"http://{provider_host}:{PROVIDER_PORT}/v1")
        (folder / str(number) / "splitsecond.yaml").write_text(text)
    admitted: list[Admitted] = []
    statuses: Counter[str] = Counter()
    unexpected: list[str] = []
    try:
        fleet.processes = [fleet.start(number) for number in range(GATEWAYS)]
        clients = [
            asyncio.create_task(client(fleet, number, key, admitted, statuses, unexpected))
            for number in range(GATEWAYS)
            for key in ("web",) * CLIENTS + ("budget",)
        ]
        clients.append(asyncio.create_task(fleet.keep_running()))
        begin_ns = clock.now_ns()
        while len({each.gateway for each in admitted}) < GATEWAYS:
            if clock.now_ns() - begin_ns > START_S * clock.NS_PER_S:
                return ["the gateways do not answer", *outputs(folder)]
            await asyncio.sleep(0.2)
        print(f"{GATEWAYS} gateways of {WORKERS} workers answer.", flush=True)
        kinds = [kind for kind in given.faults if not (plain and kind == "gateway cut off")]
        calm_s = COMPRESSED_CALM_S if given.compressed else CALM_S
        durations_s = COMPRESSED_DURATIONS_S if given.compressed else DURATIONS_S
        pauses_s = COMPRESSED_PAUSES_S if given.compressed else PAUSES_S
        await asyncio.sleep(calm_s)
        end_ns = clock.now_ns() + round((given.minutes * 60 - 2 * calm_s) * clock.NS_PER_S)
        turn = 0
        while clock.now_ns() < end_ns:
            left_s = (end_ns - clock.now_ns()) / clock.NS_PER_S
            await fleet.fault(kinds[turn % len(kinds)], min(random.choice(durations_s), left_s))
            turn += 1
            await asyncio.sleep(random.choice(pauses_s))
        print(f"{turn} faults", flush=True)
        await asyncio.sleep(calm_s)
        for each in clients:
            each.cancel()
        await asyncio.wait(clients)
        ended_s = wall_s()
        for process in fleet.processes:
            process.terminate()
        codes = [await asyncio.to_thread(process.wait) for process in fleet.processes]
    finally:
        provider.kill()
        for process in fleet.processes:
            process.kill()
    logged = Counter(str(call) for (call,) in server.execute(database, "SELECT call FROM calls"))
    wrong = [
        *unexpected,
        *fleet.wrong,
        *(f"a gateway ended with {code}" for code in codes if code not in ENDS),
    ]
    print(f"responses: {dict(statuses)}; {len(logged):,} calls in the log")
    wrong += check_requests([each for each in admitted if each.key == "web"], fleet.faulty, ended_s)
    wrong += check_money([each for each in admitted if each.key == "budget"])
    wrong += check_log(admitted, logged, fleet.killed)
    return [*wrong, *outputs(folder, only="" if wrong else "Traceback")]


def check_requests(admitted: list[Admitted], faulty: set[int], ended_s: float) -> list[str]:
    """Check the requests of each minute."""
    minutes: dict[int, Counter[int]] = {}
    for each in admitted:
        minutes.setdefault(int(each.at_s // 60), Counter())[each.gateway] += 1
    first, *_ = minutes
    wrong = []
    for minute, counts in minutes.items():
        total = counts.total()
        parts = ", ".join(f"{counts[number]}" for number in range(GATEWAYS))
        print(
            f"minute {minute - first:3}: {total:4} of {LIMIT} "
            f"({parts}){' fault' if minute in faulty else ''}"
        )
        if total > LIMIT + BORDER:
            wrong.append(f"minute {minute - first}: {total} requests, with a limit of {LIMIT}")
        whole = minute not in (first, first + 1) and (minute + 1) * 60 < ended_s
        if whole and minute not in faulty and total < 0.9 * LIMIT:
            wrong.append(f"minute {minute - first}, without a fault: only {total} requests")
    return wrong


def check_money(admitted: list[Admitted]) -> list[str]:
    """Check what was spent. The run may include the turn of a day, when the limit begins anew."""
    days = Counter(int(each.at_s // 86_400) for each in admitted)
    most = USD + GATEWAYS * WORKERS * CALL_USD
    for day, calls in days.items():
        print(f"day {day}: {calls * CALL_USD:.3f} of {USD} USD")
    return [
        f"{calls * CALL_USD:.3f} USD were spent"
        for calls in days.values()
        if calls * CALL_USD > most + 1e-9
    ]


def check_log(
    admitted: list[Admitted], logged: Counter[str], killed: list[tuple[float, int]]
) -> list[str]:
    """Check that calls are in the log, but for those of the last second before a gateway was
    killed."""
    missing = [each for each in admitted if each.call not in logged]
    lost = [
        each
        for each in missing
        if not any(
            number == each.gateway and at_s - 1 <= each.at_s <= at_s + 0.1
            for at_s, number in killed
        )
    ]
    print(
        f"missing in the log: {len(missing)} of {len(admitted):,} calls, {len(lost)} of them "
        f"without a killed gateway; "
        f"{logged.total() - len(logged)} are in it twice"
    )
    return [f"{len(lost)} calls are not in the log"] if lost else []


def outputs(folder: Path, only: str = "") -> list[str]:
    """Return what the gateways have printed."""
    texts = [(folder / str(number) / "output").read_text() for number in range(GATEWAYS)]
    return [text for text in texts if only in text]


def main() -> int:
    """Run the benchmark. Return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--plain", action="store_true", help="without network namespaces")
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=FAULTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compressed", action="store_true", help="faults every few seconds")
    parser.add_argument("--show", choices=("limits", *fleet_proofs.PROOFS), default="limits")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet")))
        folder.chmod(0o755)
        (folder / "pg").mkdir()
        server = Server(folder / "pg", fsync=True)
        server.start()
        stack.callback(server.stop)
        if given.show != "limits":
            wrong = asyncio.run(fleet_proofs.PROOFS[given.show](folder, server))
        else:
            if not given.plain:
                stack.enter_context(network())
            wrong = asyncio.run(run(folder, server, folder / "pg" / ".s.PGSQL.5432", given))
    print("\n".join(wrong) or "All of it holds.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
