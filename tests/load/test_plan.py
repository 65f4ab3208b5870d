"""The plan: every request exactly once, every target in every round, loads in the order asked."""

import math
from collections import Counter
from itertools import groupby

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitsecond.clock import NS_PER_S
from splitsecond.errors import CallerFault
from splitsecond.load.block import Block
from splitsecond.load.plan import Load, Plan, make_plan, slices, without

HOSTS = ("https://a.example/v1", "https://b.example/v1", "https://b.example:8443/v1")
targets = st.dictionaries(
    st.from_regex(r"[a-z]{1,5}/m", fullmatch=True), st.sampled_from(HOSTS), min_size=1, max_size=5
)
closed = st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True).map(
    lambda levels: [Load(concurrency=c) for c in levels]
)
opened = st.floats(0.1, 50).map(lambda rate: [Load(rate=rate)])


def numbers(block: Block) -> range:
    total = block.warmups + block.requests
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
    loads: list[Load],
    requests: int,
    warmups: int | None,
    blocks: int | None,
    side_by_side: bool,
    cache_reuse: bool,
    seed: int,
) -> None:
    def plan() -> Plan:
        return make_plan(
            targets,
            loads,
            requests=requests,
            warmups=warmups,
            blocks=blocks,
            side_by_side=side_by_side,
            cache_reuse=cache_reuse,
            seed=seed,
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
        assert {block.cache_reuse for block in mine} == {condition.cache_reuse}
        sent = [number for block in mine for number in numbers(block)]
        assert sent == list(range(len(sent)))
        assert [block.opening for block in mine] == [True] + [False] * (len(mine) - 1)
        assert all(
            len(block.due) == (block.warmups + block.requests) * (condition.load.rate is not None) for block in mine
        )
    for lane in made.lanes:
        order = [block.condition.split("@")[1].removesuffix("-reuse") for block in lane]
        assert [label for label, _ in groupby(order)] == [load.label for load in loads]
        units = {(block.target, block.cache_reuse) for block in lane}
        assert len(units) == len({block.target for block in lane}) * len(ways)
        for start in range(0, len(lane), len(units)):
            assert {(block.target, block.cache_reuse) for block in lane[start : start + len(units)]} == units
    assert len(made.lanes) == (len({url.split("/")[2] for url in targets.values()}) if side_by_side else 1)


def test_default_blocks_are_no_shorter_than_the_concurrency() -> None:
    made = make_plan({"a/m": HOSTS[0], "b/m": HOSTS[1]}, [Load(concurrency=c) for c in (1, 8, 32)], requests=50)
    counts = Counter(block.condition for block in made.lanes[0])
    assert counts == {"a/m@c1": 4, "b/m@c1": 4, "a/m@c8": 4, "b/m@c8": 4, "a/m@c32": 1, "b/m@c32": 1}
    assert {block.requests for block in made.lanes[0] if block.concurrency == 8} == {12, 13}
    assert {block.warmups for block in made.lanes[0] if block.concurrency == 8} == {8}


def test_a_target_alone_in_its_lane_runs_in_one_block() -> None:
    for hosts in ({"a/m": HOSTS[0]}, {"a/m": HOSTS[0], "b/m": HOSTS[1]}):
        made = make_plan(hosts, [Load(concurrency=1)], requests=50, side_by_side=True)
        assert [len(lane) for lane in made.lanes] == [1] * len(hosts)


def test_the_two_ways_of_one_target_take_turns_and_something_fills_the_cache() -> None:
    for asked, warmups in ((None, 2), (0, 1), (3, 3)):
        made = make_plan({"a/m": HOSTS[0]}, [Load(concurrency=2)], requests=40, warmups=asked, cache_reuse=True)
        (lane,) = made.lanes
        assert [block.cache_reuse for block in lane[:2]] in ([False, True], [True, False])
        assert Counter(block.condition for block in lane) == {"a/m@c2": 4, "a/m@c2-reuse": 4}
        assert {block.warmups for block in lane} == {warmups}
        assert [(c.requests, c.warmups, c.cache_reuse) for c in made.conditions] == [
            (40, 4 * warmups, False), (40, 4 * warmups, True)
        ]  # fmt: skip


def test_rounds_are_in_different_orders() -> None:
    names = dict.fromkeys("abcdef", HOSTS[0])
    lane = make_plan(names, [Load(concurrency=1)], requests=100, blocks=4).lanes[0]
    assert len({tuple(block.target for block in lane[i : i + 6]) for i in range(0, 24, 6)}) > 1


def test_targets_of_one_round_get_the_same_arrivals_and_rounds_others() -> None:
    lane = make_plan({"a": HOSTS[0], "b": HOSTS[0]}, [Load(rate=5)], requests=100, blocks=2).lanes[0]
    assert lane[0].due == lane[1].due != lane[2].due == lane[3].due


def test_a_trace_is_kept_whole_and_without_warmups() -> None:
    made = make_plan({"a": HOSTS[0], "b": HOSTS[0]}, [Load(trace=[0, 5, 9])], requests=50, blocks=4, warmups=3)
    assert [(block.due, block.requests, block.warmups) for block in made.lanes[0]] == [([0, 5, 9], 3, 0)] * 2
    assert made.conditions[0].requests == 3
    assert make_plan({"a": HOSTS[0]}, [Load(trace=[0, 5, 9])], requests=2).lanes[0][0].due == [0, 5]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"requests": 0}, "requests is 0, expected 1"),
        ({"warmups": -1}, "warm-ups is -1, expected 0"),
        ({"blocks": 0}, "blocks is 0"),
        ({"loads": [Load(concurrency=0)]}, "concurrency is 0"),
        ({"loads": [Load(concurrency=8), Load(concurrency=8)]}, "c8 is asked for more than once"),
        ({"loads": []}, "nothing to measure"),
        ({"targets": {}}, "nothing to measure"),
        ({"loads": [Load(rate=-1)]}, "rate is -1"),
        ({"loads": [Load(rate=math.nan)]}, "rate is nan"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, object], complaint: str) -> None:
    asked: dict[str, object] = {"targets": {"a": HOSTS[0]}, "loads": [Load(concurrency=1)], "requests": 5, **change}
    with pytest.raises(CallerFault, match=complaint):
        make_plan(**asked)  # type: ignore[arg-type]


