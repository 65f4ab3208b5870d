"""What the server reported, for the time of a row: medians under load, differences at the edges,
energy."""

import pytest
from tests.analysis.made import request
from tests.server_view.made import Points, row

EDGES = (-0.5, 11.0)
"""Seconds of the readings before and after the only block."""


def counted(**grown: float) -> Points:
    """Counters that are 5 before the block, and have grown by so much after it."""
    before, after = EDGES
    return {
        before: dict.fromkeys(grown, 5.0),
        after: {name: 5.0 + value for name, value in grown.items()},
    }


def test_states_are_those_of_readings_under_load() -> None:
    waiting = {-0.5: 99, 1: 1, 2: 2, 3: 3, 4: 40, 5: 3, 11: 99}
    view = row({at: {"waiting": value, "running": 2} for at, value in waiting.items()}).server
    assert view is not None
    assert (view.title, view.samples) == ("vLLM", 5)
    assert (view.waiting, view.waiting_max, view.running) == (3, 40, 2)
    assert view.kv_use is None


def test_counts_are_differences_at_the_edges_of_a_block() -> None:
    view = row(
        counted(
            preemptions=7,
            looked_up_tokens=100,
            cached_tokens=62,
            drafted_tokens=10,
            accepted_tokens=8,
        )
    ).server
    assert view is not None
    assert (view.preemptions, view.cached_share, view.accepted_share) == (7, 0.62, 0.8)


def test_cached_share_without_lookups_is_of_all_prompt_tokens() -> None:
    of_prompts = row(counted(prompt_tokens=200, cached_tokens=50)).server
    of_computed = row(counted(computed_tokens=150, cached_tokens=50)).server
    assert of_prompts is not None
    assert of_computed is not None
    assert of_prompts.cached_share == of_computed.cached_share == 0.25


def test_counter_that_appears_later_was_zero_before() -> None:
    before, after = EDGES
    view = row({before: {"running": 0}, after: {"preemptions": 3, "running": 0}}).server
    assert view is not None
    assert view.preemptions == 3


@pytest.mark.parametrize("points", [{-0.5: {"preemptions": 5}}, {11: {"preemptions": 5}}])
def test_counter_is_unknown_without_both_edges(points: Points) -> None:
    view = row(points).server
    assert view is not None
    assert view.preemptions is None


def test_counter_of_a_server_that_was_restarted_is_unknown() -> None:
    before, after = EDGES
    view = row({before: {"preemptions": 5}, after: {"preemptions": 2}}).server
    assert view is not None
    assert view.preemptions is None


def test_mean_times_and_the_check_of_ttft() -> None:
    reported = counted(
        ttft_s_sum=9.6,
        ttft_s_count=20,
        queue_s_sum=4,
        queue_s_count=20,
        prefill_s_sum=5,
        prefill_s_count=20,
    )
    view = row(reported).server
    assert view is not None
    assert view.check is not None
    assert (view.ttft_ms, view.queue_ms, view.prefill_ms) == (480, 200, 250)
    check = view.check
    assert (check.server_requests, check.requests, check.others) == (20, 20, False)
    assert (check.measured_ms, check.network_ms, round(check.rest_ms)) == (500, None, 20)


def test_server_of_others_is_seen_by_its_count() -> None:
    view = row(counted(ttft_s_sum=9.6, ttft_s_count=30)).server
    assert view is not None
    assert view.check is not None
    assert view.check.others


def test_energy_is_that_of_the_counter_while_the_load_was_up() -> None:
    """A counter of 400 W from the first request on; two requests a second give 22 tokens a
    second."""
    idle: Points = {-2: {"power_w": 70.0, "energy_j": 0.0}, -1: {"power_w": 90.0, "energy_j": 80.0}}
    load: Points = {at: {"power_w": 111.0, "energy_j": 80.0 + 400.0 * at} for at in range(12)}
    view = row({**idle, **load}, usd_per_kwh=0.36).server
    assert view is not None
    assert view.idle_power_w == 80
    assert view.power_w == pytest.approx(400)
    assert view.joules_per_token == pytest.approx(400 / 22, rel=0.01)
    assert view.tokens_per_kwh == pytest.approx(3.6e6 / (400 / 22), rel=0.01)
    assert view.electricity_usd_per_million == pytest.approx(400 / 22 / 3.6 * 0.36, rel=0.01)


def test_energy_without_a_counter_is_that_of_the_mean_power() -> None:
    view = row(
        {at: {"power_w": 300.0 + 100 * (at % 2), "power_capped": at % 2} for at in range(1, 9)}
    ).server
    assert view is not None
    assert (view.power_w, view.power_capped) == (350, 0.5)
    assert view.electricity_usd_per_million is None


def test_row_without_a_source_has_no_view() -> None:
    assert row({}).server is None


def test_idle_power_is_that_before_the_first_request_of_the_run() -> None:
    calibration = request(-500, target="a/x", condition="c@calibration", role="calibration")
    power = {-3: 70.0, -1: 500.0, 1: 500.0, 2: 500.0}
    view = row({at: {"power_w": value} for at, value in power.items()}, others=[calibration]).server
    assert view is not None
    assert view.idle_power_w == 70
