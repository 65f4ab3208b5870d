"""The engine model: its steps computed by hand, and overload. Times are arguments; there is no
clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from splitsecond.core.errors import Overloaded
from splitsecond.simulator import profile
from splitsecond.simulator.engine import Emission, Engine
from splitsecond.simulator.profile import EngineSpec, GpuSpec

MS = 1_000_000


def spec(**changes: float | GpuSpec | None) -> EngineSpec:
    fields = {
        "slots": 4,
        "prefill_tokens_per_s": 1_000.0,
        "prefill_chunk_tokens": 100,
        "step_base_ms": 10.0,
        "step_per_sequence_ms": 1.0,
        **changes,
    }
    return EngineSpec(**fields)  # type: ignore[arg-type]


def drain(engine: Engine[int], limit: int = 1_000_000) -> list[Emission[int]]:
    emissions: list[Emission[int]] = []
    for _ in range(limit):
        if engine.next_ns is None:
            return emissions
        emissions += engine.advance()
    raise AssertionError("the engine does not come to an end")


def test_one_request_takes_its_prompt_then_a_step_per_token() -> None:
    engine: Engine[int] = Engine(spec())
    engine.submit(7, prompt_tokens=50, output_tokens=3, now_ns=5 * MS)
    first = 5 * MS + 11 * MS + 50 * MS
    assert [(e.key, e.index, e.at_ns) for e in drain(engine)] == [
        (7, 0, first),
        (7, 1, first + 11 * MS),
        (7, 2, first + 22 * MS),
    ]
    assert repr(engine) == "<Engine 0 of 4 slots, 0 waiting>"
    assert engine.advance() == []


def test_long_prompt_is_prefilled_in_chunks_beside_others() -> None:
    engine: Engine[int] = Engine(spec())
    engine.submit(1, prompt_tokens=1, output_tokens=10, now_ns=0)
    engine.submit(2, prompt_tokens=250, output_tokens=1, now_ns=0)
    emissions = drain(engine)
    first_of_two = next(e.at_ns for e in emissions if e.key == 2)
    assert sum(1 for e in emissions if e.key == 1 and e.at_ns < first_of_two) == 3
    chunks = [e.at_ns for e in emissions if e.key == 1]
    assert chunks[1] - chunks[0] == 12 * MS + 100 * MS
    assert chunks[-1] - chunks[-2] == 11 * MS


def test_waiting_request_takes_the_slot_of_a_cancelled_one() -> None:
    engine: Engine[int] = Engine(spec(slots=1))
    for key in (1, 2, 3):
        engine.submit(key, prompt_tokens=1, output_tokens=1_000, now_ns=0)
    engine.advance()
    engine.cancel(2)
    engine.cancel(1)
    engine.cancel(99)
    engine.advance()
    assert {e.key for e in engine.advance()} == {3}


def test_beyond_slots_and_queue_requests_are_refused() -> None:
    engine: Engine[int] = Engine(spec(slots=2, queue_limit=1))
    for key in range(3):
        engine.submit(key, prompt_tokens=1, output_tokens=5, now_ns=0)
    with pytest.raises(Overloaded, match="3 requests fill 2 slots and a queue of 1"):
        engine.submit(3, prompt_tokens=1, output_tokens=5, now_ns=0)


def test_late_read_request_starts_after_the_last_step() -> None:
    engine: Engine[int] = Engine(spec())
    engine.submit(1, prompt_tokens=1, output_tokens=1, now_ns=0)
    ended_ns = drain(engine)[-1].at_ns
    engine.submit(2, prompt_tokens=1, output_tokens=1, now_ns=ended_ns - MS)
    assert drain(engine)[0].at_ns > ended_ns + 10 * MS


def open_loop(rate: float, requests: int = 400) -> tuple[list[float], float]:
    """TTFTs in ms, and tokens per second, of requests that arrive evenly at `rate` per second."""
    engine: Engine[int] = Engine(spec(slots=8, prefill_tokens_per_s=20_000.0))
    arrivals = [round(i / rate * 1e9) for i in range(requests)]
    firsts: dict[int, int] = {}
    emissions: list[Emission[int]] = []
    for key, at in enumerate(arrivals):
        while engine.next_ns is not None and engine.next_ns <= at:
            emissions += engine.advance()
        engine.submit(key, prompt_tokens=100, output_tokens=20, now_ns=at)
    emissions += drain(engine)
    for emission in emissions:
        firsts.setdefault(emission.key, emission.at_ns)
    return [(firsts[k] - at) / 1e6 for k, at in enumerate(arrivals)], len(emissions) / emissions[
        -1
    ].at_ns * 1e9


def test_overload_saturates_throughput_and_grows_the_queue() -> None:
    calm_ttft, calm_tps = open_loop(5)
    _, full_tps = open_loop(40)
    over_ttft, over_tps = open_loop(80)
    assert calm_tps == pytest.approx(5 * 20, rel=0.05)
    assert over_tps == pytest.approx(full_tps, rel=0.05)
    assert max(calm_ttft) < 2 * min(calm_ttft)
    quarters = [over_ttft[i] for i in (100, 200, 300, 399)]
    assert quarters == sorted(quarters)
    assert quarters[-1] > 50 * max(calm_ttft)


@pytest.mark.parametrize(
    ("name", "ttft_ms", "tps"),
    [
        ("runpod-h100-mistral-7b", 45, 92.5),
        ("lambda-h100-mistral-7b", 50, 87.5),
        ("ollama-4090-7b", 100, 67.5),
    ],
)
def test_shipped_engines_reproduce_the_article_for_one_request(
    name: str, ttft_ms: float, tps: float
) -> None:
    found = profile.load(name).engine
    assert found is not None
    engine: Engine[int] = Engine(found)
    engine.submit(1, prompt_tokens=512, output_tokens=100, now_ns=0)
    times = [e.at_ns for e in drain(engine)]
    assert times[0] / 1e6 == pytest.approx(ttft_ms, rel=0.01)
    assert 99e9 / (times[-1] - times[0]) == pytest.approx(tps, rel=0.01)


@examples(60)
@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 300), st.integers(1, 12)),
        min_size=1,
        max_size=25,
    ),
    st.integers(1, 5),
    st.sets(st.integers(0, 24)),
)
def test_every_request_gets_its_tokens_once_in_order(
    asked: list[tuple[int, int, int]], slots: int, cancelled: set[int]
) -> None:
    engine: Engine[int] = Engine(spec(slots=slots))
    emissions: list[Emission[int]] = []
    at = 0
    for key, (wait_ms, prompt, output) in enumerate(asked):
        at += wait_ms * MS
        while engine.next_ns is not None and engine.next_ns <= at:
            emissions += engine.advance()
        engine.submit(key, prompt_tokens=prompt, output_tokens=output, now_ns=at)
        if key in cancelled:
            engine.cancel(key)
    emissions += drain(engine)
    assert [e.at_ns for e in emissions] == sorted(e.at_ns for e in emissions)
    for key, (_, _, output) in enumerate(asked):
        expected = [] if key in cancelled else list(range(output))
        assert [e.index for e in emissions if e.key == key] == expected


def test_full_kv_cache_preempts_the_request_that_began_last() -> None:
    """Two prompts of 10 and their answers of 10 need 40 tokens; 30 fit, so one begins again with
    what it has."""
    engine: Engine[int] = Engine(spec(kv_cache_tokens=30))
    for key in (1, 2):
        engine.submit(key, prompt_tokens=10, output_tokens=10, now_ns=0)
    emissions = drain(engine)
    assert engine.counts.preemptions == 1
    assert [e.index for e in emissions if e.key == 2] == list(range(10)), "each token is sent once"
    again = [e.at_ns for e in emissions if e.key == 2][4:6]
    end_of_one = max(e.at_ns for e in emissions if e.key == 1)
    assert again[0] == end_of_one + (10 + 1 + 14) * MS, (
        "14 tokens of prompt and answer are computed again"
    )
    assert again[1] == again[0] + 11 * MS


def test_prompt_waits_until_the_kv_cache_has_room() -> None:
    engine: Engine[int] = Engine(spec(kv_cache_tokens=25))
    engine.submit(1, prompt_tokens=20, output_tokens=3, now_ns=0)
    engine.submit(2, prompt_tokens=20, output_tokens=1, now_ns=0)
    engine.advance()
    assert (engine.running, engine.waiting) == (1, 1)
    assert engine.kv_use == 21 / 25
    emissions = drain(engine)
    assert min(e.began_ns for e in emissions if e.key == 2) == max(
        e.at_ns for e in emissions if e.key == 1
    )
    assert engine.counts.preemptions == 0


@given(
    requests=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=8),
    capacity=st.integers(10, 120),
)
@examples(60)
def test_every_token_is_sent_once_however_small_the_kv_cache(
    requests: list[tuple[int, int]], capacity: int
) -> None:
    engine: Engine[int] = Engine(spec(kv_cache_tokens=capacity))
    for key, (prompt, output) in enumerate(requests):
        engine.submit(key, prompt_tokens=prompt, output_tokens=output, now_ns=0)
    emissions = drain(engine)
    for key, (_, output) in enumerate(requests):
        assert [e.index for e in emissions if e.key == key] == list(range(output))
    assert engine.kv_use == 0.0


def test_gpu_at_its_power_limit_makes_steps_longer() -> None:
    """Four sequences want 500 W of a GPU that may draw 400: each step takes 1.25 times as long."""
    gpu = GpuSpec(idle_w=100, full_w=500, limit_w=400)
    engine: Engine[int] = Engine(spec(gpu=gpu))
    for key in range(4):
        engine.submit(key, prompt_tokens=1, output_tokens=3, now_ns=0)
    alone_ns = engine.next_ns or 0
    assert (engine.power_w, engine.capped) == (200, False)
    first = engine.advance()
    assert (engine.power_w, engine.capped) == (400, True)
    steps = sorted({e.at_ns for e in (*first, *drain(engine))})
    assert steps[1] - alone_ns == (14 + 3) * MS * 1.25
    assert steps[2] - steps[1] == 14 * MS * 1.25
    assert (engine.power_w, engine.capped) == (100, False)
    joules = (200 * alone_ns + 400 * (steps[2] - alone_ns) + 400 * (steps[3] - steps[2])) / 1e9
    assert engine.energy_j(steps[-1] + 1000 * MS) == pytest.approx(joules + 100)
    assert engine.throttled_ns(steps[-1] + 1000 * MS) == steps[2] - alone_ns
