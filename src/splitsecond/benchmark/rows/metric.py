"""What a metric of a run is: a figure of each request with a distribution, or one number of a
row."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from splitsecond.benchmark.rows.row_fields import RowFields
from splitsecond.benchmark.statistics.sessions import session_numbers
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.money.cost import usd
from splitsecond.core.observation import Observation
from splitsecond.core.wording import number, percent
from splitsecond.log.statistics.sample_comparison import Parts
from splitsecond.log.statistics.summary import (
    MIN_ROUNDS,
    FigureSample,
    Floats,
    Interval,
    Summary,
    summary_of,
)

_WORDS: dict[str, Callable[[float], str]] = {"share": percent, "USD": usd}
"""Units that are part of the number in words."""


class Metric(Struct, frozen=True):
    """`name`: its key in run.json. `group`: the table of "All metrics" that has it; "": none."""

    name: str
    label: str
    unit: str
    group: str
    definition: str


class Figure(Metric, frozen=True, kw_only=True):
    """One figure of a request.

    `of` returns its value for one request (None: undefined) or, for gaps within a request, an array
    of values; where `unit` is ms, in ns. With `higher_is_better`, percentiles run from
    the fast end. `from_due`: the figure that replaces this one in an open loop, where time counts
    from the moment a request was due.

    `among`: the requests that it describes, by default those whose answer is text. A failed one
    counts as slower than all others, unless `answered_only`. `counts_tokens`: compared only between
    rows with the same source of counts.

    `main`: shown in the first table (p50 and p95). `listed`: percentiles under "All metrics".
    `applies`: rows for which it differs from simpler figures. `compared`: part of `compare`;
    `stated`: a change gets a sentence.
    """

    of: Callable[[Observation], float | Floats | None]
    among: Callable[[Observation], bool] = lambda o: not o.inputs
    higher_is_better: bool = False
    from_due: "Figure | None" = None
    per_request: bool = True
    answered_only: bool = False
    counts_tokens: bool = False
    main: bool = False
    listed: tuple[str, ...] = ("p50",)
    applies: Callable[[RowFields], bool] = lambda row: True
    compared: bool = False
    stated: bool = False

    @property
    def unit_after(self) -> str:
        return f" {self.unit}"

    @property
    def _scale(self) -> int:
        return NS_PER_MS if self.unit == "ms" else 1

    def value(self, observation: Observation) -> Any:
        value = self.of(observation) if self.among(observation) else None
        return None if value is None else value / self._scale

    def sample(self, requests: Sequence[Observation]) -> FigureSample:
        """Return the figure of `requests` (see `ended`), in `unit`; those that succeeded without it
        are left out.

        Gaps within a request are those of the answers.
        """
        pairs = self._values([o for o in requests if self.among(o)])
        numbers = np.array([o.round for o, _ in pairs], dtype=np.int64)
        if self.per_request:
            values, rounds = np.array([value for _, value in pairs], dtype=np.float64), numbers
            clusters = session_numbers([o for o, _ in pairs])
        else:
            values, clusters = np.concatenate([np.empty(0), *(gaps for _, gaps in pairs)]), None
            sizes = np.array([np.size(gaps) for _, gaps in pairs], dtype=np.int64)
            rounds, numbers = np.repeat(numbers, sizes), numbers[sizes > 0]
        spread = len(np.unique(numbers[numbers > 0])) >= MIN_ROUNDS
        return FigureSample((values / self._scale).astype(np.float64), rounds, spread, clusters)

    def _values(self, requests: Sequence[Observation]) -> list[tuple[Observation, float | Floats]]:
        if self.answered_only or not self.per_request:
            requests = [o for o in requests if o.ok]
        failed = -np.inf if self.higher_is_better else np.inf
        pairs = [(o, self.of(o) if o.ok else failed) for o in requests]
        return [(o, value) for o, value in pairs if value is not None]

    def summarise(self, requests: Sequence[Observation], of_round: int | None = None) -> Summary:
        """Return the distribution over `requests` (see `ended`). `of_round`: see `summary_of`.

        Gaps within a request get no intervals: a slow step of the server delays all of its streams
        at once, so the number of gaps says nothing about the error of a percentile.
        """
        sample = self.sample(requests)
        if self.per_request:
            return summary_of(sample, higher_is_better=self.higher_is_better, of_round=of_round)
        return summary_of(sample.values, independent=False)

    def summary(self, row: RowFields) -> Summary:
        summary: Summary = getattr(row, self.name)
        return summary

    def under(self, *, open_loop: bool) -> "Figure":
        return self.from_due if open_loop and self.from_due else self


class Total(Metric, frozen=True, kw_only=True):
    """One number of a row. With `of` it is computed from the row; without, it is a field of
    `RowFields`.

    `tested`: a change gets an interval and a test. `by_round`: the two numbers of each round that
    it is the ratio of.
    """

    of: Callable[[RowFields], float | None] | None = None
    higher_is_better: bool | None = None
    main: bool = False
    compared: bool = False
    tested: bool = False
    ci95_of: Callable[[RowFields], Interval] = lambda row: (None, None)
    by_round: Callable[[RowFields], Parts] = lambda row: {}

    @property
    def unit_after(self) -> str:
        return "" if self.unit in ("", *_WORDS, *re.split("[ ,]+", self.label)) else f" {self.unit}"

    def value(self, row: RowFields) -> float | None:
        stored: float | None = getattr(row, self.name)
        return self.of(row) if stored is None and self.of else stored


def in_words(metric: Figure | Total, value: float) -> str:
    """Return a value in words, before the `unit_after` of its metric."""
    return _WORDS.get(metric.unit, number)(value)
