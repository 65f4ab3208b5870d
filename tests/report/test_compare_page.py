"""The page of a comparison: its headline, its plots and its tables."""

from collections.abc import Sequence

import msgspec
import pytest
from tests.golden import Golden
from tests.report.drawing import marks, tips
from tests.report.invented import PAUSE_NS, invented_run, moved
from tests.report.page import Page

from splitsecond.benchmark.findings.compare import Comparison, RunData, compare
from splitsecond.benchmark.report.compare_page import _changes, render_comparison
from splitsecond.core.observation import Observation
from splitsecond.core.pages.chart import Plot

GROQ, REPLICATE = TARGETS = ("groq/llama-3.1-70b-versatile", "replicate/meta-llama-3-70b")


def later(o: Observation, share: float) -> Observation:
    """Return an observation whose TTFT is longer by a share."""
    by = round((o.ttft_ns or 0) * share)
    moved = {
        name: (getattr(o, name) or 0) + by for name in ("first_token_ns", "last_token_ns", "end_ns")
    }
    return msgspec.structs.replace(o, **moved, token_at=[at + by for at in o.token_at])


def comparison(share: float, concurrencies: Sequence[int] = (1,)) -> Comparison:
    """Compare a run with itself, with TTFT of one target changed by a share."""
    run, observations = invented_run(TARGETS, concurrencies)
    observed = [
        msgspec.structs.replace(moved(o, at % 8 * PAUSE_NS), round=1 + at % 8)
        for at, o in enumerate(observations)
    ]
    changed = [later(o, share) if o.target == GROQ else o for o in observed]
    return compare([RunData(run, observed)], [RunData(run, changed)])


@pytest.fixture(scope="module")
def worse() -> Comparison:
    return comparison(0.25)


def drawn(found: Comparison) -> Plot:
    (plot,) = _changes("change-0", "Concurrency 1", found.conditions)
    return plot


def test_the_words_of_the_page(worse: Comparison, golden: Golden) -> None:
    golden.check(Page(render_comparison(worse)).words)


def test_each_change_is_a_mark_with_an_interval_and_a_colour(worse: Comparison) -> None:
    plot = drawn(worse)
    (ttft,) = (tip for tip in tips(plot) if tip.startswith("TTFT p50") and "+25%" in tip)
    assert ttft.splitlines()[1].startswith("+25% (+")
    assert len(marks(plot, "mark", "grade-4")) == len(marks(plot, "range", "grade-4")) == 4
    assert not marks(plot, "mark", "grade-0")
    assert len(tips(plot)) == 2 * 10


@pytest.mark.parametrize(
    ("share", "sentence", "badge"),
    [
        (0.25, "The second run is worse than the first in 4 figures, beyond chance.", "worse"),
        (-0.3, "The second run is better than the first in 6 figures, beyond chance.", "better"),
    ],
)
def test_the_headline_counts_what_changed(share: float, sentence: str, badge: str) -> None:
    words = Page(render_comparison(comparison(share))).words
    assert sentence in words
    assert f"# Comparison of two runs {badge}" in words
    assert f"* TTFT p50, c=1\n {share:+.0%}".replace("-", "−") in words.replace(
        "\N{MINUS SIGN}", "−"
    )


def test_without_a_change_the_page_shows_the_first_figures() -> None:
    words = Page(render_comparison(comparison(0.0))).words
    assert "No change beyond chance." in words
    assert "# Comparison of two runs no change" in words
    assert "* TTFT p50, c=1\n 0% groq" in words


def test_runs_without_a_common_row_have_a_page() -> None:
    empty = Comparison(
        before="a", after="b", conditions=[], only_before=["x"], only_after=["y"], statements=[]
    )
    words = Page(render_comparison(empty)).words
    assert "The runs have no row in common." in words
    assert "Only in the run before: x." in words
