"""Pictures of README and documents: an animated terminal, the report and the dashboard. `make shots` runs it.

The terminal is recorded: the command runs in a pseudo-terminal, `pyte` interprets what it prints, and each screen
becomes a frame of one SVG, whose style sheet moves from frame to frame. The report is that of a larger run of the same
targets. The dashboard shows a gateway over simulated targets. One target is down. The log already has hours of
calls that are drawn at random, with a quarter of an hour in which a target was slow and failed. Needs Chromium. Takes
about six minutes.
"""

import csv
import json
import math
import os
import pty
import random
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from fcntl import ioctl
from html import escape
from itertools import count, groupby, takewhile
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pyte
from tests.gateway.in_chromium import devtools
from tests.processes import Process

from splitsecond import clock

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
MOST_BYTES = 300_000
"""Largest size of a picture."""
COLUMNS, LINES = 100, 64
"""Size of the recorded terminal. Nothing scrolls out of it."""
SHOWN_LINES = 36
"""Lines of the terminal in its picture: the table and the findings, without the notes below them."""
SHOWN_HEIGHT = 1240
"""Pixels of a page in its picture: its headline, findings and tables."""
BENCH = "splitsecond bench sim/generalcompute sim/groq sim/together"
RECORDED = f"{BENCH} -c 8 -n 50 --output-tokens 64"
REPORTED = f"{BENCH} -c 1,8 -n 50 --output-tokens 64 --side-by-side"
TRIES = 3
"""Runs until no row is INVALID, which a busy machine can cause."""

SAMPLE_S = 0.5
"""Time between two looks at the recorded terminal."""
TYPED_S, PLAYED_S, LAST_S = 1.5, 12.0, 10.0
"""Seconds of the animation: the command is typed, the run passes in fast motion, the last screen stays."""
MOST_FRAMES = 40
CELL_W, CELL_H, FONT = 7.8, 16.5, 13
COLOURS = {  # pyte's names: on light, on dark
    "default": ("#24292f", "#d6dbe1"),
    "black": ("#24292f", "#8b949e"),
    "red": ("#b42318", "#ff7b72"),
    "green": ("#116329", "#7ee787"),
    "brown": ("#7d4e00", "#e3b341"),
    "blue": ("#0550ae", "#79c0ff"),
    "magenta": ("#8250df", "#d2a8ff"),
    "cyan": ("#0b6b79", "#76d9e6"),
    "white": ("#57606a", "#d6dbe1"),
    "brightblack": ("#8c959f", "#6e7681"),
}
DOTS = ("#ff5f57", "#febc2e", "#28c840")
DIM = re.compile(rb"\x1b\[([0-9;]*)m")

T = TypeVar("T")
Screen = tuple[tuple[tuple[str, str, bool], ...], ...]
"""The lines of a screen: each a list of runs of text with colour and boldness."""

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
WATCHED_S = 80
"""How long the page of the dashboard is open before its first picture: its small charts show what it has seen."""
LOGGED = (("sim/generalcompute", 190, 310), ("sim/groq", 260, 215), ("sim/together", 490, 85))
"""Targets of the calls in the log, with their medians of TTFT in ms and of tokens per second."""
LOGGED_HOURS, CALLS_PER_HOUR = 6, 1800
SLOW = range(22, 37)
"""Minutes before the pictures in which the last target was slow and failed."""


