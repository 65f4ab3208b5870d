"""What the gateway costs beside nginx: `python -m benchmarks.gateway`, for docs/performance.md.

Both stand in front of the same upstream and are loaded by the same client (wrk), in turns of one run, so that the
machine's moods meet both; what is printed are medians over the rounds. nginx is a plain proxy; the gateway has client
keys, a policy over two targets, timing and its log switched on. CPU is what the kernel accounts to the proxy's own
processes, user and system, divided by the requests that were answered, so neither the client's nor the upstream's share
counts. Added latency is the difference between the same percentiles through the proxy and without it, at one
connection.

There are two loads. At saturation each connection asks again at once: both run as fast as they can, nginx many times as
often, and what it finds when it wakes is shared by many requests. At the same rate connections pause before each
request, so that both have as much to do; there a process sleeps between requests, and waking it counts.

The upstream of whole answers and of streams that come in one piece is nginx with a file; that of streams whose events
come one by one is the simulator. Needs `nginx` and `wrk` (Debian's packages of these names).
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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from splitsecond import clock
from splitsecond.events import Usage
from splitsecond.simulator.process import running
from splitsecond.wire import openai
from splitsecond.wire.dialect import Answer

KEY = "a-key-for-the-benchmark"
EVENTS = 64
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
    location /burst/ {{ error_page 404 405 =200 /burst.sse; }}
    types {{ application/json json; text/event-stream sse; }} }}
}}
"""
PROXY = """
worker_processes 1; pid {folder}/proxy.pid; error_log {folder}/proxy.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxied; client_body_buffer_size 64k;
  keepalive_requests 100000000; keepalive_timeout 1h;
  upstream files {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
  upstream paced {{ server 127.0.0.1:{paced}; keepalive 256; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{port};
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    location /whole/ {{ proxy_pass http://files; }}
    location /burst/ {{ proxy_pass http://files; }}
    location /v1/ {{ proxy_pass http://paced; }} }}
}}
"""
GATEWAY = """
listen: {{host: 127.0.0.1, port: {port}}}
keys: [{{name: bench, key: env:BENCH_KEY}}]
providers:
  whole: {{base_url: "http://127.0.0.1:{upstream}/whole", stream: false}}
  whole2: {{base_url: "http://127.0.0.1:{upstream}/whole", stream: false}}
  burst: {{base_url: "http://127.0.0.1:{upstream}/burst"}}
  burst2: {{base_url: "http://127.0.0.1:{upstream}/burst"}}
  paced: {{base_url: "http://127.0.0.1:{paced}/v1"}}
  paced2: {{base_url: "http://127.0.0.1:{paced}/v1"}}
routes:
  whole: {{policy: 'fallback("whole/m", "whole2/m", ttft="10s")'}}
  burst: {{policy: 'fallback("burst/m", "burst2/m", ttft="10s")'}}
  paced: {{policy: 'fallback("paced/paced", "paced2/paced", ttft="10s")'}}
log: sqlite:///{folder}/log.db
"""
SCRIPT = """
{pause}
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer {key}"
wrk.body = '{body}'
"""
PAUSE = "function delay() return math.random(10, 30) end"
"""Milliseconds before each request: with 32 connections some 1,500 requests a second."""
_LATENCY = re.compile(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)$", re.MULTILINE)
_REQUESTS = re.compile(r"^\s+(\d+) requests in", re.MULTILINE)
_BAD = re.compile(r"^\s+(?:Non-2xx or 3xx responses:|Socket errors:).*$", re.MULTILINE)
_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


class Case(Struct, frozen=True):
    """One sort of request: how it is called, the model that is asked, and its path at the proxy and at the gateway."""

    title: str
    model: str
    stream: bool
    path: str
    reach: float | None = None


CASES = (
    Case("a whole answer", "whole", False, "/whole/chat/completions", 4.0),
    Case(f"a stream of {EVENTS} events, in one piece", "burst", True, "/burst/chat/completions", 2.0),
    Case(f"a stream of {EVENTS} events, one by one", "paced", True, "/v1/chat/completions"),
)


class Load(Struct, frozen=True):
    """What wrk saw: how many were answered, and their latency in ms."""

    requests: int
    p50_ms: float
    p99_ms: float


