from collections.abc import Mapping, Sequence

from splitsecond.benchmark.report.plots.series import STRIPS
from splitsecond.benchmark.server_view.terms import TERMS
from splitsecond.core import wording
from splitsecond.core.pages.axis import Axis
from splitsecond.core.pages.chart import Chart, Point

STRIP_HEIGHT = 64
Reported = Mapping[str, Sequence[Point]]
"""What a server reported, by term."""


def strip_tops(reported: Sequence[Reported]) -> dict[str, float]:
    """Return the highest value of each term that was not always 0: one scale for all plots of a
    page, so that they can be compared."""
    found = {
        term: max((value for each in reported for _, value in each.get(term, ())), default=0.0)
        for term in STRIPS
    }
    return {term: 1.0 if TERMS[term].unit == "share" else top for term, top in found.items() if top}


def strip(title: str, top: float, words: str, x: Axis, left: float = 0) -> Chart:
    """Return a strip from 0 to `top`, which is called `words`. `left`: pixels beside it; 0: as its
    labels need."""
    y = Axis(title=title, low=0, high=max(top * 1.1, 1), ticks=[(0, "0"), (top, words)])
    return Chart(x, y, height=STRIP_HEIGHT, left=left)


def server_strip(term: str, top: float, x: Axis, left: float = 0) -> Chart:
    words = "100%" if TERMS[term].unit == "share" else wording.number(top)
    return strip(STRIPS[term], top, words, x, left)
