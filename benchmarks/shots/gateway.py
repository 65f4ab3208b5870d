"""What the pictures show: a gateway over simulated targets, and logs of calls that are drawn at
random."""

import csv
import json
import math
import random
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from itertools import count, takewhile
from pathlib import Path
from threading import Event

from tests.processes import Process

from benchmarks.shots.terminal import program
from splitsecond.core import clock

CONFIG = """
listen: {port: 0}
providers:
  down: {base_url: http://127.0.0.1:9/v1}
routes:
  fast: {policy: 'race("sim/generalcompute", "sim/groq")'}
  safe: {policy: 'fallback("down/llama", "sim/together")'}
log: sqlite:///log.db
"""
CALLS = 30
"""Calls before the page of the dashboard opens. More follow until the last picture."""
LOGGED = (("sim/generalcompute", 190, 310), ("sim/groq", 260, 215), ("sim/together", 490, 85))
PRICED = (
    ("own/qwen3", 90, 60),
    ("north/llama-3.1-70b", 190, 310),
    ("south/llama-3.1-70b", 260, 215),
    LOGGED[2],
)
"""Targets of the calls in the gateway's log and in one for `speed` and `cost`, with their medians
of TTFT in ms and of tokens per second. The last of each was slow for a while."""
PRICES = """
providers:
  north: {base_url: http://127.0.0.1:9/v1, price: {input_usd: 0.9, output_usd: 0.9}}
  south: {base_url: http://127.0.0.1:9/v1, price: {input_usd: 0.6, output_usd: 0.8}}
  own: {base_url: http://127.0.0.1:9/v1}
log: sqlite:///priced.db
"""
LOGGED_HOURS, CALLS_PER_HOUR = 6, 1800
SLOW = range(22, 37)
"""Minutes before the pictures in which the last target was slow and failed."""


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """Run a gateway that has answered some calls, and has a log of more, and yield its URL."""
    (folder / "splitsecond.yaml").write_text(CONFIG)
    write_log(folder, "log.db", LOGGED)
    with Process(
        program("splitsecond serve"), cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[1]
        for number in range(CALLS):
            call(url, number)
        ended = Event()
        with ThreadPoolExecutor() as threads:
            threads.submit(keep_calling, url, ended)
            try:
                yield url
            finally:
                ended.set()


def write_log(folder: Path, log: str, targets: Sequence[tuple[str, int, int]]) -> None:
    """Write `LOGGED_HOURS` of calls to targets, more and more of them, into a new log."""
    for old in folder.glob(f"{log}*"):
        old.unlink()
    draw, now = random.Random(0), clock.wall_time()
    with (folder / "calls.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(
            (
                "id",
                "time",
                "model",
                "duration_ms",
                "ttft_ms",
                "input_tokens",
                "output_tokens",
                "status",
            )
        )
        for number in range(LOGGED_HOURS * CALLS_PER_HOUR):
            ago = 60 * LOGGED_HOURS * (1 - math.sqrt(draw.random()))
            target, usual_ms, tps = draw.choices(targets, range(len(targets) + 2, 2, -1))[0]
            slow = target == targets[-1][0] and int(ago) in SLOW
            ttft_ms = usual_ms * draw.lognormvariate(0, 0.14) * (4 if slow else 1)
            tokens = round(draw.lognormvariate(4.5, 0.6)) + 1
            status = 503 if slow and draw.random() < 0.3 else 200
            whole_ms = ttft_ms + 1000 * tokens / (tps * draw.lognormvariate(0, 0.1))
            came = (now - timedelta(minutes=ago)).isoformat()
            lines.writerow(
                (number, came, target, whole_ms, ttft_ms, draw.randint(50, 900), tokens, status)
            )
    subprocess.run(
        program(f"splitsecond import calls.csv --log sqlite:///{log}"),
        cwd=folder,
        check=True,
        timeout=300,
    )


def keep_calling(url: str, ended: Event) -> None:
    """Send calls one after the other until `ended` is set."""
    for number in takewhile(lambda _: not ended.is_set(), count()):
        call(url, number)


def call(url: str, number: int) -> None:
    """Send one call to the gateway."""
    content = [{"role": "user", "content": f"Question {number}"}]
    body = {
        "model": ("fast", "safe")[number % 2],
        "max_tokens": 60,
        "stream": True,
        "messages": content,
    }
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        response.read()