class Proxy(Struct):
    """A process under test, with its children. `url` is its origin."""

    name: str
    url: str
    process: "subprocess.Popen[bytes]"
    start_s: float = 0.0
    start_cpu_s: float = 0.0

    def pids(self) -> list[int]:
        """The process and its children."""
        found = [self.process.pid]
        for pid in found:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            found.extend(map(int, children))
        return found

    def cpu_s(self) -> float:
        """CPU time so far, user and system."""
        return sum(self._cpu_s(pid) for pid in self.pids())

    def memory_mb(self) -> float:
        """The most memory that one of its processes holds."""
        return max(_resident_mb(pid) for pid in self.pids())

    def _cpu_s(self, pid: int) -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints Markdown tables; returns 1 where a row is not reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5, help="of each turn (default 5)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default 5)")
    asked = parser.parse_args(arguments)
    if missing := [tool for tool in ("nginx", "wrk") if shutil.which(tool) is None]:
        print(f"{' and '.join(missing)} must be installed: apt-get install {' '.join(missing)}", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "paced.toml").write_text(PROFILE)
        (paced,) = stack.enter_context(running(str(folder / "paced.toml")))
        direct, proxies = _start(stack, folder, int(paced.origin.rpartition(":")[2]))
        return _measure(folder, direct, proxies, asked.rounds, asked.seconds)


def _start(stack: ExitStack, folder: Path, paced: int) -> tuple[str, tuple[Proxy, Proxy]]:
    """The upstream's origin, and nginx and the gateway before it."""
    folder.chmod(0o755)  # nginx's workers are another user
    (folder / "whole.json").write_bytes(_whole())
    (folder / "burst.sse").write_bytes(_burst())
    ports = _free_ports(3)
    values = {"folder": folder, "upstream": ports[0], "paced": paced}
    stack.enter_context(_nginx("upstream", UPSTREAM, {**values, "port": ports[0]}))
    nginx = stack.enter_context(_nginx("proxy", PROXY, {**values, "port": ports[1]}))
    (folder / "splitsecond.yaml").write_text(GATEWAY.format(**values, port=ports[2]))
    command = [sys.executable, "-m", "splitsecond.cli", "serve", str(folder / "splitsecond.yaml")]
    gateway = stack.enter_context(_started("gateway", command, ports[2], os.environ | {"BENCH_KEY": KEY}, folder))
    return f"http://127.0.0.1:{ports[0]}", (nginx, gateway)


def _measure(folder: Path, direct: str, proxies: tuple[Proxy, Proxy], rounds: int, seconds: int) -> int:
    gateway = proxies[1]
    memory_mb = gateway.memory_mb()
    missed = 0
    print("| CPU per request, µs | nginx | gateway | ratio | to reach | nginx, requests/s | gateway, requests/s |")
    print("|---|---|---|---|---|---|---|")
    for case in CASES:
        missed += _compare(folder, proxies, case, rounds, seconds, pause=False)
    for case in CASES[:2]:  # the third has its own pace
        _compare(folder, proxies, case, rounds, seconds, pause=True)
    missed += _latency(folder, direct, proxies, rounds, seconds)
    after_mb = gateway.memory_mb()
    missed += (after_mb > 80) + (gateway.start_s > 1)
    print(f"\nMemory of the gateway: {memory_mb:.0f} MB, after all this {after_mb:.0f} MB (to reach: 80). ", end="")
    print(f"From its start to its first answer: {gateway.start_s:.2f} s,", end=" ")
    print(f"of which {gateway.start_cpu_s:.2f} s of a processor (to reach: 1).")
    return 1 if missed else 0


def _compare(folder: Path, proxies: tuple[Proxy, Proxy], case: Case, rounds: int, seconds: int, *, pause: bool) -> bool:
    """Prints a row; returns whether what was to be reached was not."""
    used: dict[str, list[float]] = {proxy.name: [] for proxy in proxies}
    rates: dict[str, list[float]] = {proxy.name: [] for proxy in proxies}
    for proxy in proxies:
        _wrk(folder, proxy, case, CONNECTIONS, 1)
    for _ in range(rounds):
        for proxy in proxies:
            before = proxy.cpu_s()
            load = _wrk(folder, proxy, case, CONNECTIONS, seconds, pause=pause)
            used[proxy.name].append((proxy.cpu_s() - before) / load.requests * 1e6)
            rates[proxy.name].append(load.requests / seconds)
    ratios = [ours / theirs for ours, theirs in zip(used["gateway"], used["proxy"], strict=True)]
    ratio = statistics.median(ratios)
    reach = None if pause else case.reach
    figures = [f"{statistics.median(used[proxy.name]):.1f}" for proxy in proxies]
    figures += [f"{ratio:.2f} ({min(ratios):.2f}–{max(ratios):.2f})", str(reach or "–")]
    figures += [f"{statistics.median(rates[proxy.name]):.0f}" for proxy in proxies]
    title = f"{case.title}, at the same rate" if pause else case.title
    print(f"| {title} | {' | '.join(figures)} |", flush=True)
    return reach is not None and ratio > reach


