"""The plan of a run of sessions, and the sessions that are drawn."""

from random import Random

import pytest
from msgspec import structs

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.nodes import shares
from splitsecond.benchmark.load.plan import (
    ROUNDS,
    TURNS,
    PlannedLoad,
    PlanSettings,
    expected_s,
    make_plan,
    slices,
)
from splitsecond.benchmark.load.search_driver import LoadSearchDriver
from splitsecond.benchmark.load.session_player import GOLDEN, SessionPrompts
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.runs.cost_limit import tokens_of_prompts
from splitsecond.benchmark.runs.settings import BenchSettings, CapacitySettings
from splitsecond.benchmark.statistics.search import Search
from splitsecond.benchmark.workload.sessions import Session, SessionSet, Turn, distributions
from splitsecond.benchmark.workload.synthetic_sessions import SYNTHETIC, synthetic_sessions
from splitsecond.benchmark.workload.workload import Workload
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault

TURN = Turn(input_tokens=1000, output_tokens=100, wait_ns=4 * NS_PER_S)
SESSIONS = SessionSet(
    name="f",
    format="g",
    sessions=[Session(id="a", turns=[TURN] * 10), Session(id="b", turns=[TURN] * 30)],
)
TARGETS = {"a/x": "http://a", "b/x": "http://b"}


def test_blocks_of_sessions_have_turns_for_each_slot() -> None:
    loads = [PlannedLoad(concurrency=2), PlannedLoad(concurrency=16)]
    plan = make_plan(TARGETS, loads, PlanSettings(sessions=SESSIONS, response_s=2.0))
    (lane,) = plan.lanes
    assert [each.requests for each in plan.conditions] == [
        ROUNDS * c * TURNS for c in (2, 2, 16, 16)
    ]
    assert {block.concurrency: (block.requests, block.warmups) for block in lane} == {
        2: (16, 2),
        16: (128, 16),
    }
    assert all(not block.due and block.wait_s == 4.0 for block in lane)
    assert [block.round for block in lane] == [
        number for number in range(1, ROUNDS + 1) for _ in range(4)
    ]


def test_a_number_of_requests_is_that_of_measured_turns() -> None:
    plan = make_plan(
        TARGETS, [PlannedLoad(concurrency=2)], PlanSettings(sessions=SESSIONS, requests=25)
    )
    assert {each.requests for each in plan.conditions} == {25}


def test_a_rate_of_sessions_begins_with_those_in_flight() -> None:
    plan = make_plan(
        {"a/x": "http://a"},
        [PlannedLoad(rate=0.1)],
        PlanSettings(sessions=SESSIONS, response_s=2.0),
    )
    for block in plan.lanes[0]:
        assert block.concurrency == 12  # 20 turns of 6 s each
        assert len(block.due) >= block.requests / 20 + 12
    following = plan.next_round(plan.lanes[0][-1:], 7)
    assert len(following[0].due) == len(plan.lanes[0][-1].due)
    parts = shares(plan.lanes[0][0], 3)
    assert sum(part.concurrency or 0 for part in parts) == 12
    assert sum(part.requests for part in parts) == plan.lanes[0][0].requests


def test_a_duration_is_filled_with_turns() -> None:
    plan = make_plan(
        TARGETS,
        [PlannedLoad(concurrency=4)],
        PlanSettings(sessions=SESSIONS, response_s=2.0, duration_s=1440),
    )
    # 120 s a block, 6 s a turn
    assert {each.requests for each in plan.conditions} == {ROUNDS * 4 * 20}
    (lane,) = plan.lanes
    assert expected_s(lane[0], ttft_s=1, response_s=2.0) == pytest.approx(2 + 6 * (79 / 4 + 1))
    assert len(slices(lane[0], 4)) == 1


def test_a_slot_is_more_often_in_a_long_session() -> None:
    drawn = SESSIONS.in_progress(Random(1), 2000, 0.5)
    assert sum(session.id == "b" for session, _ in drawn) / 2000 == pytest.approx(0.75, abs=0.05)
    assert {turn for session, turn in drawn if session.id == "a"} == set(range(1, 11))


