"""The table model gives the published tables back, whichever fifty requests are looked at."""

from statistics import NormalDist

import numpy as np
import pytest
from tests.cases import each_case
from tests.power import repeated
from tests.simulator.published import PUBLISHED, Published

from splitsecond.simulator import profile
from splitsecond.simulator.profile import Quantiles, TableRow
from splitsecond.simulator.table import STRATA, LatencyTable, Pace

SAMPLES = 50
WINDOWS = 200
SEEDS = (0, 1, 2, 3, 17, 4_000_000_019)


@repeated(few=1, full=len(SEEDS))
@each_case("row", PUBLISHED, ids=lambda row: f"{row.profile}-{row.concurrency}")
def test_any_50_requests_have_the_published_percentiles(row: Published, repeats: int) -> None:
    for seed in SEEDS[:repeats]:
        table = LatencyTable(profile.load(row.profile).table, seed)
        paces = [table.draw(row.concurrency) for _ in range(WINDOWS + SAMPLES)]
        ttft_ms = np.lib.stride_tricks.sliding_window_view(
            [pace.ttft_ns / 1e6 for pace in paces], SAMPLES
        )
        tps = np.lib.stride_tricks.sliding_window_view(
            [1e9 / pace.gap_ns for pace in paces], SAMPLES
        )
        for figures, wanted, percentile, tolerance in (
            (ttft_ms, row.ttft_p50, 50, 0.02),
            (ttft_ms, row.ttft_p95, 95, 0.10),
            (tps, row.tps_p50, 50, 0.02),
            (tps, row.tps_p95, 5, 0.05),
        ):
            off = np.percentile(figures, percentile, axis=1) / wanted - 1
            assert np.abs(off).max() < tolerance, (seed, percentile, wanted, off.min(), off.max())


def rows() -> tuple[TableRow, ...]:
    return (
        TableRow(concurrency=1, ttft_ms=Quantiles(100, 200), tps=Quantiles(100, 50)),
        TableRow(concurrency=16, ttft_ms=Quantiles(400, 3200), tps=Quantiles(25, 20)),
    )


def median_ttft_ms(table: LatencyTable, in_flight: int) -> float:
    return float(np.median([table.draw(in_flight).ttft_ns for _ in range(SAMPLES)])) / 1e6


def test_times_between_levels_are_interpolated_logarithmically() -> None:
    assert median_ttft_ms(LatencyTable(rows()), 4) == pytest.approx(200, rel=0.02)


@pytest.mark.parametrize(("in_flight", "expected"), [(1, 100), (16, 400), (1000, 400)])
def test_outside_the_levels_the_nearest_level_applies(in_flight: int, expected: float) -> None:
    assert median_ttft_ms(LatencyTable(rows()), in_flight) == pytest.approx(expected, rel=0.02)


def test_below_the_first_level_the_first_level_applies() -> None:
    assert median_ttft_ms(LatencyTable(rows()[1:]), 1) == pytest.approx(400, rel=0.02)


def test_the_same_seed_gives_the_same_paces_and_another_others() -> None:
    def draws(seed: int) -> list[Pace]:
        table = LatencyTable(rows(), seed)
        return [table.draw(1 + i % 20) for i in range(100)]

    assert draws(5) == draws(5)
    assert draws(5) != draws(6)


def test_levels_draw_independently_of_each_other() -> None:
    alone, mixed = LatencyTable(rows()), LatencyTable(rows())
    first = [alone.draw(1) for _ in range(STRATA)]
    second = []
    for _ in range(STRATA):
        mixed.draw(16)
        second.append(mixed.draw(1))
    assert first == second


def test_slow_first_tokens_and_slow_streams_are_drawn_apart() -> None:
    table = LatencyTable(rows())
    paces = [table.draw(1) for _ in range(STRATA)]
    correlation = np.corrcoef([pace.ttft_ns for pace in paces], [pace.gap_ns for pace in paces])[
        0, 1
    ]
    assert abs(correlation) < 0.2


def test_providers_are_slow_at_independent_moments() -> None:
    """The fastest of three that are alike has the quantiles of the minimum of three independent
    draws."""
    fastest = []
    for group in range(20):
        tables = [LatencyTable(rows(), seed=3 * group + number) for number in range(3)]
        fastest += [min(table.draw(1).ttft_ns for table in tables) / 1e6 for _ in range(STRATA)]
    for q in (0.5, 0.95):
        z = NormalDist().inv_cdf(1 - (1 - q) ** (1 / 3))
        assert np.quantile(fastest, q) == pytest.approx(
            100 * 2 ** (z / NormalDist().inv_cdf(0.95)), rel=0.03
        )


def test_rounding_of_token_times_does_not_add_up() -> None:
    pace = Pace(1_000, 1e9 / 3)
    assert pace.planned_ns(500, 0) == 1_500
    assert pace.planned_ns(500, 3_000_000) == 1_500 + 1_000_000 * 10**9
