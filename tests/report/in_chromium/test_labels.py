"""Labels of plots do not touch, on every kind of page at two widths."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.gateway.in_chromium.devtools import Page, driven
from tests.report.in_chromium.test_accessibility import PAGES
from tests.report.test_speed_page import speed

from splitsecond.log.report.speed_page import render_speed

pytestmark = pytest.mark.system

LONG = (
    "fireworks/accounts/fireworks/models/llama-v3p1-70b-instruct",
    "together/meta-llama/Meta-Llama-3.1-70B-Instruct-Turbo",
    "vertex-claude/claude-3-sonnet@20240229",
    "groq/llama-3.1-70b-versatile",
    "openai/gpt-4o",
)
TOUCHING = """
[...document.querySelectorAll("svg.chart")].flatMap(svg => {
  const texts = [...svg.querySelectorAll("text")].map(t => [t, t.getBoundingClientRect()])
    .filter(([t, box]) => box.width && t.textContent.trim());
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  return texts.flatMap(([t, a], at) => texts.slice(at + 1).filter(([, b]) => meet(a, b))
    .map(([other]) => `${svg.id}: ${t.textContent} | ${other.textContent}`));
})
"""
"""The boxes of two lines of one name overlap by less than 3 px, though their letters do not."""


def long_names() -> str:
    rows = [speed(name, 250 / (at + 1)) for at, name in enumerate(LONG)]
    return render_speed(rows, [], period="today", least=500, by="target")


KINDS: dict[str, Callable[[], str]] = {**PAGES, "speed, long names": long_names}


@pytest.fixture(scope="module")
def browser_page(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with driven(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.mark.parametrize("kind", KINDS)
def test_no_label_touches_another(kind: str, browser_page: Page, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(KINDS[kind](), "utf-8")
    browser_page.open((tmp_path / "page.html").as_uri())
    for width in (1280, 400):
        browser_page.looks(width, "light")
        assert browser_page.value(TOUCHING) == [], width
