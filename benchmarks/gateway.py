"""The cost of the gateway compared with nginx: `python -m benchmarks.gateway`, for
docs/performance.md.

All forward to the same upstreams and get their load from the same client (wrk). They take turns
within one run, so that slow moments of the machine affect all. The tables show medians over the
rounds. nginx is a plain proxy; the gateway has client keys, a policy over two targets, timing and
its log turned on. CPU is the time that the kernel accounts to the proxy's own processes, user and
system, divided by the completed requests, so it excludes the client and the upstream. Added latency
is the difference between the same percentiles with and without the proxy, at one connection.

The first row is the default configuration: the gateway requests short answers whole, but for a
sample. With `ttft`, it requests each answer as a stream and puts it together. In the other rows the
client requests a stream, or the providers are configured with ``stream: false``.

There are two loads. At saturation, each connection sends its next request at once. All proxies run
as fast as they can, nginx many times as fast, and one wake-up of nginx serves many requests. At the
same rate, connections pause before each request, so that all have the same work; there a process
sleeps between requests, and waking it counts.

Upstreams: nginx with a file, for whole answers; `benchmarks.gateway_upstream`, which writes each
event of a stream on its own, without a pause; and the simulator, which paces them. Needs `nginx`
and `wrk` (Debian's packages with these names). `--peer` adds sglang-router, which forwards to
`benchmarks.gateway_upstream`. `--telemetry` compares the gateway with OpenTelemetry, and every call
recorded, with one without; `benchmarks.gateway_upstream` is the collector. `--against` compares it
with another version of itself.
"""

import argparse
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.gateway_upstream import EVENTS, whole_answer
from splitsecond.core import clock
from splitsecond.simulator.process import run_simulator

KEY = "a-key-for-the-benchmark"
CONNECTIONS = 32
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
START_S = 20.0
PROFILE = """
title = "Paced"
model = "paced"
source = "a benchmark"
measured = "2026-11"
output_tokens = 64

[[table]]
concurrency = 1
ttft_ms = { p50 = 20, p95 = 21 }
tps = { p50 = 400, p95 = 390 }
"""
CHAT = '{"model":"%s","stream":%s,"max_tokens":64,"messages":[{"role":"user","content":"%s"}]}'
QUESTION = "Which of two providers is faster at this hour, and how would one know? " * 8

UPSTREAM = """
worker_processes 1; pid {folder}/upstream.pid; error_log {folder}/upstream.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; client_body_buffer_size 64k;
  keepalive_requests 100000000; keepalive_timeout 1h;
  server {{ listen 127.0.0.1:{port}; root {folder};
    location /whole/ {{ error_page 404 405 =200 /whole.json; }}
    types {{ application/json json; }} }}
}}
"""
PROXY = """
worker_processes 1; pid {folder}/proxy.pid; error_log {folder}/proxy.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxied;
    client_body_buffer_size 64k;
  keepalive_requests 100000000; keepalive_timeout 1h;
  upstream files {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  upstream events {{ server 127.0.0.1:{events}; keepalive 256; keepalive_requests 100000000; }}
  upstream paced {{ server 127.0.0.1:{paced}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port};
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    location /whole/ {{ proxy_pass http://files; }}
    location /events/ {{ proxy_pass http://events; }}
    location /v1/ {{ proxy_pass http://paced; }} }}
}}
"""
GATEWAY = """
listen: {{host: 127.0.0.1, port: {port}}}
keys: [{{name: bench, key: env:BENCH_KEY}}]
providers:
  whole: {{base_url: "http://127.0.0.1:{upstream}/whole", stream: false}}
  whole2: {{base_url: "http://127.0.0.1:{upstream}/whole", stream: false}}
  events: {{base_url: "http://127.0.0.1:{events}/v1"}}
  events2: {{base_url: "http://127.0.0.1:{events}/v1"}}
  paced: {{base_url: "http://127.0.0.1:{paced}/v1"}}
  paced2: {{base_url: "http://127.0.0.1:{paced}/v1"}}
routes:
  whole: {{policy: 'fallback("whole/m", "whole2/m", ttft="10s")'}}
  events: {{policy: 'fallback("events/m", "events2/m", ttft="10s")'}}
  plain: {{policy: 'fallback("events/m", "events2/m")'}}
  paced: {{policy: 'fallback("paced/paced", "paced2/paced", ttft="10s")'}}
log: sqlite:///{folder}/log.db
"""
TELEMETRY = 'telemetry: {{endpoint: "http://127.0.0.1:{events}"}}\n'
SCRIPT = """
{pause}
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer {key}"
wrk.body = '{body}'
"""
PAUSE = "function delay() return math.random(10, 30) end"
"""Milliseconds before each request: with 32 connections, about 1,500 requests per second."""
_LATENCY = re.compile(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s) *$", re.MULTILINE)
_REQUESTS = re.compile(r"^\s+(\d+) requests in", re.MULTILINE)
_BAD = re.compile(r"^\s+(?:Non-2xx or 3xx responses:|Socket errors:).*$", re.MULTILINE)
_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


