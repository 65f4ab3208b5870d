"""What is learned of a target's speed, and how fast it is learned."""

import statistics
from collections.abc import Iterator
from random import Random

import msgspec
import pytest
from tests.policies.attempts import answered, closed, failed
from tests.policies.branches import refused, silent, status

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.routing.targets.estimate import SpeedEstimate
from splitsecond.routing.targets.samples import (
    FLOOR,
    HALF_LIFE_NS,
    REMEMBERED,
    RUN,
    Sample,
    load_slope,
    slope,
)


class Time:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.ns = 1_000_000 * NS_PER_S

    def passes(self, seconds: float) -> None:
        self.ns += round(seconds * NS_PER_S)


@pytest.fixture(autouse=True)
def time() -> Iterator[Time]:
    moved = Time()
    with clock.using(lambda: moved.ns):
        yield moved


def ms(ns: float | None) -> float:
    assert ns is not None
    return round(ns / NS_PER_MS, 3)


def taught(time: Time, *ttfts_ms: float, every_s: float = 1, tpot_ms: float = 10) -> SpeedEstimate:
    estimate = SpeedEstimate()
    for ttft_ms in ttfts_ms:
        time.passes(every_s)
        estimate.observe(answered(ttft_ms, tpot_ms=tpot_ms))
    return estimate


# The figures.


def test_estimate_without_samples_is_none() -> None:
    estimate = SpeedEstimate()
    assert (estimate.ttft_ns(), estimate.tpot_ns(), estimate.output_tokens()) == (None, None, None)
    assert (estimate.expected_ns(100, 100), estimate.samples, estimate.age_ns) == (None, 0.0, 0)


def test_estimate_gives_quantiles_of_its_samples(time: Time) -> None:
    estimate = taught(time, *range(101, 201), every_s=0)
    assert ms(estimate.ttft_ns()) == 150
    assert ms(estimate.ttft_ns(0.95)) == 195
    assert ms(estimate.tpot_ns()) == 10
    assert estimate.output_tokens() == pytest.approx(11)
    assert ms(estimate.expected_ns(None, 100)) == 150 + 1000
    assert estimate.samples == pytest.approx(100, rel=0.01)
    time.passes(3)
    assert estimate.age_ns == 3100 * NS_PER_MS  # since the latest first token


def test_calibration_counts_for_ttft_but_not_for_output_length() -> None:
    """It asks for one token, and a bench of a policy begins with some of them."""
    estimate = SpeedEstimate()
    estimate.observe(msgspec.structs.replace(answered(100), role="calibration"))
    assert estimate.ttft_ns() is not None
    assert estimate.output_tokens() is None


def test_ttft_includes_the_time_to_connect() -> None:
    estimate = SpeedEstimate()
    estimate.observe(answered(200, connecting_ms=50))
    assert ms(estimate.ttft_ns()) == 250


def test_failures_are_no_speed_samples_except_timeouts() -> None:
    estimate = SpeedEstimate()
    for fault in (status(503), status(429), refused()):
        estimate.observe(failed(fault, 5))
    estimate.observe(failed(refused(), 5, sent=False))
    assert estimate.ttft_ns() is None
    estimate.observe(failed(silent(), 2000))
    assert ms(estimate.ttft_ns()) == 2000


# Censored samples.


def test_losers_closed_late_raise_the_ttft_estimate(time: Time) -> None:
    estimate = taught(time, *[200] * 10)
    for _ in range(20):
        time.passes(0.1)
        estimate.observe(closed(1000))
    assert ms(estimate.ttft_ns()) == 1000  # it is at least that


def test_losers_closed_early_do_not_change_the_estimate(time: Time) -> None:
    estimate = taught(time, *[200] * 10)
    for _ in range(100):
        estimate.observe(closed(50))
        time.passes(0.01)
    assert ms(estimate.ttft_ns()) == 200


def test_waiting_requests_raise_ttft_before_any_of_them_fails(time: Time) -> None:
    waiting: dict[str, int] = {}
    estimate = SpeedEstimate(waiting)
    for _ in range(100):
        time.passes(0.5)
        estimate.observe(answered(200))
    assert ms(estimate.ttft_ns(0.95)) == 200
    waiting.update({f"call-{number}": time.ns for number in range(8)})
    time.passes(0.1)
    assert ms(estimate.ttft_ns()) == 200
    time.passes(3)
    assert ms(estimate.ttft_ns()) == 3100
    waiting.clear()
    estimate.observe(answered(200))
    time.passes(0.3)
    assert ms(estimate.ttft_ns()) == 200


