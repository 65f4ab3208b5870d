"""Times that are only known to be longer than so much: against lifetimes whose truth is known, and against `spread`."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.analysis.censored import censored_spread
from splitsecond.analysis.spread import spread


def test_without_closed_ones_it_is_the_plain_spread() -> None:
    values = [3.0, 1.0, 2.0, 10.0, 7.0, 4.0]
    assert censored_spread(values, [0] * 6) == spread(values)
    assert censored_spread([], []) == spread([])


def test_a_textbook_curve() -> None:
    # Freireich's patients with 6-MP (1963), as in every textbook: the median remission is 23 weeks, S(10) = 0.753.
    weeks = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    going_on = [0, 0, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1]
    found = censored_spread(weeks, going_on)
    assert (found.n, found.p50, found.p95) == (21, 23.0, None)
    assert found.ci95["p50"] == (13.0, None)  # as R's survival has it with conf.type="log-log"
    assert (found.mean, found.max, found.min) == (None, None, 6.0)


def test_leaving_the_closed_out_would_flatter() -> None:
    random = np.random.default_rng(5)
    truth = random.exponential(100.0, 20_000)
    deadline = 120.0
    seen, closed = np.minimum(truth, deadline), truth > deadline
    assert np.median(seen[~closed]) < 45  # what came in time looks twice as fast as it is
    assert censored_spread(seen, closed).p50 == pytest.approx(100 * np.log(2), rel=0.03)


def test_the_interval_holds_the_truth_nineteen_times_in_twenty() -> None:
    random = np.random.default_rng(6)
    held = 0
    for _ in range(200):
        times, closed_at = random.exponential(100, 150), random.exponential(150, 150)
        low, high = censored_spread(np.minimum(times, closed_at), closed_at < times).ci95["p50"]
        held += (low or 0) <= 100 * np.log(2) <= (high or np.inf)
    assert 182 <= held <= 198


_PAIRS = st.lists(st.tuples(st.floats(0.001, 1e6), st.booleans()), min_size=1, max_size=60)


@given(_PAIRS.filter(lambda pairs: any(closed for _, closed in pairs)))
def test_any_values_give_percentiles_in_order_among_those_seen(pairs: list[tuple[float, bool]]) -> None:
    values, closed = [value for value, _ in pairs], [late for _, late in pairs]
    found = censored_spread(values, closed)
    known = [value for value in (found.p50, found.p95, found.p99) if value is not None]
    assert known == sorted(known)
    assert all(min(values) <= value <= max(values) for value in known)
    for name in ("p50", "p95", "p99"):
        low, high = found.ci95.get(name, (None, None))
        value = getattr(found, name)
        assert low is None or value is None or low <= value
        assert high is None or (value is not None and value <= high)
