"""Commands in a pseudo-terminal: their last screen as a picture, or all of their screens as an
animation.

`pyte` interprets what a command prints, and each screen becomes a frame of one SVG, whose style
sheet moves from frame to frame. A picture is an SVG of one frame.
"""

import math
import os
import pty
import re
import select
import shlex
import struct
import sys
import termios
import time
from collections.abc import Iterator
from fcntl import ioctl
from html import escape
from itertools import groupby
from pathlib import Path

import pyte
from tests.processes import Process

COLUMNS, LINES = 100, 220
"""Size of the terminal. Nothing scrolls out of it."""
SAMPLE_S = 0.5
"""Time between two looks at the terminal."""
TYPED_S, PLAYED_S, LAST_S = 1.5, 12.0, 10.0
"""Seconds of the animation: the command is typed, the run passes in fast motion, the last screen
stays."""
MAX_FRAMES = 40
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
    "brightblack": ("#656d76", "#8b949e"),
}
DOTS = ("#ff5f57", "#febc2e", "#28c840")
DIM = re.compile(rb"\x1b\[([0-9;]*)m")

Screen = tuple[tuple[tuple[str, str, bool], ...], ...]
"""The lines of a screen: each a list of runs of text with colour and boldness."""


Frames = list[tuple[float, Screen]]
"""Screens, each with the seconds that it is shown."""


def recorded(command: str, folder: Path, columns: int = COLUMNS) -> Frames:
    """Run a command of `splitsecond` in a terminal of its own, and return its screens."""
    screen = pyte.Screen(columns, LINES)
    stream = pyte.ByteStream(screen)
    typed: list[Screen] = []
    stream.feed(b"$ ")
    for piece in re.findall(r"\S+\s*", command):
        stream.feed(piece.encode())
        typed.append(copied(screen))
    stream.feed(b"\r\n")
    passed: list[Screen] = []
    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    environment = {
        **os.environ,
        "TERM": "xterm-16color",
        "COLUMNS": str(columns),
        "LINES": str(LINES),
    }
    with Process(
        program(command), cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        for data in _output(ours):
            stream.feed(DIM.sub(_grey, data))
            passed.append(copied(screen))
        process.wait(60)
    last, passed = passed[-1], passed[:: math.ceil(len(passed) / MAX_FRAMES)]
    return [
        *((TYPED_S / len(typed), screen) for screen in typed),
        *((PLAYED_S / len(passed), screen) for screen in passed),
        (LAST_S, last),
    ]


def program(command: str) -> list[str]:
    """Return the arguments that run a command of `splitsecond`."""
    return [str(Path(sys.executable).with_name("splitsecond")), *shlex.split(command)[1:]]


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
    return (
        b"\x1b[" + b";".join(b"90" if each == b"2" else each for each in code[1].split(b";")) + b"m"
    )


def copied(screen: pyte.Screen) -> Screen:
    """Return what a screen shows."""
    lines = []
    for y in range(screen.lines):
        cells = [screen.buffer[y][x] for x in range(screen.columns)]
        runs = groupby(cells, lambda cell: (cell.fg, cell.bold))
        lines.append(tuple(("".join(cell.data for cell in run), *look) for look, run in runs))
    return tuple(lines)


def svg(frames: Frames, label: str, most_lines: int = LINES) -> str:
    """Return the frames as one animated SVG: a strip of screens behind a window, in the reader's
    theme."""
    columns = max(sum(len(text) for text, _, _ in screen[0]) for _, screen in frames)
    used = (
        max(
            y
            for _, screen in frames
            for y in range(len(screen))
            if any(text.strip() for text, _, _ in screen[y])
        )
        + 1
    )
    used = min(used, most_lines)
    width, height = columns * CELL_W + 32, used * CELL_H + 56
    whole = sum(seconds for seconds, _ in frames)
    symbols: dict[str, str] = {}
    strip, steps, begun = [], [], 0.0
    for number, (seconds, screen) in enumerate(frames):
        steps.append(
            f"{100 * begun / whole:.2f}%{{transform:translateY({-number * height:.0f}px)}}"
        )
        begun += seconds
        for y in range(used):
            drawn = "".join(_runs(screen[y]))
            if drawn:
                name = symbols.setdefault(drawn, f"l{len(symbols)}")
                strip.append(
                    f'<use href="#{name}" y="{number * height + 40 + (y + 0.8) * CELL_H:.1f}"/>'
                )
    light, dark = (
        "".join(f".{name}{{fill:{pair[at]}}}" for name, pair in COLOURS.items()) for at in (0, 1)
    )
    last = -(len(frames) - 1) * height
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {
        height:.0f}" width="{width:.0f}" \
role="img" aria-label="{escape(label)}">
<style>
text{{font:{
        FONT
    }px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}}
.b{{font-weight:700}}#w{{fill:#fff;stroke:#d0d7de}}{light}
@media (prefers-color-scheme:dark){{#w{{fill:#0d1117;stroke:#30363d}}{dark}}}
#s{{animation:s {whole:.1f}s steps(1,end) infinite}}
@media (prefers-reduced-motion:reduce){{#s{{animation:none;transform:translateY({last:.0f}px)}}}}
@keyframes s{{{"".join(steps)}}}
</style>
<defs><clipPath id="c"><rect width="{width:.0f}" height="{height:.0f}"/></clipPath>
{"".join(f'<g id="{name}">{drawn}</g>' for drawn, name in symbols.items())}</defs>
<rect id="w" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>
<g>{
        "".join(
            f'<circle cx="{20 + 18 * n}" cy="20" r="5.5" fill="{c}"/>' for n, c in enumerate(DOTS)
        )
    }</g>
<g clip-path="url(#c)"><g id="s">{"".join(strip)}</g></g>
</svg>
"""


def _runs(line: tuple[tuple[str, str, bool], ...]) -> Iterator[str]:
    """Yield the text elements of a line. Each has its exact length, so that columns align in every
    font."""
    x = 0
    for text, colour, bold in line:
        stripped = text.rstrip()
        start = len(stripped) - len(stripped.lstrip())
        if words := stripped[start:]:
            look = f"{colour if colour in COLOURS else 'default'}{' b' if bold else ''}"
            yield (
                f'<text class="{look}" x="{16 + (x + start) * CELL_W:.1f}" '
                f'textLength="{len(words) * CELL_W:.1f}">'
                f"{escape(words, quote=False)}</text>"
            )
        x += len(text)
