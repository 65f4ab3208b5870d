"""Durations that servers report, and numbers that are none."""

import math

from tests.cases import each_case

from splitsecond.core.timing.server_times import MAX_NS, duration_ns


@each_case("value", [-1.0, 1e300, 1e308, math.inf, math.nan])
@each_case("name", ["prompt_ms", "queue_time", "eval_duration"])
def test_impossible_duration_is_none(name: str, value: float) -> None:
    assert duration_ns(name, value) is None


def test_a_duration_lasts_a_day_at_most() -> None:
    assert duration_ns("eval_duration", MAX_NS) == MAX_NS
    assert duration_ns("eval_duration", MAX_NS + 1e6) is None
    assert duration_ns("prompt_ms", 1.5) == 1_500_000
    assert duration_ns("tokens_per_ms", 1.5) is None
