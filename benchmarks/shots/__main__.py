"""Pictures of every page and screen: `make shots` writes them into build/shots, and those of README
and docs again.

Each command of `SCREENS` runs in a terminal of its own, in one folder, one after the other; its
last screen is a picture. Each page of `PAGES` is pictured in each of `LOOKS`, and on paper. The
dashboard shows a gateway over simulated targets: one is down, and the log already has hours of
calls. README and documents use `DOCUMENTS` and `ANIMATED`. With names as arguments, only the
screens and pages that begin so are made. Needs Chromium. Takes about ten minutes.
"""

import json
import math
import shutil
import sys
import time
from base64 import b64decode
from pathlib import Path

import pypdfium2
from tests.gateway.in_chromium import devtools

from benchmarks import server_view_truth
from benchmarks.shots import gateway
from benchmarks.shots.terminal import COLUMNS, Frames, recorded, svg

ROOT = Path(__file__).parents[2]
SHOTS, PICTURES = ROOT / "build/shots", ROOT / "docs/pictures"
DATA = SHOTS / "data"
"""The folder in which commands run. It stays, so that single pictures can be made again."""
MAX_BYTES = 300_000
"""Largest size of a picture in the repository."""
SHOWN_LINES = 36
"""Lines of the terminal in README and documents: the beginning."""
WATCHED_S = 80
"""How long the dashboard is open before its first picture: its small charts show what it has
seen."""
TRIES = 3
"""Runs that README shows until no row is INVALID, which a busy machine can cause."""
BENCH = "splitsecond bench sim/generalcompute sim/groq sim/together --quick"
CHANGED = "splitsecond bench sim/mine.toml -c 1,8 -n 40 --rounds 8 --output-tokens 32"
WATCH = "splitsecond watch sim/mine.toml sim/groq --every 8s -n 6 --output-tokens 8"
SERVER = """
title = "A server"
model = "mine"
[[table]]
concurrency = 1
ttft_ms = {{ p50 = {0}, p95 = {0} }}
tps = {{ p50 = {1}, p95 = {1} }}
"""
QUESTION = {
    "model": "default",
    "max_tokens": 20,
    "messages": [{"role": "user", "content": "Name a colour."}],
}
SCREENS = {
    "help": "splitsecond --help",
    "help-bench": "splitsecond help bench",
    "bench": f"{BENCH} -c 8 -n 50 --output-tokens 64 --out r1",
    "bench-loads": f"{BENCH} -c 1,8 -n 50 --output-tokens 64 --side-by-side --out run2",
    "report": "splitsecond report run2 --slo voice",
    "narrow-60": "splitsecond report run2",
    "narrow-80": "splitsecond report run2",
    "compare-before": f"{CHANGED} --out before",
    "compare-after": f"{CHANGED} --out after",
    "compare": "splitsecond compare before after --html changes.html --fail-if 'tps.p50 < -10%'",
    "narrow-compare": "splitsecond compare before after",
    "capacity": "splitsecond capacity sim/runpod-h100-mistral-7b --slo chat --to 8 "
    "--output-tokens 32 --out run3",
    "server-view": "splitsecond bench sim/small.toml -c 1,16 -n 80 --quick --input-tokens 200 "
    "--output-tokens 64 --out run4",
    "watch-before": f"{WATCH} --times 10",
    "watch": f"{WATCH} --times 5",
    "recommend": "splitsecond recommend run2 voice chat batch",
    "speed": "splitsecond speed --config prices.yaml --html speed.html",
    "cost": "splitsecond cost --config prices.yaml --html cost.html",
    "doctor": "splitsecond doctor",
    "init": "splitsecond init mine.yaml --yes",
    "check": "splitsecond serve --check mine.yaml",
    "explain": "splitsecond explain default --config mine.yaml",
    "batch": "splitsecond batch questions.jsonl --config mine.yaml --out answers.jsonl",
    "providers": "splitsecond providers",
    "models": "splitsecond models groq",
    "error": "splitsecond bench sim/grok-4",
}
SERVERS = {
    "compare-before": (200, 250),
    "compare-after": (240, 220),
    "watch-before": (60, 250),
    "watch": (100, 250),
}
"""TTFT in ms and TPS of the server before some of the screens."""
NARROW = {"narrow-60": 60, "narrow-80": 80, "narrow-compare": 60}
"""Columns of screens that are narrower than others."""
PAGES = {
    "bench": "run2/report.html",
    "compare": "changes.html",
    "capacity": "run3/report.html",
    "server-view": "run4/report.html",
    "watch": "watch/report.html",
    "speed": "speed.html",
    "cost": "cost.html",
}
LOOKS = {
    "light": (1280, "light"),
    "dark": (1280, "dark"),
    "phone": (390, "light"),
    "phone-dark": (390, "dark"),
}
DOCUMENTS = {
    "bench-light": ("report-light", "body", "header"),
    "bench-dark": ("report-dark", "body", "header"),
    "server-view-light": ("server-view-light", "#time", "#time"),
    "server-view-dark": ("server-view-dark", "#time", "#time"),
    "dashboard-light": ("dashboard-light", "body", "section:has(#targets)"),
    "dashboard-dark": ("dashboard-dark", "body", "section:has(#targets)"),
}
"""Pictures that are cut: README and documents show the part between these two elements."""
MARGIN = 16
"""Pixels above and below them."""
ANIMATED = "bench"
"""The screen that is an animation there."""
SHOWN = (ANIMATED, "bench-loads")
"""Runs that README shows."""


