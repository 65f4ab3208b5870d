import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec.structs import replace

from splitsecond.benchmark.report import rows
from splitsecond.benchmark.report.plots import series
from splitsecond.benchmark.report.plots.series import SPLIT, STAGES, STEPS, STRIPS, TURN_PARTS
from splitsecond.benchmark.report.rows import LoadLevel
from splitsecond.benchmark.rows.records import Run
from splitsecond.benchmark.server_view.terms import TERMS
from splitsecond.core import wording
from splitsecond.core.pages.axis import Axis
from splitsecond.core.pages.chart import (
    Chart,
    LegendEntry,
    Legends,
    Point,
    palette_entries,
    target_entries,
)
from splitsecond.core.wording import ENGINE

T = TypeVar("T")


def legends(run: Run) -> Legends:
    """Return the entries of each legend. Stages and steps count their colours from the end.

    The parts of TTFT have the colour of the stage that they are, or that they are most of.
    """
    every = palette_entries("stage", list(STAGES.values()), from_end=True)
    of_stage = {"network": "network", "queue": "TLS", "prefill": "provider", "rest": "DNS"}
    return {
        "targets": target_entries(rows.targets(run)),
        "stages": {STAGES[stage]: every[STAGES[stage]] for stage in series.stages_of(run)},
        "split": {part: replace(every[of_stage[part]], label=part) for part in SPLIT},
        "steps": palette_entries("stage", STEPS, from_end=True),
        "session": palette_entries("stage", TURN_PARTS, from_end=True)
        | {"tools": LegendEntry(label="tools", palette="stage", index=len(every) - 1)},
    }


def on_axis(run: Run) -> Callable[[str], bool]:
    """Return which targets decide the length of an axis: not the built-in engine, unless there is
    nothing else."""
    only_engines = all(target.startswith(ENGINE) for target in rows.targets(run))
    return lambda target: only_engines or not target.startswith(ENGINE)


def deciding(run: Run, items: Sequence[T], target: Callable[[T], str]) -> Sequence[T]:
    """Return the items of the targets that decide the length of an axis; all if there are none."""
    decides = on_axis(run)
    return [each for each in items if decides(target(each))] or items


def target_entries_of(run: Run) -> dict[str, LegendEntry]:
    return target_entries(rows.targets(run))


def level_slug(level: LoadLevel) -> str:
    kind = "open" if level.open_loop else "concurrency"
    load = kind if level.load is None else f"{kind}-{level.load:g}".replace(".", "_")
    return load + kind_suffix(level.cache_reuse, level.workload)


def kind_suffix(reuse: bool, workload: str) -> str:
    """Return the end of a plot's name; characters that no file name can have become hyphens."""
    return ("-reuse" if reuse else "") + (
        f"-{re.sub(r'[^a-z0-9]+', '-', workload.lower())}" if workload else ""
    )


STRIP_HEIGHT = 64
Reported = Mapping[str, Sequence[Point]]
"""What a server reported, by term."""


def strip_tops(reported: Sequence[Reported]) -> dict[str, float]:
    """Return the highest value of each term that was not always 0: one scale for all plots of a
    page, so that they can be compared."""
    tops = {
        term: max((value for each in reported for _, value in each.get(term, ())), default=0.0)
        for term in STRIPS
    }
    return {term: 1.0 if TERMS[term].unit == "share" else top for term, top in tops.items() if top}


def strip(title: str, top: float, words: str, x: Axis, left: float = 0) -> Chart:
    """Return a strip from 0 to `top`, which is called `words`. `left`: pixels beside it; 0: as its
    labels need."""
    y = Axis(title=title, low=0, high=max(top * 1.1, 1), ticks=[(0, "0"), (top, words)])
    return Chart(x, y, height=STRIP_HEIGHT, left=left)


def server_strip(term: str, top: float, x: Axis, left: float = 0) -> Chart:
    words = "100%" if TERMS[term].unit == "share" else wording.number(top)
    return strip(STRIPS[term], top, words, x, left)
