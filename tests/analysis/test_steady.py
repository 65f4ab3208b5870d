"""Steady windows worked out by hand, and the laws that hold for any load."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.made import MS, S, closed_loop, failure, request
from tests.cases import each_case

from splitsecond.benchmark.rows.throughput import per_second
from splitsecond.benchmark.statistics.steady import (
    TimeWindows,
    event_tokens,
    in_flight,
    mean_in_flight,
    measured_load,
    tokens_in,
)
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading


def windows(*pairs: tuple[float, float]) -> TimeWindows:
    ends = [(round(a * MS), round(b * MS)) for a, b in pairs]
    return TimeWindows(
        np.array([a for a, _ in ends], dtype=np.int64),
        np.array([b for _, b in ends], dtype=np.int64),
    )


def in_ms(of: TimeWindows) -> list[tuple[float, float]]:
    return [(a / MS, b / MS) for a, b in zip(of.begin.tolist(), of.end.tolist(), strict=True)]


def reading(begin_ms: int, end_ms: int) -> InstrumentReading:
    return InstrumentReading(condition="c", begin_ns=begin_ms * MS, end_ns=end_ms * MS)


@st.composite
def loads(draw: st.DrawFn) -> list[Observation]:
    count = draw(st.integers(1, 12))
    return [
        request(
            draw(st.integers(0, 3000)),
            ttft_ms=draw(st.integers(1, 300)),
            gap_ms=draw(st.integers(0, 40)),
            tokens=draw(st.integers(1, 12)),
            role=draw(st.sampled_from(["measured", "warmup"])),
        )
        for _ in range(count)
    ]


@given(loads())
def test_in_flight_curve_sums_to_request_time_and_ends_at_0(
    observations: list[Observation],
) -> None:
    curve = in_flight(observations, open_loop=True)
    assert int((curve.level[:-1] * np.diff(curve.at)).sum()) == sum(
        o.end_ns - (o.sent_ns or 0) for o in observations
    )
    assert curve.level[-1] == 0
    assert curve.level.min() >= 0


@given(loads(), st.integers(1, 4))
def test_steady_windows_lie_inside_the_whole_load(
    observations: list[Observation], concurrency: int
) -> None:
    load = measured_load(observations, concurrency)
    for begin, end in zip(load.steady.begin, load.steady.end, strict=True):
        assert begin < end
        assert any(
            a <= begin and end <= b for a, b in zip(load.whole.begin, load.whole.end, strict=True)
        )
    assert np.all(load.steady.begin[1:] > load.steady.end[:-1])
    mean = mean_in_flight(load.curve, load.steady)
    assert (mean is None) == (load.steady.length_ns == 0)
    if mean is not None:
        assert 0 < mean <= load.curve.level.max()


@given(loads(), st.integers(1, 4))
def test_window_has_at_most_the_tokens_of_all_requests(
    observations: list[Observation], concurrency: int
) -> None:
    load = measured_load(observations, concurrency)
    measured = [o for o in observations if o.role == "measured"]
    everything = sum(o.output_tokens or 0 for o in observations)
    assert tokens_in(observations, load.steady) <= everything + 1e-6
    if load.whole.length_ns:
        assert tokens_in(measured, load.whole) == pytest.approx(
            sum(o.output_tokens or 0 for o in measured)
        )


@given(loads(), st.integers(0, 4000))
def test_tokens_of_adjacent_windows_add_up(observations: list[Observation], at: int) -> None:
    parts = windows((0, at + 1), (at + 1, 6000))
    halves = tokens_in(observations, windows((0, at + 1))) + tokens_in(
        observations, windows((at + 1, 6000))
    )
    assert halves == pytest.approx(tokens_in(observations, parts))
    assert halves == pytest.approx(tokens_in(observations, windows((0, 6000))))


def test_closed_loop_is_steady_while_it_is_full() -> None:
    # Four places join 1 ms apart from 1000; each request lasts 200 ms and is followed at once.
    load = measured_load(closed_loop(4, 3), 4)
    assert in_ms(load.steady) == [(1003.0, 1600.0)]
    assert in_ms(load.whole) == [(1000.0, 1603.0)]
    assert mean_in_flight(load.curve, load.steady) == 4.0


def test_throughput_of_a_full_loop_is_the_sum_of_its_streams() -> None:
    # 11 tokens each 200 ms in 8 places.
    observations = closed_loop(8, 50)
    load = measured_load(observations, 8)
    assert per_second(tokens_in(observations, load.steady), load.steady.length_ns) == pytest.approx(
        8 * 11 / 0.2, rel=0.01
    )


def test_load_is_steady_at_95_percent_of_the_concurrency() -> None:
    observations = closed_loop(19, 4)
    assert measured_load(observations, 20).steady.length_ns > 0
    assert measured_load(observations, 21).steady.length_ns == 0


def test_short_dips_are_part_of_the_window_and_show_in_its_mean() -> None:
    turns = [request(1000.0 + 210 * i) for i in range(5)]
    load = measured_load(turns, 1)
    assert in_ms(load.steady) == [(1000.0, 2040.0)]
    assert mean_in_flight(load.curve, load.steady) == pytest.approx(1000 / 1040)


def test_each_round_has_a_window_that_includes_its_pauses() -> None:
    load = measured_load(
        [request(1000.0, round=1), request(5000.0, round=1), request(9000.0, round=2)], 1
    )
    assert in_ms(load.steady) == in_ms(load.whole) == [(1000.0, 5200.0), (9000.0, 9200.0)]
    assert mean_in_flight(load.curve, load.steady) == pytest.approx(600 / 4400)


def test_connect_time_counts_as_in_flight_in_a_closed_loop() -> None:
    """A server that closes each connection: 100 ms to connect, 200 ms for 11 tokens, so 11 tokens
    in 300 ms."""
    turns = [
        request(1100.0 + 300 * i, start_ns=round((1000 + 300 * i) * MS), tcp_ns=100 * MS, round=1)
        for i in range(10)
    ]
    load = measured_load(turns, 1)
    assert in_ms(load.steady) == [(1000.0, 4000.0)]
    assert per_second(tokens_in(turns, load.steady), load.steady.length_ns) == pytest.approx(
        11 / 0.3
    )
    assert mean_in_flight(load.curve, load.steady) == pytest.approx(1.0)


def test_cool_downs_extend_the_window_to_the_last_request() -> None:
    measured = [request(1000.0), request(1100.0)]
    assert in_ms(measured_load(measured, 2).steady) == [(1100.0, 1200.0)]
    assert in_ms(
        measured_load([*measured, request(1200.0, role="cooldown", outcome="cancelled")], 2).steady
    ) == [(1100.0, 1300.0)]


def test_a_warm_up_opens_no_window_but_counts_while_it_overlaps() -> None:
    warm = request(1000.0, role="warmup")
    measured = request(1100.0)
    load = measured_load([warm, measured], 1)
    assert in_ms(load.steady) == [(1100.0, 1300.0)]
    # The warm-up's first token came at 1100, before the window; its ten others within.
    assert tokens_in([warm, measured], load.steady) == pytest.approx(21)
    assert mean_in_flight(load.curve, load.steady) == pytest.approx(1.5)


def test_warm_ups_alone_are_no_load() -> None:
    load = measured_load([request(role="warmup")], 1)
    assert (load.whole.length_ns, load.steady.length_ns) == (0, 0)
    assert mean_in_flight(load.curve, load.steady) is None


def test_an_open_loop_is_steady_from_first_due_to_last_due() -> None:
    sent = [request(1000.0 + 500 * i, due_ns=round((999.0 + 500 * i) * MS)) for i in range(5)]
    load = measured_load([request(0.0, role="warmup"), *sent], None)
    assert in_ms(load.steady) == [(999.0, 2999.0)]
    assert in_ms(load.whole) == [(1000.0, 3200.0)]


def test_the_blocks_of_an_open_loop_each_have_their_window() -> None:
    first = [request(1000.0 + 500 * i, due_ns=(1000 + 500 * i) * MS) for i in range(3)]
    second = [request(9000.0 + 500 * i, due_ns=(9000 + 500 * i) * MS) for i in range(2)]
    readings = [reading(990, 2300), reading(8990, 9800), reading(9001, 9900)]
    load = measured_load(first + second, None, readings)
    assert in_ms(load.steady) == in_ms(load.sending) == [(1000.0, 2000.0), (9000.0, 9500.0)]
    assert in_ms(load.whole) == [(1000.0, 2200.0), (9000.0, 9700.0)]


def test_a_block_that_follows_without_a_pause_is_still_another() -> None:
    load = measured_load(
        [request(1000.0), request(1201.0)], 1, [reading(999, 1200), reading(1201, 1500)]
    )
    assert in_ms(load.steady) == [(1000.0, 1200.0), (1201.0, 1401.0)]


def test_one_open_request_has_no_steady_window() -> None:
    assert measured_load([request()], None).steady.length_ns == 0


def test_unsent_request_counts_from_its_start() -> None:
    never = failure(1000.0, sent_ns=None, took_ms=50)
    assert in_ms(measured_load([never], 1).whole) == [(1000.0, 1050.0)]


def test_request_ending_before_its_start_has_no_time_in_flight() -> None:
    assert in_flight([failure(1000.0, end_ns=0)], open_loop=True).level.tolist() == [0]


@each_case(
    ("fields", "expected"),
    [
        ({"output_tokens": 3}, [1, 1, 1]),
        ({"output_tokens": 6, "token_lengths": [1, 2, 3]}, [1, 2, 3]),
        ({"output_tokens": 2, "token_lengths": [1, 2, 3]}, [2 / 3] * 3),
        ({"output_tokens": 6, "token_lengths": [1, 2]}, [2, 2, 2]),
        ({"output_tokens": 6, "token_lengths": [0, 0, 0]}, [2, 2, 2]),
        ({"output_tokens": 6, "tokens_so_far": [1, 5, 6]}, [1, 4, 1]),
        ({"output_tokens": 12, "tokens_so_far": [1, 5, 6]}, [2, 8, 2]),
        ({"output_tokens": 6, "tokens_so_far": [4, 3, 6]}, [24 / 7, 0, 18 / 7]),
        ({"output_tokens": None}, [1, 1, 1]),
        ({"output_tokens": 0}, [0, 0, 0]),
    ],
)
def test_an_event_carries_its_share_of_the_tokens(
    fields: dict[str, object], expected: list[float]
) -> None:
    made = msgspec.structs.replace(request(tokens=3), **fields)
    assert event_tokens(made).tolist() == pytest.approx(expected)


def test_answers_without_events_bring_no_tokens() -> None:
    assert tokens_in([failure()], windows((0, 5000))) == 0
    assert event_tokens(failure()).tolist() == []


def test_events_count_as_tokens_without_token_counts() -> None:
    assert tokens_in([request(output_tokens=None, tokens=7)], windows((0, 5000))) == 7


def test_no_time_gives_no_rate() -> None:
    assert per_second(5, windows().length_ns) is None
    assert per_second(5, windows((0, 500)).length_ns) == pytest.approx(10)
    assert windows((0, 500)).length_ns == S // 2
