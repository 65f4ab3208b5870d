"""Colours, shapes and fonts of all pages and plots, in a light and a dark theme.

Targets have eight colours. Each has a contrast of at least 3:1 with the background (WCAG 1.4.11),
and any two stay apart for readers with each kind of colour blindness (`tests/report/test_theme.py`
measures it). A target also has a shape, so colour is never the only sign. Stages of a request have
a palette of their own, so that a stage is never mistaken for a target.
"""

import re

from msgspec import Struct

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "inverted")


class Theme(Struct, frozen=True, kw_only=True):
    name: str
    ground: str
    ink: str
    faint: str
    line: str
    panel: str
    accent: str
    good: str
    warn: str
    bad: str
    targets: list[str]
    stages: list[str]
    grades: list[str]
    states: list[str]


LIGHT = Theme(
    name="light",
    ground="#ffffff",
    ink="#1a1d21",
    faint="#5b636d",
    line="#dfe3e8",
    panel="#f6f7f9",
    accent="#0b5cad",
    good="#00795a",
    warn="#8f6200",
    bad="#b3261e",
    targets=[
        "#0072b2",
        "#d55e00",
        "#00916e",
        "#8b1a4a",
        "#3d8bff",
        "#5c4400",
        "#aa4499",
        "#2a1a6e",
    ],
    stages=["#5b8fc7", "#b4472f", "#c98500", "#602c7a", "#183620", "#8c8b7e"],
    grades=["#1a7f37", "#5f9410", "#a87400", "#d55e00", "#b3261e", "#868e98"],
    states=["#0072b2", "#a87400", "#d55e00", "#6b7078", "#b3261e"],
)
DARK = Theme(
    name="dark",
    ground="#14171b",
    ink="#e7eaee",
    faint="#a3abb5",
    line="#2d333b",
    panel="#1b1f25",
    accent="#6db3f2",
    good="#2fc49a",
    warn="#f2b134",
    bad="#ff8a80",
    targets=[
        "#4c9be8",
        "#f07f3c",
        "#2fc49a",
        "#f5d060",
        "#8e5fd0",
        "#b5ecfe",
        "#c94128",
        "#ffffff",
    ],
    stages=["#6ea3dc", "#e07a62", "#f0c04f", "#b232d7", "#a7f1ec", "#686667"],
    grades=["#3fb950", "#9bc53d", "#e3b341", "#f07f3c", "#ff6b61", "#7d8590"],
    states=["#4c9be8", "#e3b341", "#f07f3c", "#a8adb4", "#ff8a80"],
)
THEMES = (LIGHT, DARK)
PALETTES = ("target", "stage", "grade", "state")
"""Each is a list of colours of a theme, named in the plural, and a class of marks: `target-0`,
`target-1`, …"""
NAMED = ("ground", "ink", "faint", "line", "panel", "accent", "good", "warn", "bad")


def variables(theme: Theme) -> dict[str, str]:
    colours = {name: getattr(theme, name) for name in NAMED}
    for palette in PALETTES:
        colours |= {
            f"{palette}-{i}": colour for i, colour in enumerate(getattr(theme, f"{palette}s"))
        }
    return colours


def page_colours() -> str:
    dark = variables(DARK)
    properties = "".join(
        f"--{name}:light-dark({light},{dark[name]});" for name, light in variables(LIGHT).items()
    )
    return f":root{{{properties}}}\n{_classes()}\n"


def fixed(style: str, theme: Theme) -> str:
    colours = variables(theme)
    return re.sub(r"var\(--([a-z0-9-]+)\)", lambda match: colours[match[1]], style + _classes())


def _classes() -> str:
    return "".join(
        f".{palette}-{i}{{color:var(--{palette}-{i})}}"
        for palette in PALETTES
        for i in range(len(getattr(LIGHT, f"{palette}s")))
    )
