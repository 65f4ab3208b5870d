"""The report in a real browser: every plot is drawn, in both themes and at two widths, without an
error.

One headless Chromium opens a page with one frame for each width, waits until each is drawn, presses
its button for the other theme, waits again, and records what it found. Frames can have any width; a
headless window cannot.
"""

import json
import os
import subprocess
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from tests.report.browser import BROWSERS, browser
from tests.report.test_speed_page import speed_page
from tests.report.test_watch import history

from splitsecond.benchmark.report.run_page import render_run
from splitsecond.benchmark.report.watch_page import render_watch
from splitsecond.benchmark.rows.records import Run
from splitsecond.core.observation import Observation
from splitsecond.core.pages.theme import DARK, LIGHT

pytestmark = pytest.mark.system

WIDTHS = (1280, 390)
PATIENCE_S = 180

FRAMES = """<!doctype html><meta charset="utf-8"><body><pre id="seen"></pre><script>
const page = %s, widths = %s;
async function see(width) {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  frame.srcdoc = page;
  document.body.append(frame);
  await new Promise(done => frame.onload = done);
  const inside = frame.contentWindow, root = frame.contentDocument.documentElement, seen = [];
  const colour = mark => inside.getComputedStyle(mark).color;
  const cut = mark => {
    const box = mark.getBoundingClientRect(), whole = mark.closest("svg").getBoundingClientRect();
    return box.width > 0 && (box.left < whole.left - 3 || box.right > whole.right + 3);
  };
  const note = () => seen.push({
    width, ground: inside.getComputedStyle(root.querySelector("body")).backgroundColor,
    inside: inside.innerWidth, needed: root.scrollWidth, ready: "ready" in root.dataset,
    charts: root.querySelectorAll("svg.chart").length,
    drawn: [...root.querySelectorAll("svg.chart")]
      .filter(chart => chart.getBBox().width > 100).length,
    cut: [...root.querySelectorAll("svg.chart text")].filter(cut).map(text => text.textContent),
    colours: [...new Set(
      [...root.querySelectorAll("svg.chart [data-key='target-0']")].map(colour))],
    scrolls: [...root.querySelectorAll(".scroll")]
      .filter(each => each.scrollWidth > each.clientWidth + 1).length,
    bars: [...root.querySelectorAll(".row:not(.gone) [data-name]")].map(bar => bar.dataset.name),
    rows: [...root.querySelectorAll("#rows tbody tr")]
      .filter(row => !row.hidden).map(row => row.cells[0].textContent),
    acted: root.dataset.acted,
  });
  %s
  note();
  root.querySelector("#theme").click();
  note();
  return seen;
}
Promise.all(widths.map(see)).then(
  seen => document.getElementById("seen").textContent = JSON.stringify(seen.flat()),
  error => document.getElementById("seen").textContent = JSON.stringify(String(error)));
</script>"""


