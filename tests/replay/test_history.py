"""Answers of targets as a log knows them."""

import numpy as np
from msgspec.structs import replace

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.timing.packed_attempt import UNKNOWN
from splitsecond.log.store.request_columns import (
    CallColumns,
    LoggedAttempts,
    LoggedFault,
    RequestColumns,
)
from splitsecond.replay.history import Basis, CacheUse, History, LoggedAnswer, cache_use

BEGIN_US = 1_700_000_000_000_000
OK, FAILED, CANCELLED = range(3)


def columns(
    wait_ms: list[list[int]],
    *,
    closed: dict[int, int] | None = None,
    every_s: float = 1.0,
    prompt: int = 500,
) -> RequestColumns:
    """Return a log in which the calls come every second. Call n has an attempt at each target that
    `wait_ms[n]` has, with this time to its first token; 0: none. `closed`: the calls whose attempt
    at target 1 was closed after so many milliseconds."""
    closed = closed or {}
    calls, attempts = len(wait_ms), []
    for call, waits in enumerate(wait_ms):
        for target, wait in enumerate(waits):
            if not wait:
                continue
            first = wait * NS_PER_MS
            row = [
                call,
                target,
                OK,
                UNKNOWN,
                0,
                0,
                0,
                0,
                first,
                2 * first,
                2 * first,
                prompt,
                0,
                0,
                0,
                20,
                200,
            ]
            if target == 1 and call in closed:
                end = closed[call] * NS_PER_MS
                row[2], row[8:13], row[15:] = (
                    CANCELLED,
                    [UNKNOWN, UNKNOWN, end, UNKNOWN, 0],
                    [UNKNOWN, 0],
                )
            attempts.append(row)
    filled = {name: np.full(calls, UNKNOWN) for name in CallColumns.__struct_fields__}
    filled |= {
        "came_us": BEGIN_US + np.arange(calls) * round(every_s * 1e6),
        "stream": np.ones(calls, np.int64),
        "outcome": np.zeros(calls, np.int64), "client": np.zeros(calls, np.int64),
        "target": np.zeros(calls, np.int64),
        "input_tokens": np.full(calls, prompt), "output_tokens": np.full(calls, 20),
    }  # fmt: skip
    rows = np.array(attempts, np.int64).T.copy()
    return RequestColumns(
        targets=["a/m", "b/m"], clients=[""], faults=[], calls=CallColumns(**filled),
        attempts=LoggedAttempts(**dict(zip(LoggedAttempts.__struct_fields__, rows, strict=True))),
    )  # fmt: skip


def answer(
    history: History, call: int, target: int, *, at_s: float | None = None, late: bool = False
) -> LoggedAnswer:
    at_us = BEGIN_US + round((call if at_s is None else at_s) * 1e6)
    return history.answer(call, target, 0, at_us, late=late)


def test_the_own_attempt_answers() -> None:
    history = History(columns([[300 + call, 0] for call in range(100)]))
    assert [answer(history, call, 0).wait_ns // NS_PER_MS for call in (0, 50, 99)] == [
        300,
        350,
        399,
    ]


def test_slow_minutes_stay_slow() -> None:
    slow = range(400, 700)
    history = History(
        columns(
            [[300, 0] if call % 2 else [0, 900 if call in slow else 300] for call in range(1200)]
        )
    )
    within = [answer(history, call, 1).wait_ns // NS_PER_MS for call in range(471, 629, 2)]
    outside = [
        answer(history, call, 1).wait_ns // NS_PER_MS
        for call in [*range(1, 329, 2), *range(771, 1199, 2)]
    ]
    assert set(within) == {900}
    assert set(outside) == {300}


def test_a_closed_attempt_takes_longer_than_it_was_waited_for() -> None:
    wait_ms = [[200, 100 + 10 * (call * 17 % 50)] for call in range(500)]
    history = History(columns(wait_ms, closed=dict.fromkeys(range(0, 500, 7), 300)))
    for call in range(0, 500, 7):
        found = answer(history, call, 1)
        assert found.wait_ns > 300 * NS_PER_MS
        assert found.basis == Basis.SIMILAR


def test_a_time_longer_than_all_is_not_known() -> None:
    history = History(columns([[200, 100] for _ in range(200)], closed={100: 300}))
    assert answer(history, 100, 1).basis == Basis.SLOWER


def test_attempts_that_are_rare_or_far_away_are_too_few() -> None:
    history = History(
        columns([[300, 300 if call % 20 == 0 else 0] for call in range(400)], every_s=60.0)
    )
    assert answer(history, 101, 1, at_s=101 * 60).basis == Basis.FEW
    dense = History(
        columns([[300, 300 if call % 4 == 0 else 0] for call in range(400)], every_s=60.0)
    )
    assert answer(dense, 101, 1, at_s=101 * 60).basis == Basis.SIMILAR


def test_late_attempts_answer_no_first_attempt() -> None:
    logged = columns([[500, 300] for _ in range(200)])
    hedged = logged.attempts.target == 1
    for name in ("sent_ns", "first_token_ns", "last_token_ns", "end_ns"):
        getattr(logged.attempts, name)[hedged] += 200 * NS_PER_MS
    history = History(logged, own=False)
    assert answer(history, 100, 1, late=True).basis == Basis.SIMILAR
    assert answer(history, 100, 1).basis == Basis.FEW


def test_a_drawn_answer_has_the_length_of_the_call() -> None:
    logged = columns([[300, 0] if call % 2 else [0, 300] for call in range(200)])
    logged.calls.output_tokens[101] = 58  # three times as many after the first: 19 in 300 ms
    found = answer(History(logged), 101, 1)
    assert found.output_tokens == 58
    assert found.end_ns - found.wait_ns == 900 * NS_PER_MS


def test_without_own_attempts_all_answers_are_of_other_calls() -> None:
    history = History(columns([[300 + call, 0] for call in range(100)]), own=False)
    assert all(answer(history, call, 0).wait_ns != (300 + call) * NS_PER_MS for call in range(100))


def test_a_refused_request_is_refused_by_every_target() -> None:
    logged = columns([[300, 0] if call % 2 else [0, 300] for call in range(200)])
    logged = replace(logged, faults=[LoggedFault("CallerFault", "bad_request", "head", 400)])
    logged.calls.outcome[101] = logged.attempts.outcome[101] = FAILED
    logged.attempts.first_token_ns[101], logged.attempts.fault[101] = UNKNOWN, 0
    for own in (True, False):
        found = answer(History(logged, own=own), 101, 1)
        assert (found.wait_ns, found.fault) == (UNKNOWN, 0)


def test_cache_use_by_age_and_prompt() -> None:
    found = [
        cache_use(None if last is None else (last * NS_PER_S, 900), 7200 * NS_PER_S)
        for last in (None, 7000, 6000, 1)
    ]
    assert found == [(0, 0), (1, 900), (2, 900), (3, 900)]


def test_a_drawn_answer_reads_the_cached_share_of_its_prefix() -> None:
    logged = columns([[300, 0] if call % 2 else [0, 300] for call in range(200)], prompt=1000)
    for name, value in (("session", 7), ("agent", 0), ("turn", 2)):
        getattr(logged.calls, name)[:] = value
    logged.attempts.cached_tokens[:] = 800  # of a prefix of 1,000: the prompt of the turn before
    found = History(logged, own=False).answer(
        101, 1, 0, BEGIN_US + 101_000_000, late=False, cache=CacheUse(1, 500)
    )
    assert found.cached_tokens == 400
