"""Plots as PNG files, each with its title and legend. Needs the extra `png`; no browser and no
network."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from textwrap import wrap

from splitsecond.core.errors import CallerFault
from splitsecond.core.pages.chart import (
    CHARACTER,
    WIDTH,
    LegendEntry,
    Legends,
    Plot,
    px,
    shape_path,
)
from splitsecond.core.pages.theme import FONT, LIGHT, fixed

SCALE = 3
MARGIN, TITLE, LEGEND_LINE = 16, 30, 20
SLIDE_WIDTH = 2 * WIDTH + 3 * MARGIN
TITLE_CHARACTERS, TITLE_LINE, NOTE_CHARACTERS, NOTE_LINE = 112, 26, 185, 18
"""Characters and height of a line of a slide's title, and of what stands below it."""


def save_png(plots: Iterable[Plot], legends: Legends, folder: Path) -> list[Path]:
    """Write each plot to NAME.png in `folder`, which is created if it is missing.

    Raises `CallerFault` without the extra, and `OSError`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for plot in plots:
        path = folder / f"{plot.name}.png"
        path.write_bytes(png(plot, legends.get(plot.legend, {})))
        written.append(path)
    return written


def check_png() -> None:
    """Raise `CallerFault` without the extra. Called before the work, not after it."""
    if find_spec("vl_convert") is None:
        raise CallerFault(
            "PNG files need the package vl-convert-python, which is not installed",
            kind="no_extra",
            hint="Run pip install vl-convert-python, or leave out --png.",
        )


def png(plot: Plot, legend: Mapping[str, LegendEntry]) -> bytes:
    """Raises `CallerFault` without the extra."""
    return _image(standalone(plot, legend))


def slide_png(
    sentences: Sequence[str], plots: Sequence[Plot], legend: Mapping[str, LegendEntry]
) -> bytes:
    """Return one picture for a slide: a sentence as its title, the others below, and two plots.
    Raises `CallerFault` without the extra."""
    return _image(slide(sentences, plots, legend))


def _image(svg: str) -> bytes:
    check_png()
    import vl_convert

    image: bytes = vl_convert.svg_to_png(svg, scale=SCALE)
    return image


def standalone(plot: Plot, legend: Mapping[str, LegendEntry]) -> str:
    key, below = _legend(list(legend.values()))
    height = MARGIN + TITLE + plot.height + below + MARGIN
    return _svg(
        WIDTH + 2 * MARGIN,
        height,
        f"{_titled(plot, MARGIN, MARGIN)}"
        f'<g transform="translate({MARGIN} {px(MARGIN + TITLE + plot.height)})">{key}</g>',
    )


def slide(
    sentences: Sequence[str], plots: Sequence[Plot], legend: Mapping[str, LegendEntry]
) -> str:
    title, *notes = sentences
    texts, y = [], 0.0
    for line in wrap(title, TITLE_CHARACTERS):
        y += TITLE_LINE
        texts.append((line, y, 'font-weight="600" font-size="19"'))
    for line in (line for note in notes for line in wrap(note, NOTE_CHARACTERS)):
        y += NOTE_LINE
        texts.append((line, y, 'font-size="12"'))
    top = y + 2 * MARGIN
    words = "".join(
        f'<text x="{MARGIN}" y="{px(at)}" class="title" {look}>{escape(line)}</text>'
        for line, at, look in texts
    )
    charts = "".join(
        _titled(plot, MARGIN + place * (WIDTH + MARGIN), top)
        for place, plot in enumerate(plots[:2])
    )
    below = top + TITLE + max((plot.height for plot in plots[:2]), default=0.0)
    key, height = _legend(list(legend.values()), SLIDE_WIDTH - 2 * MARGIN)
    return _svg(
        SLIDE_WIDTH,
        below + height + MARGIN,
        f'{words}{charts}<g transform="translate({MARGIN} {px(below)})">{key}</g>',
    )


def _titled(plot: Plot, x: float, y: float) -> str:
    return (
        f'<text x="{px(x)}" y="{px(y + 10)}" class="title" font-weight="600" font-size="14">'
        f"{escape(plot.heading)}</text>"
        f'<g transform="translate({px(x)} {px(y + TITLE)})">{plot.drawing}</g>'
    )


def _svg(width: float, height: float, content: str) -> str:
    style = fixed(
        files("splitsecond.core.pages").joinpath("templates/chart.css").read_text(encoding="utf-8"),
        LIGHT,
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{px(width)}" height="{px(height)}" '
        f'class="chart" font-family="{FONT}" font-size="12"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="{LIGHT.ground}"/>{content}</svg>'
    )


def _legend(entries: list[LegendEntry], width: float = WIDTH) -> tuple[str, float]:
    parts, x, y = [], 0.0, float(LEGEND_LINE)
    for entry in entries:
        wide = 24 + CHARACTER * len(entry.label)
        if x and x + wide > width:
            x, y = 0.0, y + LEGEND_LINE
        mark = shape_path(entry.shape or "square", x + 6, y - 4, 4.5)
        parts.append(
            f'<g class="{entry.colour}"><path class="mark" d="{mark}"/></g>'
            f'<text x="{px(x + 18)}" y="{px(y)}">{escape(entry.label)}</text>'
        )
        x += wide
    return "".join(parts), y + 4 if entries else 0.0
