"""Production speeds: the definition, the grades, which responses count, and drift by days."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from benchmarks.production import SimulatedTarget, drifts, named
from msgspec.structs import replace
from tests.analysis.made import MS, failure, request
from tests.cases import each_case
from tests.power import repeated

from splitsecond.core.catalog.price import Price, Tier
from splitsecond.core.money.cost import cost_usd
from splitsecond.core.observation import FaultRecord, Observation
from splitsecond.core.timing.columns import US_PER_HOUR, AttemptColumns, AttemptLabel
from splitsecond.core.wording import full
from splitsecond.log.production.drift import drift_of
from splitsecond.log.production.speed import (
    By,
    ProductionSpeed,
    grade,
    period_hours,
    period_name,
    periods_joined,
    speed_remarks,
    speed_statements,
)
from splitsecond.log.production.traffic import ProductionTraffic
from splitsecond.log.statistics.sample_comparison import holm_levels

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def served(
    *attempts: Observation,
    least: int = 1,
    by: By = "target",
    price: Price | None = None,
    day: int = 0,
) -> list[ProductionSpeed]:
    traffic = ProductionTraffic(lambda _: price, by)
    traffic.add(AttemptColumns.of((NOON + day * DAY, attempt) for attempt in attempts))
    return traffic.speeds(least)


def answer(total: float, *, tokens: int = 100, target: str = "a/x") -> Observation:
    """An answer of so many total tokens per second, half of its time before the first token."""
    took_ms = tokens / total * 1000
    return request(
        target=target,
        ttft_ms=took_ms / 2,
        gap_ms=took_ms / 2,
        tokens=2,
        output_tokens=tokens,
        token_source="usage",
    )


@each_case(
    ("tps", "found"),
    [
        (1000, 1),
        (100, 1),
        (99.9, 2),
        (70, 2),
        (69.9, 3),
        (50, 3),
        (49.9, 4),
        (30, 4),
        (29.9, 5),
        (0.1, 5),
    ],
)
def test_grades(tps: float, found: int) -> None:
    assert grade(tps) == found


def raced(n: int, *, prompts: float) -> tuple[list[Observation], list[float]]:
    """Return the attempts at a target that races against a similar one, and all of its waits, also
    those cut short.

    `prompts`: the scatter of the factor by which a prompt delays both targets.
    """
    random = np.random.default_rng(4)
    factor = random.lognormal(5.5, prompts, n)
    own, other = (factor * random.lognormal(middle, 0.3, n) for middle in (0.2, 0.0))
    attempts = [
        request(ttft_ms=float(wait))
        if wait <= closed
        else failure(took_ms=float(closed), outcome="cancelled", fault=None)
        for wait, closed in zip(own, other, strict=True)
    ]
    return attempts, own.tolist()


def test_closed_losers_give_ttft_bounds() -> None:
    attempts, waits = raced(4000, prompts=0.6)
    (speed,) = served(*attempts)
    p50, p95 = np.quantile(waits, [0.5, 0.95])
    assert speed.ttft_closed > 2000
    # the prompts delay both targets
    assert speed.ttft_ms.p95 is None or speed.ttft_ms.p95 > 1.2 * p95
    (low, high), (low95, high95) = speed.ttft_bounds["p50"], speed.ttft_bounds["p95"]
    assert low is not None
    assert low95 is not None
    assert low < p50 < (high or np.inf)
    assert low95 < p95 < (high95 or np.inf)
    *_, sentence = full(speed_statements([speed]))
    assert "TTFT is uncertain where attempts were closed" in sentence
    assert f"p95 is {low95:,.0f} ms or more" in sentence


def test_few_closed_attempts_cause_no_ttft_uncertainty() -> None:
    attempts = [request(ttft_ms=100 + number / 100) for number in range(1000)]
    (speed,) = served(*attempts)
    assert speed.ttft_bounds == {}
    (speed,) = served(*attempts, failure(took_ms=50, outcome="cancelled", fault=None))
    assert speed.ttft_bounds["p50"] == pytest.approx((105, 105), rel=0.001)
    assert not any("uncertain" in sentence for sentence in full(speed_statements([speed])))


def test_total_tps_counts_from_the_arrival_of_the_call() -> None:
    # after another target had failed
    second = request(start_ns=0, sent_ms=5000, ttft_ms=500, gap_ms=5, tokens=101)
    (speed,) = served(second)
    assert second.total_tps == pytest.approx(101 / 6)
    assert speed.total_tps.p50 == pytest.approx(101 / 6)


@pytest.mark.parametrize("without", [{"output_tokens": None}, {"output_tokens": 0}])
def test_no_speed_without_a_token_count(without: dict[str, int | None]) -> None:
    uncounted = replace(request(), **without)
    assert uncounted.total_tps is None
    (speed,) = served(uncounted)
    assert (speed.grade, speed.total_tps.n, speed.answered) == (None, 0, 1)


def test_only_complete_responses_have_a_speed() -> None:
    closed = request(ttft_ms=100, outcome="cancelled")
    broken = failure(kind="http_429")
    unexplained = replace(broken, fault=None)
    (speed,) = served(*[answer(80)] * 30, *[closed] * 3, *[broken] * 9, unexplained)
    assert (speed.requests, speed.answered, speed.closed, speed.failed) == (43, 30, 3, 10)
    assert speed.total_tps.p50 == pytest.approx(80)
    assert speed.grade == 2
    assert speed.error_share == 0.25
    assert speed.faults == {"http_429": 9}


def test_grade_needs_a_minimum_of_responses() -> None:
    few, enough = served(*[answer(80)] * 499, least=500), served(*[answer(80)] * 500, least=500)
    assert (few[0].grade, few[0].grades, few[0].needs) == (None, (), 500)
    assert (enough[0].grade, enough[0].grades, enough[0].needs) == (2, (2,), 0)


def test_close_to_a_border_both_grades_are_stated() -> None:
    random = np.random.default_rng(1)
    (speed,) = served(*[answer(float(tps)) for tps in random.normal(70.5, 8, 60)])
    assert speed.grades == (2, 3)
    assert "The grade is not certain: a/x (2 or 3)." in full(speed_statements([speed]))


def test_waits_that_were_cut_short_count_as_longer() -> None:
    late = FaultRecord(
        type="TimedOut", kind="timed_out", phase="first token", message="no token for 300 ms"
    )
    asked = request(first_token_ns=None, last_token_ns=None, output_tokens=None)
    lost = replace(asked, outcome="cancelled", end_ns=asked.start_ns + 300 * MS)
    given_up = replace(lost, outcome="failed", fault=late)
    whole = request(streamed=False, ttft_ms=9000)
    answered = [request(ttft_ms=ms) for ms in range(100, 300, 2)]
    (speed,) = served(*answered, *[lost] * 60, *[given_up] * 20, whole)
    assert (speed.ttft_ms.n, speed.ttft_closed) == (180, 80)
    # of those that came alone it would be 199
    assert speed.ttft_ms.p50 == pytest.approx(278, abs=3)
    assert speed.ttft_ms.p95 is None


def test_rows_by_model_and_provider() -> None:
    asked = [
        answer(120, target="groq/openai/gpt-oss"),
        answer(60, target="cerebras/gpt-oss"),
        answer(40, target="groq/m"),
    ]
    assert [speed.name for speed in served(*asked)] == [
        "groq/openai/gpt-oss",
        "cerebras/gpt-oss",
        "groq/m",
    ]
    assert {speed.name: speed.requests for speed in served(*asked, by="model")} == {
        "gpt-oss": 2,
        "m": 1,
    }
    assert {speed.name: speed.requests for speed in served(*asked, by="provider")} == {
        "groq": 2,
        "cerebras": 1,
    }


def test_cost_uses_the_mix_of_input_and_output() -> None:
    price = Price(input_usd=1.0, output_usd=4.0)
    (speed,) = served(*[answer(80, tokens=100)] * 10, price=price)  # 100 tokens in, 100 out
    assert speed.cost_usd == pytest.approx(10 * 500e-6)
    assert speed.usd_per_million == pytest.approx(2.5)
    assert served(answer(80))[0].cost_usd is None
    assert served(answer(80))[0].unpriced == 1


def test_summed_costs_equal_those_of_single_attempts() -> None:
    long = Tier(above_tokens=1000, input_usd=2.0, output_usd=8.0)
    longer = Tier(above_tokens=5000, input_usd=3.0, output_usd=9.0, cached_usd=0.1)
    tiered = Price(
        input_usd=1.0,
        output_usd=4.0,
        cached_usd=0.5,
        cache_write_usd=1.25,
        tiers=(long, longer),
        by_tier={"flex": 0.5, "fast": 2.5},
    )
    prices = {
        "a/x": tiered,
        "b/x": Price(input_usd=0.3, output_usd=0.6),
        "c/x": Price(per_hour_usd=2.0),
    }
    whole = answer(80)
    attempts = [
        replace(
            whole,
            target=target,
            input_tokens=read,
            cached_tokens=cached,
            cache_write_tokens=written,
        )
        for target in (*prices, "d/x")
        for read in (0, 999, 1000, 1001, 5001, None)
        for cached, written in ((None, None), (500, 0), (0, 400))
    ]
    attempts += [
        replace(failure(kind="http_429"), target="a/x"),
        replace(failure(kind="http_429"), target="d/x"),
    ]
    attempts += [
        replace(whole, target=target, tier=tier)
        for target in prices
        for tier in ("flex", "fast", "other")
    ]
    traffic = ProductionTraffic(prices.get)
    traffic.add(AttemptColumns.of((NOON, attempt) for attempt in attempts))
    for speed in traffic.speeds(1):
        costs = [
            cost_usd(attempt, prices.get(speed.name))
            for attempt in attempts
            if attempt.target == speed.name
        ]
        known = [cost for cost in costs if cost is not None]
        assert speed.unpriced == len(costs) - len(known)
        assert speed.cost_usd == (pytest.approx(sum(known)) if known else None)
        assert (speed.usd_per_million is not None) == bool(known)


def test_attempts_of_one_target_in_several_rows() -> None:
    price = Price(
        input_usd=1.0,
        output_usd=2.0,
        tiers=(Tier(above_tokens=2000, input_usd=3.0, output_usd=4.0),),
    )
    sizes = {100: 3, 500: 2, 1500: 1, 5000: 4}
    attempts = [
        replace(answer(80), input_tokens=size) for size, n in sizes.items() for _ in range(n)
    ]
    failed = replace(failure(), input_tokens=500)
    found = {speed.name: speed for speed in served(*attempts, failed, by="size", price=price)}
    assert {
        name: (speed.answered, speed.failed, sum(speed.faults.values()))
        for name, speed in found.items()
    } == {
        "under 128 input tokens": (3, 0, 0),
        "128 to 1,023 input tokens": (2, 1, 1),
        "1,024 to 8,191 input tokens": (5, 0, 0),
    }
    middle = found["1,024 to 8,191 input tokens"]
    assert middle.cost_usd == pytest.approx((1500 + 200 + 4 * (3 * 5000 + 400)) / 1e6)
    assert middle.input_tokens == pytest.approx((1500 + 4 * 5000) / 5)
    assert middle.token_source == {"usage": 5}


def over_days(*medians: float, seed: int = 2) -> ProductionSpeed:
    traffic, random = ProductionTraffic(lambda _: None, period_h=24), np.random.default_rng(seed)
    for day, median in enumerate(medians):
        tps = random.normal(median, 3, 40)
        traffic.add(AttemptColumns.of((NOON + day * DAY, answer(float(each))) for each in tps))
    return traffic.speeds(1)[0]


def test_drift_is_judged_by_days() -> None:
    slowed = over_days(80, 82, 79, 81, 80, 78, 80, 60, 62, 59, 61, 60, 58, 60).drift
    assert slowed is not None
    assert slowed.real
    assert slowed.figure == "total_tps"
    assert slowed.ratio == pytest.approx(0.75, abs=0.02)
    assert (slowed.periods, slowed.period) == ((7, 7), "day")
    # Each day has another level, so the requests of the two weeks differ by far more than chance,
    # and the days do not.
    moody = over_days(70, 95, 60, 90, 65, 85, 100, 72, 93, 66, 88, 61, 97, 80).drift
    assert moody is not None
    assert not moody.real
    assert over_days(80, 80, 60, 60).drift is None


def test_a_drift_is_stated() -> None:
    said = full(speed_statements([over_days(*[80] * 7, *[60] * 7)]))
    assert any(
        s.startswith("a/x has become slower, ") and "the last 7 days with the 7 before" in s
        for s in said
    )
    unchanged = [full(speed_statements([over_days(*[80] * 14, seed=seed)])) for seed in range(20)]
    assert sum("has become" in " ".join(each) for each in unchanged) <= 3  # one in twenty


def ttft_over_days(*medians: float, failing: dict[int, int] | None = None) -> ProductionSpeed:
    """40 answers a day of a median TTFT, all with 100 tokens in 2 s after it, and failures."""
    traffic, random = ProductionTraffic(lambda _: None, period_h=24), np.random.default_rng(2)
    for day, median in enumerate(medians):
        waits = random.normal(median, median / 20, 40)
        attempts = [request(ttft_ms=float(wait), gap_ms=20, tokens=101) for wait in waits]
        attempts += [failure()] * (failing or {}).get(day, 0)
        traffic.add(AttemptColumns.of((NOON + day * DAY, each) for each in attempts))
    return traffic.speeds(1)[0]


def test_ttft_drift_of_the_last_days_is_found() -> None:
    speed = ttft_over_days(*[400, 408, 396, 404, 400, 392, 404, 400, 408, 396], *[508] * 4)
    assert speed.drift is not None
    assert speed.drift.ratio > 0.95  # of 2.4 s, a tenth of a second is little
    drift = speed.ttft_drift
    assert drift is not None
    assert drift.real
    assert (drift.figure, drift.periods) == ("ttft_ms", (10, 4))
    assert drift.ratio == pytest.approx(1.27, abs=0.03)
    (said,) = [each for each in full(speed_statements([speed])) if "TTFT" in each]
    assert said.startswith("a/x has become slower, TTFT ")
    assert "the last 4 days with the 10 before" in said


def test_each_day_has_its_ttft_and_errors() -> None:
    days = ttft_over_days(400, 500, 600, 700, 800, 900, 1000, failing={3: 10}).by_period
    assert [each.began for each in days][:2] == ["2026-11-01", "2026-11-02"]
    assert [each.ttft_ms for each in days] == pytest.approx(
        [400, 500, 600, 700, 800, 900, 1000], rel=0.03
    )
    assert [each.error_share for each in days] == [0, 0, 0, 0.2, 0, 0, 0]
    assert over_hours({"a/gpt": 60}).speeds(1)[0].by_period == []


def over_hours(
    speeds: dict[str, float], *, tokens: dict[str, int] | None = None
) -> ProductionTraffic:
    """Ten hours of 60 answers each of every target, of so many total tokens/s; each hour has a
    level of its own."""
    random, traffic = np.random.default_rng(3), ProductionTraffic(lambda _: None)
    levels = random.normal(1, 0.1, 10)
    for target, middle in speeds.items():
        for hour, level in enumerate(levels):
            tps = random.normal(middle * level, middle / 20, 60)
            answers = [
                answer(float(each), target=target, tokens=(tokens or {}).get(target, 100))
                for each in tps
            ]
            traffic.add(AttemptColumns.of((NOON + hour * HOUR, each) for each in answers))
    return traffic


def test_providers_of_a_model_are_compared() -> None:
    traffic = over_hours({"a/gpt": 120, "b/gpt": 60, "c/maker/gpt": 120, "d/other": 10})
    speeds = traffic.speeds(1)
    found = {each.other: each for each in traffic.comparisons(speeds)}
    first = speeds[0].name
    same = ({"a/gpt", "c/maker/gpt"} - {first}).pop()
    assert set(found) == {same, "b/gpt"}
    assert found["b/gpt"].real
    assert found["b/gpt"].ratio == pytest.approx(2, rel=0.03)
    assert (found[same].real, found[same].periods, found[same].share) == (False, 10, 1)
    (of_gpt,) = (
        s for s in full(speed_statements(speeds, list(found.values()))) if s.startswith("gpt at")
    )
    assert f"not clearly faster than at {same}" in of_gpt
    assert "times as fast as at b/gpt (" in of_gpt


def test_groups_are_compared_by_the_models_that_both_have() -> None:
    """The makers' group is faster only because it has a fast small model; the model that both have
    is slower there."""
    sent = {"openai/gpt-4o-mini": 300.0, "openai/gpt-4o": 40.0, "azure/gpt-4o": 80.0}
    makers, others = served(*(answer(tps, target=name) for name, tps in sent.items()), by="hosting")
    assert (makers.name, makers.models) == ("run by the maker", ("gpt-4o", "gpt-4o-mini"))
    assert (others.name, others.models) == ("run by another company", ("gpt-4o",))
    (mixed,) = [
        said for said in full(speed_statements([makers, others])) if "different models" in said
    ]
    assert (
        "run by the maker has gpt-4o and gpt-4o-mini; run by another company has gpt-4o." in mixed
    )
    assert not any("different models" in said for said in full(speed_statements([others, others])))
    assert [
        speed.models for speed in served(*(answer(tps, target=name) for name, tps in sent.items()))
    ] == [()] * 3
    traffic = over_hours(sent)
    speeds = traffic.speeds(1)
    (found,) = traffic.comparisons(speeds, "hosting")
    assert (found.first, found.other) == ("azure/gpt-4o", "openai/gpt-4o")
    assert found.ratio == pytest.approx(2, rel=0.03)
    same_host = over_hours({"azure:eastus/gpt-4o": 80, "azure:westeurope/gpt-4o": 60})
    assert same_host.comparisons(same_host.speeds(1), "hosting") == []


def test_targets_with_answers_of_other_lengths_are_not_compared() -> None:
    traffic = over_hours({"a/gpt": 80, "b/gpt": 60}, tokens={"a/gpt": 1000, "b/gpt": 100})
    speeds = traffic.speeds(1)
    (found,) = traffic.comparisons(speeds)
    assert (found.share, found.ratio) == (0, None)
    said = "a/gpt and b/gpt are not compared: their hours, prompts and answers differ too much."
    assert said in full(speed_statements(speeds, [found]))


def test_targets_with_too_few_common_hours_are_not_compared() -> None:
    traffic = ProductionTraffic(lambda _: None)
    for target, tps in {"a/gpt": 120, "b/gpt": 60}.items():
        traffic.add(AttemptColumns.of([(NOON, answer(tps, target=target))] * 100))
    (found,) = traffic.comparisons(traffic.speeds(1))
    assert found.refused == "common periods: 1, needed: 5"


def mixed(
    random: np.random.Generator, targets: dict[str, tuple[float, float]], days: int = 14
) -> ProductionTraffic:
    """Targets with (median answer in tokens, speed), that wait 4 s for the first token; every hour
    has its level."""
    traffic = ProductionTraffic(lambda _: None, period_h=24)
    levels = np.exp(autoregressive(random, days * 24, 0.8, 0.2))
    for target, (tokens, speed) in targets.items():
        n = days * 24 * 20
        hours = np.arange(n) % (days * 24)
        written = np.maximum(random.lognormal(np.log(tokens), 0.7, n), 2).astype(np.int64)
        seconds = (4 + written / (speed * random.lognormal(0, 0.1, n))) / levels[hours]
        empty = np.zeros(n, np.int64)
        traffic.add(
            AttemptColumns(
                labels=[AttemptLabel(target)], label=empty,
                came_us=(480_000 + hours) * US_PER_HOUR, call=empty,
                attempts=empty + 1, flags=empty, wait_ns=empty,
                took_ns=(seconds * 1e9).astype(np.int64), decoded=empty,
                decode_ns=empty, input_tokens=empty + 500, output_tokens=written,
                cached_tokens=empty,
                cache_write_tokens=empty, cache_write_1h_tokens=empty,
            )
        )  # fmt: skip
    return traffic


def autoregressive(
    random: np.random.Generator, n: int, correlation: float, scatter: float
) -> np.ndarray:
    """A level for each hour that resembles that of the hour before."""
    found = np.zeros(n)
    for at in range(n):
        noise = random.normal(0, scatter * (1 - correlation**2) ** 0.5)
        found[at] = correlation * found[at - 1] + noise if at else random.normal(0, scatter)
    return found


def test_equal_servers_with_other_lengths_do_not_differ() -> None:
    """Truth: both have the same speed. Answers of 600 and 250 tokens give them 43 and 31 total
    tokens/s."""
    real = 0
    for seed in range(20):
        traffic = mixed(np.random.default_rng(seed), {"a/gpt": (600, 60), "b/gpt": (250, 60)})
        speeds = traffic.speeds()
        assert (speeds[0].total_tps.p50 or 0) > 1.2 * (speeds[1].total_tps.p50 or 0)
        (found,) = traffic.comparisons(speeds)
        assert found.ratio == pytest.approx(1, abs=0.02)
        real += found.real
    assert real <= 3


def test_faster_server_is_found_in_spite_of_shorter_answers() -> None:
    """Truth: 90 against 60 tokens/s after the first; the faster one writes shorter answers, and
    looks slower."""
    traffic = mixed(np.random.default_rng(1), {"a/gpt": (600, 60), "b/gpt": (150, 90)})
    speeds = traffic.speeds()
    assert speeds[0].name == "a/gpt"
    (found,) = traffic.comparisons(speeds)
    assert found.real
    assert (found.ratio or 1) < 0.9
    assert "gpt at a/gpt is slower than at b/gpt" in " ".join(
        full(speed_statements(speeds, [found]))
    )


@repeated(15, 60)
def test_intervals_hold_with_autocorrelated_hours(repeats: int) -> None:
    """Coverage of the median with hours of 20% scatter and a correlation of 0.8 between them; 95%
    is promised."""
    (known,) = mixed(np.random.default_rng(99), {"a/gpt": (300, 60)}, days=2000).speeds()
    truth = known.total_tps.p50 or 0
    covered = independent = 0
    for seed in range(repeats):
        (speed,) = mixed(np.random.default_rng(seed), {"a/gpt": (300, 60)}).speeds()
        low, high = speed.total_tps.ci95["p50"]
        assert low is not None
        assert high is not None
        covered += low <= truth <= high
        # half the width for independent requests
        independent += abs((speed.total_tps.p50 or 0) - truth) < 0.01 * truth
        assert (speed.periods, speed.period) == (7, "2 days")
    assert covered >= 53 * repeats // 60
    assert independent < repeats / 2


@repeated(50, 200)
def test_unchanged_targets_have_no_drift(repeats: int) -> None:
    """Reports of 14 unchanged targets, whose days scatter by 8%: at most one report in twenty names
    a drift."""
    random, false, found = np.random.default_rng(5), 0, 0
    for _ in range(repeats):
        drifts = []
        for _ in range(14):
            medians = dict(enumerate(60 * np.exp(random.normal(0, 0.08, 14))))
            drift = drift_of(medians, "day")
            assert drift is not None
            drifts.append(drift.p_value)
        false += min(p_value for p_value, _ in holm_levels(dict(enumerate(drifts))).values()) < 0.05
        found += min(drifts) < 0.05
    assert false <= 0.08 * repeats
    assert found > 0.3 * repeats  # without the adjustment every other report names one


def test_correlated_days_are_rarely_a_drift() -> None:
    false = sum(drifts(np.random.default_rng([seed, 6]), 28, 0.5) for seed in range(300))
    true = sum(drifts(np.random.default_rng([seed, 6]), 28, 0.5, 1.15) for seed in range(100))
    assert false <= 45
    assert true >= 85


def test_target_used_at_night_only_does_not_look_faster() -> None:
    night, fast = (
        SimulatedTarget("b/gpt", night_only=True),
        SimulatedTarget("b/gpt", faster=1.1, night_only=True),
    )
    assert sum(named(np.random.default_rng([seed, 7]), 14, night) for seed in range(12)) <= 3
    assert all(named(np.random.default_rng([seed, 7]), 14, fast) for seed in range(3))


@each_case(
    ("periods", "joined", "name"),
    [(0, 1, "day"), (6, 1, "day"), (13, 1, "day"), (14, 2, "2 days"), (30, 4, "4 days")],
)
def test_several_days_are_one_period_of_a_long_log(periods: int, joined: int, name: str) -> None:
    assert periods_joined(np.arange(periods)) == joined
    assert period_name(24 * joined) == name


def test_intervals_of_a_short_log_are_of_these_days_only() -> None:
    said = "The log covers fewer than six days, so the intervals are of these days only."
    assert said in speed_remarks(over_hours({"a/gpt": 80}).speeds(1))
    assert said not in speed_remarks([over_days(*[80] * 14)])


@each_case(("days", "hours"), [(0.1, 1), (1, 1), (1.5, 6), (5.9, 6), (6, 24), (60, 24), (90, 168)])
def test_periods(days: float, hours: int) -> None:
    assert period_hours(days * 86_400) == hours
