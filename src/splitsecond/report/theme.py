"""The colours and type of every picture, in light and in dark.

Targets take the palette of Okabe and Ito, which stays apart for colour-blind eyes, in an order that keeps neighbours
far apart; each colour is darkened or lightened until it has a contrast of 3:1 against its ground (WCAG 1.4.11). A
target also has a shape of its own, so colour is never the only sign. What a request spends its time on (`STAGES`) has
a palette of its own, so that a stage is never taken for a target; it runs from the end of a request to its beginning.

A specification names no colour: it says "category" for targets and "ordinal" for stages, and these configurations
say what that is. So one specification is drawn in both themes.
"""

from typing import Any

from msgspec import Struct

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SHAPES = ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down"]


class Theme(Struct, frozen=True, kw_only=True):
    """The colours of one theme, as the page's style sheet and the plots take them."""

    name: str
    ground: str
    ink: str
    faint: str
    line: str
    targets: list[str]
    stages: list[str]


LIGHT = Theme(
    name="light",
    ground="#ffffff",
    ink="#1a1d21",
    faint="#5b636d",
    line="#dfe3e8",
    targets=["#0072b2", "#d55e00", "#009270", "#b5578f", "#a87400", "#2e8fc6", "#6b7078", "#7d7a00"],
    stages=["#5b8fc7", "#b4472f", "#c98500", "#4d6480", "#7c8ea6", "#8f857a"],
)
DARK = Theme(
    name="dark",
    ground="#14171b",
    ink="#e7eaee",
    faint="#a3abb5",
    line="#2d333b",
    targets=["#4c9be8", "#f07f3c", "#2fc49a", "#e39ac6", "#f2b134", "#8fd0f5", "#a8adb4", "#e3da54"],
    stages=["#6ea3dc", "#e07a62", "#e3a63a", "#7f93b3", "#b3bfd1", "#bdb3a6"],
)
THEMES = (LIGHT, DARK)


def vega_config(theme: Theme) -> dict[str, Any]:
    """The Vega-Lite configuration that draws a specification in `theme`."""
    words = {"labelColor": theme.faint, "titleColor": theme.ink, "labelFontSize": 11, "titleFontSize": 12}
    return {
        "background": theme.ground,
        "font": FONT,
        "view": {"stroke": None},
        "range": {"category": theme.targets, "ordinal": theme.stages, "symbol": SHAPES},
        "axis": {
            **words,
            "titleFontWeight": "normal",
            "gridColor": theme.line,
            "domainColor": theme.line,
            "tickColor": theme.line,
            "labelLimit": 150,
            "labelOverlap": "greedy",
        },
        "legend": {
            **words,
            "orient": "bottom",
            "columns": 3,
            "labelLimit": 240,
            "title": None,
            "symbolFillColor": theme.faint,
        },
        "title": {"color": theme.ink, "fontSize": 14, "anchor": "start", "offset": 12},
        "text": {"color": theme.faint, "fontSize": 11},
        "rule": {"color": theme.faint},
        "line": {"strokeWidth": 2},
        "point": {"size": 45, "filled": True, "opacity": 1},
    }
