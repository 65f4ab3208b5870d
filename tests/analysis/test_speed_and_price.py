"""Speed against price: frontier, correlation, and cost-adjusted figures."""

import math

import numpy as np
import pytest
from tests.analysis.made import row

from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.runs.concluding import speed_and_price
from splitsecond.core.wording import full
from splitsecond.log.production.speed import ProductionSpeed
from splitsecond.log.production.speed_and_price import (
    logged_speed_and_price,
    spearman,
    speed_and_price_statements,
)
from splitsecond.log.statistics.summary import Summary


def priced(
    target: str, tps: float, usd: float, *, half: float = 1.0, concurrency: int = 1
) -> ConditionFindings:
    """A row with that TPS, its interval half as wide as `half` to each side, and a price."""
    speed = Summary(n=50, p50=tps, ci95={"p50": (tps - half, tps + half)})
    return row(
        target=target,
        condition=f"{target}@c{concurrency}",
        concurrency=concurrency,
        requests=50,
        tps=speed,
        usd_per_million=usd,
        usd_per_million_output=4 * usd,
    )


GROQ, TOGETHER, OPUS = (
    priced("groq/m", 500, 0.5),
    priced("together/m", 125, 0.2),
    priced("opus/m", 40, 15),
)


def test_figures_of_value() -> None:
    found = speed_and_price([GROQ, TOGETHER])
    assert found is not None
    assert [(p.cost_adjusted_tps, p.tokens_per_usd) for p in found.targets] == [
        (1000, 500_000),
        (625, 1_250_000),
    ]
    assert "groq/m has the highest cost-adjusted TPS: 1,000" in " ".join(
        full(speed_and_price_statements(found))
    )


def test_frontier_targets_are_beaten_by_no_other_on_both() -> None:
    found = speed_and_price([GROQ, TOGETHER, OPUS])
    assert found is not None
    assert {p.target: p.frontier for p in found.targets} == {
        "groq/m": "yes",
        "together/m": "yes",
        "opus/m": "no",
    }
    sentence = full(speed_and_price_statements(found))[0]
    assert sentence.startswith(
        "No other target is both faster and cheaper than together/m (125 "
        "tokens/s at $0.200) and groq"
    )
    assert "opus" not in sentence


def test_overlapping_intervals_leave_the_frontier_unsure() -> None:
    found = speed_and_price([priced("a/m", 100, 1, half=20), priced("b/m", 110, 1, half=20)])
    assert found is not None
    assert [p.frontier for p in found.targets] == ["unsure", "yes"]


def test_only_the_lightest_common_load_counts() -> None:
    found = speed_and_price(
        [
            GROQ,
            priced("groq/m", 90, 0.5, concurrency=32),
            TOGETHER,
            priced("late/m", 1, 1, concurrency=8),
        ]
    )
    assert found is not None
    assert [p.row for p in found.targets] == ["groq/m@c1", "together/m@c1"]


@pytest.mark.parametrize("rows", [[], [GROQ], [GROQ, row(target="free/m", requests=9)]])
def test_one_target_is_no_comparison(rows: list[ConditionFindings]) -> None:
    assert speed_and_price(rows) is None
    assert full(speed_and_price_statements(None)) == []


def test_too_few_targets_for_a_correlation() -> None:
    said = full(speed_and_price_statements(speed_and_price([GROQ, TOGETHER, OPUS])))
    assert said[-1] == "3 targets are too few to tell whether speed goes with price: it takes 5."


@pytest.mark.parametrize(
    ("speeds", "words"),
    [
        (
            [80, 70, 60, 50, 40, 30, 20, 10],
            "Targets that cost more are slower here (Spearman −1.00 over 8 targets",
        ),
        (
            [10, 20, 30, 40, 50, 60, 70, 80],
            "Targets that cost more are faster here (Spearman 1.00 over 8 targets",
        ),
        (
            [30, 10, 80, 40, 60, 20, 70, 50],
            "Speed and price show no clear correlation here (Spearman 0.3",
        ),
    ],
)
def test_the_correlation_as_a_sentence(speeds: list[float], words: str) -> None:
    rows = [priced(f"t{i}/m", tps, i + 1) for i, tps in enumerate(speeds)]
    assert full(speed_and_price_statements(speed_and_price(rows)))[-1].startswith(words)


def test_equal_values_share_a_rank() -> None:
    assert spearman([1, 1, 2, 3], [1, 1, 2, 3])[0] == pytest.approx(1)
    assert spearman([1, 1, 1], [1, 2, 3]) == (None, (None, None))


@pytest.mark.parametrize("rho", [0.0, -0.7])
def test_the_interval_contains_the_truth(rho: float) -> None:
    # of a normal pair with correlation rho
    random, true = np.random.default_rng(5), 6 / math.pi * math.asin(rho / 2)
    hits = 0
    for _ in range(400):
        x, noise = random.standard_normal((2, 8))
        low, high = spearman(x, rho * x + math.sqrt(1 - rho * rho) * noise)[1]
        assert low is not None
        assert high is not None
        hits += low <= true <= high
    assert hits / 400 >= 0.92


def in_production(name: str, tps: float | None, total_tps: float) -> ProductionSpeed:
    figures = [
        Summary(n=9, p50=each, ci95={"p50": (each * 0.9, each * 1.1)}) if each else Summary(n=0)
        for each in (tps, total_tps)
    ]
    return ProductionSpeed(
        name=name,
        requests=9,
        answered=9,
        failed=0,
        closed=0,
        grade=None,
        tps=figures[0],
        total_tps=figures[1],
        ttft_ms=Summary(n=0),
    )


@pytest.mark.parametrize(
    ("tps", "figure", "speeds"), [(90.0, "TPS", [200, 90]), (None, "total TPS", [150, 60])]
)
def test_a_log_without_streams_is_compared_by_total_tps(
    tps: float | None, figure: str, speeds: list[float]
) -> None:
    logged = [
        in_production("a/m", 200, 150),
        in_production("b/m", tps, 60),
        in_production("free/m", None, 10),
    ]
    found = logged_speed_and_price(logged, {"a/m": 2, "b/m": 1, "free/m": None})
    assert found is not None
    assert (found.figure, [p.tps for p in found.targets]) == (figure, speeds)
    assert [p.cost_adjusted_tps for p in found.targets] == [speeds[0] / 2, speeds[1]]
    assert [p.frontier for p in found.targets] == ["yes", "yes"]
    assert f"cost-adjusted {figure}: " in full(speed_and_price_statements(found))[1]
