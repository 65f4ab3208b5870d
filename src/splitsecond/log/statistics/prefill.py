"""What a time to first token depends on: TTFT = fixed + new × new tokens + reused × reused tokens.

New tokens are those that the server must read, reused ones come from its prompt cache. The fit is
robust: a turn whose prompt was not in the cache although it should have been, or that waited in a
queue, must not change the speed of the others. It minimises Tukey's biweight of the relative error,
log(TTFT) − log(fit), from a start that minimises absolute errors (an MM-estimate; Yohai, Annals of
Statistics, 1987). Relative errors, because the TTFT of 100,000 tokens scatters by more milliseconds
than that of 1,000. So the fit is the usual TTFT, not the mean.
"""

import numpy as np
from msgspec import Struct

from splitsecond.log.statistics.jackknife import Flags
from splitsecond.log.statistics.summary import Floats

MIN_TURNS = 12
"""Least number of turns for a fit of three numbers."""
BIWEIGHT = 4.685
"""Error, in scales, from which a turn has no weight. With normal errors, the fit has 95% of the
precision of a mean."""
MAD = 1.4826
"""Standard deviation of a normal distribution divided by its median absolute deviation."""
MIN_SCALE = 0.01
"""Least relative scatter of TTFT, so that a simulated target without any scatter has a fit."""
STEPS = 20
"""Most steps of each of the two minimisations."""
ENOUGH = 1e-5
FLOOR = 0.02
"""Least fit, as a share of the shortest TTFT: a fit must stay positive."""


class PrefillModel(Struct, frozen=True):
    """TTFT in seconds as `fixed` + `new` for each new token + `reused` for each reused one.

    `scale`: relative scatter of the turns around it.
    """

    fixed: float
    new: float
    reused: float
    scale: float = 0.0

    def ttft_s(self, new: Floats, reused: Floats) -> Floats:
        return np.asarray(self.fixed + self.new * new + self.reused * reused)


def fitted(new: Floats, reused: Floats, ttft_s: Floats) -> PrefillModel | None:
    """Return the model of turns with positive times; None if they are too few or too alike to tell
    its three parts."""
    return fitted_parts(new, reused, ttft_s, np.ones((1, len(new)), dtype=bool))[0]


def fitted_parts(
    new: Floats, reused: Floats, ttft_s: Floats, parts: Flags
) -> list[PrefillModel | None]:
    """Return the model of each part of the turns, which a row of `parts` flags. Together they take
    half the time."""
    models: list[PrefillModel | None] = [None] * len(parts)
    if len(ttft_s) < MIN_TURNS:
        return models
    design = np.column_stack((np.ones(len(new)), new, reused))
    # tokens are thousands: numbers of one size are solved better
    units = np.maximum(np.abs(design).max(axis=0), 1.0)
    design = design / units
    ranks = np.linalg.matrix_rank(design * parts[:, :, None], tol=1e-6)
    solvable = (parts.sum(axis=1) >= MIN_TURNS) & (ranks == design.shape[1])
    if not solvable.any():
        return models
    used = parts[solvable]
    floor = FLOOR * np.where(used, ttft_s, np.inf).min(axis=1)
    relative = design / ttft_s[:, None]
    coefficients = np.array(
        [np.linalg.lstsq(relative[of], np.ones(of.sum()), rcond=None)[0] for of in used]
    )
    coefficients = _improved(coefficients, design, ttft_s, used, floor, np.zeros(len(used)))
    errors = np.abs(_errors(coefficients, design, ttft_s, floor)[0])
    scale = np.array(
        [max(MAD * np.median(own[of]), MIN_SCALE) for own, of in zip(errors, used, strict=True)]
    )
    coefficients = _improved(coefficients, design, ttft_s, used, floor, scale)
    for at, numbers, scatter in zip(
        np.flatnonzero(solvable), coefficients / units, scale, strict=True
    ):
        fixed, of_new, of_reused = numbers.tolist()
        models[at] = PrefillModel(fixed, of_new, of_reused, float(scatter))
    return models


def _errors(solved: Floats, design: Floats, ttft_s: Floats, floor: Floats) -> tuple[Floats, Floats]:
    """Return the relative error of each turn for each of the models that were `solved`, and the
    fit."""
    fit = np.maximum(solved @ design.T, floor[:, None])
    return np.asarray(np.log(ttft_s / fit)), fit


def _improved(
    coefficients: Floats, design: Floats, ttft_s: Floats, used: Flags, floor: Floats, scale: Floats
) -> Floats:
    """Return the numbers of each model after reweighted least squares of the turns that it has
    `used`. `scale` 0: of absolute errors; otherwise of the biweight."""
    coefficients, moving = coefficients.copy(), np.arange(len(coefficients))
    for _ in range(STEPS):
        errors, fit = _errors(coefficients[moving], design, ttft_s, floor[moving])
        if scale.any():
            shares = errors / (BIWEIGHT * scale[moving, None])
            weights = np.square(np.maximum(1 - np.square(shares), 0.0))
        else:
            weights = 1 / np.maximum(np.abs(errors), MIN_SCALE)
        # log(y / fit) changes by −x / fit for each of the numbers.
        slopes = design.T / fit[:, None]
        weighted = slopes * (weights * used[moving])[:, None]
        moved = _solved(weighted @ slopes.transpose(0, 2, 1), weighted @ errors[:, :, None])
        coefficients[moving] += moved
        far = np.abs(moved).max(axis=1) > ENOUGH * np.abs(coefficients[moving]).max(axis=1)
        moving = moving[far]
        if not len(moving):
            break
    return coefficients


def _solved(equations: Floats, right: Floats) -> Floats:
    """Return the solution of each three equations; of several ones, the shortest."""
    try:
        solutions = np.linalg.solve(equations, right)
    except np.linalg.LinAlgError:  # one of them has no single solution
        both = zip(equations, right, strict=True)
        solutions = np.array([np.linalg.lstsq(*each, rcond=None)[0] for each in both])
    return np.asarray(solutions[:, :, 0])
