"""Limits as people write them, and which requests meet them."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.analysis.made import MS, failure, request
from tests.cases import each_case

from splitsecond.benchmark.rows.slo import Slo, parse_slo
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import SessionTurn
from splitsecond.core.timing.uses import USES


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft=300ms", {"ttft": 300.0}),
        (
            " TTFT = 0.3s , tpot=20ms,e2e=5s,tps=50 ",
            {"ttft": 300.0, "tpot": 20.0, "e2e": 5000.0, "tps": 50.0},
        ),
        ("tpot=500us", {"tpot": 0.5}),
        ("tps=.5", {"tps": 0.5}),
        ("ttft_ms.p95 < 3000, tps.p95 >= 50", {"ttft": 3000.0, "tps": 50.0}),
        (
            "ttft_first_turn=9s, ttft_later_turns_ms.p95 < 800",
            {"ttft_first_turn": 9000.0, "ttft_later_turns": 800.0},
        ),
    ],
)
def test_limits_are_read_in_ms(text: str, limits: dict[str, float]) -> None:
    assert parse_slo(text).limits == pytest.approx(limits)


@each_case("use", USES)
def test_a_use_has_its_own_limit(use: str) -> None:
    assert parse_slo(use) == Slo(limits=USES[use].limits, use=use)


@pytest.mark.parametrize(
    ("use", "slow", "quick"),
    [
        ("voice", {"ttft_ms": 301}, {"ttft_ms": 299}),
        ("long-form", {"gap_ms": 21}, {"gap_ms": 19}),  # 50 tokens/s are 20 ms a token
        # 10 × (1 s + 200 × 10 ms)
        ("agent", {"ttft_ms": 1100, "gap_ms": 10}, {"ttft_ms": 900, "gap_ms": 10}),
        ("batch", None, {"ttft_ms": 60_000}),
    ],
)
def test_requests_that_meet_a_use(
    use: str, slow: dict[str, Any] | None, quick: dict[str, Any]
) -> None:
    slo = parse_slo(use)
    assert slo.met_by(request(**quick), open_loop=False)
    assert slow is None or not slo.met_by(request(**slow), open_loop=False)


@each_case(
    ("text", "says"),
    [
        ("", "neither a limit nor a use"),
        ("gaming", "neither a limit nor a use"),
        ("ttft=fast", "neither a limit nor a use"),
        ("ttft=300", "needs a time with its unit"),
        ("ttft=3m", "needs a time with its unit"),
        ("tps=50ms", "without a unit"),
        ("speed=50ms", "no limit called 'speed'"),
        ("ttft=1s,ttft=2s", "limited twice"),
        ("ttft=-1s", "neither a limit nor a use"),
        ("ttft=1s,", "neither a limit nor a use"),
        ("ttft.p95 < 3", "is not a limit"),
        ("ttft_ms.p95 > 300", "is not a limit"),
    ],
)
def test_unreadable_slo_is_refused_with_an_example(text: str, says: str) -> None:
    with pytest.raises(CallerFault, match=says) as caught:
        parse_slo(text)
    assert caught.value.kind == "bad_slo"
    assert "ttft=300ms" in caught.value.hint


def test_request_must_meet_every_limit() -> None:
    # TTFT 100 ms, E2E 200 ms, 100 tokens/s.
    kept = parse_slo("ttft=100ms,e2e=200ms,tps=100,tpot=10ms")
    assert kept.met_by(request(), open_loop=False)
    assert not kept.met_by(request(ttft_ms=101), open_loop=False)
    assert not kept.met_by(request(gap_ms=11), open_loop=False)
    assert not kept.met_by(failure(), open_loop=False)


def test_one_token_response_meets_speed_limits() -> None:
    one = request(tokens=1)
    assert parse_slo("tpot=10ms,tps=100").met_by(one, open_loop=False)
    assert not parse_slo("tpot=10ms,ttft=50ms").met_by(one, open_loop=False)
    at_once = request(gap_ms=0)
    assert not parse_slo("tpot=10ms").met_by(at_once, open_loop=False)


def test_first_and_later_turns_have_limits_of_their_own() -> None:
    slo = parse_slo("ttft_first_turn=300ms,ttft_later_turns=100ms")
    first, later = (
        replace(request(ttft_ms=200), turn=SessionTurn(session="s", turn=number))
        for number in (1, 2)
    )
    assert slo.met_by(first, open_loop=False)
    assert not slo.met_by(later, open_loop=False)
    assert slo.met_by(request(ttft_ms=500), open_loop=False)


def test_an_open_loop_is_judged_from_due() -> None:
    late = request(1000.0, due_ns=900 * MS)
    slo = parse_slo("ttft=150ms,e2e=250ms")
    assert slo.met_by(late, open_loop=False)
    assert not slo.met_by(late, open_loop=True)


def test_goodput_counts_failures_as_misses() -> None:
    made = parse_slo("ttft=100ms").goodput(
        [request(), request(), request(ttft_ms=200), failure()], 4.0, open_loop=False
    )
    assert (made.met, made.sent, made.fraction, made.per_s) == (2, 4, 0.5, 2.0)


def test_the_share_within_the_limits_has_an_interval_by_rounds() -> None:
    """Misses that all fall into two of eight rounds tell less than the same misses spread over all
    of them."""

    def share(missing: set[int]) -> tuple[float, float]:
        sent = [
            request(
                ttft_ms=200 if number in missing else 50, round=number // 10 + 1, name=str(number)
            )
            for number in range(80)
        ]
        low, high = parse_slo("ttft=100ms").goodput(sent, 1.0, open_loop=False).ci95
        return low or 0.0, high or 0.0

    spread, together = share(set(range(0, 80, 4))), share(set(range(20)))
    assert spread[0] < 0.75 < spread[1]
    assert together[1] - together[0] > 1.5 * (spread[1] - spread[0])
    low, high = share(set())
    assert 0.9 < low < high == 1.0


def test_goodput_without_requests_is_0() -> None:
    made = parse_slo("voice").goodput([], None, open_loop=False)
    assert (made.met, made.sent, made.fraction, made.per_s) == (0, 0, 0.0, None)
