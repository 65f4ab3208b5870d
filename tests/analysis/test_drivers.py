"""Drivers of production speed, on logs whose shares of variation are known."""

import numpy as np
import pytest
from tests.power import repeated

from splitsecond.core.timing.columns import US_PER_HOUR, WAIT_ENDED, AttemptColumns, AttemptLabel
from splitsecond.core.wording import full
from splitsecond.log.production.drivers import DriverTraffic, SpeedDrivers, driver_statements

FIRST_DAY = 20_000
TARGETS = {
    "groq/openai/gpt-oss-120b": 0.6, "groq/llama-3.3-70b-versatile": 0.6,
    "cerebras/gpt-oss-120b": 0.5, "cerebras/llama-3.3-70b": 0.5,
    "together/openai/gpt-oss-120b": -0.5, "together/meta-llama/Llama-3.3-70B-Instruct": -0.5,
    "deepinfra/openai/gpt-oss-120b": -0.6, "deepinfra/meta-llama/Llama-3.3-70B-Instruct": -0.6,
}  # fmt: skip
"""Targets of four hosts with the logarithm of their speed."""


def log_of(
    random: np.random.Generator,
    levels: dict[str, float],
    *,
    noise: float,
    night: float = 0.0,
    long: float = 0.0,
    days: int = 14,
    slow_hours: float = 0.0,
) -> DriverTraffic:
    """Requests whose log(TTFT) and −log(TPS) are −level of the target, `night` at 12 of 24 hours,
    `long` for every other prompt, a slow hour that is the log's own, and noise."""
    traffic = DriverTraffic(24)
    n = days * 24 * 10
    for target, level in levels.items():
        hours = np.arange(n) % (days * 24)
        at_night, is_long = (hours % 24) < 12, random.random(n) < 0.5
        own = slow_hours * random.standard_normal(days * 24)[hours]
        log_s = own - level + night * at_night + long * is_long
        wait, pace = (log_s + noise * random.standard_normal(n) for _ in range(2))
        empty = np.zeros(n, np.int64)
        tokens = np.full(n, 100)
        traffic.add(
            AttemptColumns(
                labels=[AttemptLabel(target)],
                label=empty,
                came_us=(FIRST_DAY * 24 + hours) * US_PER_HOUR,
                call=empty,
                attempts=empty + 1,
                flags=empty | WAIT_ENDED << 4,
                wait_ns=(3e8 * np.exp(wait)).astype(np.int64),
                took_ns=empty,
                decode_ns=(1e9 * np.exp(pace)).astype(np.int64),
                decoded=tokens,
                input_tokens=np.where(is_long, 9000, 200),
                output_tokens=tokens,
                cached_tokens=empty,
                cache_write_tokens=empty,
                cache_write_1h_tokens=empty,
            )
        )
    return traffic


def shares(found: SpeedDrivers) -> dict[str, float]:
    return {driver.by: driver.share for driver in found.drivers}


def test_shares_are_those_of_the_truth() -> None:
    """The variance is 0.305 between hosts, of it 0.3025 between two kinds of hardware on either
    side, 0.04 by the prompt, 0.01 by the hour and 0.25 of noise."""
    traffic = log_of(np.random.default_rng(1), TARGETS, noise=0.5, night=0.2, long=0.4)
    whole = 0.305 + 0.04 + 0.01 + 0.25
    for found in traffic.drivers():
        own = shares(found)
        assert own["host"] == pytest.approx(0.305 / whole, abs=0.02)
        assert own["hardware"] == pytest.approx(0.305 / whole, abs=0.02)
        assert own["size"] == pytest.approx(0.04 / whole, abs=0.01)
        assert own["hour"] == pytest.approx(0.01 / whole, abs=0.01)
        assert own["model"] == pytest.approx(0, abs=0.01)
        assert found.first == ["host"] or found.first == ["hardware", "host"]
        assert (found.periods, found.period) == (7, "2 days")


def test_more_values_alone_explain_nothing() -> None:
    """Twenty-four hours of slow hours that no other day repeats: eta squared would give them a
    share."""
    traffic = log_of(np.random.default_rng(2), TARGETS, noise=0.3, slow_hours=0.5)
    for found in traffic.drivers():
        assert shares(found)["hour"] < 0.01
        assert shares(found)["host"] > 0.3


def test_an_association_is_said_as_one() -> None:
    found = log_of(np.random.default_rng(3), TARGETS, noise=0.5).drivers()
    first, second, last = full(driver_statements(found))
    assert first.startswith("TTFT goes most ")
    assert "of its variation. Then the " in first
    assert second.startswith("TPS goes most ")
    assert last.startswith("These are associations, not causes")


def test_equal_targets_have_no_driver() -> None:
    traffic = log_of(np.random.default_rng(4), dict.fromkeys(TARGETS, 0.0), noise=0.3)
    assert "TTFT goes with none of" in full(driver_statements(traffic.drivers()))[0]


def test_two_close_drivers_are_not_ranked() -> None:
    levels = {"groq/m": 0.2, "cerebras/m": -0.2}
    traffic = log_of(np.random.default_rng(5), levels, noise=1.0, long=0.4, days=7)
    found = traffic.drivers()[0]
    assert len(found.first) > 1
    assert "but not clearly" in full(driver_statements([found]))[0]


def test_few_days_are_refused() -> None:
    found = log_of(np.random.default_rng(6), TARGETS, noise=0.3, days=3).drivers()[0]
    assert found.refused == "3 periods with requests, needed: 5"
    assert "is not known" in full(driver_statements([found]))[0]


@repeated(12, 200)
def test_interval_contains_the_true_share(repeats: int) -> None:
    """95% is promised; the truth of the share of the host is 0.305 / 0.565."""
    covered = 0
    for seed in range(repeats):
        traffic = log_of(np.random.default_rng([seed, 7]), TARGETS, noise=0.5, slow_hours=0.1)
        driver = next(d for d in traffic.drivers()[0].drivers if d.by == "host")
        low, high = driver.ci95
        assert low is not None
        assert high is not None
        covered += low <= 0.305 / 0.565 <= high
    assert covered >= 0.9 * repeats - 2