def main(beginnings: tuple[str, ...]) -> None:
    """Make the pictures whose names begin so."""
    if beginnings == ("",):
        shutil.rmtree(SHOTS, ignore_errors=True)
        DATA.mkdir(parents=True)
        write_inputs()
    with devtools.driven(DATA / "browser") as page:
        page.says("Emulation.setScrollbarsHidden", hidden=True)
        for name in SCREENS:
            if name.startswith(beginnings):
                make_screen(page, name)
        for name, path in PAGES.items():
            if name.startswith(beginnings) and not name.startswith("dashboard"):
                make_page(page, name, (DATA / path).as_uri())
        if any(name.startswith("dashboard") for name in beginnings) or beginnings == ("",):
            with gateway.gateway(DATA) as url:
                make_page(page, "dashboard", url.replace("/v1", "/dashboard"), WATCHED_S)
                make_page(page, "dashboard-speed", url.replace("/v1", "/dashboard/speed"))


def write_inputs() -> None:
    """Write what the commands read: a log, its prices, and a file of requests."""
    (DATA / "prices.yaml").write_text(gateway.PRICES)
    (DATA / "small.toml").write_text(server_view_truth.profile("small"))
    gateway.write_log(DATA, "priced.db", gateway.PRICED)
    requests = [{"custom_id": str(number), "body": QUESTION} for number in range(20)]
    (DATA / "questions.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in requests))


def make_screen(page: devtools.Page, name: str) -> None:
    """Run a command, and picture its last screen."""
    if name in SERVERS:
        (DATA / "mine.toml").write_text(SERVER.format(*SERVERS[name]))
    frames = measured(name)
    (DATA / "screen.svg").write_text(svg(frames[-1:], SCREENS[name]))
    page.looks(1280, "dark")
    page.open("about:blank")
    page.open((DATA / "screen.svg").as_uri())
    page.value(
        "document.documentElement.setAttribute('height', "
        "document.documentElement.viewBox.baseVal.height)"
    )
    save(SHOTS / f"terminal-{name}.png", pictured(page))
    if name == ANIMATED:
        label = (
            "A benchmark of three simulated providers in a terminal, with its table and sentences"
        )
        save(PICTURES / "terminal.svg", svg(frames, label, SHOWN_LINES).encode())


def measured(name: str) -> Frames:
    """Return the screens of a command. What README shows is repeated if a row is INVALID, as on a
    busy machine."""
    for _ in range(TRIES):
        command = SCREENS[name]
        run = DATA / (command.partition(" --out ")[2] or "-")
        shutil.rmtree(run, ignore_errors=True)
        frames = recorded(command, DATA, NARROW.get(name, COLUMNS))
        if name not in SHOWN or not any(
            row["invalid"] for row in json.loads((run / "run.json").read_bytes())["conditions"]
        ):
            return frames
    sys.exit(f"This machine is too busy: {TRIES} runs of {name} had INVALID rows. Try again later.")


def make_page(page: devtools.Page, name: str, url: str, watched_s: float = 0) -> None:
    """Picture a page in all looks, and as it is printed on A4."""
    page.looks(1280, "light")
    page.open("about:blank")
    page.open(url)
    time.sleep(watched_s)
    for look, (width, theme) in LOOKS.items():
        page.looks(width, theme)
        page.value("new Promise(done => setTimeout(done, 3000))")
        save(SHOTS / f"{name}-{look}.png", pictured(page))
        if kept := DOCUMENTS.get(f"{name}-{look}"):
            file, first, last = kept
            top, bottom = (
                page.value(
                    f"document.querySelector('{place}').getBoundingClientRect().{edge} + scrollY"
                )
                for place, edge in ((first, "top"), (last, "bottom"))
            )
            save(PICTURES / f"{file}.png", pictured(page, top - MARGIN, bottom + MARGIN))
    page.looks(1280, "light")
    printed = page.says(
        "Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False
    )["data"]
    for number, sheet in enumerate(pypdfium2.PdfDocument(b64decode(printed)), 1):
        sheet.render(scale=1.5).to_pil().save(SHOTS / f"{name}-print-{number}.png")


def pictured(page: devtools.Page, top: float = 0, bottom: float = math.inf) -> bytes:
    """Return the page that is open, or what lies between two heights of it, in pixels."""
    clip = page.value(
        "(({x, y, width, height}) => ({x, y, width, "
        "height}))(document.documentElement.getBoundingClientRect())"
    )
    top = max(top, 0)
    clip |= {"y": top, "height": min(clip["y"] + clip["height"], bottom) - top, "scale": 1}
    return b64decode(
        page.says("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
    )


def save(path: Path, data: bytes) -> None:
    """Write a picture. Raises `SystemExit` if it is too large for the repository."""
    path.write_bytes(data)
    print(f"{path.relative_to(ROOT)}: {len(data) / 1000:,.0f} kB", flush=True)
    if path.parent == PICTURES and len(data) > MAX_BYTES:
        sys.exit(f"{path.name} has {len(data):,} bytes; the maximum is {MAX_BYTES:,}.")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or ("",))
