"""The plan: every request exactly once, every condition in every round."""

import math
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.plan import (
    PlannedLoad,
    PlanSettings,
    RunPlan,
    make_plan,
    slices,
    without,
)
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault

HOSTS = ("https://a.example/v1", "https://b.example/v1", "https://b.example:8443/v1")
targets = st.dictionaries(
    st.from_regex(r"[a-z]{1,5}/m", fullmatch=True), st.sampled_from(HOSTS), min_size=1, max_size=5
)
closed = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True).map(
    lambda levels: [PlannedLoad(concurrency=c) for c in levels]
)
opened = st.floats(0.1, 50).map(lambda rate: [PlannedLoad(rate=rate)])


def numbers(block: RequestBlock) -> range:
    total = block.warmups + block.requests + block.cooldowns
    return range(block.first, block.first + total * block.stride, block.stride)


@given(
    targets,
    closed | opened,
    st.integers(1, 200),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.integers(0, 99),
)
def test_plan_laws(
    targets: dict[str, str],
    loads: list[PlannedLoad],
    requests: int,
    warmups: int | None,
    blocks: int | None,
    side_by_side: bool,
    cache_reuse: bool,
    seed: int,
) -> None:
    def plan() -> RunPlan:
        return make_plan(
            targets,
            loads,
            PlanSettings(
                requests=requests,
                warmups=warmups,
                blocks=blocks,
                side_by_side=side_by_side,
                cache_reuse=cache_reuse,
                seed=seed,
            ),
        )

    made = plan()
    assert made == plan()
    ways = ("", "-reuse") if cache_reuse else ("",)
    assert [c.condition for c in made.conditions] == [
        f"{name}@{load.label}{way}" for load in loads for name in targets for way in ways
    ]
    every = [block for lane in made.lanes for block in lane]
    for condition in made.conditions:
        mine = [block for block in every if block.condition == condition.condition]
        assert sum(block.requests for block in mine) == condition.requests == requests
        assert sum(block.warmups for block in mine) == condition.warmups
        assert sum(block.cooldowns for block in mine) == condition.cooldowns
        assert [block.round for block in mine] == list(range(1, len(mine) + 1))
        assert {block.cache_reuse for block in mine} == {condition.cache_reuse}
        sent = [number for block in mine for number in numbers(block)]
        assert sent == list(range(len(sent)))
        assert [block.opening for block in mine] == [True] + [False] * (len(mine) - 1)
        assert all(
            len(block.due) == len(numbers(block)) * (condition.load.rate is not None)
            for block in mine
        )
    for lane in made.lanes:
        assert [block.round for block in lane] == sorted(block.round for block in lane)
        conditions = {block.condition for block in lane}
        rounds = {c: {block.round for block in lane if block.condition == c} for c in conditions}
        for load in loads:
            alike = [
                rounds[c] for c in conditions if c.removesuffix("-reuse").endswith(f"@{load.label}")
            ]
            assert all(each == alike[0] for each in alike)
    assert len(made.lanes) == (
        len({url.split("/")[2] for url in targets.values()}) if side_by_side else 1
    )


def test_each_load_has_six_rounds_and_light_ones_more() -> None:
    made = make_plan(
        {"a/m": HOSTS[0], "b/m": HOSTS[1]},
        [PlannedLoad(concurrency=c) for c in (1, 8, 32)],
        PlanSettings(
            requests=50,
        ),
    )
    counts = Counter(block.condition for block in made.lanes[0])
    assert counts == {
        "a/m@c1": 8,
        "b/m@c1": 8,
        "a/m@c8": 6,
        "b/m@c8": 6,
        "a/m@c32": 6,
        "b/m@c32": 6,
    }
    assert {block.requests for block in made.lanes[0] if block.concurrency == 8} == {8, 9}
    assert {
        (block.warmups, block.cooldowns) for block in made.lanes[0] if block.concurrency == 8
    } == {(8, 28)}
    assert {block.cooldowns for block in made.lanes[0] if block.concurrency == 1} == {0}


@pytest.mark.parametrize(
    ("over_s", "blocks", "rounds", "apart_s"),
    [
        (900, None, 6, 180),
        (300, None, 6, 60),
        (3600, None, 21, 180),
        (7200, None, 25, 300),
        (900, 11, 11, 90),
    ],
)
def test_rounds_over_a_time_are_evenly_apart(
    over_s: float, blocks: int | None, rounds: int, apart_s: float
) -> None:
    loads = [PlannedLoad(concurrency=1), PlannedLoad(concurrency=32), PlannedLoad(rate=2)]
    made = make_plan(
        {"a": HOSTS[0], "b": HOSTS[1]},
        loads,
        PlanSettings(requests=200, blocks=blocks, over_s=over_s),
    )
    assert (made.rounds, made.apart_s) == (rounds, apart_s)
    assert {b.apart_s for b in made.lanes[0] if b.round > 1} == {apart_s}
    assert {b.apart_s for b in made.lanes[0] if b.round == 1} == {0}
    last = [b for b in made.lanes[0] if b.round == rounds]
    assert {b.apart_s for b in made.next_round(last, rounds + 1)} == {apart_s}, (
        "further rounds are as far apart"
    )
    alone = make_plan({"a": HOSTS[0]}, loads[:1], PlanSettings(requests=1, over_s=over_s))
    assert (alone.rounds, alone.apart_s) == (1, 0)


