"""Limits as people write them, and which requests keep to them."""

import numpy as np
import pytest
from tests.analysis.made import MS, failure, request

from splitsecond.analysis.slo import Slo, parse_slo
from splitsecond.analysis.steady import Windows
from splitsecond.errors import CallerFault
from splitsecond.timing.uses import USES

ONE_SECOND = Windows(np.array([0]), np.array([1000 * MS]))


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft=300ms", {"ttft": 300.0}),
        (" TTFT = 0.3s , tpot=20ms,e2e=5s,tps=50 ", {"ttft": 300.0, "tpot": 20.0, "e2e": 5000.0, "tps": 50.0}),
        ("tpot=500us", {"tpot": 0.5}),
        ("tps=.5", {"tps": 0.5}),
    ],
)
def test_limits_are_read_in_ms(text: str, limits: dict[str, float]) -> None:
    assert parse_slo(text).limits == pytest.approx(limits)


@pytest.mark.parametrize("use", USES)
def test_a_use_limits_the_ttft(use: str) -> None:
    assert parse_slo(use) == Slo(limits={"ttft": USES[use]}, use=use)


@pytest.mark.parametrize(
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
    ],
)
def test_what_cannot_be_read_says_what_can(text: str, says: str) -> None:
    with pytest.raises(CallerFault, match=says) as caught:
        parse_slo(text)
    assert caught.value.kind == "bad_slo"
    assert "ttft=300ms" in caught.value.hint


def test_a_request_must_keep_every_limit() -> None:
    # TTFT 100 ms, E2E 200 ms, 100 tokens/s.
    kept = parse_slo("ttft=100ms,e2e=200ms,tps=100,tpot=10ms")
    assert kept.met_by(request(), open_loop=False)
    assert not kept.met_by(request(ttft_ms=101), open_loop=False)
    assert not kept.met_by(request(gap_ms=11), open_loop=False)
    assert not kept.met_by(request(tokens=1), open_loop=False)
    assert not kept.met_by(failure(), open_loop=False)


def test_an_open_loop_is_judged_from_due() -> None:
    late = request(1000.0, due_ns=900 * MS)
    slo = parse_slo("ttft=150ms,e2e=250ms")
    assert slo.met_by(late, open_loop=False)
    assert not slo.met_by(late, open_loop=True)


def test_goodput_counts_failures_as_misses() -> None:
    made = parse_slo("ttft=100ms").goodput(
        [request(), request(), request(ttft_ms=200), failure()], ONE_SECOND, open_loop=False
    )
    assert (made.met, made.sent, made.fraction, made.per_s) == (2, 4, 0.5, 2.0)


def test_goodput_of_nothing() -> None:
    none = Windows(np.array([], dtype=np.int64), np.array([], dtype=np.int64))
    made = parse_slo("voice").goodput([], none, open_loop=False)
    assert (made.met, made.sent, made.fraction, made.per_s) == (0, 0, 0.0, None)
