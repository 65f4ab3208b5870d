"""Student's t distribution for whole degrees of freedom, in closed form, so that the package needs
no scipy.

Formulas: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = TypeVar("Numbers", float, Floats)

MAX_FREEDOM = 200
"""Degrees of freedom beyond which t is treated as having this many; its 97.5% point is then 0.6%
above the normal's."""
_HALVINGS = 60
_LARGEST_T = 1e6


def boundary(beyond: Callable[[float], bool], most: float) -> float:
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle) else (middle, high)
    return (low + high) / 2


@lru_cache(maxsize=4096)
def t_quantile(doubt: float, freedom: int) -> float:
    """Return the t that a value exceeds in size with probability `doubt` (two-sided): 2.571 for
    0.05 and 5."""
    return boundary(lambda t: t_doubt(t, freedom) <= doubt, _LARGEST_T)


def t_doubt(t: float, freedom: int) -> float:
    """Return the probability that a value exceeds `t` in size: the two-sided p-value. `freedom` is
    at least 1."""
    angle = math.atan2(abs(t), math.sqrt(min(freedom, MAX_FREEDOM)))
    return max(1.0 - _inside(angle, math.sin(angle), math.cos(angle), freedom), 0.0)


def t_doubts(t: Floats, freedom: npt.NDArray[np.int64]) -> Floats:
    doubts = np.empty_like(t)
    for each in np.unique(freedom):
        angle = np.arctan2(np.abs(t[freedom == each]), math.sqrt(min(each, MAX_FREEDOM)))
        doubts[freedom == each] = 1.0 - _inside(angle, np.sin(angle), np.cos(angle), int(each))
    return np.maximum(doubts, 0.0)


def _inside(angle: Numbers, sine: Numbers, cosine: Numbers, freedom: int) -> Numbers:
    """Return the probability of a value within ±t, whose `angle` has the tangent t / √freedom."""
    freedom, square = min(freedom, MAX_FREEDOM), cosine * cosine
    term = cosine if freedom % 2 else cosine**0
    total = 0 * term
    for k in range(1, freedom // 2 + 1):
        total = total + term
        term = term * square * (2 * k / (2 * k + 1) if freedom % 2 else (2 * k - 1) / (2 * k))
    return 2 / math.pi * (angle + sine * total) if freedom % 2 else sine * total