@given(st.integers(1, 3000), st.integers(0, 3000), st.integers(1, 2000), st.integers(1, 8))
def test_slices_of_a_closed_loop_add_up(requests: int, warmups: int, concurrency: int, most: int) -> None:
    block = Block(condition="c", target="t", requests=requests, warmups=warmups, concurrency=concurrency, first=7)
    parts = slices(block, most)
    assert len(parts) <= most
    assert sum(part.concurrency or 0 for part in parts) == concurrency
    assert sum(part.requests for part in parts) == requests
    assert sum(part.warmups for part in parts) == warmups
    assert sorted(number for part in parts for number in numbers(part)) == list(numbers(block))
    if concurrency <= 256:
        assert parts == [block]


@given(st.lists(st.integers(0, 60 * NS_PER_S), min_size=1, max_size=2000).map(sorted), st.integers(1, 8))
def test_slices_of_an_open_loop_keep_every_due_time(due: list[int], most: int) -> None:
    block = Block(condition="c", target="t", requests=len(due), due=due)
    parts = slices(block, most)
    assert sorted(offset for part in parts for offset in part.due) == due
    assert all(len(part.due) == part.requests for part in parts)
    assert sorted(number for part in parts for number in numbers(part)) == list(numbers(block))


def test_an_open_loop_of_many_streams_is_sliced() -> None:
    due = [n * NS_PER_S // 200 for n in range(2000)]
    assert len(slices(Block(condition="c", target="t", requests=2000, due=due), 8)) == 4


def test_a_plan_travels_as_json() -> None:
    made = make_plan({"a": HOSTS[0]}, [Load(concurrency=8), Load(rate=2.5)], requests=50)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Plan) == made


def test_targets_that_are_left_out_keep_their_rows() -> None:
    targets = {"a": HOSTS[0], "b": HOSTS[1], "c": HOSTS[0]}
    made = make_plan(targets, [Load(concurrency=2)], requests=20, side_by_side=True)
    left = without(made, {"b", "c"})
    assert left.conditions == made.conditions
    assert left.lanes == [[block for block in made.lanes[0] if block.target == "a"]]
    assert without(made, set(targets)).lanes == []
    assert without(made, {"another"}) == made
