"""The report on paper, as Chromium prints it: its summary takes at most two pages of either
format."""

import re
from base64 import b64decode
from pathlib import Path

import pytest
from tests.gateway.in_chromium.devtools import Page, driven
from tests.report.invented import PROVIDERS, invented_run
from tests.report.searched import searched_run

from splitsecond.benchmark.report.run_page import render_run

pytestmark = pytest.mark.system

PAPERS = {"A4": (8.27, 11.69), "Letter": (8.5, 11.0)}
"""Width and height in inches."""


def pages(page: Page, width: float, height: float) -> int:
    """Return the number of pages that the page in the browser prints on."""
    printed = page.says(
        "Page.printToPDF", paperWidth=width, paperHeight=height, preferCSSPageSize=False
    )["data"]
    return len(re.findall(rb"/Type\s*/Page\s", b64decode(printed)))


def test_the_summary_is_printed_on_at_most_two_pages(tmp_path: Path) -> None:
    """Three targets at two loads, as in the README, five at three, and a search. Details only on
    request."""
    compared = invented_run(tuple(PROVIDERS)[:3], (1, 8), in_rounds=True)
    many = invented_run(in_rounds=True)
    with driven(tmp_path) as page:
        for name, run, most in (
            ("compared", compared, 2),
            ("many", many, 2),
            ("searched", searched_run(), 1),
        ):
            (tmp_path / f"{name}.html").write_text(render_run(*run), "utf-8")
            page.open((tmp_path / f"{name}.html").as_uri())
            assert {paper: pages(page, *size) for paper, size in PAPERS.items()} == dict.fromkeys(
                PAPERS, most
            ), name
            page.value("document.documentElement.dataset.print = 'all'")
            page.value(
                "document.querySelectorAll('details').forEach(each => { each.open = true; })"
            )
            assert pages(page, *PAPERS["A4"]) > 2, "the details are there"