def test_the_loads_of_a_round_are_mixed() -> None:
    made = make_plan(
        {"a/m": HOSTS[0]},
        [PlannedLoad(concurrency=c) for c in (1, 2, 4, 8)],
        PlanSettings(requests=40),
    )
    orders = {
        tuple(b.concurrency or 0 for b in made.lanes[0] if b.round == number)
        for number in range(1, 6)
    }
    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {(1, 2, 4, 8)}


def test_a_target_alone_is_measured_in_rounds_too() -> None:
    made = make_plan(
        {"a/m": HOSTS[0]},
        [PlannedLoad(concurrency=32)],
        PlanSettings(requests=50, side_by_side=True),
    )
    assert [block.round for block in made.lanes[0]] == [1, 2, 3, 4, 5, 6]
    (lane,) = make_plan(
        {"a/m": HOSTS[0]}, [PlannedLoad(concurrency=1)], PlanSettings(requests=3)
    ).lanes
    assert [block.round for block in lane] == [1, 2, 3]


def test_an_open_loop_lasts_many_times_as_long_as_a_response() -> None:
    (lane,) = make_plan(
        {"a/m": HOSTS[0]}, [PlannedLoad(rate=4)], PlanSettings(requests=50, response_s=15)
    ).lanes
    assert {(block.warmups, block.requests) for block in lane} == {(4 * 15 * 20, 4 * 15 * 20)}
    assert {block.cooldowns for block in lane} == {4 * 15 * 5}
    (lane,) = make_plan(
        {"a/m": HOSTS[0]}, [PlannedLoad(rate=4)], PlanSettings(requests=50, response_s=0.1)
    ).lanes
    assert sum(block.requests for block in lane) == 50


@pytest.mark.parametrize(("duration_s", "warmups", "requests"), [(1000, 80, 391), (160, 40, 36)])
def test_half_of_a_given_duration_warms_up_at_most(
    duration_s: float, warmups: int, requests: int
) -> None:
    loads = [PlannedLoad(rate=4)]
    (lane,) = make_plan(
        {"a/m": HOSTS[0]}, loads, PlanSettings(response_s=1, duration_s=duration_s)
    ).lanes
    assert {(block.warmups, block.requests) for block in lane} == {
        (warmups, requests + (duration_s == 1000) * 25)
    }


def test_next_round_repeats_the_last_with_new_arrivals() -> None:
    made = make_plan(
        {"a/m": HOSTS[0], "b/m": HOSTS[0]},
        [PlannedLoad(concurrency=2), PlannedLoad(rate=2)],
        PlanSettings(
            requests=50,
        ),
    )
    last = [block for block in made.lanes[0] if block.round == 5]
    more = made.next_round(last, 6)
    assert {block.condition for block in more} == {block.condition for block in last}
    for block in more:
        (before,) = (b for b in last if b.condition == block.condition)
        assert numbers(block).start == numbers(before).stop
        assert (block.round, len(block.due)) == (6, len(before.due))
        assert not block.due or block.due != before.due


def test_cache_reuse_alternates_and_has_warm_ups() -> None:
    for asked, warmups in ((None, 2), (0, 1), (3, 3)):
        made = make_plan(
            {"a/m": HOSTS[0]},
            [PlannedLoad(concurrency=2)],
            PlanSettings(
                requests=40,
                warmups=asked,
                cache_reuse=True,
            ),
        )
        (lane,) = made.lanes
        assert [block.cache_reuse for block in lane[:2]] in ([False, True], [True, False])
        assert Counter(block.condition for block in lane) == {"a/m@c2": 8, "a/m@c2-reuse": 8}
        assert {block.warmups for block in lane} == {warmups}
        assert [(c.requests, c.warmups, c.cache_reuse) for c in made.conditions] == [
            (40, 8 * warmups, False), (40, 8 * warmups, True)
        ]  # fmt: skip


def test_rounds_are_in_different_orders() -> None:
    names = dict.fromkeys("abcdef", HOSTS[0])
    lane = make_plan(
        names, [PlannedLoad(concurrency=1)], PlanSettings(requests=100, blocks=4)
    ).lanes[0]
    assert len({tuple(block.target for block in lane[i : i + 6]) for i in range(0, 24, 6)}) > 1


