"""The instrument's own error, by hand."""

import pytest
from tests.cases import each_case

from splitsecond.benchmark.statistics.accuracy import ServerTruth, accuracy
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading

MS = 1_000_000


def seen(name: str, *at_ms: float, outcome: str = "ok") -> Observation:
    return Observation(
        id=name,
        call=name,
        target="sim",
        outcome=outcome,  # type: ignore[arg-type]
        sent_ns=1 * MS,
        token_at=[round(at * MS) for at in at_ms],
        lag_max_ns=2 * MS,
    )


def sent(*at_ms: float, received_ms: float = 0) -> ServerTruth:
    return ServerTruth("", round(received_ms * MS), [round(at * MS) for at in at_ms])


READING = InstrumentReading(condition="", begin_ns=0, end_ns=1, cpu_ns=3 * MS, peak_in_flight=2)


def test_errors_are_differences_of_one_clock() -> None:
    result = accuracy(
        2,
        [seen("a", 100.1, 110.3), seen("b", 200.3, 210.3)],
        {"a": sent(100, 110), "b": sent(200, 210)},
        [READING],
    )
    assert (result.requests, result.failed, result.tokens, result.in_flight) == (2, 0, 4, 2)
    assert result.ttft_error_ms.max == pytest.approx(0.3)
    assert result.ttft_error_ms.min == pytest.approx(0.1)
    assert result.token_error_ms.n == 4
    assert result.tpot_error_share.max == pytest.approx(0.02)
    assert result.tpot_error_share.min == pytest.approx(0)
    assert result.read_lag_ms.p50 == 2
    assert result.cpu_ms_per_1000_tokens == pytest.approx(750)
    assert result.trusted
    assert result.why_not == ""


@each_case(
    ("observation", "streams", "doubt"),
    [
        (seen("a", 100, 110, outcome="failed"), 2, "nothing could be compared"),
        (seen("a", 100), 2, "nothing could be compared"),
        (seen("unknown", 100, 110), 2, "nothing could be compared"),
        (seen("a", 103, 113), 2, "the error of TTFT is 3.00 ms"),
        (seen("a", 100, 111), 2, r"the error of TPOT is 10%"),
        (seen("a", 100, 110), 3, "only 2 of 3 responses were in flight"),
    ],
)
def test_untrusted_accuracy_states_its_reason(
    observation: Observation, streams: int, doubt: str
) -> None:
    result = accuracy(streams, [observation], {"a": sent(100, 110)}, [READING])
    assert not result.trusted
    assert doubt in result.why_not


def test_accuracy_is_untrusted_if_the_server_sends_too_slowly() -> None:
    found = accuracy(2, [seen("a", 100, 120)], {"a": sent(100, 120)}, [READING], server_tps=100)
    assert not found.trusted
    assert found.server_tps == pytest.approx(50)
    assert found.why_not == "the server sent 50 of 100 tokens/s, as this machine is too busy"
    assert accuracy(
        2, [seen("a", 100, 110)], {"a": sent(100, 110)}, [READING], server_tps=100
    ).trusted


def test_one_failed_request_makes_the_accuracy_untrusted() -> None:
    result = accuracy(2, [seen("a", 100, 110), seen("b", 1, 2)], {"a": sent(100, 110)}, [READING])
    assert "1 of 2 requests failed" in result.why_not


def test_cpu_time_is_unknown_without_observations() -> None:
    assert accuracy(1, [], {}, []).cpu_ms_per_1000_tokens is None


def test_ttft_error_is_the_send_error_plus_the_receive_error() -> None:
    truth = {"a": sent(100, 110, received_ms=1.5), "b": sent(200, 210, received_ms=1)}
    result = accuracy(2, [seen("a", 100.1, 110), seen("b", 200.2, 210)], truth, [READING])
    assert (result.ttft_error_ms.min, result.ttft_error_ms.max) == pytest.approx((0.2, 0.6))
    assert (result.send_error_ms.min, result.send_error_ms.max) == pytest.approx((0, 0.5))
    assert (result.receive_error_ms.min, result.receive_error_ms.max) == pytest.approx((0.1, 0.2))


def test_send_error_is_unknown_without_server_receive_times() -> None:
    result = accuracy(2, [seen("a", 100.1, 110)], {"a": sent(100, 110)}, [READING])
    assert result.send_error_ms.n == 0
    assert result.ttft_error_ms.max == pytest.approx(0.1)


def test_interrupted_server_write_is_not_a_client_error() -> None:
    # It wrote the first token somewhere between 100 and 108 ms.
    truth = {name: ServerTruth(name, 0, [100 * MS, 110 * MS], 108 * MS) for name in "abc"}
    result = accuracy(
        2, [seen("a", 107, 110), seen("b", 108.5, 110), seen("c", 99.5, 110)], truth, [READING]
    )
    assert (result.interrupted, result.receive_error_ms.min) == (2, 0)
    assert result.receive_error_ms.max == pytest.approx(0.5)


def test_write_of_usual_length_excuses_no_receive_error() -> None:
    truth = {"a": ServerTruth("a", 0, [100 * MS, 110 * MS], 100 * MS + 50_000)}
    result = accuracy(2, [seen("a", 100.04, 110)], truth, [READING])
    assert result.interrupted == 0
    assert result.receive_error_ms.max == pytest.approx(0.04)
