"""The arms of a split beside the truth, over keys that differ from each other."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from tests.power import repeated
from tests.replay.logs import record, write
from tests.replay.splits import compared, info, split_log
from tests.replay.test_what_if import asked, read

from splitsecond.core.errors import CallerFault
from splitsecond.core.service import RoutingChoice
from splitsecond.core.session import CallSession
from splitsecond.log.statistics.reassignment import DEALS, Reassignment
from splitsecond.log.store.call_record import CallRecord
from splitsecond.replay.arms import ArmChange, SplitComparison, compare_arms
from splitsecond.replay.history import CANCELLED
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.split import in_second, seed_of

TIMES = ("ttft_p50_ms", "ttft_p95_ms", "total_p50_ms", "total_p95_ms")
SPLIT = 'split("a/m", "b/m", share=0.5)'


def figures(found: SplitComparison) -> dict[str, ArmChange]:
    return {each.name: each for each in found.figures}


@repeated(6, 100)
def test_equal_arms_of_different_keys_rarely_differ(repeats: int) -> None:
    alarms, by_calls = 0, 0
    for seed in range(repeats):
        logged = split_log(seed, keys=60, calls=2000)
        found = compared(logged)
        alarms += any(each.verdict in ("better", "worse") for each in found.figures)
        ttft = [logged.calls.first_token_ns[logged.calls.choice == arm] for arm in (0, 1)]
        means, errors = zip(
            *((np.log(each[each > 0]).mean(), np.log(each[each > 0]).std()) for each in ttft),
            strict=True,
        )
        by_calls += abs(means[1] - means[0]) > 1.96 * np.hypot(*errors) / 1000**0.5
    assert alarms <= max(repeats * 0.08, 1)
    assert by_calls > repeats / 2  # single calls would be taken for evidence


@repeated(4, 60)
def test_the_interval_has_the_true_change(repeats: int) -> None:
    inside = [
        low - 1e-9 <= 0.3 <= high
        for seed in range(repeats)
        for each in compared(split_log(seed, keys=100, calls=2000, slower=1.3)).figures
        if each.name in TIMES and each.ci95 is not None
        for low, high in [each.ci95]
    ]
    assert len(inside) >= 3.8 * repeats  # with a heavy key left out, a p95 may be among failures
    assert np.mean(inside) >= 0.93


def test_a_large_difference_is_better_or_worse() -> None:
    slower = figures(compared(split_log(1, keys=3000, calls=6000, differ=0.2, slower=1.3)))
    faster = figures(compared(split_log(1, keys=3000, calls=6000, differ=0.2, slower=0.7)))
    assert {slower[name].verdict for name in TIMES} == {"worse"}
    assert {faster[name].verdict for name in TIMES} == {"better"}
    assert slower["ttft_p50_ms"].change == pytest.approx(0.3, abs=0.06)


def test_failures_of_an_arm_are_seen() -> None:
    found = figures(compared(split_log(1, keys=3000, calls=6000, failures=(0.01, 0.05))))
    assert found["failed"].verdict == "worse"
    assert found["failed"].change == pytest.approx(0.04, abs=0.01)


def test_equal_arms_of_many_units_are_the_same() -> None:
    logged = split_log(3, keys=12_000, calls=12_000, differ=0.1)
    found = figures(compared(logged, within=0.1))
    assert found["total_p50_ms"].verdict == "same"
    assert figures(compared(logged, within=0.01))["total_p50_ms"].verdict == "cannot tell"


def test_the_smallest_change_that_would_be_seen() -> None:
    few, many = (
        figures(compared(split_log(1, keys=keys, calls=3000)))["total_p50_ms"].detectable
        for keys in (60, 3000)
    )
    assert few is not None
    assert many is not None
    assert 0.05 < many < 0.2 < few


def test_a_few_keys_are_refused() -> None:
    found = compared(split_log(1, keys=10))
    assert "8 are needed" in found.refused
    assert {each.verdict for each in found.figures} == {"cannot tell"}
    assert found.figures[0].first is not None


def test_clients_that_left_are_a_figure_of_their_own() -> None:
    logged = split_log(1, keys=3000, calls=6000)
    assert "client_left" not in figures(compared(logged))
    logged.calls.outcome[(logged.calls.choice == 1) & (np.arange(6000) % 10 == 0)] = CANCELLED
    left = figures(compared(logged))["client_left"]
    assert (left.first, left.verdict) == (0.0, "worse")


def test_calls_that_another_share_sent_are_refused() -> None:
    with pytest.raises(CallerFault, match="went to another arm") as raised:
        compared(split_log(1, share=0.1), share=0.5)
    assert "--since" in raised.value.hint
    with pytest.raises(CallerFault, match="another arm"):
        compared(split_log(1), route="another")


def test_calls_of_an_arm_that_explores_are_compared_too() -> None:
    logged = split_log(1)
    logged.calls.choice_ppm[logged.calls.choice == 1] = 0  # it has a fastest, whose odds are none
    assert compared(logged) == compared(split_log(1))


def test_whole_answers_have_no_ttft() -> None:
    logged = split_log(1)
    logged.calls.stream[:] = 0
    found = figures(compared(logged))
    assert "ttft_p50_ms" not in found
    assert found["total_p50_ms"].change is not None


def test_a_policy_without_a_split_is_refused() -> None:
    with pytest.raises(CallerFault, match="is no split"):
        compare_arms(split_log(1), parse('"a/m"'), info, route="chat", within=0.05)


def test_sessions_of_a_log_are_units(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    write(file, sessions(120, turns=3))
    found = compare_arms(
        read(file), parse(f"fallback({SPLIT}, 'c/m')"), info, route="chat", within=0.5
    )
    assert [arm.calls for arm in found.arms] == [3 * arm.units for arm in found.arms]
    assert sum(arm.units for arm in found.arms) == 120
    assert found.others == 0
    assert figures(found)["ttft_p50_ms"].verdict == "worse"  # 400 ms for 300 ms


def sessions(count: int, *, turns: int) -> list[CallRecord]:
    """Return calls of sessions that `SPLIT` sent. The id of a session has 16 hexadecimal digits."""
    seed, found = seed_of("chat", [["a/m"], ["b/m"]]), []
    for number in range(count):
        session = f"{(number + 1) * 0x9E3779B97F4A7C15 % (1 << 64):016x}"
        place = int(in_second(seed, f"session {session}", 0.5))
        arm = {
            "session": CallSession(id=session, source="test"),
            "choice": RoutingChoice(place, 3, 0.5),
        }
        found += [
            replace(
                record(
                    number * turns + turn,
                    ("a/m", "b/m")[place],
                    3600 - number - 3 * turn,
                    1 + turn / 50,
                ),
                **arm,
            )
            for turn in range(turns)
        ]
    return found


def test_dealt_quantiles_are_those_of_the_dealt_units() -> None:
    random = np.random.default_rng(1)
    unit = random.integers(0, 20, 500)
    values, second = random.lognormal(0, 1, 500), unit % 4 == 0
    values[::7] = np.nan
    dealt = Reassignment(np.unique(unit, return_inverse=True)[1], second)
    (sizes,) = dealt.of_quantiles(values, [0.5])
    deals = random.permuted(np.tile(np.arange(20) % 4 == 0, (DEALS, 1)), axis=1)
    expected = []
    for deal in deals:
        both = [values[deal[unit] == arm] for arm in (False, True)]
        ranks = [np.sort(each[~np.isnan(each)]) for each in both]
        first, other = (each[int(np.ceil(0.5 * len(each))) - 1] for each in ranks)
        expected.append(abs(np.log(other / first)))
    assert np.median(sizes) == pytest.approx(np.median(expected), rel=0.15)
    assert np.quantile(sizes, 0.95) == pytest.approx(np.quantile(expected, 0.95), rel=0.15)


def test_a_split_can_be_replayed(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    write(file, sessions(200, turns=3))
    answer = asked(read(file), 'fallback("a/m", "b/m")', today=SPLIT)
    assert answer.identity.agrees
    shares = {each.name: each for each in answer.identity.figures}
    assert shares["a/m"].what_if == shares["a/m"].today  # each session goes where it went
