"""Accumulator of a log's attempts: columns in, production figures out.

Total TPS depends on the hour of the day and on the lengths of prompt and answer. So two targets are
compared at common hours and lengths: within each period, each class of both weighs as much as the
target with fewer requests in it has of them. Without enough common classes the comparison is
refused.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec.structs import replace

from splitsecond.core.catalog.model_names import identify
from splitsecond.core.catalog.price import MILLION, Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.timing.columns import (
    OUTCOMES,
    SOURCES,
    UNKNOWN,
    US_PER_HOUR,
    WAIT_CLOSED,
    AttemptColumns,
    Floats,
    Integers,
    Mask,
    source_places,
)
from splitsecond.core.timing.packed_attempt import UNBILLED
from splitsecond.log.production.drift import SpeedOfPeriod, day_of, drift_of
from splitsecond.log.production.price_table import PriceTable, tier_factors
from splitsecond.log.production.row_names import (
    LABELS,
    NAMES,
    SIZES,
    SPLIT,
    prompt_classes,
)
from splitsecond.log.production.speed import (
    MIN,
    PERIODS,
    By,
    ProductionSpeed,
    SpeedComparison,
    compared,
    comparisons_adjusted,
    drifts_adjusted,
    graded,
    period_name,
    periods_joined,
    same_model,
)
from splitsecond.log.statistics.value_counts import (
    BATCHES_NEEDED,
    Counted,
    ValueCounts,
    closed_bounds,
    distinct,
    period_medians,
    summarise,
)

HOURS_PER_DAY, SECONDS_PER_HOUR = 24, 3600
ANSWERED, FAILED = OUTCOMES.index("ok"), OUTCOMES.index("failed")
COMMON_SHARE = 0.2
"""Least share of the requests of the target with fewer of them that has lengths which the other
has, too."""
COARSEST_BY_LENGTH = 17
"""Bits that may be dropped from a value for comparisons: a precision of 1/64, for a median of
many."""
LENGTH_BITS, HOUR_BITS = 8, 4
LENGTH_CLASSES = 1 << LENGTH_BITS
HOURS_ALIKE = 2
"""Hours of the day that are one class. Single hours would take twice the memory."""
CLASSES_JOINED = (1, 2, 3)
"""Classes of hours that are compared as one: the first of these with which enough requests are in
common classes."""
ANSWER_CLASSES = 40
LONG_ANSWER = 8192
"""Tokens from which on an answer is in the last of these classes."""
CLASSES_PER_DOUBLING = 3
"""Classes between a length and twice of it. With one, targets of equal speed differ by 4% because
the lengths within a class differ; with three, by less than 1%."""
_ANSWER_CLASS: Integers = np.minimum(
    (CLASSES_PER_DOUBLING * np.log2(np.arange(LONG_ANSWER + 1).clip(1))).astype(np.int64),
    ANSWER_CLASSES - 1,
)
"""Class of an answer by its tokens."""

FLAG_BITS = 10
FLAGS = (1 << FLAG_BITS) - 1
"""The flags of `core/timing/packed_attempt`."""


class ProductionTraffic:
    """Accumulator of attempts, in any order; `speeds` returns their figures.

    `price` returns the price of a target, None if unknown. `by`: what makes one row. `period_h`:
    the length of a period in hours, one of `PERIODS`.
    """

    def __init__(
        self, price: Callable[[str], Price | None], by: By = "target", period_h: int = 1
    ) -> None:
        self._price = price
        self._by = by
        self._period_h = period_h
        self._targets: dict[str, int] = {}
        self._target_rows: list[int] = []
        self._prices = PriceTable.of([])
        self._rows: dict[str, int] = {}
        self._sums: defaultdict[str, Floats] = defaultdict(lambda: np.zeros(0))
        self._row_targets: set[tuple[int, int]] = set()
        self._faults: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self._cells: dict[tuple[int, int], int] = {}
        self._total, self._tps, self._waits = ValueCounts(), ValueCounts(), ValueCounts()
        self._by_length = ValueCounts(COARSEST_BY_LENGTH)

    def add(self, columns: AttemptColumns) -> None:
        for label in columns.labels:
            self._add_target(label.target)
        if len(self._prices.by_token) < len(self._targets):
            self._prices = PriceTable.of([self._price(target) for target in self._targets])
        targets = np.array([self._targets[label.target] for label in columns.labels], np.int64)
        rows = self._named(columns, targets)
        total = columns.total_tps
        self._add_sums(columns, targets, rows, ~np.isnan(total))
        cells = self._numbered(rows, columns.came_us // (US_PER_HOUR * self._period_h))
        for name, outcome in (("answered in", ANSWERED), ("failed in", FAILED)):
            self._count(name, cells, columns.outcomes == outcome)
        self._total.add(cells, total)
        if self._by == "target":
            hours = columns.hours % HOURS_PER_DAY // HOURS_ALIKE
            self._by_length.add(
                (cells << HOUR_BITS | hours) << LENGTH_BITS | _lengths(columns), total
            )
        self._tps.add(cells, columns.tps)
        self._waits.add(cells, columns.wait_ms, columns.waits == WAIT_CLOSED)

    def speeds(self, least: int = MIN) -> list[ProductionSpeed]:
        by_row, period = self._cells_by_row()
        joined = periods_joined(period)
        figures = self._total, self._tps, self._waits
        speeds = []
        for name, row in self._rows.items():
            if row in by_row:
                samples = [each.of(by_row[row]) for each in figures]
                speed = self._speed(name, row, samples, period, joined)
                span_s = len(by_row[row]) * self._period_h * SECONDS_PER_HOUR
                speed.in_flight = self._sum("took", row) / NS_PER_S / span_s
                if self._period_h >= HOURS_PER_DAY:
                    self._add_days(speed, by_row[row], samples, period)
                speeds.append(graded(speed, least))
        return sorted(
            drifts_adjusted(speeds),
            key=lambda s: (s.grade is None, -(s.total_tps.p50 or 0), s.name),
        )

    def comparisons(
        self, speeds: Sequence[ProductionSpeed], across: By = "target"
    ) -> list[SpeedComparison]:
        side = NAMES[across]
        cells, period = self._cells_by_row()
        period //= periods_joined(period)
        comparisons = []
        for model, (first, *others) in same_model(s for s in speeds if s.grade is not None).items():
            for other in others:
                if side(identify(first.name)) == side(identify(other.name)):
                    continue
                both = [
                    self._by_length.of(cells[self._rows[speed.name]], HOUR_BITS + LENGTH_BITS)
                    for speed in (first, other)
                ]
                periods = [period[each.cells >> HOUR_BITS + LENGTH_BITS] for each in both]
                for joined in CLASSES_JOINED:
                    share, weights = _matched(both, periods, joined)
                    if share >= COMMON_SHARE:
                        break
                pair = SpeedComparison(model=model, first=first.name, other=other.name, share=share)
                if share < COMMON_SHARE:
                    comparisons.append(
                        replace(pair, refused="their hours, prompts and answers differ too much")
                    )
                else:
                    medians = [_medians(*each) for each in zip(both, periods, weights, strict=True)]
                    comparisons.append(compared(pair, *medians))
        return comparisons_adjusted(comparisons)

    def _cells_by_row(self) -> tuple[dict[int, list[int]], Integers]:
        by_row: defaultdict[int, list[int]] = defaultdict(list)
        for (row, _), cell in self._cells.items():
            by_row[row].append(cell)
        periods = np.fromiter((period for _, period in self._cells), np.int64, len(self._cells))
        return by_row, periods - (periods.min() if len(periods) else 0)

    def _add_target(self, target: str) -> None:
        if target not in self._targets:
            self._targets[target] = len(self._targets)
            self._target_rows.append(
                self._row(NAMES[self._by](identify(target))) if self._by in NAMES else -1
            )

    def _row(self, name: str) -> int:
        return self._rows.setdefault(name, len(self._rows))

    def _named(self, columns: AttemptColumns, targets: Integers) -> Integers:
        if self._by == "hour":
            hours = [self._row(f"{hour:02}:00 UTC") for hour in range(HOURS_PER_DAY)]
            return np.array(hours)[columns.hours % HOURS_PER_DAY]
        if self._by == "size":
            sizes = [self._row(f"{size} input tokens") for size in SIZES]
            return np.array(sizes)[prompt_classes(columns)]
        if self._by in LABELS:
            name_of = LABELS[self._by]
            return np.array([self._row(name_of(label)) for label in columns.labels], np.int64)[
                columns.label
            ]
        return np.array(self._target_rows, np.int64)[targets][columns.label]

    def _numbered(self, rows: Integers, periods: Integers) -> Integers:
        first = int(periods.min()) if len(periods) else 0
        count = int(periods.max()) - first + 1 if len(periods) else 1
        combined, cell = distinct(rows * count + (periods - first))
        numbers = [
            self._cells.setdefault((row, first + period), len(self._cells))
            for row, period in (divmod(each, count) for each in combined.tolist())
        ]
        return np.array(numbers, np.int64)[cell]

    def _add_sums(
        self, columns: AttemptColumns, targets: Integers, rows: Integers, answered: Mask
    ) -> None:
        """Add numbers of attempts, tokens and costs by the token, as `cost.cost_usd` computes them.

        Attempts of one kind have the same row, label, flags and price, so all that depends on these
        is computed once.
        """
        labels, tiers = len(columns.labels), self._prices.above_tokens.shape[1] + 1
        read, written = columns.input_tokens, columns.output_tokens
        has_tokens = (read != UNKNOWN) & (written != UNKNOWN)
        combined = columns.label
        if self._by in SPLIT:
            combined = rows * labels + combined
        if tiers > 1:
            combined = combined * tiers + self._prices.tiers(targets[columns.label], read)
        combined = (combined << 2 | answered << 1 | has_tokens) << FLAG_BITS | columns.flags & FLAGS
        kinds, kind = distinct(combined)

        def summed(tokens: Integers) -> Floats:
            return np.bincount(kind, tokens, len(kinds)).astype(np.float64)

        attempts = np.bincount(kind, minlength=len(kinds))
        cached, filled, hour = (
            columns.cached_tokens,
            columns.cache_write_tokens,
            columns.cache_write_1h_tokens,
        )
        plain = np.maximum(read - cached - filled, 0)
        read_sum, written_sum = summed(np.maximum(read, 0)), summed(np.maximum(written, 0))
        billed = np.stack(
            [summed(plain), summed(cached), summed(filled - hour), summed(hour), written_sum], 1
        )

        flags, kinds = kinds & FLAGS, kinds >> FLAG_BITS
        was_counted, was_answered, kinds = (kinds & 1) > 0, (kinds & 2) > 0, kinds >> 2
        kinds, tier = np.divmod(kinds, tiers)
        label, row = kinds % labels, np.zeros(len(kinds), np.int64)
        row[kind] = rows
        for number, outcome in enumerate(OUTCOMES):
            self._count(outcome, row, attempts * (flags & 3 == number))
        for number, source in enumerate(SOURCES):
            self._count(
                f"from {source}", row, attempts * (was_answered & (source_places(flags) == number))
            )
        self._count("took", row, summed(np.maximum(columns.took_ns, 0)))
        self._count("input", row, read_sum * was_answered)
        self._count("output", row, written_sum * was_answered)
        self._count("waits closed", row, attempts * (flags >> 4 & 3 == WAIT_CLOSED))
        unbilled, by_token = (flags & UNBILLED) > 0, self._prices.by_token[targets[label]]
        has_cost = (was_counted & by_token) | unbilled
        usd = (billed * self._prices.rates[targets[label], tier]).sum(1) / MILLION
        usd *= tier_factors(self._price, columns.labels)[label]
        self._count("unpriced", row, attempts * ~has_cost)
        self._count("usd", row, usd * (has_cost & ~unbilled))
        self._count("priced tokens", row, (read_sum + written_sum) * has_cost)
        for place in np.flatnonzero(flags & 3 == FAILED).tolist():
            if fault := columns.labels[label[place]].fault:
                self._faults[int(row[place])][fault] += int(attempts[place])
        if self._by not in ("target", "model"):
            self._row_targets.update(zip(row.tolist(), targets[label].tolist(), strict=True))

    def _count(self, name: str, rows: Integers, weights: Floats | Integers | Mask) -> None:
        old, new = self._sums[name], np.bincount(rows, weights).astype(np.float64)
        short, long = sorted((old, new), key=len)
        long[: len(short)] += short
        self._sums[name] = long

    def _sum(self, name: str, row: int) -> float:
        return float(self._sums[name][row]) if row < len(self._sums[name]) else 0.0

    def _speed(
        self, name: str, row: int, figures: Sequence[Counted], single_period: Integers, joined: int
    ) -> ProductionSpeed:
        total, tps, waits = figures
        period = single_period // joined
        answered = int(total.counts.sum())
        priced_tokens = self._sum("priced tokens", row)
        periods = len(distinct(period[total.cells])[0])
        common_usd, common_share = self._common_price(name)
        return ProductionSpeed(
            name=name,
            requests=round(sum(self._sum(outcome, row) for outcome in OUTCOMES)),
            answered=round(self._sum("ok", row)),
            failed=round(self._sum("failed", row)),
            closed=round(self._sum("cancelled", row)),
            grade=None,
            total_tps=summarise(total, period[total.cells], higher_is_better=True),
            tps=summarise(tps, period[tps.cells], higher_is_better=True),
            ttft_ms=summarise(waits, period[waits.cells]),
            ttft_closed=round(self._sum("waits closed", row)),
            ttft_bounds=closed_bounds(waits),
            input_tokens=self._sum("input", row) / answered if answered else None,
            output_tokens=self._sum("output", row) / answered if answered else None,
            cost_usd=self._sum("usd", row)
            if self._sum("usd", row) or not self._sum("unpriced", row)
            else None,
            usd_per_million=self._sum("usd", row) / priced_tokens * MILLION
            if priced_tokens
            else None,
            common_usd_per_million=common_usd,
            common_output_share=common_share,
            unpriced=round(self._sum("unpriced", row)),
            token_source={
                source: round(n) for source in SOURCES if (n := self._sum(f"from {source}", row))
            },
            faults=dict(self._faults[row].most_common()),
            periods=periods if periods >= BATCHES_NEEDED else 0,
            period=period_name(self._period_h * joined),
            models=self._models(row),
        )

    def _add_days(
        self,
        speed: ProductionSpeed,
        cells: Sequence[int],
        samples: Sequence[Counted],
        period: Integers,
    ) -> None:
        total, _, waits = samples
        medians = [period_medians(each, period[each.cells]) for each in (total, waits)]
        speed.drift = drift_of(medians[0], PERIODS[self._period_h])
        speed.ttft_drift = drift_of(medians[1], PERIODS[self._period_h], "ttft_ms")
        speed.by_period = self._by_period(cells, period, medians)

    def _by_period(
        self, cells: Sequence[int], period: Integers, medians: Sequence[Mapping[int, float]]
    ) -> list[SpeedOfPeriod]:
        first = min((at for _, at in self._cells), default=0)
        tps, ttft = medians
        return [
            SpeedOfPeriod(
                began=day_of(first + at, self._period_h),
                ttft_ms=ttft.get(at),
                total_tps=tps.get(at),
                answered=round(self._sum("answered in", cell)),
                failed=round(self._sum("failed in", cell)),
            )
            for at, cell in sorted((int(period[cell]), cell) for cell in cells)
        ]

    def _models(self, row: int) -> tuple[str, ...]:
        if self._by in ("target", "model"):
            return ()
        names = list(self._targets)
        return tuple(
            sorted(
                {
                    identify(names[target]).model
                    for of_row, target in self._row_targets
                    if of_row == row
                }
            )
        )

    def _common_price(self, name: str) -> tuple[float | None, float | None]:
        price = self._price(name) if self._by == "target" else None
        answers, *tokens = (float(self._sums[each].sum()) for each in ("ok", "input", "output"))
        if price is None or not price.by_token or not answers or not sum(tokens):
            return None, None
        read, written = (round(each / answers) for each in tokens)
        usd = price.cost_usd(input_tokens=read, output_tokens=written)
        return usd / (read + written) * MILLION, written / (read + written)


def _matched(
    both: Sequence[Counted], periods: Sequence[Integers], joined: int
) -> tuple[float, list[Floats]]:
    """Return the common share, and weights with which both have the same hours and lengths in each
    period.

    The share is that of the target with fewer requests. `joined`: classes of hours that are one.
    """
    classes = []
    for sample, period in zip(both, periods, strict=True):
        hours = (sample.cells >> LENGTH_BITS & (1 << HOUR_BITS) - 1) // joined
        classes.append(
            (period << HOUR_BITS | hours) << LENGTH_BITS | sample.cells & LENGTH_CLASSES - 1
        )
    count = 1 + max((int(each.max()) for each in classes if len(each)), default=0)
    sizes = [
        np.bincount(each, sample.counts, count) for each, sample in zip(classes, both, strict=True)
    ]
    common = np.minimum(*sizes)
    fewer = min(float(size.sum()) for size in sizes)
    weights = [
        (common / np.maximum(size, 1))[each] for size, each in zip(sizes, classes, strict=True)
    ]
    return float(common.sum()) / fewer if fewer else 0.0, weights


def _medians(sample: Counted, period: Integers, weights: Floats) -> dict[int, float]:
    at = np.flatnonzero(weights)
    weighted = Counted(
        sample.cells[at], sample.values[at], sample.closed[at], sample.counts[at] * weights[at]
    )
    return period_medians(weighted, period[at])


def _lengths(columns: AttemptColumns) -> Integers:
    return (
        prompt_classes(columns) * ANSWER_CLASSES
        + _ANSWER_CLASS[np.minimum(np.maximum(columns.output_tokens, 1), LONG_ANSWER)]
    )
