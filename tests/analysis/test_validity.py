"""Each reason not to trust a row, and each note: with the case that just gives it, and the one that just does not."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.analysis.made import MS, S, asked, closed_loop, failure, request

from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.condition import condition_findings
from splitsecond.analysis.findings import ConditionFindings
from splitsecond.analysis.lateness import dispatch_late_ns, exposed_lag_ns
from splitsecond.analysis.validity import came_at_once
from splitsecond.timing.instrument import InstrumentReading
from splitsecond.timing.observation import Observation


def judged(
    observations: Sequence[Observation],
    *readings: InstrumentReading,
    condition: AskedCondition | None = None,
) -> ConditionFindings:
    return condition_findings(condition or asked(), observations, readings)


def turns(count: int = 10, **made: Any) -> list[Observation]:
    """One request after another."""
    return closed_loop(1, count, **made)


def test_ten_requests_in_a_row_are_trusted() -> None:
    made = judged(turns())
    assert (made.invalid, made.notes) == ([], [])


# TTFT is 100 ms, a token comes every 10 ms, and TPS is taken over 100 ms.


@pytest.mark.parametrize(("lag_ms", "trusted"), [(10, True), (11, False)])
def test_without_kernel_time_lag_is_error(lag_ms: int, trusted: bool) -> None:
    made = judged(turns(kernel_time=False, lag_max_ns=lag_ms * MS))
    assert (made.invalid == []) is trusted
    if not trusted:
        assert made.invalid[0].startswith(
            "the client was too late: bytes that had arrived waited to be read, by 11 ms at p50 where TTFT is 100 ms"
        )


def test_with_kernel_time_lag_alone_is_no_error() -> None:
    assert judged(turns(lag_max_ns=90 * MS)).invalid == []


def test_lag_of_the_slowest_requests_is_held_against_the_p95() -> None:
    mostly = turns(8) + [request(2600.0 + 200 * i, kernel_time=False, lag_max_ns=40 * MS) for i in range(2)]
    assert "by 40 ms at p95" in judged(mostly).invalid[0]


def test_lag_is_held_against_the_time_that_tps_is_taken_over() -> None:
    made = judged(turns(ttft_ms=1000, gap_ms=1, kernel_time=False, lag_max_ns=3 * MS))
    assert len(made.invalid) == 1
    assert "for 30 % of the time that TPS is taken over" in made.invalid[0]


@pytest.mark.parametrize(
    ("changes", "exposed_ms"),
    [
        ({"kernel_time": False}, 20),
        ({}, 0),
        ({"max_read_tokens": 2}, 20),
        ({"max_read_tokens": 2, "output_tokens": None}, 20),
        ({"max_read_tokens": 2, "lag_max_ns": 9 * MS}, 0),
    ],
)
def test_a_lag_is_exposed_unless_the_kernel_saw_each_token_apart(changes: dict[str, Any], exposed_ms: int) -> None:
    assert exposed_lag_ns(request(**{"lag_max_ns": 20 * MS, **changes})) == exposed_ms * MS


def test_dispatch_is_late_by_what_connecting_does_not_explain() -> None:
    late = request(1000.0, due_ns=950 * MS, dns_ns=5 * MS, tcp_ns=10 * MS, tls_ns=15 * MS)
    assert dispatch_late_ns(late) == 20 * MS
    assert dispatch_late_ns(request(1000.0)) is None
    assert dispatch_late_ns(request(1000.0, due_ns=999 * MS, tcp_ns=5 * MS)) == 0


@pytest.mark.parametrize(("late_ms", "trusted"), [(11, True), (12, False)])
def test_an_open_loop_must_send_on_time(late_ms: int, trusted: bool) -> None:
    sent = [request(1000.0 + 300 * i, due_ns=(1000 + 300 * i - late_ms) * MS) for i in range(5)]
    made = judged(sent, condition=asked(None, rate=3.3))
    assert (made.invalid == []) is trusted
    if not trusted:
        assert "requests left later than they were due, by 12 ms at p50" in made.invalid[0]


def test_a_concurrency_that_was_never_reached() -> None:
    made = judged(turns(), condition=asked(8))
    assert "concurrency 8 was never reached: at most 1 measured request was under way" in made.invalid[0]


def test_a_concurrency_that_was_not_held() -> None:
    made = judged([request(1000.0 + 240 * i) for i in range(10)])
    assert made.invalid[0].startswith("concurrency 1 was not held, on average 0.847 requests")


@pytest.mark.parametrize(("apart_ms", "trusted"), [(105, True), (110, False)])
def test_a_rate_that_was_not_reached(apart_ms: int, trusted: bool) -> None:
    # A little behind from the first on, and further behind with each: late, too, but that is another reason.
    sent = [request(1000.0 + apart_ms * i, due_ns=(1000 + 100 * i) * MS) for i in range(20)]
    made = judged(sent, condition=asked(None, rate=10))
    assert any("the rate was not reached" in reason for reason in made.invalid) is not trusted


def test_a_rate_that_wanted_all_at_once() -> None:
    made = judged([request(1000.0 + i, due_ns=1000 * MS) for i in range(3)], condition=asked(None))
    assert made.invalid == [
        "the rate was not reached: the requests took longer to leave than planned (0.002 s, planned 0 s); "
        "use more workers, or a lower rate."
    ]


def test_one_open_request_has_no_rate() -> None:
    assert judged([request(due_ns=1000 * MS)], condition=asked(None)).invalid == []


# All of it came at once, at the end.
BUFFERED: dict[str, Any] = {"ttft_ms": 200, "gap_ms": 0, "max_read_tokens": 11}


def test_a_buffered_stream_is_not_trusted() -> None:
    made = judged(turns(**BUFFERED))
    assert made.invalid[0].startswith("the answer came in one burst in 10 of 10 requests")


def test_a_few_bursts_are_a_note() -> None:
    mixed = turns(8) + [request(2600.0 + 200 * i, **BUFFERED) for i in range(2)]
    made = judged(mixed)
    assert made.invalid == []
    assert made.notes == ["2 of 10 answers came in one burst."]


@pytest.mark.parametrize(
    ("made", "at_once"),
    [
        (request(), False),
        (request(**BUFFERED), True),
        (request(tokens=1, output_tokens=50), True),
        # Fast tokens after a long queue come late, but one by one.
        (request(ttft_ms=10_000, gap_ms=1), False),
        (request(ttft_ms=10_000, gap_ms=1, kernel_time=False, lag_max_ns=5 * MS), False),
        (request(ttft_ms=10_000, gap_ms=1, kernel_time=False, lag_max_ns=6 * MS), True),
        # In three pieces, over 20 ms.
        (request(tokens=12, token_at=[1100 * MS] * 6 + [1110 * MS] * 3 + [1120 * MS] * 3), False),
        (request(ttft_ms=2000, tokens=12, token_at=[1100 * MS] * 6 + [1110 * MS] * 3 + [1120 * MS] * 3), False),
        (
            request(ttft_ms=2000, gap_ms=1, tokens=12, token_at=[3000 * MS] * 6 + [3010 * MS] * 3 + [3011 * MS] * 3),
            True,
        ),
    ],
)
def test_what_came_at_once(made: Observation, at_once: bool) -> None:
    assert came_at_once(made) is at_once


def test_short_answers_say_nothing_about_bursts() -> None:
    assert judged(turns(tokens=3, gap_ms=0)).invalid == []


def test_garbage_collection_must_not_run() -> None:
    made = judged(turns(), InstrumentReading(condition="c", begin_ns=0, end_ns=S, collections=2))
    assert made.invalid == ["Python's garbage collection ran 2 times inside the measurement, expected 0."]


@pytest.mark.parametrize(("wait_ms", "trusted"), [(200, True), (201, False)])
def test_a_client_that_waits_for_a_processor(wait_ms: int, trusted: bool) -> None:
    made = judged(turns(), InstrumentReading(condition="c", begin_ns=0, end_ns=S, runqueue_wait_ns=wait_ms * MS))
    assert (made.invalid == []) is trusted


def only_note(made: ConditionFindings) -> str:
    assert made.invalid == []
    (note,) = made.notes
    return note


def test_counting_events_is_noted() -> None:
    said = only_note(judged(turns(token_source="events")))
    assert "each event counts as one token" in said
    assert "The provider" not in said


def test_counting_events_says_where_the_counts_should_have_been() -> None:
    said = only_note(judged(turns(token_source="events"), condition=asked(usage="choices")))
    assert "The provider is known to send them inside choices[0] of the last chunk" in said


def test_cached_prompts_are_noted_unless_wanted() -> None:
    warm = turns(cached_tokens=50)
    assert only_note(judged(warm)).startswith("10 of 10 prompts came partly from the provider's cache")
    assert judged(warm, condition=asked(cache_reuse=True)).notes == []
    (cold,) = judged(turns(cached_tokens=0), condition=asked(cache_reuse=True)).notes
    assert cold.startswith("no prompt came from the provider's cache")
    assert judged(turns(cached_tokens=0)).notes == []


@pytest.mark.parametrize(("wanted", "noted"), [(11, False), (None, False), (12, True)])
def test_answers_of_another_length_are_noted(wanted: int | None, noted: bool) -> None:
    made = judged(turns(), condition=asked(output_tokens=wanted))
    assert made.notes == (["answers had 11 tokens (median), asked for were 12."] if noted else [])


def test_unknown_lengths_are_not_held_against_what_was_asked() -> None:
    assert judged(turns(output_tokens=None), condition=asked(output_tokens=500)).notes == []


def test_lag_above_the_gaps_is_noted() -> None:
    note = only_note(judged(turns(ttft_ms=1000, gap_ms=2, tokens=101, kernel_time=False, lag_max_ns=3 * MS)))
    assert note.startswith("in half of the requests reads were up to 3 ms late")


@pytest.mark.parametrize(("count", "noted"), [(2, True), (3, False)])
def test_a_short_steady_window_is_noted(count: int, noted: bool) -> None:
    made = judged(turns(count))
    assert any("short steady window" in note for note in made.notes) is noted


def test_each_of_several_windows_must_be_long_enough() -> None:
    blocks = [request(start + 200.0 * i) for start in (1000, 5000, 9000) for i in range(2)]
    assert only_note(judged(blocks)).startswith("short steady window")


@pytest.mark.parametrize(("failed", "noted"), [(1, False), (2, True)])
def test_failures_above_one_percent_are_noted(failed: int, noted: bool) -> None:
    failures = [failure(21_000.0 + 5 * i) for i in range(failed)]
    made = judged(turns(100) + failures)
    assert any("a p99 of all would be a failure" in note for note in made.notes) is noted


def test_requests_sent_again_are_noted() -> None:
    assert only_note(judged([*turns(), request(3000.0, resent=True)])).startswith(
        "sent again, as the kept connection turned out closed: 1 req"
    )