def test_rounds_have_light_and_heavy_sessions_in_turn() -> None:
    drawn = synthetic_sessions("agent", 1)
    tokens = []
    for number in range(1, 14):
        block = RequestBlock(condition="c", target="t", requests=8, concurrency=8, round=number)
        prompts = SessionPrompts(Workload(run="r", sessions=drawn), "c", number)
        joined = prompts.in_progress(block)
        assert joined == prompts.in_progress(block)
        tokens.append(sum(session.turns[at - 1].input_tokens for session, at in joined))
        parts = [structs.replace(block, first=at, stride=2, concurrency=4) for at in range(2)]
        one, other = map(prompts.in_progress, parts)
        assert one != other
    heaviest = sorted(range(1, 14), key=lambda number: tokens[number - 1])
    planned = sorted(range(1, 14), key=lambda number: number * GOLDEN % 1)
    assert abs(heaviest.index(5) - planned.index(5)) <= 3  # the lightest round that is planned
    assert abs(heaviest.index(8) - planned.index(8)) <= 3  # the heaviest one
    unlimited = 8 * drawn.mean("input_tokens")
    assert sum(tokens) / len(tokens) == pytest.approx(unlimited, rel=0.15)


def test_a_capacity_search_has_sessions_as_its_load() -> None:
    driver = LoadSearchDriver(
        "a/x",
        "http://a",
        Search(4, 16, whole=True),
        parse_slo("ttft=3s"),
        0.95,
        PlanSettings(sessions=SESSIONS),
    )
    first = next(driver.blocks(lambda condition: None, [], [], lambda row, verdict: None))  # type: ignore[arg-type, return-value]
    assert (first.concurrency, first.requests, first.wait_s) == (4, 4 * TURNS, 4.0)
    with pytest.raises(CallerFault, match="by_rate"):
        CapacitySettings(sessions="agent", rate=True).check()


def test_costs_are_estimated_for_the_mean_prompt() -> None:
    assert tokens_of_prompts(Workload(run="r", sessions=SESSIONS), 512) == 1000


@pytest.mark.parametrize("name", SYNTHETIC)
def test_drawn_sessions_are_possible_and_the_same_each_time(name: str) -> None:
    found = synthetic_sessions(name, 3)
    assert found == synthetic_sessions(name, 3)
    assert found.sessions != synthetic_sessions(name, 4).sessions
    for session in found.sessions:
        before = 0
        for turn in session.turns:
            assert 0 <= turn.shared_tokens <= before
            assert turn.new_tokens > 0
            assert turn.output_tokens > 0
            before = turn.input_tokens


def test_drawn_agents_resemble_the_recorded_ones() -> None:
    shape = distributions(synthetic_sessions("agent", 0))
    recorded = {
        "turns": (45, 156),
        "prompt_tokens": (103_694, 233_760),
        "new_tokens": (705, 4_077),
        "output_tokens": (216, 898),
    }
    for name, (median, p90) in recorded.items():
        assert shape[name]["p50"] == pytest.approx(median, rel=0.3)
        assert shape[name]["p90"] == pytest.approx(p90, rel=0.3)
    assert shape["reusable_share"]["mean"] == pytest.approx(0.966, abs=0.01)
    assert shape["sub_agents"]["mean"] == pytest.approx(0.09, abs=0.06)


@pytest.mark.parametrize(
    "beside",
    [
        {"cache_reuse": True},
        {"input_tokens": 9},
        {"warmup": 1},
        {"answers": "none"},
        {"longest_wait": -1.0},
    ],
)
def test_settings_beside_sessions_are_refused(beside: dict[str, object]) -> None:
    BenchSettings(sessions="agent").check()
    with pytest.raises(CallerFault):
        BenchSettings(sessions="agent", **beside).check()  # type: ignore[arg-type]


def test_settings_of_sessions_need_sessions() -> None:
    for beside in ({"longest_wait": 3.0}, {"answers": "recorded"}):
        with pytest.raises(CallerFault, match="sessions"):
            BenchSettings(**beside).check()
