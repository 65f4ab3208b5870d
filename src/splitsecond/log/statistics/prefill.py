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
    if len(ttft_s) < MIN_TURNS:
        return None
    design = np.column_stack((np.ones(len(new)), new, reused))
    # tokens are thousands: numbers of one size are solved better
    units = np.maximum(np.abs(design).max(axis=0), 1.0)
    design = design / units
    if np.linalg.matrix_rank(design, tol=1e-6) < design.shape[1]:
        return None
    floor = FLOOR * float(ttft_s.min())
    found = np.linalg.lstsq(design / ttft_s[:, None], np.ones(len(ttft_s)), rcond=None)[0]
    found = _improved(found, design, ttft_s, floor, 0.0)
    scale = max(MAD * float(np.median(np.abs(_errors(found, design, ttft_s, floor)))), MIN_SCALE)
    found = _improved(found, design, ttft_s, floor, scale)
    fixed, of_new, of_reused = (found / units).tolist()
    return PrefillModel(fixed, of_new, of_reused, scale)


def _errors(found: Floats, design: Floats, ttft_s: Floats, floor: float) -> Floats:
    return np.asarray(np.log(ttft_s / np.maximum(design @ found, floor)))


def _improved(found: Floats, design: Floats, ttft_s: Floats, floor: float, scale: float) -> Floats:
    """Return the numbers after reweighted least squares. `scale` 0: of absolute errors; otherwise
    of the biweight."""
    for _ in range(STEPS):
        fit = np.maximum(design @ found, floor)
        errors = np.log(ttft_s / fit)
        if scale:
            weights = np.square(np.maximum(1 - np.square(errors / (BIWEIGHT * scale)), 0.0))
        else:
            weights = 1 / np.maximum(np.abs(errors), MIN_SCALE)
        # log(y / fit) changes by −x / fit for each of the numbers.
        slopes = design.T / fit
        weighted = slopes * weights
        moved = _solved(weighted @ slopes.T, weighted @ errors)
        found = found + moved
        if np.abs(moved).max() <= ENOUGH * np.abs(found).max():
            break
    return found


def _solved(equations: Floats, right: Floats) -> Floats:
    """Return the solution of three equations; of several ones, the shortest. That one takes ten
    times as long."""
    try:
        return np.asarray(np.linalg.solve(equations, right))
    except np.linalg.LinAlgError:  # no single solution
        return np.asarray(np.linalg.lstsq(equations, right, rcond=None)[0])