class Case(Struct, frozen=True):
    """One kind of request.

    `model` is its route at the gateway, `path` its path at nginx. `goals`: the highest ratios to
    nginx and to the peer; None: no goal. `at_peer`: the peer has an upstream for it. `paced`: the
    upstream decides about the rate.
    """

    title: str
    model: str
    stream: bool
    path: str
    goals: tuple[float | None, float | None] = (None, None)
    at_peer: bool = True
    paced: bool = False


CASES = (
    Case(
        "a whole answer, default configuration",
        "plain",
        False,
        "/whole/chat/completions",
        (6.0, 0.5),
    ),
    Case('a whole answer, `ttft="10s"`', "events", False, "/whole/chat/completions", (22.0, 2.0)),
    Case(
        f"a stream of {EVENTS} events, one by one",
        "events",
        True,
        "/events/chat/completions",
        (2.0, 0.4),
    ),
    Case(
        "a whole answer, providers with `stream: false`",
        "whole",
        False,
        "/whole/chat/completions",
        (6.0, 0.5),
    ),
    Case(
        f"a stream of {EVENTS} events, paced",
        "paced",
        True,
        "/v1/chat/completions",
        at_peer=False,
        paced=True,
    ),
)
TRACED = (CASES[0], CASES[2], CASES[3])


class Load(Struct, frozen=True):
    """Results of wrk: the number of responses, and their latency in ms."""

    requests: int
    p50_ms: float
    p99_ms: float