def seen_in_chromium(
    page: str, folder: Path, widths: Sequence[int] = WIDTHS, act: str = ""
) -> tuple[list[dict[str, Any]], str]:
    """Return what each frame showed, first in light and then in dark, and what Chromium logged.

    `act` is JavaScript that uses the page (`root`) after it was drawn.
    """
    program = browser()
    assert program, f"no browser found, expected one of these on PATH: {', '.join(BROWSERS)}"
    script = json.dumps(page).replace("<", "\\u003c")
    (folder / "frames.html").write_text(FRAMES % (script, json.dumps(widths), act))
    command = [
        program,
        "--headless",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-sync",
    ]
    command += [
        "--disable-background-networking",
        "--disable-component-update",
        f"--user-data-dir={folder / 'profile'}",
    ]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []  # as root it will not start with one
    command += ["--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000", "--dump-dom"]
    ended = subprocess.run(
        [*command, (folder / "frames.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    seen = json.loads(unescape(ended.stdout.split('<pre id="seen">')[1].split("</pre>")[0]))
    assert isinstance(seen, list), seen
    return seen, ended.stderr


def rgb(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


def assert_whole(seen: list[dict[str, Any]], charts: int) -> None:
    """Fail unless every chart is drawn with all its texts, and nothing scrolls sideways, in each
    view."""
    for view in seen:
        assert view["ready"], view
        assert view["charts"] == view["drawn"] == charts, view
        assert view["cut"] == [], view
        assert view["needed"] <= view["inside"] == view["width"], view
        assert view["scrolls"] == 0, view


def test_run_page_draws_every_plot_without_sideways_scrolling(
    invented: tuple[Run, Sequence[Observation]], tmp_path: Path
) -> None:
    act = "root.querySelectorAll('details').forEach(each => { each.open = true; });"
    seen, log = seen_in_chromium(render_run(*invented), tmp_path, act=act)
    assert [(view["width"], view["ground"]) for view in seen] == [
        (width, rgb(theme.ground)) for width in WIDTHS for theme in (LIGHT, DARK)
    ]
    assert_whole(seen, charts=23)
    assert [view["colours"] for view in seen[:2]] == [
        [rgb(theme.targets[0])] for theme in (LIGHT, DARK)
    ]
    assert "CONSOLE" not in log, log


def test_watch_page_draws_plots_without_sideways_scrolling(tmp_path: Path) -> None:
    seen, log = seen_in_chromium(
        render_watch(history("groq/llama-3.1-70b-versatile", "b/y").findings(3600)), tmp_path
    )
    assert [view["width"] for view in seen] == [width for width in WIDTHS for _ in range(2)]
    assert_whole(seen, charts=6)
    assert "CONSOLE" not in log, log


FILTERS = """
const form = root.querySelector("#filters");
form.elements.text.value = "GPT";
form.querySelector('input[value="4"]').checked = false;
form.dispatchEvent(new Event("input"));
"""


def test_filters_of_the_speed_page_hide_rows_and_bars(tmp_path: Path) -> None:
    seen, log = seen_in_chromium(speed_page(), tmp_path, act=FILTERS)
    assert_whole(seen, charts=2)
    for view in seen:
        assert view["rows"] == view["bars"] == ["openai/gpt-4o"], view
    assert "CONSOLE" not in log, log


USED = """
let copied = "";
Object.defineProperty(inside.navigator, "clipboard",
  { value: { writeText: async text => { copied = text; } } });
const [markdown] = root.querySelectorAll(".exports button");
markdown.click();
const lines = copied.trim().split("\\n");
const entry = root.querySelector('.legend [data-key="target-1"]');
entry.dispatchEvent(new Event("pointerenter"));
const marks = key => [...root.querySelectorAll(`svg.chart [data-key="${key}"]`)];
const dim = key => marks(key).every(each => each.classList.contains("dim"));
const mark = root.querySelector("#plot-ttft-by-load [data-tip]");
mark.dispatchEvent(new inside.PointerEvent("pointermove",
  { bubbles: true, clientX: 50, clientY: 50 }));
const tip = root.querySelector("#tip");
const found = [lines.length, lines[2], dim("target-0"), dim("target-1"), tip.hidden,
  tip.textContent];
root.dataset.acted = JSON.stringify(found);
"""


SAVED = """
let saved = "";
inside.Blob = class { constructor(parts) { saved = parts.join(""); } };
inside.URL.createObjectURL = () => "";
inside.HTMLAnchorElement.prototype.click = () => {};
const { cells } = root.querySelector("table[data-export]").tBodies[0].rows[0];
["=1+1", "-1.5", "+2%", "@a", "-a"].forEach((text, at) => { cells[at].textContent = text; });
root.querySelectorAll(".exports button")[1].click();
root.dataset.acted = saved.split("\\n")[1];
"""


def test_a_formula_in_a_saved_table_gets_an_apostrophe(
    invented: tuple[Run, Sequence[Observation]], tmp_path: Path
) -> None:
    (view, _), log = seen_in_chromium(render_run(*invented), tmp_path, widths=(1280,), act=SAVED)
    assert [each for each in view["acted"].split(",") if each][:5] == [
        "'=1+1",
        "-1.5",
        "+2%",
        "'@a",
        "'-a",
    ]
    assert "CONSOLE" not in log, log


def test_page_copies_tables_and_highlights_by_legend(
    invented: tuple[Run, Sequence[Observation]], tmp_path: Path
) -> None:
    run, observations = invented
    (view, _), log = seen_in_chromium(
        render_run(run, observations), tmp_path, widths=(1280,), act=USED
    )
    lines, row, others_dim, own_dim, hidden, tip = json.loads(view["acted"])
    assert lines == 2 + 5
    assert row.startswith(
        "| generalcompute/llama-3.1-70b-instruct | 185 (168–196) | 314 (307–321) |"
    )
    assert (others_dim, own_dim, hidden) == (True, False, False)
    assert tip == "generalcompute/llama-3.1-70b-instruct" or "p50" in tip
    assert "CONSOLE" not in log, log
