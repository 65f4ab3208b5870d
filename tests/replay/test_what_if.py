"""Another policy over a log whose targets have known speeds."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.cases import each_case
from tests.replay.logs import TTFT_MS, alternating, write

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.log.store.log import PARQUET, Past
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.replay.answer import LEFT_OUT, WhatIf, what_if
from splitsecond.replay.exploration import exploration
from splitsecond.replay.history import Basis
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_info import TargetInfo

TODAY = 'weighted("a/m", "b/m")'
ONLY_A = 'fallback("a/m", "b/m")'
HEDGE = 'hedge("a/m", "b/m")'


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("log") / "log.db"
    write(f"sqlite:///{file}", alternating(800))
    return file


def read(url: str, route: str = "chat") -> RequestColumns:
    until_us = round((clock.wall_time() + timedelta(minutes=1)).timestamp() * 1e6)
    return Past.open(url).requests(route, [(0, until_us)])


@pytest.fixture(scope="module")
def logged(log: Path) -> RequestColumns:
    return read(f"sqlite:///{log}")


def info(name: str) -> TargetInfo:
    return TargetInfo(
        provider=name, price=Price(input_usd=1.0, output_usd=2.0 if name == "a/m" else 4.0)
    )


def asked(
    logged: RequestColumns, *policies: str, today: str = TODAY, any_load: bool = True
) -> WhatIf:
    return what_if(
        logged,
        parse(today),
        [parse(each) for each in policies],
        info,
        route="chat",
        any_load=any_load,
    )


@pytest.fixture(scope="module")
def found(logged: RequestColumns) -> WhatIf:
    """The answer for two policies."""
    return asked(logged, ONLY_A, HEDGE)


def test_another_policy_has_the_figures_of_its_target(found: WhatIf) -> None:
    assert found.identity.agrees
    answer, _ = found.answers
    figures = {each.name: each for each in answer.figures}
    assert answer.coverage.share == 1.0
    assert figures["ttft_p50_ms"].what_if == pytest.approx(TTFT_MS["a/m"], rel=0.03)
    assert figures["ttft_p95_ms"].what_if == pytest.approx(TTFT_MS["a/m"] * 1.165, rel=0.03)
    assert figures["total_p50_ms"].what_if == pytest.approx(TTFT_MS["a/m"] + 390, rel=0.03)
    assert figures["usd_per_1000"].what_if == pytest.approx(0.58)  # 500 × $1 + 40 × $2 per million
    assert figures["usd_per_1000"].today == pytest.approx((0.58 + 0.66) / 2)
    assert (figures["a/m"].today, figures["a/m"].what_if) == (0.5, 1.0)
    low, high = figures["ttft_p50_ms"].ci95
    assert low is not None
    assert high is not None
    assert low < figures["ttft_p50_ms"].what_if - figures["ttft_p50_ms"].today < high < 0  # type: ignore[operator]
    assert figures["ttft_p50_ms"].is_real


def test_another_policy_than_that_of_the_log_has_no_answer(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    write(file, alternating(200))
    found = asked(read(file), ONLY_A, today=ONLY_A)
    assert "a/m" in found.identity.differs
    assert found.answers == []


def test_more_calls_than_a_target_ever_had_are_left_out(logged: RequestColumns) -> None:
    (answer,) = asked(logged, ONLY_A, any_load=False).answers
    assert answer.refused
    assert answer.figures == []
    assert LEFT_OUT[Basis.LOAD] in answer.coverage.left_out


def test_a_log_without_similar_attempts_has_no_answer(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    write(file, alternating(800, hours=100.0))
    found = asked(read(file), ONLY_A)
    assert found.answers == []
    assert found.identity.coverage.share == 0.0
    assert found.identity.coverage.left_out == {LEFT_OUT[Basis.FEW]: 800}


@each_case(
    "policy, kind, word",
    [
        ('by_complexity(simple="a/m", complex="b/m")', "not_replayable", "reads prompts"),
        ('race("a/m", "b/m", by="total")', "not_replayable", "reads answers"),
        ('fallback("a/m", "b/m", stall="5s")', "not_replayable", "tokens"),
        ('race("a/m", "c/m")', "never_asked", "no attempt at c/m"),
    ],
)
def test_policies_that_cannot_be_replayed_are_refused(
    logged: RequestColumns, policy: str, kind: str, word: str
) -> None:
    with pytest.raises(CallerFault, match=word) as raised:
        asked(logged, policy)
    assert raised.value.kind == kind


def test_fewer_calls_than_figures_need_are_refused(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    write(file, alternating(50))
    with pytest.raises(CallerFault, match="50 calls"):
        asked(read(file), ONLY_A)


def test_failures_are_drawn_too(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    records = alternating(800)
    failing = alternating(800, fails_at="b/m")
    # a fifth of the calls at b
    write(file, [failing[n] if n % 10 == 1 else records[n] for n in range(800)])
    found = asked(read(file), 'race("a/m", "b/m")')
    figures = {each.name: each for each in found.answers[0].figures}
    assert figures["failed"].today == pytest.approx(0.1)
    assert figures["failed"].what_if == 0.0  # the other branch answers


def test_several_policies_are_adjusted_together(found: WhatIf, logged: RequestColumns) -> None:
    alone = asked(logged, HEDGE).answers[0].figures[0]
    together = found.answers[1].figures[0]
    assert alone.p_value is not None
    assert together.p_value == pytest.approx(2 * alone.p_value)


def test_parquet_has_the_same_columns(log: Path, logged: RequestColumns, tmp_path: Path) -> None:
    past, epoch = Past.open(f"sqlite:///{log}"), datetime.fromtimestamp(0, clock.wall_time().tzinfo)
    past.export(tmp_path / "exported", epoch, clock.wall_time() + timedelta(minutes=1))
    exported = read(f"{PARQUET}{tmp_path}/exported")
    for part in ("calls", "attempts"):
        ours, theirs = getattr(logged, part), getattr(exported, part)
        for name in ours.__struct_fields__:
            assert getattr(ours, name).tolist() == getattr(theirs, name).tolist(), name
    assert exported.targets == logged.targets
    both = [past, Past.open(f"{PARQUET}{tmp_path}/exported")]
    until = clock.wall_time() + timedelta(minutes=1)
    by_hour, exported_by_hour = (each.calls_by_hour("chat", epoch, until) for each in both)
    routes, exported_routes = (each.routes(epoch, until) for each in both)
    assert (exported_by_hour, exported_routes) == (by_hour, routes)


def test_hours_are_counted_and_routes_are_listed(log: Path) -> None:
    past = Past.open(f"sqlite:///{log}")
    until = clock.wall_time() + timedelta(minutes=1)
    hours = past.calls_by_hour("chat", until - timedelta(days=1), until)
    assert sum(count for _, count in hours) == 800
    assert len(hours) in (3, 4)
    assert past.routes(until - timedelta(days=1), until) == [("chat", 800)]


def test_exploration_names_a_route_and_the_share_it_needs(logged: RequestColumns) -> None:
    found = exploration(logged, parse(TODAY), parse(ONLY_A), 0.01, 800)
    assert found.route == f'weighted({TODAY}, weighted("a/m", "b/m"), weights="99,1")'
    assert found.explored == ["a/m", "b/m"]
    assert found.per_day == pytest.approx(64, rel=0.01)
    assert found.coverage == 0.0  # 267 calls an hour, of which each target gets 1.3
    assert found.needed == 0.1
