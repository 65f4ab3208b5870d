"""The instrument's own error and cost: `python -m benchmarks.instrument` (about ten minutes), for
docs/accuracy.md.

The bench's workers measure a simulated provider that logs when its kernel received each request,
and when it handed each token to the kernel. So the error of the whole TTFT is known: on an idle
machine, and on one with a busy loop for each core, by each of the three clocks for arrival times,
and by workers that may not raise their priority. If the server was interrupted while it wrote a
first token, which the last column but one counts, any time until the write had returned counts as
right.

Then the cost, with the default and with `--itl exact`: a bare reader runs in the same minutes, one
epoll loop that only reads the same streams with the same system call. Its cost is the least that
this machine's kernel takes from any client that reads each token separately. Our cost divided by it
is comparable between machines.

`--quick` takes fewer requests and repeats (about five minutes). `--streams 2048,10000 --servers 8`
measures only the error, with so many streams of several simulated servers, each measured by
processes of its own. That needs 16 cores or more; a row is INVALID, with the reason, where the
machine cannot do it. With `--scrape`, each row is measured again while the metrics of a simulated
engine are read, as a bench reads those of its server: `PAGES` pages a second, which together are as
long as one of vLLM.
"""

import argparse
import os
import resource
import select
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.benchmark.load.coordinator import WorkerSettings
from splitsecond.benchmark.load.worker_pool import WORKER_COMMAND
from splitsecond.benchmark.runs.self_check import YARDSTICK, measure_instrument
from splitsecond.benchmark.server_view.reader import MetricsPage
from splitsecond.benchmark.statistics.accuracy import Accuracy
from splitsecond.core import clock
from splitsecond.core.observation import ArrivalClock
from splitsecond.core.transport.packets import packet_clock_refusal
from splitsecond.log.statistics.summary import Summary
from splitsecond.simulator.process import RunningProvider, run_simulator

SCRAPED, PAGES = "lambda-h100-mistral-7b", 20
"""The engine whose metrics are read, and how many times a second."""
SCRAPED_TOKENS = 500
"""Length of a response while metrics are read, so that they are read five times meanwhile."""
LEVELS = (1, 32, 256, 1024)
ERROR_TOKENS = 50
COST_STREAMS = 256
TOKENS = 512
"""Length of a response whose cost is measured, the default of `bench`."""
CLOCKS: tuple[ArrivalClock, ...] = ("packets", "kernel", "process")
GOAL_P99_MS = {("packets", 1024): 0.1, ("kernel", 256): 0.5}
"""On a busy machine."""
GOAL_MAX_MS = {("packets", 1024): 0.5}
GOAL_CPU_MS = 8.0
"""With the packet clock, and with the kernel's where reads may be sparse."""
COST_ROUNDS = 3
"""Responses of each stream, so that most of them come when it is known how long they are."""
NORMAL = ("setpriv", "--bounding-set=-sys_nice", "--", *WORKER_COMMAND)
"""Starts a worker that may not raise its priority."""

COLUMNS = (
    "cores",
    "priority",
    "clock",
    "streams",
    "TTFT",
    "send side",
    "receive side",
    "packets lost / missed",
    "server interrupted",
    "goal",
)


class Effort(Struct, frozen=True):
    """How much is measured: the least requests of a row, the repeats of the cost, and tokens of a
    response."""

    least: int
    repeats: int
    tokens: int = ERROR_TOKENS


FULL, QUICK = Effort(30, 3), Effort(8, 1)


