import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.report.invented import invented_run

from splitsecond.benchmark.report.plots import series
from splitsecond.core.clock import NS_PER_MS
from splitsecond.core.observation import Observation

ONE = Observation(
    id="1",
    call="1",
    target="a/x",
    due_ns=1000 * NS_PER_MS,
    start_ns=1000 * NS_PER_MS,
    dns_ns=2 * NS_PER_MS,
    tcp_ns=3 * NS_PER_MS,
    sent_ns=1007 * NS_PER_MS,
    head_ns=1020 * NS_PER_MS,
    first_token_ns=1050 * NS_PER_MS,
    last_token_ns=1090 * NS_PER_MS,
)


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=3000))
def test_an_ecdf_is_a_thin_staircase_from_none_to_all(values: list[float]) -> None:
    points = series.ecdf(np.array(values))
    assert len(points) <= series.CURVE_POINTS
    assert points == sorted(points)
    assert points[0] == (min(values), 0.0)
    assert points[-1] == (max(values), 1.0)


def test_no_values_have_no_ecdf_and_no_band() -> None:
    assert series.ecdf(np.empty(0)) == []
    assert series.band(np.empty(0)) is None


def test_band_contains_90_percent_of_the_values() -> None:
    assert series.band(np.arange(101.0)) == (5.0, 95.0)


def test_the_steps_of_a_request_follow_each_other() -> None:
    steps = series.waterfall("a/x", [ONE])
    assert [(s.name, s.begin_ms, s.end_ms) for s in steps] == [
        ("waiting to leave", 0, 2),
        ("connecting", 2, 7),
        ("until the response headers", 7, 20),
        ("until the first token", 20, 50),
        ("streaming", 50, 90),
    ]
    assert {s.which for s in steps} == {"typical"}


@pytest.mark.parametrize("missing", ["head_ns", "first_token_ns", "due_ns"])
def test_missing_time_leaves_no_gap_in_the_waterfall(missing: str) -> None:
    value = 0 if missing == "due_ns" else None
    steps = series.waterfall("a/x", [msgspec.structs.replace(ONE, **{missing: value})])
    assert [a.end_ms for a in steps[:-1]] == [b.begin_ms for b in steps[1:]]
    assert steps[-1].end_ms == 90


def test_a_typical_and_the_slowest_request_are_shown() -> None:
    requests = [
        msgspec.structs.replace(ONE, last_token_ns=(1090 + 10 * i) * NS_PER_MS) for i in range(5)
    ]
    steps = series.waterfall("a/x", requests)
    assert {s.which: s.end_ms for s in steps if s.name == "streaming"} == {
        "typical": 110,
        "slowest": 130,
    }


def test_request_without_a_stream_has_no_waterfall() -> None:
    assert series.waterfall("a/x", [msgspec.structs.replace(ONE, last_token_ns=None)]) == []


def test_samples_are_the_measured_requests_that_succeeded() -> None:
    run, observations = invented_run(concurrencies=(32,), requests=30)
    warmup = msgspec.structs.replace(observations[0], role="warmup")
    stranger = msgspec.structs.replace(observations[0], condition="another")
    found = series.samples(run, [*observations, warmup, stranger])
    assert list(found) == [c.condition for c in run.conditions]
    assert [len(found[c.condition]) for c in run.conditions] == [
        c.requests - c.errors for c in run.conditions
    ]
    assert sum(c.errors for c in run.conditions) > 0
