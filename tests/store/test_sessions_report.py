"""The report on a session: its causes, cache misses, moves and costs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.store.records import answered, in_session

from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import FaultRecord
from splitsecond.core.session import CallSession
from splitsecond.core.timing.columns import AttemptColumns
from splitsecond.log.production.sessions import TargetTimes, moved, reported, sentence, span
from splitsecond.log.production.target_times import target_times
from splitsecond.log.store.call_record import OWN_TARGET, CallRecord
from splitsecond.log.store.log import Log, Past

BEGAN = datetime(2026, 11, 26, 12, tzinfo=UTC)
TIMES = TargetTimes(
    turns=100, fixed_s=0.2, new_s=20e-6, reused_s=1e-6, scale=0.05, token_s=0.01, token_scale=0.1
)
PRICE = Price(input_usd=3, output_usd=15, cached_usd=0.3)


def call(
    number: int,
    session: CallSession,
    *,
    target: str = "a/m",
    took_s: float = 10,
    ttft_s: float = 4,
    input_tokens: int = 100_000,
    cached_tokens: int = 0,
    **changes: Any,
) -> CallRecord:
    """A call as the log returns it: sent after 5 ms, of which 4 ms were for the connection."""
    record = answered(number, target=target)
    (attempt,) = record.attempts
    attempt = msgspec.structs.replace(
        attempt, start_ns=0, dns_ns=0, tcp_ns=4 * NS_PER_MS, tls_ns=0, rtt_ns=2 * NS_PER_MS,
        sent_ns=5 * NS_PER_MS,
        first_token_ns=round(ttft_s * NS_PER_S), end_ns=round(took_s * NS_PER_S),
        input_tokens=input_tokens,
        cached_tokens=cached_tokens, output_tokens=500, streamed=True, token_at=[],
        first_event_ns=None,
    )  # fmt: skip
    call = msgspec.structs.replace(
        record, start_ns=0, end_ns=round(took_s * NS_PER_S), first_token_ns=attempt.first_token_ns,
        session=session,
        attempts=(attempt,),
    )  # fmt: skip
    return msgspec.structs.replace(call, **changes)


def at(seconds: float, record: CallRecord) -> tuple[datetime, CallRecord]:
    return BEGAN + timedelta(seconds=seconds), record


def first() -> CallRecord:
    return call(1, in_session(1, new_tokens=100_000, reusable_tokens=0, idle_ns=None))


def test_the_causes_add_up_to_the_time_of_the_session() -> None:
    random, came_s, calls = Random(3), 0.0, []
    for number in range(60):
        took_s = random.uniform(1, 30)
        session = in_session(number + 1, agent="" if number % 3 else f"{number % 2 + 1:016x}")
        calls.append(
            at(came_s, call(number, session, took_s=took_s, ttft_s=took_s * random.random()))
        )
        came_s += random.uniform(0.1, 20)  # some calls overlap
    report = reported(calls, times={"a/m": TIMES})
    assert report.causes.total_s == pytest.approx(report.wall_s)
    assert report.agents == 3
    for turn in report.turns:
        assert turn.causes.waited_s + turn.overlap_s == pytest.approx(turn.took_s)
        assert all(part >= 0 for part in msgspec.structs.astuple(turn.causes))


def test_a_cache_miss_is_what_a_hit_would_have_saved() -> None:
    session = in_session(2, new_tokens=1_000, reusable_tokens=99_000, idle_ns=400 * NS_PER_S)
    report = reported(
        [at(0, first()), at(410, call(2, session))], {"a/m": PRICE}.get, {"a/m": TIMES}
    )
    missed = report.turns[1]
    assert missed.missed_tokens == 99_000
    assert missed.causes.cache_miss_s == pytest.approx(99_000 * 19e-6)
    assert missed.missed_usd == pytest.approx(99_000 * 2.7e-6)
    assert missed.causes.tool_s == pytest.approx(400)
    assert report.causes.network_s == pytest.approx(2 * 0.006)
    assert report.usd == pytest.approx(2 * (0.3 + 500 * 15e-6))


def test_a_hit_is_no_miss() -> None:
    session = in_session(2, new_tokens=1_000, reusable_tokens=99_000)
    report = reported(
        [at(0, first()), at(13, call(2, session, cached_tokens=98_900))], times={"a/m": TIMES}
    )
    assert report.turns[1].missed_tokens == 0
    assert report.cached_share == pytest.approx(0.4945)


def test_without_usual_times_a_miss_has_no_time() -> None:
    report = reported([at(0, first()), at(13, call(2, in_session(2, reusable_tokens=99_000)))])
    assert report.turns[1].missed_tokens
    assert report.causes.cache_miss_s == 0


def test_a_fallback_names_its_fault_and_its_price() -> None:
    second = call(2, in_session(2, new_tokens=1_000, reusable_tokens=99_000), target="b/m")
    fault = FaultRecord(
        type="ProviderFault", kind="http_503", phase="head", message="overloaded", status=503
    )
    failed = msgspec.structs.replace(
        second.attempts[0], id="x", target="a/m", role="loser", outcome="failed", fault=fault,
        first_token_ns=None,
        input_tokens=None, sent_ns=NS_PER_MS, end_ns=2 * NS_PER_S,
    )  # fmt: skip
    winner = msgspec.structs.replace(second.attempts[0], sent_ns=2 * NS_PER_S + 4 * NS_PER_MS)
    second = msgspec.structs.replace(second, attempts=(failed, winner))
    report = reported(
        [at(0, first()), at(13, second)], {"b/m": PRICE, "a/m": PRICE}.get, {"b/m": TIMES}
    )
    assert report.causes.retries_s == pytest.approx(2)
    assert (
        moved(report.turns[1])
        == "moved from a/m after http_503: 99,000 tokens prefilled again, 1.9 s and $0.267"
    )
    assert moved(report.turns[0]) == ""


def test_a_failed_call_is_an_error_and_time_of_retries() -> None:
    failed = msgspec.structs.replace(
        first(), outcome="failed", target="", fault="http_503", status=503
    )
    failed = msgspec.structs.replace(
        failed, attempts=(msgspec.structs.replace(failed.attempts[0], role="loser"),)
    )
    report = reported([at(0, failed)])
    assert report.errors == 1
    assert report.causes.retries_s == pytest.approx(10)


def test_a_whole_answer_is_generation_beyond_the_prompt() -> None:
    whole = first()
    attempt = msgspec.structs.replace(
        whole.attempts[0], streamed=False, first_token_ns=10 * NS_PER_S
    )
    report = reported(
        [at(0, msgspec.structs.replace(whole, attempts=(attempt,)))], times={"a/m": TIMES}
    )
    assert report.causes.prefill_s == pytest.approx(2.2)
    assert report.causes.generation_s == pytest.approx(10 - 2.2 - 0.007)


def test_the_sentence_names_a_cause_and_a_faster_target() -> None:
    session = in_session(2, new_tokens=1_000, reusable_tokens=99_000, idle_ns=400 * NS_PER_S)
    slow = TargetTimes(
        turns=100,
        fixed_s=0.2,
        new_s=60e-6,
        reused_s=1e-6,
        scale=0.05,
        token_s=0.01,
        token_scale=0.1,
    )
    fast = msgspec.structs.replace(TIMES, new_s=10e-6, token_s=0.001)
    calls = [at(0, first()), at(410, call(2, session, took_s=30, ttft_s=29))]
    calls += [
        at(840 + 430 * number, call(3 + number, session, took_s=30, ttft_s=29))
        for number in range(2)
    ]
    said = sentence(reported(calls, times={"a/m": slow, "b/m": fast}))
    assert said.startswith("You waited 100 s of 22 min; ")
    assert "; at b/m it would have been " in said


def test_misses_after_pauses_are_named() -> None:
    slow = msgspec.structs.replace(TIMES, new_s=200e-6)
    session = in_session(2, new_tokens=1_000, reusable_tokens=99_000, idle_ns=400 * NS_PER_S)
    calls = [
        at(0, first()),
        *(at(410 * n, call(n + 1, session, took_s=22, ttft_s=21)) for n in range(1, 5)),
    ]
    said = sentence(reported(calls, times={"a/m": slow}))
    assert "was cache misses after pauses of more than 7 min" in said


def test_usual_times_are_those_of_the_target() -> None:
    random = Random(1)
    attempts = []
    for number in range(200):
        new, reused = random.randrange(500, 20_000), random.randrange(0, 150_000)
        ttft_s = (0.3 + new * 50e-6 + reused * 2e-6) * random.uniform(0.97, 1.03)
        record = call(
            number,
            in_session(),
            input_tokens=new + reused,
            cached_tokens=reused,
            ttft_s=ttft_s,
            took_s=60,
        )
        (attempt,) = record.attempts
        changes: dict[str, Any] = {
            "last_token_ns": round(ttft_s * NS_PER_S) + 5 * NS_PER_S,
            "tokens_so_far": [1, 501],
        }
        attempts.append(
            (BEGAN, msgspec.structs.replace(attempt, sent_ns=0, output_tokens=501, **changes))
        )
    times = target_times([AttemptColumns.of(attempts)])["a/m"]
    assert times.new_s == pytest.approx(50e-6, rel=0.05)
    assert times.reused_s == pytest.approx(2e-6, rel=0.1)
    assert times.token_s == pytest.approx(0.01, rel=0.05)


def test_the_log_lists_sessions_and_their_calls(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    mine, other = f"{(1 << 63) + 7:016x}", f"{9:016x}"
    with Log.open(url) as log:
        for number in range(6):
            agent = "" if number % 2 else f"{1:016x}"
            log.put(answered(number, session=in_session(number + 1, mine, agent=agent)))
        log.put(answered(7, session=in_session(1, other), outcome="failed"))
        log.put(answered(8))
        # the gateway answered it itself, at a limit
        log.put(answered(9, session=in_session(7, mine), target=OWN_TARGET))
    past, until = Past.open(url), datetime.now(UTC) + timedelta(hours=1)
    since = until - timedelta(days=1)
    found = {each.id: each for each in past.sessions(since, until)}
    assert {name: (each.calls, each.agents, each.errors) for name, each in found.items()} == {
        mine: (6, 2, 0),
        other: (1, 1, 1),
    }
    assert found[mine].input_tokens == 600
    assert sum(tokens.output_tokens for tokens in found[mine].spent) == 120
    *calls, limited = past.calls(since, until, session=mine)
    report = reported([*calls, limited])
    assert (len(report.turns), report.limited) == (6, 1)
    assert [record.session.turn for _, record in calls if record.session] == [1, 2, 3, 4, 5, 6]
    assert all(len(record.attempts) == 1 for _, record in calls)
    assert reported(calls).causes.total_s == pytest.approx(reported(calls).wall_s)


def test_times_are_in_words() -> None:
    assert [span(each) for each in (3.21, 71.4, 125, 7800)] == ["3.2 s", "71 s", "2 min", "2 h 10"]
    assert [span(each) for each in (0.0, 0.0042, 0.048)] == ["0.0 s", "4.2 ms", "48 ms"]
