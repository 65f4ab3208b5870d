"""Plots as PNG files, each with its title and legend. Needs the extra `png`; no browser and no
network."""

from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path

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


def png(plot: Plot, legend: Mapping[str, LegendEntry]) -> bytes:
    try:
        import vl_convert
    except ImportError:
        raise CallerFault(
            "PNG files need the extra `png`.",
            kind="no_extra",
            hint='pip install "splitsecond[png]"',
        ) from None
    image: bytes = vl_convert.svg_to_png(standalone(plot, legend), scale=SCALE)
    return image


def standalone(plot: Plot, legend: Mapping[str, LegendEntry]) -> str:
    key, below = _legend(list(legend.values()))
    height = MARGIN + TITLE + plot.height + below + MARGIN
    width = WIDTH + 2 * MARGIN
    style = fixed(
        files("splitsecond.core.pages").joinpath("templates/chart.css").read_text(encoding="utf-8"),
        LIGHT,
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{px(height)}" '
        f'class="chart" '
        f'font-family="{FONT}" font-size="12"><style>{style}</style>'
        f'<rect width="100%" height="100%" fill="{LIGHT.ground}"/>'
        f'<text x="{MARGIN}" y="{MARGIN + 10}" class="title" font-weight="600" '
        f'font-size="14">{escape(plot.heading)}'
        f'</text><g transform="translate({MARGIN} {MARGIN + TITLE})">{plot.drawing}</g>'
        f'<g transform="translate({MARGIN} {px(MARGIN + TITLE + plot.height)})">{key}</g></svg>'
    )


def _legend(entries: list[LegendEntry]) -> tuple[str, float]:
    parts, x, y = [], 0.0, float(LEGEND_LINE)
    for entry in entries:
        wide = 24 + CHARACTER * len(entry.label)
        if x and x + wide > WIDTH:
            x, y = 0.0, y + LEGEND_LINE
        mark = shape_path(entry.shape or "square", x + 6, y - 4, 4.5)
        parts.append(
            f'<g class="{entry.colour}"><path class="mark" d="{mark}"/></g>'
            f'<text x="{px(x + 18)}" y="{px(y)}">{escape(entry.label)}</text>'
        )
        x += wide
    return "".join(parts), y + 4 if entries else 0.0
