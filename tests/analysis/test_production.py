"""Production speeds: the definition, the grades, what counts and what does not, and what days tell of a drift."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from msgspec.structs import replace
from tests.analysis.made import MS, failure, request

from splitsecond.analysis.production import By, Speed, Traffic, grade, total_tps
from splitsecond.analysis.production_statements import speed_statements
from splitsecond.catalog.price import Price
from splitsecond.timing.observation import FaultRecord, Observation

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def served(
    *attempts: Observation, least: int = 1, by: By = "target", price: Price | None = None, day: int = 0
) -> list[Speed]:
    traffic = Traffic(lambda _: price, by)
    for attempt in attempts:
        traffic.add(NOON + day * DAY, attempt)
    return traffic.speeds(least)


def answer(total: float, *, tokens: int = 100, target: str = "a/x") -> Observation:
    """An answer of so many total tokens per second, half of its time before the first token."""
    took_ms = tokens / total * 1000
    return request(
        target=target, ttft_ms=took_ms / 2, gap_ms=took_ms / 2, tokens=2, output_tokens=tokens, token_source="usage"
    )


@pytest.mark.parametrize(
    ("tps", "found"),
    [(1000, 1), (100, 1), (99.9, 2), (70, 2), (69.9, 3), (50, 3), (49.9, 4), (30, 4), (29.9, 5), (0.1, 5)],
)
def test_grades(tps: float, found: int) -> None:
    assert grade(tps) == found


def test_total_tps_holds_connecting_and_waiting() -> None:
    plain = request(ttft_ms=200, gap_ms=10, tokens=81)  # 81 tokens in 200 + 800 ms
    assert total_tps(plain) == pytest.approx(81.0)
    connected = request(ttft_ms=200, gap_ms=10, tokens=81, dns_ns=10 * MS, tcp_ns=30 * MS, tls_ns=40 * MS)
    assert total_tps(connected) == pytest.approx(81 / 1.08)


def test_what_another_target_took_before_is_not_counted() -> None:
    second = request(start_ns=0, sent_ms=5000, ttft_ms=500, gap_ms=5, tokens=101)
    assert total_tps(second) == pytest.approx(101.0)


@pytest.mark.parametrize("without", [{"output_tokens": None}, {"output_tokens": 0}, {"sent_ns": None}])
def test_no_count_no_speed(without: dict[str, int | None]) -> None:
    uncounted = replace(request(), **without)
    assert total_tps(uncounted) is None
    (speed,) = served(uncounted)
    assert (speed.grade, speed.total_tps.n, speed.answered) == (None, 0, 1)


def test_only_whole_answers_have_a_speed_and_the_rest_is_counted() -> None:
    closed = request(ttft_ms=100, outcome="cancelled")
    broken = failure(kind="http_429")
    (speed,) = served(*[answer(80)] * 30, *[closed] * 3, *[broken] * 10)
    assert (speed.requests, speed.answered, speed.closed, speed.failed) == (43, 30, 3, 10)
    assert speed.total_tps.p50 == pytest.approx(80)
    assert speed.grade == 2
    assert speed.error_share == 0.25
    assert speed.faults == {"http_429": 10}


def test_a_grade_takes_so_many_answers() -> None:
    few, enough = served(*[answer(80)] * 499, least=500), served(*[answer(80)] * 500, least=500)
    assert (few[0].grade, few[0].grades, few[0].needs) == (None, (), 500)
    assert (enough[0].grade, enough[0].grades, enough[0].needs) == (2, (2,), 0)


def test_near_a_line_both_grades_are_said() -> None:
    random = np.random.default_rng(1)
    (speed,) = served(*[answer(float(tps)) for tps in random.normal(70.5, 8, 60)])
    assert speed.grades == (2, 3)
    assert "Near the line between two grades: a/x (2 or 3)." in speed_statements([speed])


def test_waits_that_were_cut_short_count_as_longer() -> None:
    late = FaultRecord(type="TimedOut", kind="timed_out", phase="first token", message="no token for 300 ms")
    asked = request(first_token_ns=None, last_token_ns=None, output_tokens=None)
    lost = replace(asked, outcome="cancelled", end_ns=asked.start_ns + 300 * MS)
    given_up = replace(lost, outcome="failed", fault=late)
    whole = request(streamed=False, ttft_ms=9000)
    answered = [request(ttft_ms=ms) for ms in range(100, 300, 2)]
    (speed,) = served(*answered, *[lost] * 60, *[given_up] * 20, whole)
    assert (speed.ttft_ms.n, speed.ttft_closed) == (180, 80)
    assert speed.ttft_ms.p50 == pytest.approx(278, abs=3)  # of those that came alone it would be 199
    assert speed.ttft_ms.p95 is None


def test_rows_by_model_and_provider() -> None:
    asked = [
        answer(120, target="groq/openai/gpt-oss"),
        answer(60, target="cerebras/gpt-oss"),
        answer(40, target="groq/m"),
    ]
    assert [speed.name for speed in served(*asked)] == ["groq/openai/gpt-oss", "cerebras/gpt-oss", "groq/m"]
    assert {speed.name: speed.requests for speed in served(*asked, by="model")} == {"gpt-oss": 2, "m": 1}
    assert {speed.name: speed.requests for speed in served(*asked, by="provider")} == {"groq": 2, "cerebras": 1}


def test_cost_in_its_own_mix() -> None:
    price = Price(input_usd=1.0, output_usd=4.0)
    (speed,) = served(*[answer(80, tokens=100)] * 10, price=price)  # 100 tokens in, 100 out
    assert speed.cost_usd == pytest.approx(10 * 500e-6)
    assert speed.usd_per_million == pytest.approx(2.5)
    assert served(answer(80))[0].cost_usd is None
    assert served(answer(80))[0].unpriced == 1


def over_days(*medians: float) -> Speed:
    traffic, random = Traffic(lambda _: None), np.random.default_rng(2)
    for day, median in enumerate(medians):
        for tps in random.normal(median, 3, 40):
            traffic.add(NOON + day * DAY, answer(float(tps)))
    return traffic.speeds(1)[0]


def test_a_drift_is_told_by_days() -> None:
    slowed = over_days(80, 82, 79, 81, 80, 78, 80, 60, 62, 59, 61, 60, 58, 60).drift
    assert slowed is not None
    assert slowed.real
    assert slowed.ratio == pytest.approx(0.75, abs=0.02)
    assert slowed.days == (7, 7)
    # Each day has another level, so the requests of the two weeks differ by far more than chance, and the days do not.
    moody = over_days(70, 95, 60, 90, 65, 85, 100, 72, 93, 66, 88, 61, 97, 80).drift
    assert moody is not None
    assert not moody.real
    assert over_days(80, 80, 60, 60).drift is None


def test_a_drift_is_said() -> None:
    said = speed_statements([over_days(*[80] * 7, *[60] * 7)])
    assert any(s.startswith("a/x has become slower, 80") and "the last 7 days against the 7 before" in s for s in said)
    assert not any("has become" in s for s in speed_statements([over_days(*[80] * 14)]))


def test_who_serves_a_model_faster_is_said_only_where_it_is_sure() -> None:
    random = np.random.default_rng(3)
    speeds = served(
        *[answer(float(tps), target="a/gpt") for tps in random.normal(120, 5, 100)],
        *[answer(float(tps), target="b/gpt") for tps in random.normal(60, 5, 100)],
        *[answer(float(tps), target="c/maker/gpt") for tps in random.normal(120, 5, 100)],
        *[answer(float(tps), target="d/other") for tps in random.normal(10, 1, 100)],
    )
    said = speed_statements(speeds)
    first = speeds[0].name
    second = ({"a/gpt", "c/maker/gpt"} - {first}).pop()
    (of_gpt,) = (sentence for sentence in said if sentence.startswith("gpt at"))
    assert of_gpt.startswith(f"gpt at {first} is not surely faster than at {second} and ")
    assert of_gpt.endswith(" times as fast in all as at b/gpt.")
    assert not any("other at" in sentence for sentence in said)