def main() -> None:
    """Make all pictures again."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frames = valid(folder / "recorded", lambda: recorded(folder))
        save("terminal.svg", svg(frames).encode())
        valid(folder / "run", lambda: subprocess.run(program(REPORTED, "run"), cwd=folder, check=True, timeout=300))
        with devtools.driven(folder / "browser") as page:
            report = (folder / "run/report.html").as_uri()
            for theme in ("light", "dark"):
                shot(page, report, f"report-{theme}.png", 1280, theme)
            shot(page, report, "report-phone.png", 390, "light")
            with gateway(folder) as url:
                page.looks(1280, "light")
                page.open(f"{url.removesuffix('/v1')}/dashboard")
                time.sleep(WATCHED_S)
                for theme in ("light", "dark"):
                    page.looks(1280, theme)
                    picture(page, f"dashboard-{theme}.png", 1280)
                page.looks(390, "light")
                picture(page, "dashboard-phone.png", 390)


def save(name: str, data: bytes) -> None:
    """Write a picture. Raises `SystemExit` if it is too large for the repository."""
    (PICTURES / name).write_bytes(data)
    print(f"{name}: {len(data) / 1000:,.0f} kB")
    if len(data) > MOST_BYTES:
        sys.exit(f"{name} has {len(data):,} bytes; the maximum is {MOST_BYTES:,}.")


# The terminal.


def valid(run: Path, measure: Callable[[], T]) -> T:
    """Return what `measure` returns, after the first time that no row of its `run` is INVALID."""
    for _ in range(TRIES):
        shutil.rmtree(run, ignore_errors=True)
        found = measure()
        if not any(row["invalid"] for row in json.loads((run / "run.json").read_bytes())["conditions"]):
            return found
    sys.exit(f"This machine is too busy: {TRIES} runs had INVALID rows. Try again later.")


def program(command: str, out: str) -> list[str]:
    """Return the arguments that run `command`, with its results in the folder `out`."""
    return [sys.executable, "-m", "splitsecond.cli", *command.split()[1:], "--out", out]


def recorded(folder: Path) -> list[tuple[float, Screen]]:
    """Measure `RECORDED` in a terminal of its own. Return each screen with the seconds that it is shown."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    typed: list[Screen] = []
    stream.feed(b"$ ")
    for piece in re.findall(r"\S+\s*", RECORDED):
        stream.feed(piece.encode())
        typed.append(copied(screen))
    stream.feed(b"\r\n")
    passed: list[Screen] = []
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-16color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    command = program(RECORDED, "recorded")
    with Process(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        for data in _output(ours):
            stream.feed(DIM.sub(_grey, data))
            passed.append(copied(screen))
        process.wait(60)
    last, passed = passed[-1], passed[:: math.ceil(len(passed) / MOST_FRAMES)]
    return [
        *((TYPED_S / len(typed), screen) for screen in typed),
        *((PLAYED_S / len(passed), screen) for screen in passed),
        (LAST_S, last),
    ]


def _output(ours: int) -> Iterator[bytes]:
    """Yield what arrives within each `SAMPLE_S`, until the program ends."""
    data, until = b"", time.monotonic() + SAMPLE_S
    while True:
        wait = until - time.monotonic()
        if wait <= 0:
            yield data
            data, until = b"", time.monotonic() + SAMPLE_S
        elif select.select([ours], [], [], wait)[0]:
            try:
                more = os.read(ours, 65536)
            except OSError:  # how Linux reports that the program has closed the terminal
                more = b""
            if not more:
                yield data
                os.close(ours)
                return
            data += more


def _grey(code: "re.Match[bytes]") -> bytes:
    """Return a colour code with grey instead of dim, which `pyte` does not know."""
    return b"\x1b[" + b";".join(b"90" if each == b"2" else each for each in code[1].split(b";")) + b"m"


def copied(screen: pyte.Screen) -> Screen:
    """Return what a screen shows."""
    lines = []
    for y in range(LINES):
        cells = [screen.buffer[y][x] for x in range(COLUMNS)]
        runs = groupby(cells, lambda cell: (cell.fg, cell.bold))
        lines.append(tuple(("".join(cell.data for cell in run), *look) for look, run in runs))
    return tuple(lines)


def svg(frames: list[tuple[float, Screen]]) -> str:
    """Return the frames as one animated SVG: a strip of screens behind a window, in the reader's theme."""
    used = max(y for _, screen in frames for y in range(LINES) if any(text.strip() for text, _, _ in screen[y])) + 1
    used = min(used, SHOWN_LINES)
    width, height = COLUMNS * CELL_W + 32, used * CELL_H + 56
    whole = sum(seconds for seconds, _ in frames)
    symbols: dict[str, str] = {}
    strip, steps, begun = [], [], 0.0
    for number, (seconds, screen) in enumerate(frames):
        steps.append(f"{100 * begun / whole:.2f}%{{transform:translateY({-number * height:.0f}px)}}")
        begun += seconds
        for y in range(used):
            drawn = "".join(_runs(screen[y]))
            if drawn:
                name = symbols.setdefault(drawn, f"l{len(symbols)}")
                strip.append(f'<use href="#{name}" y="{number * height + 40 + (y + 0.8) * CELL_H:.1f}"/>')
    light, dark = ("".join(f".{name}{{fill:{pair[at]}}}" for name, pair in COLOURS.items()) for at in (0, 1))
    last = -(len(frames) - 1) * height
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" \
role="img" aria-label="A benchmark of three simulated providers in a terminal, with its table and sentences">
<style>
text{{font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}}
.b{{font-weight:700}}#w{{fill:#fff;stroke:#d0d7de}}{light}
@media (prefers-color-scheme:dark){{#w{{fill:#0d1117;stroke:#30363d}}{dark}}}
#s{{animation:s {whole:.1f}s steps(1,end) infinite}}
@media (prefers-reduced-motion:reduce){{#s{{animation:none;transform:translateY({last:.0f}px)}}}}
@keyframes s{{{"".join(steps)}}}
</style>
<defs><clipPath id="c"><rect width="{width:.0f}" height="{height:.0f}"/></clipPath>
{"".join(f'<g id="{name}">{drawn}</g>' for drawn, name in symbols.items())}</defs>
<rect id="w" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>
<g>{"".join(f'<circle cx="{20 + 18 * n}" cy="20" r="5.5" fill="{c}"/>' for n, c in enumerate(DOTS))}</g>
<g clip-path="url(#c)"><g id="s">{"".join(strip)}</g></g>
</svg>
"""


def _runs(line: tuple[tuple[str, str, bool], ...]) -> Iterator[str]:
    """Yield the text elements of a line. Each has its exact length, so that columns align in every font."""
    x = 0
    for text, colour, bold in line:
        stripped = text.rstrip()
        start = len(stripped) - len(stripped.lstrip())
        if words := stripped[start:]:
            look = f"{colour if colour in COLOURS else 'default'}{' b' if bold else ''}"
            yield (
                f'<text class="{look}" x="{16 + (x + start) * CELL_W:.1f}" textLength="{len(words) * CELL_W:.1f}">'
                f"{escape(words, quote=False)}</text>"
            )
        x += len(text)


# Pages.


def shot(page: Any, url: str, name: str, width: int, theme: str) -> None:
    """Save the beginning of a page."""
    page.open("about:blank")
    page.looks(width, theme)
    page.open(url)
    picture(page, name, width)


def picture(page: Any, name: str, width: int) -> None:
    """Save the beginning of the page that is open."""
    page.says("Emulation.setScrollbarsHidden", hidden=True)
    page.wait("document.fonts.ready.then(() => new Promise(done => setTimeout(() => done(true), 3000)))")
    clip = {"x": 0, "y": 0, "width": width, "height": SHOWN_HEIGHT, "scale": 1}
    save(name, b64decode(page.says("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]))


@contextmanager
def gateway(folder: Path) -> Iterator[str]:
    """Run a gateway that has answered some calls, and has a log of more, and yield its URL."""
    (folder / "splitsecond.yaml").write_text(CONFIG)
    write_log(folder)
    command = [sys.executable, "-m", "splitsecond.cli", "serve"]
    with Process(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        for number in range(CALLS):
            call(url, number)
        ended = Event()
        with ThreadPoolExecutor() as threads:
            threads.submit(keep_calling, url, ended)
            try:
                yield url
            finally:
                ended.set()


def write_log(folder: Path) -> None:
    """Write `LOGGED_HOURS` of calls, more and more of them, into the log of `CONFIG`."""
    draw, now = random.Random(0), clock.wall_time()
    with (folder / "calls.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(("id", "time", "model", "duration_ms", "ttft_ms", "input_tokens", "output_tokens", "status"))
        for number in range(LOGGED_HOURS * CALLS_PER_HOUR):
            ago = 60 * LOGGED_HOURS * (1 - math.sqrt(draw.random()))
            target, usual_ms, tps = draw.choices(LOGGED, (5, 2, 3))[0]
            slow = target == LOGGED[-1][0] and int(ago) in SLOW
            ttft_ms = usual_ms * draw.lognormvariate(0, 0.14) * (4 if slow else 1)
            tokens = round(draw.lognormvariate(4.5, 0.6)) + 1
            status = 503 if slow and draw.random() < 0.3 else 200
            whole_ms = ttft_ms + 1000 * tokens / (tps * draw.lognormvariate(0, 0.1))
            came = (now - timedelta(minutes=ago)).isoformat()
            lines.writerow((number, came, target, whole_ms, ttft_ms, draw.randint(50, 900), tokens, status))
    command = [sys.executable, "-m", "splitsecond.cli", "import", "calls.csv", "--log", "sqlite:///log.db"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)


def keep_calling(url: str, ended: Event) -> None:
    """Send calls one after the other until `ended` is set."""
    for number in takewhile(lambda _: not ended.is_set(), count()):
        call(url, number)


def call(url: str, number: int) -> None:
    """Send one call to the gateway."""
    content = [{"role": "user", "content": f"Question {number}"}]
    body = {"model": ("fast", "safe")[number % 2], "max_tokens": 60, "stream": True, "messages": content}
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=20) as response:
        response.read()


if __name__ == "__main__":
    main()
