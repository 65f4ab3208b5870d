"""The interpreter steps and calls that the gateway takes for a request: `python -m
benchmarks.steps`.

Times depend on what else a machine does; the number of bytecode instructions does not, so it shows
small changes. The gateway runs in this process, traced, with the configuration of
`benchmarks.gateway`; its upstream and its log are processes of their own. Warm-up requests are not
counted. The counts include timers of the log and the streamed samples of the default configuration,
which follow the clock, so they vary by a few percent. `--telemetry` turns OpenTelemetry on; its
threads, which export, are not counted.

`--policy` has the two targets of the mode under another policy; for `cheapest` they have a price.
All requests are one session, with the same prompt each time; with `--grows` they are sessions of 40
turns, each with a longer prompt.
`--no-sessions` has the gateway recognise none. `--compare` counts requests with sessions and
without in turns, and shows what sessions add, by function, without what follows the clock: what
policies compute again every few milliseconds is computed once, as in a gateway with many requests.
"""

import argparse
import asyncio
import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec
import uvloop

from benchmarks.gateway import GATEWAY, KEY, QUESTION, TELEMETRY, free_ports, responds
from splitsecond.cli.app import app
from splitsecond.core import clock
from splitsecond.gateway.records.sessions import Sessions
from splitsecond.routing.machinery.choosing.ttl_cache import TtlCache
from splitsecond.routing.targets import prompt_cache

MODES = {
    "default": ("plain", False),
    "ttft": ("events", False),
    "stream": ("events", True),
    "whole": ("whole", False),
}
"""The route of each mode of `benchmarks.gateway`, and whether the client requests a stream."""
ONE_TARGET = "one target"
PRICE = "price: {input_usd: 3, output_usd: 15, cached_usd: 0.3}"
HELD_NS = 1 << 62
TURNS = 40
"""Of each session that grows."""
BLOCK = 10
"""Requests of one kind in a row where two are compared."""
ANSWER = "Measure both from where you are, at the hours that matter, with prompts like yours. " * 12
_SOURCE = "/splitsecond/"


class Counts:
    """The steps and calls of the traced thread, by function, and the steps of each request."""

    def __init__(self) -> None:
        self.steps: Counter[CodeType] = Counter()
        self.calls: Counter[CodeType] = Counter()
        self._each: list[Counter[CodeType]] = []
        self._is_of_request = False  # what the loop runs now

    def begin(self) -> None:
        """Trace this thread from the next call on."""
        self._each.append(Counter())
        sys.settrace(self._call)

    def end(self) -> None:
        """Stop tracing this thread, after a request."""
        sys.settrace(None)

    def usual(self) -> Counter[CodeType]:
        """Return the steps of a request by function, each at the lower quartile: without what only
        some requests meet, as timers and estimates that are computed again from time to time."""
        codes, place = set().union(*self._each), len(self._each) // 4
        return Counter({code: sorted(each[code] for each in self._each)[place] for code in codes})

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.calls[frame.f_code] += 1
        caller = frame.f_back
        if caller is None or caller.f_code.co_filename == asyncio.runners.__file__:
            self._is_of_request = _of_request(frame.f_code)
        return self._step

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "opcode":
            self.steps[frame.f_code] += 1
            if self._is_of_request:
                self._each[-1][frame.f_code] += 1
        return self._step

    def show(self, requests: int, most: int) -> None:
        """Print both for each request: in total, by room, and for the functions with the most
        steps."""
        rooms: Counter[str] = Counter()
        for code, number in self.steps.items():
            rooms[_name(code).partition("/")[0]] += number
        total = sum(self.steps.values())
        print(f"{total / requests:,.0f} steps in {sum(self.calls.values()) / requests:,.0f} calls")
        for room, number in rooms.most_common(12):
            print(f"{number / total:5.0%}  {room}")
        for code, number in self.steps.most_common(most):
            print(f"{number / requests:7.0f} {self.calls[code] / requests:6.2f}  {_name(code)}")

    def show_added(self, to: "Counts", most: int) -> None:
        """Print how many steps more these are for a request, in total and by function."""
        added, before = self.usual(), to.usual()
        added.subtract(before)
        total, base = sum(added.values()), sum(before.values())
        print(f"{total:,.0f} steps more than {base:,.0f}: {total / base:.1%}")
        for code in sorted(added, key=lambda each: -abs(added[each]))[:most]:
            if added[code]:
                print(f"{added[code]:+5.0f}  {_name(code)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the counts of one mode."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "mode",
        nargs="?",
        default="default",
        choices=MODES,
        help="what is requested (default: default)",
    )
    parser.add_argument(
        "--requests", type=int, default=100, help="requests that are counted (default 100)"
    )
    parser.add_argument(
        "--warm-up", type=int, default=400, help="requests before them (default 400)"
    )
    parser.add_argument(
        "--events",
        default="",
        choices=("together", "apart"),
        help="have the events of a stream read together, or each on its own; otherwise that "
        "follows the machine's load",
    )
    parser.add_argument("--most", type=int, default=40, help="functions to show (default 40)")
    parser.add_argument(
        "--policy",
        help=f"its name, or {ONE_TARGET!r} (default: that of the route of the mode)",
    )
    parser.add_argument(
        "--grows", action="store_true", help="each request is the next turn of its session"
    )
    sessions = parser.add_mutually_exclusive_group()
    sessions.add_argument(
        "--no-sessions", action="store_true", help="have the gateway recognise no session"
    )
    sessions.add_argument(
        "--compare", action="store_true", help="show the steps that sessions add to a request"
    )
    parser.add_argument(
        "--telemetry", action="store_true", help="with OpenTelemetry, and every call recorded"
    )
    options = parser.parse_args(arguments)
    upstream, port = free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        with_sessions, without = _count(Path(folder), options, upstream, port)
    if options.compare:
        with_sessions.show_added(without, options.most)
    else:
        (without if options.no_sessions else with_sessions).show(options.requests, options.most)
    return 0


