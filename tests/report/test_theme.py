"""The colours of both themes: contrast with the background, and with each other for every kind of
sight."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cases import each_case

from splitsecond.core.pages.theme import (
    DARK,
    LIGHT,
    PALETTES,
    SHAPES,
    THEMES,
    Theme,
    fixed,
    page_colours,
)

Matrix = NDArray[np.float64]
SIGHT: dict[str, Matrix] = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
    ),
    "deuteranopia": np.array(
        [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]
    ),
    "tritanopia": np.array(
        [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]
    ),
}
"""Linear RGB as it is seen, after Machado, Oliveira and Fernandes (2009), severity 1."""
LMS = np.array(
    [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
)
LAB = np.array(
    [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
)
"""Linear RGB to the responses of cones, and their cube roots to Oklab (Ottosson, 2020)."""
APART = 0.05
"""Least distance of two targets' colours in Oklab. Before this palette, two pairs had 0.006 and
0.03."""


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_colours_have_contrast(theme: Theme) -> None:
    assert contrast(theme.ink, theme.ground) >= 7
    for text in (theme.faint, theme.good, theme.warn, theme.bad, theme.accent):
        assert contrast(text, theme.ground) >= 4.5, text
        assert contrast(text, theme.panel) >= 4.5, text
    for palette in PALETTES:
        for colour in getattr(theme, f"{palette}s"):
            assert contrast(colour, theme.ground) >= 3, colour


@each_case("theme", THEMES, ids=lambda theme: theme.name)
@each_case("sight", SIGHT)
def test_colours_of_targets_and_stages_are_distinguishable(theme: Theme, sight: str) -> None:
    for one, other in combinations(theme.targets, 2):
        assert np.linalg.norm(seen(one, sight) - seen(other, sight)) >= APART, (one, other)
    for one, other in combinations(theme.stages, 2):
        assert np.linalg.norm(seen(one, sight) - seen(other, sight)) >= APART, (one, other)


def test_both_themes_have_the_same_names() -> None:
    for palette in PALETTES:
        assert len(getattr(LIGHT, f"{palette}s")) == len(getattr(DARK, f"{palette}s"))
    assert len(LIGHT.targets) > len(SHAPES), "the ninth target has another shape than the first"
    assert "--target-7:light-dark(#2a1a6e,#ffffff);" in page_colours()
    assert "var(" not in fixed(".x{fill:var(--ground)}", DARK)


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two colours, as WCAG 2 defines it."""
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    return float(linear_rgb(colour) @ [0.2126, 0.7152, 0.0722])


def linear_rgb(colour: str) -> Matrix:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def seen(colour: str, sight: str) -> Matrix:
    """A colour in Oklab, as somebody with that sight sees it."""
    found: Matrix = LAB @ np.cbrt(LMS @ np.clip(SIGHT[sight] @ linear_rgb(colour), 0, 1))
    return found
