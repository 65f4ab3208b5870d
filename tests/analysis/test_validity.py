"""Each reason not to trust a row, and each note: with a case just above its limit, and one just
below."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.analysis.made import MS, S, asked, closed_loop, failure, request
from tests.cases import each_case

from splitsecond.benchmark.rows.condition import condition_findings
from splitsecond.benchmark.rows.lateness import dispatch_late_ns, exposed_lag_ns
from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings
from splitsecond.benchmark.rows.validity import came_at_once
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading


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


@pytest.mark.parametrize(("lag_ms", "trusted"), [(2, True), (3, False)])
def test_without_kernel_time_lag_is_error(lag_ms: int, trusted: bool) -> None:
    made = judged(turns(kernel_time=False, lag_max_ns=lag_ms * MS))
    assert (made.invalid == []) is trusted
    if not trusted:
        assert made.invalid[0].startswith(
            "client overloaded: first tokens were read late, so TTFT of 100 ms at p50 may be "
            "wrong by 3 ms"
        )


def test_lag_with_kernel_time_is_not_an_error() -> None:
    assert judged(turns(lag_max_ns=90 * MS)).invalid == []


@pytest.mark.parametrize(("merged_ms", "trusted"), [(2, True), (3, False)])
def test_merged_first_token_error_is_its_dating_back(merged_ms: int, trusted: bool) -> None:
    made = judged(turns(first_merged_ns=merged_ms * MS))
    assert (made.invalid == []) is trusted
    assert (made.instrument.first_tokens_merged, made.instrument.first_merged_max_ms) == (
        10,
        merged_ms,
    )
    assert made.notes == [
        f"10 first tokens were read together with later ones, and dated back by at most "
        f"{merged_ms} ms."
    ]


def test_ttft_error_of_1_ms_is_always_allowed() -> None:
    assert judged(turns(ttft_ms=10, first_merged_ns=1 * MS)).invalid == []
    assert judged(turns(ttft_ms=10, first_merged_ns=round(1.1 * MS))).invalid != []


def test_each_percentile_is_judged_by_its_own_error() -> None:
    # Two requests may be among the slowest: p50 does not depend on them, p95 does.
    slow = [request(2600.0 + 200 * i, ttft_ms=90, first_merged_ns=40 * MS) for i in range(2)]
    assert "of 100 ms at p95 may be wrong by 30 ms" in judged(turns(8) + slow).invalid[0]
    # Two that can only have been faster change neither.
    fast = [
        request(2600.0 + 200 * i, ttft_ms=90, kernel_time=False, lag_max_ns=40 * MS)
        for i in range(2)
    ]
    assert not any("TTFT" in reason for reason in judged(turns(8) + fast).invalid)


def test_tps_error_is_relative_to_the_streaming_time() -> None:
    made = judged(turns(ttft_ms=1000, gap_ms=1, kernel_time=False, lag_max_ns=3 * MS))
    assert len(made.invalid) == 1
    assert "so p50 of TPS may be wrong by 30%" in made.invalid[0]


@each_case(
    ("changes", "exposed_ms"),
    [
        ({"kernel_time": False}, 20),
        ({}, 0),
        ({"max_read_tokens": 2}, 20),
        ({"max_read_tokens": 2, "output_tokens": None}, 20),
        ({"max_read_tokens": 2, "lag_max_ns": 9 * MS}, 0),
        ({"max_read_tokens": 2, "packet_time": True}, 0),
        ({"max_read_tokens": 2, "sparse": True}, 0),
        ({"max_read_tokens": 2, "sparse": True, "last_merged_ns": 3 * MS}, 3),
    ],
)
def test_a_lag_is_exposed_unless_the_kernel_saw_each_token_apart(
    changes: dict[str, Any], exposed_ms: int
) -> None:
    assert exposed_lag_ns(request(**{"lag_max_ns": 20 * MS, **changes})) == exposed_ms * MS


def test_dispatch_lateness_excludes_connect_time() -> None:
    late = request(1000.0, due_ns=950 * MS, dns_ns=5 * MS, tcp_ns=10 * MS, tls_ns=15 * MS)
    assert dispatch_late_ns(late) == 20 * MS
    assert dispatch_late_ns(request(1000.0)) is None
    assert dispatch_late_ns(request(1000.0, due_ns=999 * MS, tcp_ns=5 * MS)) == 0


@pytest.mark.parametrize(("late_ms", "trusted"), [(2, True), (3, False)])
def test_an_open_loop_must_send_on_time(late_ms: int, trusted: bool) -> None:
    sent = [request(1000.0 + 300 * i, due_ns=(1000 + 300 * i - late_ms) * MS) for i in range(10)]
    made = judged(sent, condition=asked(None, rate=3.3))
    assert (made.invalid == []) is trusted
    if not trusted:
        assert (
            "requests were sent later than they were due, which makes p50 of TTFT from due up to "
            "3 ms too high" in made.invalid[0]
        )


@pytest.mark.parametrize(("count", "trusted"), [(500, False), (200, True)])
def test_late_dispatch_of_few_requests_invalidates_only_p99(count: int, trusted: bool) -> None:
    """One request of 25 leaves 4 s late: p50 and p95 are right, and p99 is 4 s too high where it is
    known."""
    late_ns = [4 * S if i % 25 == 7 else 0 for i in range(count)]
    sent = [
        request(5000.0 + 300 * i, due_ns=round((5000 + 300 * i) * MS) - late_ns[i])
        for i in range(count)
    ]
    made = judged(sent, condition=asked(None, rate=3.3))
    assert (made.invalid == []) is trusted
    assert trusted or "which makes p99 of TTFT from due up to 4,000 ms too high" in made.invalid[0]


def test_a_concurrency_that_was_never_reached() -> None:
    made = judged(turns(), condition=asked(8))
    assert "concurrency 8 was never reached: at most 1 request was in flight" in made.invalid[0]


def test_a_concurrency_that_was_not_held() -> None:
    made = judged([request(1000.0 + 240 * i) for i in range(10)])
    assert made.invalid[0].startswith("concurrency 1 was not kept: on average 0.847 requests")


@pytest.mark.parametrize(("apart_ms", "trusted"), [(105, True), (110, False)])
def test_a_rate_that_was_not_reached(apart_ms: int, trusted: bool) -> None:
    # A little behind from the first on, and further behind with each: late, too, but that is
    # another reason.
    sent = [request(1000.0 + apart_ms * i, due_ns=(1000 + 100 * i) * MS) for i in range(20)]
    made = judged(sent, condition=asked(None, rate=10))
    assert any("the rate was not reached" in reason for reason in made.invalid) is not trusted


def test_rate_with_all_requests_due_at_once_is_not_reached() -> None:
    made = judged([request(1000.0 + i, due_ns=1000 * MS) for i in range(3)], condition=asked(None))
    assert made.invalid == [
        "the rate was not reached: sending the requests took longer than planned (0.002 s, "
        "planned 0 s). "
        "Use more workers, or a lower rate."
    ]


def test_one_open_request_has_no_rate() -> None:
    assert judged([request(due_ns=1000 * MS)], condition=asked(None)).invalid == []


# All of it came at once, at the end.
BUFFERED: dict[str, Any] = {"ttft_ms": 200, "gap_ms": 0, "max_read_tokens": 11}


def test_a_buffered_stream_is_not_trusted() -> None:
    made = judged(turns(**BUFFERED))
    assert made.invalid[0].startswith("the response arrived in one burst in 10 of 10 requests")


def test_a_few_bursts_are_a_note() -> None:
    mixed = turns(8) + [request(2600.0 + 200 * i, **BUFFERED) for i in range(2)]
    made = judged(mixed)
    assert made.invalid == []
    assert made.notes == ["2 of 10 responses arrived in one burst."]


@each_case(
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
        (
            request(
                ttft_ms=2000,
                tokens=12,
                token_at=[1100 * MS] * 6 + [1110 * MS] * 3 + [1120 * MS] * 3,
            ),
            False,
        ),
        (
            request(
                ttft_ms=2000,
                gap_ms=1,
                tokens=12,
                token_at=[3000 * MS] * 6 + [3010 * MS] * 3 + [3011 * MS] * 3,
            ),
            True,
        ),
    ],
)
def test_bursts_are_detected(made: Observation, at_once: bool) -> None:
    assert came_at_once(made) is at_once


def test_short_responses_are_not_bursts() -> None:
    assert judged(turns(tokens=3, gap_ms=0)).invalid == []


def test_garbage_collection_must_not_run() -> None:
    made = judged(turns(), InstrumentReading(condition="c", begin_ns=0, end_ns=S, collections=2))
    assert made.invalid == [
        "Python's garbage collection ran 2 times during the measurement, expected 0."
    ]


@pytest.mark.parametrize(("wait_ms", "trusted"), [(200, True), (201, False)])
def test_waiting_for_a_processor_is_noted(wait_ms: int, trusted: bool) -> None:
    made = judged(
        turns(),
        InstrumentReading(condition="c", begin_ns=0, end_ns=S, runqueue_wait_ns=wait_ms * MS),
    )
    assert made.invalid == []
    assert (made.notes == []) is trusted


def test_frozen_client_invalidates_requests_in_flight() -> None:
    def read(begin_s: float, end_s: float) -> ConditionFindings:
        frozen = [(round(begin_s * S), round(end_s * S))]
        return judged(
            turns(), InstrumentReading(condition="c", begin_ns=0, end_ns=90 * S, frozen=frozen)
        )

    (reason,) = read(1.5, 1.9).invalid
    assert reason.startswith("the client stood still for 0.4 s")
    assert "while 3 of 10 requests were in flight" in reason
    assert read(50, 50.01).invalid == []


ROUND_S = 100


def rounds(growth: Sequence[float], count: int = 50) -> list[Observation]:
    """An open loop in rounds, 2 requests a second, whose TTFT grows by a factor in the second half
    of each round."""
    return [
        request(
            1000.0 * ROUND_S * number + 500 * i,
            due_ns=round(1000 * ROUND_S * number + 500 * i) * MS,
            ttft_ms=100 * (factor if 2 * i >= count else 1),
            round=number,
        )
        for number, factor in enumerate(growth, 1)
        for i in range(count)
    ]


def test_growing_ttft_in_each_round_is_not_stationary() -> None:
    made = judged(rounds([1.5, 1.6, 1.4, 1.5, 1.5]), condition=asked(None, rate=2))
    assert made.invalid[0].startswith(
        "not stationary: from the first half of a round to the second"
    )
    assert "TTFT from due changed by 49" in " ".join(made.invalid) or "in flight" in made.invalid[0]


@pytest.mark.parametrize("growth", [[1.05] * 5, [1.5, 0.7, 1.2, 0.8, 1.1], [1.5] * 4])
def test_small_or_irregular_changes_are_no_trend(growth: list[float]) -> None:
    assert judged(rounds(growth), condition=asked(None, rate=2)).invalid == []


def waiting(
    levels_ms: Sequence[float], *, each_s: float = 20, streams: bool = False
) -> list[Observation]:
    """Rounds of an open loop, 5 requests a second after a warm-up of a second. TTFT has levels that
    last `each_s`, and with `streams` streaming takes longer with it."""
    made = []
    for number in range(1, 7):
        for i in range(300):
            at = round(1e6 * number + 200 * i)
            ttft_ms = levels_ms[(round(i // (5 * each_s)) + number) % len(levels_ms)]
            gap_ms = ttft_ms / 50 if streams else 10
            made.append(request(at, due_ns=at * MS, ttft_ms=ttft_ms, gap_ms=gap_ms, round=number))
        made.append(
            request(
                1e6 * number - 1000,
                due_ns=round(1e6 * number - 1000) * MS,
                round=number,
                role="warmup",
            )
        )
    return made


def test_requests_that_wait_behind_each_other_are_a_queue() -> None:
    made = judged(waiting([500, 3000, 500]), condition=asked(None, rate=5))
    assert made.invalid == [
        "not stationary: requests wait in a queue that changes over about 27.5 s, and each round "
        "is measured only 1 s "
        "after an empty server, so TTFT is likely too low. Use a lower rate, or --warmup 1,100."
    ]


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(waiting([500, 600, 500]), id="short waits"),
        pytest.param(waiting([500, 3000, 500], each_s=0.2), id="another wait for each request"),
        pytest.param(waiting([500, 3000, 500], streams=True), id="a slow time of the whole server"),
    ],
)
def test_slow_requests_without_a_queue_are_trusted(made: list[Observation]) -> None:
    assert judged(made, condition=asked(None, rate=5)).invalid == []


def test_steps_of_a_search_are_not_judged_by_their_queue() -> None:
    made = waiting([500, 3000, 500])
    assert condition_findings(asked(None, rate=5), made, [], searched=True).invalid == []


def test_fewer_than_five_rounds_are_noted() -> None:
    two = [request(1000.0 + 200 * i, round=1 + i // 5) for i in range(10)]
    assert only_note(judged(two)).startswith(
        "measured in 2 rounds: the intervals describe this short time"
    )
    assert judged([request(1000.0 + 200 * i, round=1 + i // 2) for i in range(10)]).notes == []


def test_requests_that_ended_outside_the_full_load_are_noted() -> None:
    assert only_note(judged(closed_loop(4, 3), condition=asked(4))).startswith(
        "3 of 12 requests ended when the load"
    )
    cool = [request(1600.0 + place, role="cooldown", outcome="cancelled") for place in range(4)]
    assert judged([*closed_loop(4, 3), *cool], condition=asked(4)).notes == []


def only_note(made: ConditionFindings) -> str:
    assert made.invalid == []
    (note,) = made.notes
    return note


def test_counting_events_is_noted() -> None:
    said = only_note(judged(turns(token_source="events")))
    assert "each event counts as one token" in said
    assert "The provider" not in said


def test_event_counts_note_where_the_usage_was_expected() -> None:
    said = only_note(judged(turns(token_source="events"), condition=asked(usage="choices")))
    assert "The provider is known to send them inside choices[0] of the last chunk" in said


def test_estimated_counts_are_noted() -> None:
    said = only_note(judged([*turns(9), *turns(1, token_source="estimate")]))
    assert said.startswith("1 of 10 responses report token counts that cannot be true")


def test_cached_prompts_are_noted_unless_wanted() -> None:
    warm = turns(cached_tokens=50)
    assert only_note(judged(warm)).startswith(
        "10 of 10 prompts came partly from the provider's cache"
    )
    assert judged(warm, condition=asked(cache_reuse=True)).notes == []
    (cold,) = judged(turns(cached_tokens=0), condition=asked(cache_reuse=True)).notes
    assert cold.startswith("no prompt came from the provider's cache")
    assert judged(turns(cached_tokens=0)).notes == []


@pytest.mark.parametrize(("wanted", "noted"), [(11, False), (None, False), (12, True)])
def test_answers_of_another_length_are_noted(wanted: int | None, noted: bool) -> None:
    made = judged(turns(), condition=asked(output_tokens=wanted))
    assert made.notes == (
        ["responses had 11 tokens (median) instead of the requested 12."] if noted else []
    )


def test_unknown_output_lengths_cause_no_note() -> None:
    assert judged(turns(output_tokens=None), condition=asked(output_tokens=500)).notes == []


def test_lag_above_the_gaps_is_noted() -> None:
    note = only_note(
        judged(turns(ttft_ms=1000, gap_ms=2, tokens=101, kernel_time=False, lag_max_ns=3 * MS))
    )
    assert note.startswith("in half of the requests, reads were up to 3 ms late")


@pytest.mark.parametrize(("failed", "noted"), [(1, False), (2, True)])
def test_failures_above_one_percent_are_noted(failed: int, noted: bool) -> None:
    failures = [failure(21_000.0 + 5 * i) for i in range(failed)]
    made = judged(turns(100) + failures)
    assert any("so p99 cannot be stated" in note for note in made.notes) is noted


def test_requests_sent_again_are_noted() -> None:
    assert only_note(judged([*turns(), request(3000.0, resent=True)])).startswith(
        "1 request resent: the server had closed"
    )


# Sparse reads.


@pytest.mark.parametrize(("merged_ms", "trusted"), [(2, True), (3, False)])
def test_merged_last_token_is_an_error_of_tps(merged_ms: int, trusted: bool) -> None:
    made = judged(turns(sparse=True, last_merged_ns=merged_ms * MS))
    assert (made.invalid == []) is trusted
    assert (made.instrument.last_tokens_merged, made.instrument.last_merged_max_ms) == (
        10,
        merged_ms,
    )
    if not trusted:
        assert made.invalid == [
            "client overloaded: tokens were read late, so p50 of TPS may be wrong by 3% (allowed: "
            "2%). Use "
            "`--itl exact` or a less busy machine."
        ]


def test_sparse_reads_with_exact_last_tokens_cost_only_the_itl() -> None:
    made = judged(turns(sparse=True, max_read_tokens=8, lag_max_ns=90 * MS))
    assert made.invalid == []
    assert made.notes == [
        "ITL was not measured in 10 of 10 requests, which were read seldom to save processor "
        "time. `--itl exact` "
        "measures it."
    ]
    assert (made.itl_ms.p50, made.itl_per_token_ms.p50) == (None, None)
    assert made.tps.p50 == judged(turns()).tps.p50


def test_itl_excludes_sparsely_read_requests() -> None:
    mixed = [*turns(5, sparse=True, gap_ms=50), *turns(5)]
    assert judged(mixed).itl_ms.p50 == 10


def test_sparsely_read_stream_is_not_a_burst() -> None:
    late = request(ttft_ms=5000, gap_ms=1, tokens=80, lag_max_ns=90 * MS)
    at = [late.token_at[-1]] * 40 + [late.token_at[-1]] * 40
    at[0] = late.token_at[0]
    sparse = msgspec.structs.replace(late, token_at=at, max_read_tokens=40, sparse=True)
    assert not came_at_once(sparse)
    assert came_at_once(msgspec.structs.replace(sparse, sparse=False))