class Proxy(Struct):
    """A process under test with its children. `url` is its origin."""

    name: str
    url: str
    process: "subprocess.Popen[bytes]"
    start_s: float = 0.0
    start_cpu_s: float = 0.0

    def pids(self) -> list[int]:
        """Return the process and its children."""
        found = [self.process.pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            found.extend(map(int, children))
        return found

    def cpu_s(self) -> float:
        """Return the CPU time so far, user and system."""
        return sum(self._cpu_s(pid) for pid in self.pids())

    def memory_mb(self) -> float:
        """Return the memory of its largest process."""
        return max(_resident_mb(pid) for pid in self.pids())

    def _cpu_s(self, pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def main(arguments: Sequence[str] | None = None) -> int:
    """Print Markdown tables; return 1 if a row misses its goal."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=5, help="seconds of each turn (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each proxy (default 5)")
    parser.add_argument(
        "--peer",
        metavar="COMMAND",
        help="also measure sglang-router; COMMAND starts it. Install it into an environment of "
        "its own: "
        "python -m venv peer && peer/bin/pip install sglang-router, then --peer "
        "peer/bin/sglang-router",
    )
    parser.add_argument(
        "--telemetry",
        action="store_true",
        help="measure what OpenTelemetry costs, and nothing else",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FOLDER",
        help="compare with another version of the gateway, instead of nginx; FOLDER is a checkout "
        "of it, for example by git worktree add",
    )
    options = parser.parse_args(arguments)
    if missing := [tool for tool in ("nginx", "wrk") if shutil.which(tool) is None]:
        print(
            f"{' and '.join(missing)} must be installed. Run apt-get install {' '.join(missing)}.",
            file=sys.stderr,
        )
        return 2
    if options.peer and shutil.which(options.peer) is None:
        print(f"{options.peer} is not a command. Run pip install sglang-router.", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "paced.toml").write_text(PROFILE)
        (paced,) = stack.enter_context(run_simulator(str(folder / "paced.toml")))
        direct, proxies = _start(stack, folder, int(paced.origin.rpartition(":")[2]), options)
        if options.telemetry or options.against:
            _head(proxies)
            return sum(
                _compare(
                    folder,
                    proxies,
                    replace(case, goals=(None, None)),
                    options.rounds,
                    options.seconds,
                    pause=False,
                )
                for case in (TRACED if options.telemetry else CASES)
            )
        return _measure(folder, direct, proxies, options.rounds, options.seconds)


def _start(
    stack: ExitStack, folder: Path, paced: int, options: argparse.Namespace
) -> tuple[Proxy, list[Proxy]]:
    """Start everything; return the upstream of whole answers, and nginx, the gateway and perhaps
    the peer.

    With `--telemetry`, a gateway without it takes the place of nginx, and with `--against` a
    gateway of another version.
    """
    folder.chmod(0o755)  # nginx's workers run as another user
    (folder / "whole.json").write_bytes(whole_answer())
    upstream, events, *ports = free_ports(5)
    values = {"folder": folder, "upstream": upstream, "events": events, "paced": paced}
    direct = stack.enter_context(run_nginx("direct", UPSTREAM, {**values, "port": upstream}))
    command = [sys.executable, "-m", "benchmarks.gateway_upstream", str(events)]
    stack.enter_context(run_process("events", command, events, os.environ, folder))
    gateway = stack.enter_context(
        _gateway("gateway", values, ports[1], TELEMETRY if options.telemetry else "")
    )
    if options.telemetry:
        return direct, [stack.enter_context(_gateway("without", values, ports[0])), gateway]
    if options.against is not None:
        before = _gateway("before", values, ports[0], source=options.against.resolve() / "src")
        return direct, [stack.enter_context(before), gateway]
    nginx = stack.enter_context(run_nginx("nginx", PROXY, {**values, "port": ports[0]}))
    if options.peer is None:
        return direct, [nginx, gateway]
    address = [
        "--host",
        "127.0.0.1",
        "--port",
        str(ports[2]),
        "--worker-urls",
        f"http://127.0.0.1:{events}",
    ]
    router = run_process(
        "sglang-router", [options.peer, "launch", *address], ports[2], os.environ, folder
    )
    return direct, [nginx, gateway, stack.enter_context(router)]


def _gateway(
    name: str,
    values: Mapping[str, object],
    port: int,
    telemetry: str = "",
    *,
    source: Path | None = None,
) -> AbstractContextManager[Proxy]:
    folder = Path(str(values["folder"])) / name
    folder.mkdir()
    file = folder / "splitsecond.yaml"
    file.write_text((GATEWAY + telemetry).format(**{**values, "folder": folder}, port=port))
    command = [sys.executable, "-m", "splitsecond.cli", "serve", str(file)]
    environment = os.environ | {"BENCH_KEY": KEY}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    return run_process(name, command, port, environment, folder)


def _measure(
    folder: Path, direct: Proxy, proxies: Sequence[Proxy], rounds: int, seconds: int
) -> int:
    gateway = proxies[1]
    memory_mb = gateway.memory_mb()
    missed = 0
    _head(proxies)
    for case in CASES:
        missed += _compare(folder, proxies, case, rounds, seconds, pause=False)
    _compare(folder, proxies, CASES[0], rounds, seconds, pause=True)
    missed += _latency(folder, direct, proxies, rounds, seconds)
    after_mb = gateway.memory_mb()
    missed += (after_mb > 80) + (gateway.start_s > 1)
    print(
        f"\nMemory of the gateway: {memory_mb:.0f} MB at the start, {after_mb:.0f} MB at the end "
        f"(goal: 80)."
    )
    print(
        f"First response after its start: {gateway.start_s:.2f} s, with {gateway.start_cpu_s:.2f} "
        f"s of CPU (goal: 1)."
    )
    return 1 if missed else 0


def _head(proxies: Sequence[Proxy]) -> None:
    """Print the head of the table that `_compare` fills."""
    names = [proxy.name for proxy in proxies]
    ratios = [f"gateway / {name} | goal" for name in names if name != "gateway"]
    print(
        f"| CPU per request, µs | {' | '.join([*names, *ratios])} | {', '.join(names)}: "
        f"requests/s |"
    )
    print("|---" * (len(names) + 2 * len(ratios) + 2) + "|")


def _compare(
    folder: Path, proxies: Sequence[Proxy], case: Case, rounds: int, seconds: int, *, pause: bool
) -> int:
    """Print a row; return how many goals it misses."""
    present = [proxy for proxy in proxies if case.at_peer or proxy in proxies[:2]]
    used: dict[str, list[float]] = {proxy.name: [] for proxy in present}
    rates: dict[str, list[float]] = {proxy.name: [] for proxy in present}
    for proxy in present:
        send_load(folder, proxy, case, CONNECTIONS, 1)
    for _ in range(rounds):
        for proxy in present:
            before = proxy.cpu_s()
            load = send_load(folder, proxy, case, CONNECTIONS, seconds, pause=pause)
            used[proxy.name].append((proxy.cpu_s() - before) / load.requests * 1e6)
            rates[proxy.name].append(load.requests / seconds)
    figures = [
        f"{statistics.median(used[proxy.name]):.1f}" if proxy in present else "–"
        for proxy in proxies
    ]
    missed = 0
    for other, goal in zip(
        (proxies[0], *proxies[2:]), (None, None) if pause else case.goals, strict=False
    ):
        if other not in present:
            figures += ["–", "–"]
            continue
        ratios = [
            ours / theirs for ours, theirs in zip(used["gateway"], used[other.name], strict=True)
        ]
        ratio = statistics.median(ratios)
        figures += [f"{ratio:.2f} ({min(ratios):.2f}–{max(ratios):.2f})", str(goal or "–")]
        missed += goal is not None and ratio > goal
    figures.append(", ".join(f"{statistics.median(rates[proxy.name]):,.0f}" for proxy in present))
    title = f"{case.title}, at the same rate" if pause else case.title
    print(f"| {title} | {' | '.join(figures)} |", flush=True)
    return missed


def _latency(
    folder: Path, direct: Proxy, proxies: Sequence[Proxy], rounds: int, seconds: int
) -> int:
    """Print the added latency of whole answers at one connection; return how many goals are
    missed."""
    print("\n| added latency at one connection, ms | p50 | p99 | goal |")
    print("|---|---|---|---|")
    missed = 0
    for case in (CASES[0], CASES[1], CASES[3]):
        seen: dict[str, list[Load]] = {each.name: [] for each in proxies}
        bare: list[Load] = []
        for _ in range(rounds):
            bare.append(send_load(folder, direct, case, 1, seconds))
            for each in proxies:
                seen[each.name].append(send_load(folder, each, case, 1, seconds))
        for name, loads in seen.items():
            p50, p99 = (
                statistics.median(
                    getattr(load, field) - getattr(base, field)
                    for load, base in zip(loads, bare, strict=True)
                )
                for field in ("p50_ms", "p99_ms")
            )
            ours = name == "gateway"
            missed += ours and (p50 > 0.15 or p99 > 0.4)
            print(
                f"| {name}: {case.title} | {p50:.3f} | {p99:.3f} | "
                f"{'0.15 / 0.4' if ours else '–'} |",
                flush=True,
            )
    return missed


def send_load(
    folder: Path,
    proxy: Proxy,
    case: Case,
    connections: int,
    seconds: int,
    *,
    pause: bool = False,
    threads: int = 1,
) -> Load:
    """Send `case` to `proxy` with `threads` of wrk. `pause`: each connection waits before its next
    request.

    Raises `RuntimeError` if a request fails, because the figures would be meaningless.
    """
    script = folder / "request.lua"
    body = CHAT % (case.model, "true" if case.stream else "false", QUESTION)
    script.write_text(SCRIPT.format(key=KEY, body=body, pause=PAUSE if pause else ""))
    path = case.path if proxy.name in ("nginx", "direct") else "/v1/chat/completions"
    command = [
        "wrk",
        f"-t{threads}",
        f"-c{connections}",
        f"-d{seconds}s",
        "--latency",
        "-s",
        str(script),
        proxy.url + path,
    ]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = _REQUESTS.search(output)
    percentiles = {name: float(value) * _MS[unit] for name, value, unit in _LATENCY.findall(output)}
    if found is None or int(found[1]) == 0 or _BAD.search(output):
        raise RuntimeError(f"{proxy.name}, {case.title}: {output}")
    return Load(int(found[1]), percentiles["50"], percentiles["99"])


@contextmanager
def run_nginx(name: str, configuration: str, values: Mapping[str, object]) -> Iterator[Proxy]:
    folder = Path(str(values["folder"]))
    file = folder / f"{name}.conf"
    file.write_text(configuration.format(**values))
    command = ["nginx", "-c", str(file), "-p", str(folder), "-g", "daemon off;"]
    with run_process(name, command, int(str(values["port"])), os.environ, folder) as started:
        yield started


@contextmanager
def run_process(
    name: str, command: list[str], port: int, environment: Mapping[str, str], folder: Path
) -> Iterator[Proxy]:
    """Start a process and wait for its first response, whatever its status.

    Raises `RuntimeError` if it does not respond.
    """
    began_ns = clock.now_ns()
    with (
        open(folder / f"{name}.out", "wb") as out,
        subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process,
    ):
        try:
            proxy = Proxy(name, f"http://127.0.0.1:{port}", process)
            while not responds(proxy.url):
                # polling without a pause would take the CPU from it
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.01)
                if (
                    process.poll() is not None
                    or clock.now_ns() - began_ns > START_S * clock.NS_PER_S
                ):
                    output = (folder / f"{name}.out").read_text("utf-8", "replace")
                    raise RuntimeError(f"{name} does not respond: {output}")
            proxy.start_s = (clock.now_ns() - began_ns) / clock.NS_PER_S
            proxy.start_cpu_s = proxy.cpu_s()
            yield proxy
        finally:
            process.terminate()
            process.wait()


def responds(url: str) -> bool:
    """Return whether a server at the origin `url` responds, with any status."""
    try:
        urllib.request.urlopen(url + "/health/live", timeout=1).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


def _resident_mb(pid: int) -> float:
    """Return the resident memory. It includes shared pages, so one more worker costs less than
    this."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def free_ports(number: int) -> list[int]:
    """Return so many TCP ports that are free."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


if __name__ == "__main__":
    sys.exit(main())