def _count(
    folder: Path, options: argparse.Namespace, upstream: int, port: int
) -> tuple[Counts, Counts]:
    """Return the counts with sessions and without."""
    counts, loops = (Counts(), Counts()), list[asyncio.AbstractEventLoop]()
    file = folder / "splitsecond.yaml"
    text = GATEWAY + TELEMETRY if options.telemetry else GATEWAY
    text = text.format(folder=folder, upstream=upstream, events=upstream, paced=upstream, port=port)
    file.write_text(_with_policy(text.replace('/whole"', '/v1"'), options))
    os.environ["BENCH_KEY"] = KEY
    # tracing interrupts each reading
    clock.QUICK_NS = clock.INTERRUPTED_NS = clock.NS_PER_S
    new = uvloop.new_event_loop

    def new_loop() -> Any:
        loops.append(new())
        return loops[-1]

    uvloop.new_event_loop = new_loop  # the loop is where the tracing begins
    command = [sys.executable, "-m", "benchmarks.gateway_upstream", str(upstream), options.events]
    with subprocess.Popen(command) as process:
        client = threading.Thread(
            target=_send_all, args=(options, port, counts, loops), daemon=True
        )
        client.start()
        try:
            app(["serve", str(file)], standalone_mode=False)
        finally:
            process.terminate()
    return counts


def _with_policy(text: str, options: argparse.Namespace) -> str:
    """Return the configuration with another policy over the targets of the mode."""
    if options.policy is None:
        return text
    if options.policy == "cheapest":
        text = re.sub(r'(base_url: "[^"]*")', rf"\1, {PRICE}", text)
    route, provider = MODES[options.mode][0], "whole" if options.mode == "whole" else "events"
    targets = f'"{provider}/m", "{provider}2/m"'
    expression = f"{provider}/m" if options.policy == ONE_TARGET else f"{options.policy}({targets})"
    return re.sub(f"  {route}: .*policy.*", f"  {route}: {{policy: '{expression}'}}", text)


def _bodies(options: argparse.Namespace) -> Iterator[bytes]:
    """Yield the body of each request."""
    model, stream = MODES[options.mode]
    for number in count():
        messages = [{"role": "user", "content": QUESTION}]
        if options.grows:
            session, turns = divmod(number, TURNS)
            messages[0]["content"] = f"{session}: {QUESTION}"
            messages += [
                {"role": "assistant", "content": ANSWER},
                {"role": "user", "content": QUESTION},
            ] * turns
        yield msgspec.json.encode(
            {"model": model, "stream": stream, "max_tokens": 64, "messages": messages}
        )


def _send_all(
    options: argparse.Namespace,
    port: int,
    counts: tuple[Counts, Counts],
    loops: Sequence[asyncio.AbstractEventLoop],
) -> None:
    """Send the requests on one connection, then end the gateway."""
    kinds = (True, False) if options.compare else (not options.no_sessions,)
    bodies = {each: _bodies(options) for each in kinds}
    began = Sessions.began
    while not responds(f"http://127.0.0.1:{port}"):
        time.sleep(0.05)
    connection = http.client.HTTPConnection("127.0.0.1", port)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}

    def send(number: int, *, counted: bool) -> None:
        """Send so many requests of each kind, the kinds in turns."""
        for done in range(0, number, BLOCK):
            for sessions in kinds:
                Sessions.began = began if sessions else _no_session  # type: ignore[method-assign, assignment]
                count = counts[0] if sessions else counts[1]
                for _ in range(min(BLOCK, number - done)):
                    if counted:
                        _in_loop(loops[0], count.begin)
                    request(next(bodies[sessions]))
                    if counted:
                        _in_loop(loops[0], count.end)

    def request(body: bytes) -> None:
        connection.request("POST", "/v1/chat/completions", body, headers)
        with connection.getresponse() as response:
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {response.read()!r}")
            response.read()

    try:
        send(options.warm_up, counted=False)
        if options.compare:
            _hold_estimates()
        send(options.requests, counted=True)
    finally:
        connection.close()
        os.kill(os.getpid(), signal.SIGTERM)


def _hold_estimates() -> None:
    """Have nothing computed again because time has passed, as traced requests are slow."""
    put = TtlCache.put

    def put_for_good(cache: TtlCache[Any], key: Hashable, value: Any) -> None:
        put(cache, key, value)
        cache._until_ns = HELD_NS

    TtlCache.put = put_for_good  # type: ignore[method-assign, assignment]
    prompt_cache.FIT_EVERY_NS = HELD_NS


def _no_session(*_: Any) -> None:
    """Recognise none, in place of `Sessions.began`."""


def _in_loop(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    """Run `action` in the thread of `loop`, and wait for it."""
    runs = threading.Event()

    def run() -> None:
        runs.set()
        action()  # the last: what it traces is the loop's

    loop.call_soon_threadsafe(run)
    runs.wait()


def _of_request(code: CodeType) -> bool:
    """Return whether the loop runs `code` for a request: not for a timer or the log."""
    room = _name(code)
    return _SOURCE in code.co_filename and not room.startswith(("log/", "core/timers"))


def _name(code: CodeType) -> str:
    """Return the path of a function's file below the package, and its name."""
    return f"{code.co_filename.rpartition(_SOURCE)[2]}:{code.co_qualname}"


if __name__ == "__main__":
    sys.exit(main())
