"""Summaries of times of which some are only lower bounds, for tests."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from splitsecond.log.statistics.summary import Summary
from splitsecond.log.statistics.value_counts import Counted, summarise


def censored_summary(
    values: Sequence[float] | npt.NDArray[np.floating],
    closed: Sequence[int] | npt.NDArray[np.bool_],
) -> Summary:
    """Summarise times as independent; those marked in `closed` are lower bounds."""
    times = np.asarray(values, np.float64)
    order = np.argsort(times, kind="stable")
    cells = np.zeros(len(times), np.int64)
    marks = np.asarray(closed, bool)
    return summarise(
        Counted(cells=cells, values=times[order], closed=marks[order], counts=np.ones_like(cells)),
        cells,
    )
