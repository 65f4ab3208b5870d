"""The figures of one observation, against the definitions, by hand."""

import sys

import msgspec
import pytest

from splitsecond.core.observation import Observation

MS = 1_000_000

BASE = Observation(
    id="1.1",
    call="1",
    target="x/y",
    due_ns=90 * MS,
    start_ns=95 * MS,
    dns_ns=1 * MS,
    tcp_ns=2 * MS,
    tls_ns=4 * MS,
    sent_ns=100 * MS,
    head_ns=150 * MS,
    first_event_ns=160 * MS,
    first_token_ns=200 * MS,
    first_answer_ns=200 * MS,
    last_token_ns=1100 * MS,
    end_ns=1195 * MS,
    token_at=[200 * MS, 500 * MS, 1100 * MS],
    token_lengths=[4, 4, 4],
    output_tokens=10,
    token_source="usage",
)


def but(**changes: object) -> Observation:
    return msgspec.structs.replace(BASE, **changes)


def test_times_are_differences_of_the_timestamps() -> None:
    assert BASE.ttft_ns == 100 * MS
    assert BASE.ttft_cold_ns == 107 * MS
    assert BASE.ttft_sent_ns == BASE.ttft_ns
    assert BASE.ttft_ns is not None
    assert BASE.sent_ns is not None
    written = msgspec.structs.replace(BASE, written_ns=BASE.sent_ns + 30 * MS)
    assert (written.ttft_ns, written.ttft_sent_ns) == (BASE.ttft_ns, BASE.ttft_ns - 30 * MS)
    assert BASE.ttft_due_ns == 110 * MS
    assert BASE.first_answer_after_ns == 100 * MS
    assert BASE.e2e_ns == 1000 * MS
    assert BASE.response_ns == 1010 * MS
    assert BASE.late_ns == 10 * MS
    assert BASE.gaps_ns == [300 * MS, 600 * MS]


def test_total_tps_counts_from_the_call_to_the_end() -> None:
    assert BASE.total_tps == pytest.approx(10 / 1.1)
    assert but(outcome="failed").total_tps is None


def test_several_tokens_per_event_are_shared_out_by_length() -> None:
    # 10 tokens in three events of equal length: 3 of them came first, so 7 in 0.9 s.
    assert BASE.first_event_tokens == 3
    assert BASE.tps == pytest.approx(7 / 0.9)
    assert BASE.tpot_ns == pytest.approx(0.9e9 / 7)


def test_one_token_per_event() -> None:
    assert but(output_tokens=3).tps == pytest.approx(2 / 0.9)
    assert but(token_at=[200 * MS], token_lengths=[12]).first_event_tokens == 10  # all in one event
    # fewer tokens than events: a held-back character
    assert but(output_tokens=2).first_event_tokens == 1


def test_the_providers_running_count_is_exact() -> None:
    counted = but(tokens_so_far=[4, 8, 10])
    assert counted.first_event_tokens == 4
    assert counted.tps == pytest.approx(6 / 0.9)


def arrived(*bursts: tuple[int, int], lengths: int = 4) -> Observation:
    """Return an answer whose tokens arrived in bursts: ms after the first one, and the number of
    events."""
    at = [(200 + ms) * MS for ms, events in bursts for _ in range(events)]
    return but(
        token_at=at, token_lengths=[lengths] * len(at), last_token_ns=at[-1], output_tokens=len(at),
        max_read_tokens=max(events for _, events in bursts),
    )  # fmt: skip


def test_tokens_that_arrived_with_the_first_took_no_time() -> None:
    fives = arrived(*((50 * number, 5) for number in range(20)))
    assert fives.first_event_tokens == 5
    assert fives.tps == pytest.approx(100)


@pytest.mark.parametrize(
    ("bursts", "known"),
    [
        ([(0, 100), (1, 1)], False),
        ([(0, 1), (1, 100)], False),
        ([(0, 50), (500, 50)], True),
        ([(0, 4), (40, 4), (80, 4)], True),
        ([(0, 1), (10, 1)], True),
        ([(0, 30), *((10 * number, 1) for number in range(1, 100))], True),
    ],
)
def test_tps_is_not_known_if_most_tokens_arrived_at_once(
    bursts: list[tuple[int, int]], known: bool
) -> None:
    seen = arrived(*bursts)
    assert (seen.tps is not None) == known
    assert known or seen.first_event_tokens == seen.streamed_tokens