def _latency(folder: Path, direct: str, proxies: tuple[Proxy, Proxy], rounds: int, seconds: int) -> int:
    case = CASES[0]
    bare = Proxy("direct", direct, proxies[0].process)
    seen: dict[str, list[Load]] = {each.name: [] for each in (bare, *proxies)}
    for _ in range(rounds):
        for each in (bare, *proxies):
            seen[each.name].append(_wrk(folder, each, case, 1, seconds))
    print("\n| added latency at one connection, ms | p50 | p99 | to reach |")
    print("|---|---|---|---|")
    missed = 0
    for proxy in proxies:
        p50, p99 = (
            statistics.median(
                getattr(load, name) - getattr(base, name)
                for load, base in zip(seen[proxy.name], seen["direct"], strict=True)
            )
            for name in ("p50_ms", "p99_ms")
        )
        ours = proxy.name == "gateway"
        missed += ours and (p50 > 0.15 or p99 > 0.4)
        name = "the gateway" if ours else "nginx"
        print(f"| {name} | {p50:.3f} | {p99:.3f} | {'0.15 / 0.4' if ours else '–'} |", flush=True)
    return missed


def _wrk(folder: Path, proxy: Proxy, case: Case, connections: int, seconds: int, *, pause: bool = False) -> Load:
    """Loads `proxy` with `case`; `pause`: each connection waits before it asks again.

    Raises `RuntimeError` where a request fails: a figure of failures is none.
    """
    script = folder / "request.lua"
    body = CHAT % (case.model, "true" if case.stream else "false", QUESTION)
    script.write_text(SCRIPT.format(key=KEY, body=body, pause=PAUSE if pause else ""))
    path = "/v1/chat/completions" if proxy.name == "gateway" else case.path
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(script), proxy.url + path]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = _REQUESTS.search(said)
    percentiles = {name: float(value) * _MS[unit] for name, value, unit in _LATENCY.findall(said)}
    if found is None or int(found[1]) == 0 or _BAD.search(said):
        raise RuntimeError(f"{proxy.name}, {case.title}: {said}")
    return Load(int(found[1]), percentiles["50"], percentiles["99"])


def _whole() -> bytes:
    usage = Usage(0, input_tokens=100, output_tokens=EVENTS)
    answer = Answer(text="word " * EVENTS)
    return openai.whole("chat", "m", [answer], usage, id="chatcmpl-1", created=0)


def _burst() -> bytes:
    writer = openai.StreamWriter("chat", "m", id="chatcmpl-1", created=0)
    tokens = b"".join(writer.token(f"word{number} ") for number in range(EVENTS))
    usage = writer.usage(Usage(0, input_tokens=100, output_tokens=EVENTS))
    return writer.opening() + tokens + writer.finish("stop") + usage + writer.done()


@contextmanager
def _nginx(name: str, configuration: str, values: Mapping[str, object]) -> Iterator[Proxy]:
    folder = Path(str(values["folder"]))
    file = folder / f"{name}.conf"
    file.write_text(configuration.format(**values))
    command = ["nginx", "-c", str(file), "-p", str(folder), "-g", "daemon off;"]
    with _started(name, command, int(str(values["port"])), os.environ, folder) as started:
        yield started


@contextmanager
def _started(name: str, command: list[str], port: int, environment: Mapping[str, str], folder: Path) -> Iterator[Proxy]:
    """The process, when it gives its first answer, whatever that is. Raises `RuntimeError` where it gives none."""
    began_ns = clock.now_ns()
    with (
        open(folder / f"{name}.out", "wb") as out,
        subprocess.Popen(command, env=environment, stdout=out, stderr=out) as process,
    ):
        try:
            proxy = Proxy(name, f"http://127.0.0.1:{port}", process)
            while not _answers(proxy.url):
                with suppress(subprocess.TimeoutExpired):  # to ask without a pause would take the processor from it
                    process.wait(0.01)
                if process.poll() is not None or clock.now_ns() - began_ns > START_S * clock.NS_PER_S:
                    said = (folder / f"{name}.out").read_text("utf-8", "replace")
                    raise RuntimeError(f"{name} does not answer: {said}")
            proxy.start_s = (clock.now_ns() - began_ns) / clock.NS_PER_S
            proxy.start_cpu_s = proxy.cpu_s()
            yield proxy
        finally:
            process.terminate()
            process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url + "/health/live", timeout=1).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


def _resident_mb(pid: int) -> float:
    """Resident memory without what is shared with others: what one more worker costs is less than this."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


if __name__ == "__main__":
    sys.exit(main())