def test_hanging_requests_do_not_raise_ttft_while_others_succeed(time: Time) -> None:
    waiting: dict[str, int] = {}
    estimate = SpeedEstimate(waiting)
    for _ in range(100):
        time.passes(0.5)
        estimate.observe(answered(200))
    assert ms(estimate.ttft_ns()) == 200
    # these hang, and no other does
    waiting.update({f"call-{number}": time.ns for number in range(RUN)})
    for _ in range(20):
        time.passes(0.5)
        estimate.record_first_token(200 * NS_PER_MS, time.ns)
        assert ms(estimate.ttft_ns()) == 200
    assert ms(estimate.ttft_ns(0.99)) == 10_000


# Time.


def test_estimate_follows_a_change_within_seconds(time: Time) -> None:
    estimate = taught(time, *[200 + number % 7 for number in range(300)])
    assert ms(estimate.ttft_ns()) == pytest.approx(203, abs=3)
    assert ms(estimate.tpot_ns()) == 10
    for _ in range(RUN):
        time.passes(1)
        estimate.observe(answered(900, tpot_ms=40))
    assert ms(estimate.ttft_ns()) == 900
    assert ms(estimate.tpot_ns()) == 40
    for _ in range(RUN):
        time.passes(1)
        estimate.observe(answered(150, tpot_ms=5))
    assert ms(estimate.ttft_ns()) == 150
    assert ms(estimate.tpot_ns()) == 5


def test_single_slow_requests_do_not_change_the_median(time: Time) -> None:
    draw = Random(7)
    ttfts = [200 * draw.lognormvariate(0, 0.3) for _ in range(100)]
    estimate = taught(time, *ttfts)
    for _ in range(3):
        time.passes(0.3)
        estimate.observe(answered(5000))
    assert ms(estimate.ttft_ns()) < 250


@pytest.mark.parametrize("seed", range(5))
def test_estimate_of_scattered_samples_stays_near_the_truth(time: Time, seed: int) -> None:
    draw, estimate = Random(seed), SpeedEstimate()
    medians = []
    for _ in range(600):
        time.passes(0.5)
        estimate.observe(answered(200 * draw.lognormvariate(0, 0.4)))
        medians.append(ms(estimate.ttft_ns()))
    assert statistics.median(medians[50:]) == pytest.approx(200, rel=0.1)
    assert max(medians[50:]) < 200 * 2
    assert ms(estimate.ttft_ns(0.95)) == pytest.approx(200 * 1.93, rel=0.4)


def test_weight_of_samples_halves_with_the_half_life(time: Time) -> None:
    estimate = taught(time, *[200] * 64, every_s=0.01)
    fresh = estimate.samples
    time.passes(HALF_LIFE_NS / NS_PER_S)
    assert estimate.samples == pytest.approx(fresh / 2, rel=0.02)
    time.passes(3600)
    assert estimate.samples == pytest.approx(64 * FLOOR)
    assert ms(estimate.ttft_ns()) == 200  # better than nothing


def test_few_new_samples_outweigh_old_ones(time: Time) -> None:
    estimate = taught(time, *[200] * 64)
    time.passes(3600)
    for _ in range(3):
        estimate.observe(answered(500))
        time.passes(1)
    assert ms(estimate.ttft_ns()) == 500


def test_number_of_samples_is_bounded(time: Time) -> None:
    estimate = taught(time, *[200] * (3 * REMEMBERED), every_s=0.001)
    assert estimate.samples <= REMEMBERED


def test_quantiles_are_cached_for_a_quarter_of_a_second(time: Time) -> None:
    estimate = taught(time, 200)
    assert ms(estimate.ttft_ns()) == 200
    estimate.observe(answered(400))
    assert ms(estimate.ttft_ns(0.95)) == 200
    time.passes(0.25)
    assert ms(estimate.ttft_ns(0.95)) == 400


# Seeds.


def test_seeds_count_until_live_data_exist(time: Time) -> None:
    estimate = SpeedEstimate()
    day_ns = 24 * 3600 * NS_PER_S
    estimate.seed([(time.ns - day_ns, answered(300, tpot_ms=20)) for _ in range(500)])
    assert ms(estimate.ttft_ns()) == 300
    assert ms(estimate.tpot_ns()) == 20
    assert estimate.samples == pytest.approx(REMEMBERED * FLOOR)
    assert estimate.age_ns == day_ns
    for _ in range(4):
        time.passes(0.3)
        estimate.observe(answered(100, tpot_ms=5))
    assert ms(estimate.ttft_ns()) == 100
    assert ms(estimate.tpot_ns()) == 5


