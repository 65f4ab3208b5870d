"""One condition, worked out by hand."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.made import MS, S, asked, closed_loop, failure, request

from splitsecond.benchmark.rows.condition import condition_findings
from splitsecond.benchmark.rows.lateness import instrument_of
from splitsecond.benchmark.rows.records import ConditionFindings
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.statistics.steady import measured_load
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading


def of(*observations: Observation, concurrency: int | None = 1) -> ConditionFindings:
    return condition_findings(asked(concurrency), observations, [])


def test_the_figures_of_two_requests() -> None:
    # 11 tokens: TTFT 100, then ten gaps of 10 ms; and TTFT 200, then ten of 20.
    made = of(request(1000.0), request(1200.0, ttft_ms=200, gap_ms=20))
    assert (made.requests, made.errors, made.warmups) == (2, 0, 0)
    assert (made.ttft_ms.p50, made.ttft_ms.max) == (150, 200)
    assert (made.tps.p50, made.tps.max) == (75, 100)
    assert made.tps.p95 == pytest.approx(52.5)
    assert (made.tpot_ms.p50, made.e2e_ms.p50) == (15, 300)
    assert (made.itl_ms.n, made.itl_ms.p50, made.itl_ms.ci95, made.itl_ms.needs) == (20, 15, {}, {})
    assert made.ttft_due_ms.n == made.response_ms.n == 0
    assert made.total_tps.max == pytest.approx(11 / 0.2)
    assert made.requests_per_s == pytest.approx(2 / 0.6)
    assert made.output_tokens_per_s == made.output_tokens_per_s_whole == pytest.approx(22 / 0.6)
    assert made.steady_s == pytest.approx(0.6)
    assert (made.input_tokens, made.output_tokens, made.cached_tokens, made.tokens_per_event) == (
        100,
        11,
        None,
        1,
    )
    assert made.token_source == "usage"
    assert made.instrument.in_flight == 1
    assert (made.invalid, made.goodput, made.cost_usd, made.batching_efficiency) == (
        [],
        None,
        None,
        None,
    )


def test_failures_count_by_kind_and_as_slower_than_all_others() -> None:
    made = of(
        request(),
        failure(1200),
        failure(1205),
        failure(1210, kind="refused"),
        failure(1215, fault=None),
    )
    assert (made.requests, made.errors, made.ttft_ms.n, made.ttft_ms.failed) == (5, 4, 5, 4)
    assert (made.ttft_ms.p50, made.ttft_ms.max, made.tps.p50, made.tps.max) == (
        None,
        100,
        None,
        100,
    )
    assert (made.total_tps.n, made.total_tps.failed) == (1, 0)
    assert made.error_kinds == {"http_500": 2, "refused": 1, "unknown": 1}
    assert made.error_examples == {
        "http_500": "got http_500, expected 200",
        "refused": "got refused, expected 200",
    }


def test_a_target_that_loses_its_slowest_requests_is_not_faster() -> None:
    times = [100.0 + 10 * i for i in range(20)]
    all_answered = of(*(request(1000 + 500 * i, ttft_ms=ttft) for i, ttft in enumerate(times)))
    lost = of(
        *(
            request(1000 + 500 * i, ttft_ms=t) if t < 220 else failure(1000 + 500 * i)
            for i, t in enumerate(times)
        )
    )
    assert lost.ttft_ms.p50 == all_answered.ttft_ms.p50
    assert (lost.ttft_ms.p95, lost.ttft_ms.ci95["p50"][1]) == (None, None)
    assert lost.ttft_ms.ci95["p50"][0] == all_answered.ttft_ms.ci95["p50"][0]


def test_rounds_of_a_row_give_its_throughput_an_interval() -> None:
    made = of(
        *(
            request(1000 + 20_000 * r + 200 * i, gap_ms=10 + r, round=r + 1, name=f"{r}-{i}")
            for r in range(6)
            for i in range(4)
        )
    )
    assert list(made.output_tokens_per_s_rounds) == [1, 2, 3, 4, 5, 6]
    assert made.output_tokens_per_s_rounds[1] > made.output_tokens_per_s_rounds[6]
    low, high = made.output_tokens_per_s_ci95
    assert (low or 0) < (made.output_tokens_per_s or 0) < (high or 0)
    assert made.ttft_ms.rounds == 6
    assert of(request()).output_tokens_per_s_ci95 == (None, None)


def test_a_row_whose_requests_all_failed_stays() -> None:
    made = of(failure(1000), failure(1005))
    assert (made.requests, made.errors, made.ttft_ms.n, made.itl_ms.n) == (2, 2, 0, 0)
    assert (made.ttft_ms.p50, made.tokens_per_event, made.phases_ms) == (None, None, {})
    assert made.output_tokens_per_s == 0
    assert made.requests_per_s == 0


def test_a_row_without_observations_stays() -> None:
    made = of()
    assert (made.requests, made.requests_per_s, made.output_tokens_per_s, made.steady_s) == (
        0,
        None,
        None,
        None,
    )
    assert made.invalid == ["nothing was measured."]


def test_warm_ups_are_apart_and_other_roles_do_not_count() -> None:
    made = of(
        request(800.0, role="warmup"),
        request(1000.0),
        request(1200.0, role="calibration"),
        request(1400.0, role="probe"),
    )
    assert (made.requests, made.warmups, made.ttft_ms.n) == (1, 1, 1)


def test_a_cancelled_request_is_no_error() -> None:
    made = of(request(1000.0), request(1200.0, outcome="cancelled"))
    assert (made.requests, made.errors, made.ttft_ms.n) == (1, 0, 1)
    assert made.notes[-1] == "1 request was cancelled before the end, and not counted."


def test_an_open_loop_counts_from_due() -> None:
    late = [request(1000.0 + 300 * i, due_ns=round((990 + 300 * i) * MS)) for i in range(4)]
    made = of(*late, concurrency=None)
    assert (made.ttft_ms.p50, made.ttft_due_ms.p50, made.response_ms.p50) == (100, 110, 210)
    assert (made.instrument.late_p50_ms, made.instrument.late_p99_ms) == (10, 10)
    assert made.steady_s == pytest.approx(0.9)


def test_the_phases_of_a_request_add_up() -> None:
    cold = request(1000.0, dns_ns=2 * MS, tcp_ns=10 * MS, tls_ns=20 * MS, rtt_ns=10 * MS)
    warm = request(1200.0, reused=True, rtt_ns=20 * MS)
    phases = of(cold, warm).phases_ms
    assert phases == {
        "dns": 1,
        "tcp": 5,
        "tls": 10,
        "network": 15,
        "provider": 85,
        "streaming": 100,
    }
    assert sum(phases.values()) == pytest.approx(200 + 16)


def test_without_a_round_trip_time_the_network_is_the_providers() -> None:
    assert of(request()).phases_ms == {
        "dns": 0,
        "tcp": 0,
        "tls": 0,
        "provider": 100,
        "streaming": 100,
    }


def test_provider_time_is_0_if_the_round_trip_exceeds_ttft() -> None:
    phases = of(request(rtt_ns=500 * MS)).phases_ms
    assert (phases["network"], phases["provider"]) == (100, 0)


def test_times_reported_by_servers_are_in_ms() -> None:
    made = of(
        request(
            1000.0, server_timings={"prompt_ms": 10.0, "prompt_n": 25.0, "prompt_per_token_ms": 0.4}
        ),
        request(1200.0, server_timings={"prompt_time": 0.02, "queue_time": 0.001}),
        request(1400.0, server_timings={"time_to_first_token": 0.1, "processing_ms": 214.0}),
        request(1600.0),
    )
    assert made.server_ms == {
        "prompt": 15.0,
        "queue": 1.0,
        "time_to_first_token": 100.0,
        "processing": 214.0,
    }


def test_every_source_of_token_counts_is_named() -> None:
    made = of(request(1000.0), request(1200.0, token_source="events"), failure(1400.0))
    assert made.token_source == "events, usage"


def test_the_instrument_reports_itself() -> None:
    observations = [
        request(1000.0 + 200 * i, lag_sum_ns=11 * MS, lag_max_ns=(2 + i) * MS) for i in range(3)
    ]
    readings = [
        InstrumentReading(
            condition="c",
            begin_ns=0,
            end_ns=S,
            cpu_ns=33 * MS,
            runqueue_wait_ns=50 * MS,
            collections=1,
        ),
        InstrumentReading(condition="c", begin_ns=0, end_ns=S, runqueue_wait_ns=150 * MS),
        InstrumentReading(condition="c", begin_ns=0, end_ns=S),
    ]
    made = condition_findings(asked(), observations, readings).instrument
    assert (made.kernel_time, made.lag_p50_ms, made.lag_max_ms) == (True, 1, 4)
    assert made.lag_p99_ms == pytest.approx(3.98)
    assert made.runqueue_wait_share == pytest.approx(0.1)
    assert made.cpu_share == pytest.approx(0.011)
    assert made.collections == 1


@pytest.mark.parametrize(
    ("tokens", "seconds", "expected"),
    [
        (999, 0.5, None),
        (1_000, 1, 30.0),
        (1_000, 1.1, None),
        (10_000, 10, 30.0),
        (100_000, 600, None),
    ],
)
def test_cpu_time_per_token_is_given_only_if_tokens_cause_it(
    tokens: int, seconds: float, expected: float | None
) -> None:
    """A process that waits uses some processor time too, however few tokens there are."""
    observations = [request(1000.0)]
    reading = InstrumentReading(
        condition="c", begin_ns=0, end_ns=round(seconds * S), cpu_ns=tokens * 30 * MS // 1000
    )
    found = instrument_of(
        observations, [reading], measured_load(observations, 1, [reading]), tokens
    )
    assert found.cpu_ms_per_1000_tokens == (expected and pytest.approx(expected))
    assert found.cpu_share == pytest.approx(tokens * 0.03 / 1000 / seconds, rel=0.01)


def test_kernel_time_is_true_only_if_every_answer_has_it() -> None:
    assert not of(request(1000.0), request(1200.0, kernel_time=False)).instrument.kernel_time
    assert not of(failure()).instrument.kernel_time


def test_gaps_are_shared_out_over_the_tokens_that_ended_them() -> None:
    # 30 ms before three tokens, 10 ms before one: 10 ms each, as the running count says.
    counted = request(
        token_at=[1100 * MS, 1130 * MS, 1140 * MS], tokens_so_far=[1, 4, 5], output_tokens=5
    )
    made = of(counted)
    assert (made.itl_ms.n, made.itl_ms.max) == (2, 30)
    assert (made.itl_per_token_ms.n, made.itl_per_token_ms.min, made.itl_per_token_ms.max) == (
        4,
        10,
        10,
    )
    # Without a count the characters tell: of 8 tokens 2, 4 and 2.
    by_characters = request(
        token_at=[1100 * MS, 1140 * MS, 1150 * MS], token_lengths=[5, 10, 5], output_tokens=8
    )
    made = of(by_characters)
    assert (made.itl_per_token_ms.n, made.itl_per_token_ms.max, made.itl_per_token_ms.min) == (
        6,
        10,
        5,
    )
    assert (made.itl_per_token_ms.ci95, made.itl_per_token_ms.needs) == ({}, {})


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.none() | st.integers(0, 100))
def test_sharing_gaps_out_keeps_their_sum(gaps: list[int], tokens: int | None) -> None:
    at = [sum(gaps[:i], start=1100 * MS) for i in range(len(gaps) + 1)]
    made = of(
        request(
            token_at=at, last_token_ns=at[-1], token_lengths=[4] * len(at), output_tokens=tokens
        )
    )
    per_token = made.itl_per_token_ms
    assert per_token.n >= made.itl_ms.n == len(gaps)
    assert (per_token.mean or 0) * per_token.n == pytest.approx(sum(gaps) / MS, abs=1e-6)


def test_goodput_is_computed_with_an_slo() -> None:
    made = condition_findings(
        asked(), [request(1000.0), failure(1200.0, took_ms=50)], [], parse_slo("ttft=100ms")
    )
    assert made.goodput is not None
    assert (made.goodput.met, made.goodput.sent) == (1, 2)
    assert made.goodput.per_s == pytest.approx(1 / 0.25)


MOMENTS = st.integers(0, 10**10)


@st.composite
def wild(draw: st.DrawFn) -> Observation:
    made = request(
        draw(st.integers(0, 5000)),
        ttft_ms=draw(st.integers(0, 50)),
        gap_ms=draw(st.integers(0, 20)),
        tokens=draw(st.integers(1, 6)),
    )
    return msgspec.structs.replace(
        made,
        role=draw(st.sampled_from(["measured", "warmup", "calibration"])),
        outcome=draw(st.sampled_from(["ok", "failed", "cancelled"])),
        output_tokens=draw(st.none() | st.integers(0, 50)),
        due_ns=draw(st.just(0) | MOMENTS),
        sent_ns=draw(st.just(made.sent_ns) | st.none()),
        kernel_time=draw(st.booleans()),
        lag_max_ns=draw(MOMENTS),
        max_read_tokens=draw(st.integers(0, 6)),
        rtt_ns=draw(st.none() | MOMENTS),
    )


@given(st.lists(wild(), max_size=8), st.none() | st.integers(1, 4))
def test_row_of_any_observations_survives_json(
    observations: list[Observation], concurrency: int | None
) -> None:
    made = condition_findings(asked(concurrency), observations, [], parse_slo("ttft=20ms,tps=10"))
    written = msgspec.json.encode(made)
    assert msgspec.json.decode(written, type=ConditionFindings) == made
    assert made.errors <= made.requests


@given(st.lists(wild(), max_size=8), st.none() | st.integers(1, 4))
def test_a_verdict_needs_no_summaries(
    observations: list[Observation], concurrency: int | None
) -> None:
    """What `capacity.judge` reads of a row is the same without them."""
    whole, bare = (
        condition_findings(
            asked(concurrency),
            observations,
            [],
            parse_slo("ttft=20ms"),
            searched=True,
            summaries=summaries,
        )
        for summaries in (True, False)
    )
    assert bare.ttft_ms.n == 0
    assert (bare.invalid, bare.goodput, bare.errors, bare.error_kinds) == (
        whole.invalid,
        whole.goodput,
        whole.errors,
        whole.error_kinds,
    )


def test_full_closed_loop_has_no_notes() -> None:
    cool = [request(3000.0 + place, role="cooldown", outcome="cancelled") for place in range(8)]
    made = of(*closed_loop(8, 10), *cool, concurrency=8)
    assert (made.invalid, made.notes) == ([], [])
    assert made.output_tokens_per_s == pytest.approx(8 * 55, rel=0.01)