def test_tps_of_few_large_events_is_not_known() -> None:
    """100 tokens in one event and one in another, or the other way round."""
    for lengths in ([400, 4], [4, 400]):
        large = but(
            token_at=[200 * MS, 201 * MS],
            token_lengths=lengths,
            last_token_ns=201 * MS,
            output_tokens=101,
        )
        assert large.tps is None


@pytest.mark.parametrize(
    "observation",
    [
        but(output_tokens=1),
        but(output_tokens=None),
        but(last_token_ns=200 * MS),
        but(first_token_ns=None, last_token_ns=None, token_at=[], token_lengths=[]),
    ],
)
def test_tps_is_undefined_not_zero(observation: Observation) -> None:
    assert observation.tps is None
    assert observation.tpot_ns is None


def test_hidden_reasoning_does_not_count_for_speed() -> None:
    hidden = but(output_tokens=110, reasoning_tokens=100)
    assert hidden.streamed_tokens == 10
    assert hidden.tps == BASE.tps


def test_visible_reasoning_counts_for_speed() -> None:
    shown = but(output_tokens=110, reasoning_tokens=100, first_answer_ns=900 * MS)
    assert shown.streamed_tokens == 110
    assert shown.first_answer_after_ns == 800 * MS


def test_tokens_not_streamed_do_not_count_for_speed() -> None:
    summary = but(
        output_tokens=110, reasoning_tokens=100, first_answer_ns=900 * MS, unstreamed_tokens=95
    )
    assert summary.streamed_tokens == 15


def test_nothing_sent_gives_no_figures() -> None:
    nothing = Observation(id="1.1", call="1", target="x/y", outcome="failed", start_ns=5, end_ns=9)
    assert (nothing.ttft_ns, nothing.ttft_cold_ns, nothing.e2e_ns, nothing.late_ns) == (None,) * 4
    assert (nothing.ttft_due_ns, nothing.response_ns, nothing.first_answer_after_ns) == (None,) * 3
    assert (nothing.total_tps, nothing.streamed_tokens, nothing.gaps_ns) == (None, None, [])
    assert nothing.first_event_tokens == 1


def test_observation_survives_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(BASE), type=Observation) == BASE


@pytest.mark.parametrize("role", ["measured", "warmup"])
def test_the_role_is_always_in_the_json(role: str) -> None:
    encoded = msgspec.json.encode(but(role=role))
    assert msgspec.json.decode(encoded)["role"] == role
    assert msgspec.json.decode(encoded, type=Observation).role == role


def test_an_older_line_without_a_role_is_a_measured_request() -> None:
    assert (
        msgspec.json.decode(b'{"id":"1.1","call":"1","target":"x/y"}', type=Observation).role
        == "measured"
    )


def test_a_compact_one_has_the_same_figures_in_less_memory() -> None:
    long = but(
        token_at=list(range(10**12, 10**12 + 10**9, 10**6)),
        token_lengths=[4] * 1000,
        tokens_so_far=[7],
    )
    compact = long.compact()
    figures = [name for name, of in vars(Observation).items() if isinstance(of, property)]
    assert {name: getattr(compact, name) for name in figures} == {
        name: getattr(long, name) for name in figures
    }
    assert [*compact.token_at] == long.token_at
    assert [*compact.token_lengths] == long.token_lengths
    assert [*compact.tokens_so_far] == long.tokens_so_far
    assert 3 * _bytes(compact) < _bytes(long)


def _bytes(o: Observation) -> int:
    """Return the memory of the lists or arrays of `o`, with the numbers in them that are objects of
    their own."""
    numbers = sum(map(sys.getsizeof, o.token_at)) if isinstance(o.token_at, list) else 0
    return numbers + sum(map(sys.getsizeof, (o.token_at, o.token_lengths, o.tokens_so_far)))