def test_seeds_that_come_late_do_not_hide_live_data(time: Time) -> None:
    estimate = taught(time, *[100] * 5)
    estimate.seed([(time.ns - 3600 * NS_PER_S, answered(300)) for _ in range(500)])
    assert ms(estimate.ttft_ns()) == 100
    assert estimate.age_ns == 100 * NS_PER_MS


# The length of the prompt.


def test_estimate_grows_with_the_prompt_if_samples_show_it(time: Time) -> None:
    draw, estimate = Random(3), SpeedEstimate()
    for _ in range(100):
        time.passes(0.5)
        tokens = draw.choice([100, 500, 2000, 8000])
        estimate.observe(answered(100 + 0.05 * tokens + draw.uniform(0, 20), input_tokens=tokens))
    assert ms(estimate.ttft_ns(input_tokens=8000)) == pytest.approx(510, rel=0.05)
    assert ms(estimate.ttft_ns(input_tokens=100)) == pytest.approx(115, rel=0.1)
    assert ms(estimate.ttft_ns(input_tokens=0)) > 50
    assert ms(estimate.expected_ns(8000, 100)) == pytest.approx(510 + 1000, rel=0.05)


@pytest.mark.parametrize("seed", range(5))
def test_slope_is_0_without_evidence(seed: int) -> None:
    draw = Random(seed)
    sizes = [draw.choice([100, 8000]) for _ in range(100)]
    assert slope([Sample(0, draw.uniform(100, 300), size=1000) for _ in sizes]) == 0
    assert slope([Sample(0, draw.uniform(100, 300), size=size) for size in sizes]) == 0
    assert slope([Sample(0, 300 - size / 100, size=size) for size in sizes]) == 0
    assert slope([Sample(0, size, size=size) for size in sizes[:15]]) == 0


def test_single_slow_requests_do_not_tilt_the_slope() -> None:
    draw = Random(5)
    samples = []
    for number in range(100):
        size = draw.randint(100, 8000)
        value = 100 + 0.05 * size + (20_000 if number % 10 == 0 else 0)
        samples.append(Sample(0, value, False, size))
    assert slope(samples) == pytest.approx(0.05, rel=0.15)


def test_load_slope_is_learned_only_with_evidence() -> None:
    draw = Random(1)
    loads = [draw.randint(0, 8) for _ in range(100)]
    flat = [Sample(0, 200 * draw.lognormvariate(0, 0.3), load=load) for load in loads]
    rising = [Sample(0, each.value * 1.2 ** (each.load or 0), load=each.load) for each in flat]
    assert load_slope(flat)[0] == 0.0
    found, typical, most = load_slope(rising)
    assert found == pytest.approx(0.18, abs=0.05)
    assert typical == pytest.approx(4, abs=0.6)
    assert most == 8
    assert load_slope(rising[:20])[0] == 0.0


def test_estimate_grows_with_our_requests_in_flight(time: Time) -> None:
    in_flight: list[int] = []
    estimate = SpeedEstimate(in_flight=in_flight)
    for number in range(60):
        time.passes(1)
        estimate.observe(answered(200 * 1.2 ** (number % 5)), load=number % 5)
    assert estimate.ttft_ns() is not None
    assert estimate.own_load_factor() == pytest.approx(1.2**-2)
    in_flight += [1] * 4
    assert estimate.own_load_factor() == pytest.approx(1.2**2)
    in_flight += [1] * 40  # beyond what was seen
    assert estimate.own_load_factor() == pytest.approx(1.2**2)


# Exploring.


def test_draws_scatter_widely_if_little_is_known(time: Time) -> None:
    draw = Random(1)

    def spread(estimate: SpeedEstimate) -> float:
        return statistics.stdev(estimate.draw(draw) for _ in range(400))

    well_known = taught(time, *[200 + number % 50 for number in range(120)], every_s=0.1)
    assert 0 < spread(well_known) < 0.05
    unknown = spread(SpeedEstimate())
    assert unknown > 0.5
    time.passes(3600)
    assert spread(well_known) > 3 * 0.02
    factors = sorted(well_known.draw(draw) for _ in range(401))
    assert factors[200] == pytest.approx(1, abs=0.05)