@contextmanager
def busy_cores(loops: int) -> Iterator[None]:
    """Keep `loops` processes busy while the context is open."""
    processes = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        for _ in range(loops)
    ]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def error_rows(
    machine: str,
    clocks: Sequence[ArrivalClock],
    effort: Effort,
    command: Sequence[str],
    levels: Sequence[int] = LEVELS,
    servers: int = 1,
    pages: Sequence[MetricsPage] = (),
) -> int:
    """Print a row of errors for each clock and number of streams; return how many miss a goal or
    lost requests."""
    missed = 0
    for arrival_clock in clocks:
        for found in measure_instrument(
            levels,
            rounds=1,
            tokens=effort.tokens,
            least=effort.least,
            servers=servers,
            pages=pages,
            workers=WorkerSettings(arrival_clock=arrival_clock, command=command),
        ):
            wrong = misses(machine, found)
            missed += bool(wrong)
            cells = (
                machine,
                found.priority,
                found.clock,
                f"{found.streams:,}",
                spread(found.ttft_error_ms),
                spread(found.send_error_ms),
                spread(found.receive_error_ms),
                f"{found.packets.lost:,} / {found.packets.missed:,}",
                f"{found.interrupted:,} of {found.requests:,}",
                wrong or "–",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    return missed


def misses(machine: str, found: Accuracy) -> str:
    """Return which goal a row misses; "" if none."""
    if found.streams > max(LEVELS) and not found.trusted:
        return f"INVALID: {found.why_not}"
    if found.failed:
        return f"{found.failed:,} REQUESTS LOST"
    row = found.clock, found.streams
    if machine != "busy" or found.priority == "normal":
        return ""
    p99, largest = found.ttft_error_ms.p99 or 0, found.ttft_error_ms.max or 0
    if p99 > GOAL_P99_MS.get(row, p99):
        return f"MISSED: p99 {GOAL_P99_MS[row]} ms"
    if largest > GOAL_MAX_MS.get(row, largest):
        return f"MISSED: max {GOAL_MAX_MS[row]} ms"
    return ""


def spread(summary: Summary) -> str:
    """Return p50, p99 and the largest, in ms."""
    return " / ".join(
        "–" if value is None else f"{value:.3f}"
        for value in (summary.p50, summary.p99, summary.max)
    )


def bare_cpu_ms_per_1000_tokens(provider: RunningProvider, streams: int) -> float:
    """Return the CPU time for reading `streams` responses with only epoll and recvmsg: no HTTP, no
    JSON, no timing."""
    address = urlsplit(provider.base_url)
    body = (
        b'{"model":"%b","messages":[{"role":"user","content":"x"}],"max_tokens":%d,"stream":true}'
        % (
            provider.model.encode(),
            TOKENS,
        )
    )
    request = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    poll = select.epoll()
    sockets: dict[int, socket.socket] = {}
    buffers = [memoryview(bytearray(65536))]
    for _ in range(streams):
        sock = socket.create_connection((address.hostname, address.port))
        sock.setsockopt(socket.SOL_SOCKET, 35, 1)
        sock.setblocking(False)
        sockets[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLIN)
    begin = clock.now_ns()
    waiting = list(sockets.values())
    before = resource.getrusage(resource.RUSAGE_SELF)
    while sockets:
        # The requests are spread over the time to first token, as in the bench.
        while (
            waiting
            and clock.now_ns() - begin
            >= (streams - len(waiting)) * 300 * clock.NS_PER_MS // streams
        ):
            waiting.pop().send(request)
        for descriptor, _ in poll.poll(0.001 if waiting else -1):
            sock = sockets[descriptor]
            if not sock.recvmsg_into(buffers, 64)[0]:
                poll.unregister(descriptor)
                sockets.pop(descriptor).close()
    after = resource.getrusage(resource.RUSAGE_SELF)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used_s * 1000 / (streams * TOKENS) * 1000


def cost_rows(clocks: Sequence[ArrivalClock], effort: Effort) -> int:
    """Print the cost with each clock beside that of the bare reader; return how many clocks miss
    the goal."""
    ours: dict[tuple[ArrivalClock, bool], list[float]] = {(each, False): [] for each in clocks}
    ours["kernel", True] = []  # it changes nothing with other clocks
    bare: list[float] = []
    for _ in range(effort.repeats):
        for (arrival_clock, exact), costs in ours.items():
            (found,) = measure_instrument(
                [COST_STREAMS],
                rounds=COST_ROUNDS,
                tokens=TOKENS,
                workers=WorkerSettings(arrival_clock=arrival_clock, exact_itl=exact),
            )
            costs.append(found.cpu_ms_per_1000_tokens or 0)
        with run_simulator(YARDSTICK) as (provider,):
            bare.append(bare_cpu_ms_per_1000_tokens(provider, COST_STREAMS))
    floor = statistics.median(bare)
    print(
        f"\n| {COST_STREAMS} streams, median of {effort.repeats} | CPU ms per 1,000 tokens | ÷ "
        f"bare reader | goal |"
    )
    print("|---|---|---|---|")
    print(f"| bare reader (epoll and recvmsg) | {floor:.1f} | 1 | |")
    missed = 0
    for (arrival_clock, exact), costs in ours.items():
        cost = statistics.median(costs)
        aimed = arrival_clock != "process" and not exact
        missed += aimed and cost > GOAL_CPU_MS
        goal = f"{GOAL_CPU_MS:g}{'' if cost <= GOAL_CPU_MS else ' MISSED'}" if aimed else "–"
        name = f"{arrival_clock} clock{', --itl exact' if exact else ''}"
        print(f"| {name} | {cost:.1f} | {cost / floor:.2f} | {goal} |", flush=True)
    return missed


def main() -> int:
    """Print Markdown tables; return 1 if a row misses its goal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer requests and repeats")
    parser.add_argument(
        "--streams", help="only the error, with these numbers of streams: 2048,10000"
    )
    parser.add_argument(
        "--scrape", action="store_true", help="with --streams: also while metrics are read"
    )
    parser.add_argument("--servers", type=int, default=1, help="simulated servers, for --streams")
    asked = parser.parse_args()
    effort = QUICK if asked.quick else FULL
    refusal = packet_clock_refusal()
    clocks = CLOCKS[1:] if refusal else CLOCKS
    if refusal:
        print(f"The packet clock is not available: {refusal}.\n")
    print("Errors in ms, p50 / p99 / max.\n")
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    if asked.streams:
        levels = [int(each) for each in asked.streams.split(",")]
        effort = replace(effort, tokens=SCRAPED_TOKENS) if asked.scrape else effort
        missed = error_rows("idle", clocks[:1], effort, WORKER_COMMAND, levels, asked.servers)
        if asked.scrape:
            with run_simulator(SCRAPED) as (engine,):
                url = f"{engine.origin}/metrics"
                pages = [
                    MetricsPage(number=number, engines=("vllm",), url=url)
                    for number in range(PAGES)
                ]
                scraped = "idle, metrics read"
                missed += error_rows(
                    scraped, clocks[:1], effort, WORKER_COMMAND, levels, asked.servers, pages
                )
        return 1 if missed else 0
    missed = error_rows("idle", clocks, effort, WORKER_COMMAND)
    with busy_cores(os.cpu_count() or 1):
        missed += error_rows("busy", clocks, effort, WORKER_COMMAND)
        if shutil.which(NORMAL[0]) is not None:
            missed += error_rows("busy", clocks, effort, NORMAL)
    missed += cost_rows(clocks, effort)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
