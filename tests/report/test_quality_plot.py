"""Speed against quality as a picture: the front, and names that do not touch."""

import pytest
from tests.report.drawing import marks, texts

from splitsecond.benchmark.report.plots.quality_plot import quality_plot, quality_png
from splitsecond.benchmark.rows.records import Recommendation, TargetRating
from splitsecond.core.errors import CallerFault
from splitsecond.core.pages.chart import target_entries

TARGETS = {"groq/a": (200.0, 60.0), "groq/b": (205.0, 60.2), "together/c": (480.0, 55.0)}


def recommended(front: list[str]) -> Recommendation:
    rated = [
        TargetRating(target=name, keeps="yes", ttft_p95_ms=ms, value=ms, quality=score, requests=90)
        for name, (ms, score) in TARGETS.items()
    ]
    return Recommendation(
        use="voice", limits={"ttft": 300}, by="ttft_ms", candidates=rated, quality_front=front
    )


def test_front_is_filled_and_every_target_has_its_name() -> None:
    drawn = quality_plot([recommended(["groq/a", "groq/b"])], target_entries(list(TARGETS)))
    assert drawn is not None
    assert set(TARGETS) <= set(texts(drawn))
    assert "voice: TTFT p95, ms" in texts(drawn)
    assert len(marks(drawn, "mark")) == 3
    assert drawn.drawing.count("hollow") == 1
    assert "groq/a, groq/b" in drawn.description


def test_without_scores_there_is_nothing_to_draw() -> None:
    assert quality_plot([recommended([])], {}) is None
    with pytest.raises(CallerFault, match="fewer than two targets have a score"):
        quality_png([recommended([])])
