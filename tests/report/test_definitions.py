"""docs/reference/figures.md: generated from the table of figures, and current."""

from pathlib import Path

import pytest

from splitsecond.benchmark.report.definitions import METRICS, definitions, figures_page

PAGE = Path(__file__).parents[2] / "docs/reference/figures.md"


def test_the_page_of_figures_is_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        PAGE.write_text(figures_page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == figures_page(), "run this test with --update-golden"


def test_every_metric_has_its_own_definition() -> None:
    assert len({metric.label for metric in METRICS}) == len(METRICS)
    assert all(text.endswith(".") for text in definitions(sessions=True, inputs=True).values())
