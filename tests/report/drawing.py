"""A plot as a test reads it: the elements of its SVG drawing."""

import re
from xml.etree import ElementTree

from splitsecond.core.pages.chart import Plot


def elements(plot: Plot) -> list[ElementTree.Element]:
    """Return every element of the drawing. Fails if it is no XML, or if a number is none."""
    found = list(ElementTree.fromstring(f"<svg>{plot.svg}</svg>").iter())
    numbers = " ".join(
        each.get(name, "") for each in found for name in ("d", "x", "y", "transform")
    )
    assert not re.search(r"nan|inf|e[+-]\d", numbers), plot.name
    return found


def tips(plot: Plot) -> list[str]:
    """Return the tooltips of the marks."""
    found = (element for element in elements(plot) if element.tag == "path")
    return [title.text or "" for element in found for title in element if title.tag == "title"]


def texts(plot: Plot) -> list[str]:
    """Return the texts of the drawing: ticks, titles of axes, labels, names."""
    return [element.text or "" for element in elements(plot) if element.tag == "text"]


def keys(plot: Plot) -> set[str]:
    """Return the legend entries that have marks in the drawing."""
    return {
        element.attrib["data-key"] for element in elements(plot) if "data-key" in element.attrib
    }


def marks(plot: Plot, look: str, key: str = "") -> list[str]:
    """Return the paths of the marks with a class, of all legend entries or of one."""
    groups = [
        each
        for each in elements(plot)
        if each.tag == "g" and (not key or each.get("data-key") == key)
    ]
    return [path.attrib["d"] for group in groups for path in group if path.get("class") == look]


def xs(path: str) -> list[float]:
    """Return the horizontal places of a path of lines, in pixels."""
    return [x for x, _ in _places(path)]


def ys(path: str) -> list[float]:
    """Return the vertical places of a path of lines, in pixels; larger is further down."""
    return [y for _, y in _places(path)]


def _places(path: str) -> list[tuple[float, float]]:
    x = y = 0.0
    found = []
    for command, rest in re.findall(r"([a-zA-Z])([^a-zA-Z]*)", path):
        numbers = [float(number) for number in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", rest)]
        match command:
            case "M" | "L":
                x, y = numbers
            case "m" | "l":
                x, y = x + numbers[0], y + numbers[1]
            case "h":
                x += numbers[0]
            case "v":
                y += numbers[0]
            case "H":
                (x,) = numbers
            case "V":
                (y,) = numbers
            case "z":
                continue
            case _:
                raise AssertionError(command)
        found.append((x, y))
    return found
