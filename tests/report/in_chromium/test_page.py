"""The report in a real browser: every picture drawn, in both themes, on a desk and on a phone, and nothing complained.

One headless Chromium opens a page of frames, one for each width, lets each draw, presses its button for the other
theme, lets it draw again, and writes down what it saw. Frames have any width; a headless window has not.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.report.browser import BROWSERS, browser
from tests.report.test_watch import history

from splitsecond.analysis.findings import Run
from splitsecond.report import html
from splitsecond.report.pictures import charts
from splitsecond.report.theme import DARK, LIGHT
from splitsecond.report.watch import render_watch
from splitsecond.timing.observation import Observation

WIDTHS = (1280, 390)
PATIENCE_S = 60

FRAMES = """<!doctype html><meta charset="utf-8"><body><pre id="seen"></pre><script>
const page = %s, widths = %s;
const drawn = root => new Promise(done => {
  const look = () => root.dataset.drawn === undefined ? setTimeout(look, 20) : done();
  look();
});
async function see(width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  frame.srcdoc = page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const root = frame.contentDocument.documentElement, seen = [];
  const note = () => seen.push({
    width, ground: frame.contentWindow.getComputedStyle(root.querySelector("body")).backgroundColor,
    inside: frame.contentWindow.innerWidth, needed: root.scrollWidth,
    places: root.querySelectorAll(".plot").length, pictures: root.querySelectorAll(".plot svg").length,
    drawn: +root.dataset.drawn, failed: +root.dataset.failed,
    text: [...root.querySelectorAll(".plot")].map(place => place.textContent).join(" "),
  });
  await drawn(root);
  note();
  root.querySelector("#theme").click();
  await drawn(root);
  note();
  return seen;
}
Promise.all(widths.map(see)).then(
  seen => document.getElementById("seen").textContent = JSON.stringify(seen.flat()),
  error => document.getElementById("seen").textContent = JSON.stringify(String(error)));
</script>"""


def seen_in_chromium(page: str, folder: Path, widths: Sequence[int] = WIDTHS) -> tuple[list[dict[str, Any]], str]:
    """What each frame showed, first in the light and then in the dark, and what Chromium logged."""
    program = browser()
    assert program, f"no browser found, expected one of these on PATH: {', '.join(BROWSERS)}"
    script = json.dumps(page).replace("<", "\\u003c")
    (folder / "frames.html").write_text(FRAMES % (script, json.dumps(widths)))
    command = [program, "--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    command += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []  # as root it will not start with one
    command += ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000", "--dump-dom"]
    ended = subprocess.run(
        [*command, (folder / "frames.html").as_uri()], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    seen = json.loads(unescape(ended.stdout.split('<pre id="seen">')[1].split("</pre>")[0]))
    assert isinstance(seen, list), seen
    return seen, ended.stderr


def rgb(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


def test_every_picture_is_drawn_and_nothing_scrolls_sideways(
    invented: tuple[Run, Sequence[Observation]], tmp_path: Path
) -> None:
    seen, log = seen_in_chromium(html.render(*invented), tmp_path)
    assert [(view["width"], view["ground"]) for view in seen] == [
        (width, rgb(theme.ground)) for width in WIDTHS for theme in (LIGHT, DARK)
    ]
    for view in seen:
        assert view["places"] == view["pictures"] == view["drawn"] == 11, view
        assert view["failed"] == 0, view
        assert view["needed"] <= view["inside"] == view["width"], view
    assert "CONSOLE" not in log, log


def test_so_is_every_picture_of_a_watch(tmp_path: Path) -> None:
    seen, log = seen_in_chromium(render_watch(history("groq/llama-3.1-70b-versatile", "b/y").findings(3600)), tmp_path)
    assert [view["width"] for view in seen] == [width for width in WIDTHS for _ in range(2)]
    for view in seen:
        assert view["places"] == view["pictures"] == view["drawn"] == 6, view
        assert view["failed"] == 0, view
        assert view["needed"] <= view["inside"] == view["width"], view
    assert "CONSOLE" not in log, log


def test_a_picture_that_cannot_be_drawn_says_so(
    invented: tuple[Run, Sequence[Observation]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = list(charts(*invented).values())[:2]
    shown = {good.name: good, bad.name: msgspec.structs.replace(bad, spec={"layer": [{"mark": "none of these"}]})}
    monkeypatch.setattr(html, "charts", lambda run, observations: shown)
    (view, _), _ = seen_in_chromium(html.render(*invented), tmp_path, widths=(390,))
    assert (view["drawn"], view["failed"]) == (1, 1)
    assert "This plot could not be drawn" in view["text"]