def test_arrivals_are_equal_in_a_round_and_differ_between_rounds() -> None:
    lane = make_plan(
        {"a": HOSTS[0], "b": HOSTS[0]}, [PlannedLoad(rate=5)], PlanSettings(requests=100, blocks=2)
    ).lanes[0]
    assert lane[0].due == lane[1].due != lane[2].due == lane[3].due


def test_trace_is_one_block_without_warm_ups() -> None:
    made = make_plan(
        {"a": HOSTS[0], "b": HOSTS[0]},
        [PlannedLoad(trace=[0, 5, 9])],
        PlanSettings(
            requests=50,
            blocks=4,
            warmups=3,
        ),
    )
    assert [(block.due, block.requests, block.warmups) for block in made.lanes[0]] == [
        ([0, 5, 9], 3, 0)
    ] * 2
    assert made.conditions[0].requests == 3
    assert make_plan(
        {"a": HOSTS[0]}, [PlannedLoad(trace=[0, 5, 9])], PlanSettings(requests=2)
    ).lanes[0][0].due == [0, 5]


@each_case(
    ("change", "complaint"),
    [
        ({"requests": 0}, "requests is 0, expected 1"),
        ({"warmups": -1}, "warm-ups is -1, expected 0"),
        ({"blocks": 0}, "blocks is 0"),
        ({"loads": [PlannedLoad(concurrency=0)]}, "concurrency is 0"),
        (
            {"loads": [PlannedLoad(concurrency=8), PlannedLoad(concurrency=8)]},
            "c8 is given more than once",
        ),
        ({"loads": []}, "nothing to measure"),
        ({"targets": {}}, "nothing to measure"),
        ({"loads": [PlannedLoad(rate=-1)]}, "rate is -1"),
        ({"loads": [PlannedLoad(rate=math.nan)]}, "rate is nan"),
    ],
)
def test_invalid_plan_is_refused(change: dict[str, Any], complaint: str) -> None:
    asked: dict[str, Any] = {
        "targets": {"a": HOSTS[0]},
        "loads": [PlannedLoad(concurrency=1)],
        "requests": 5,
        **change,
    }
    targets, loads = asked.pop("targets"), asked.pop("loads")
    with pytest.raises(CallerFault, match=complaint):
        make_plan(targets, loads, PlanSettings(**asked))


@given(
    st.integers(1, 3000),
    st.integers(0, 3000),
    st.integers(0, 999),
    st.integers(1, 2000),
    st.integers(1, 8),
)
def test_slices_of_a_closed_loop_add_up(
    requests: int, warmups: int, cooldowns: int, concurrency: int, most: int
) -> None:
    block = RequestBlock(
        condition="c",
        target="t",
        requests=requests,
        warmups=warmups,
        cooldowns=cooldowns,
        concurrency=concurrency,
        first=7,
    )
    parts = slices(block, most)
    assert len(parts) <= most
    assert sum(part.concurrency or 0 for part in parts) == concurrency
    assert sum(part.requests for part in parts) == requests
    assert sum(part.warmups for part in parts) == warmups
    assert sum(part.cooldowns for part in parts) == cooldowns
    assert sorted(number for part in parts for number in numbers(part)) == list(numbers(block))
    if concurrency <= 256:
        assert parts == [block]


@given(
    st.lists(st.integers(0, 60 * NS_PER_S), min_size=1, max_size=2000).map(sorted),
    st.integers(1, 8),
)
def test_slices_of_an_open_loop_keep_every_due_time(due: list[int], most: int) -> None:
    block = RequestBlock(condition="c", target="t", requests=len(due), due=due)
    parts = slices(block, most)
    assert sorted(offset for part in parts for offset in part.due) == due
    assert all(len(part.due) == part.requests for part in parts)
    assert sorted(number for part in parts for number in numbers(part)) == list(numbers(block))


def test_an_open_loop_of_many_streams_is_sliced() -> None:
    due = [n * NS_PER_S // 200 for n in range(2000)]
    assert len(slices(RequestBlock(condition="c", target="t", requests=2000, due=due), 8)) == 4


def test_a_plan_travels_as_json() -> None:
    made = make_plan(
        {"a": HOSTS[0]},
        [PlannedLoad(concurrency=8), PlannedLoad(rate=2.5)],
        PlanSettings(requests=50),
    )
    assert msgspec.json.decode(msgspec.json.encode(made), type=RunPlan) == made


def test_targets_that_are_left_out_keep_their_rows() -> None:
    targets = {"a": HOSTS[0], "b": HOSTS[1], "c": HOSTS[0]}
    made = make_plan(
        targets, [PlannedLoad(concurrency=2)], PlanSettings(requests=20, side_by_side=True)
    )
    left = without(made, {"b", "c"})
    assert left.conditions == made.conditions
    assert left.lanes == [[block for block in made.lanes[0] if block.target == "a"]]
    assert without(made, set(targets)).lanes == []
    assert without(made, {"another"}) == made
