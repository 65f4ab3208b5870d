"""The doubly robust estimate beside the exact expectation of a known bandit, and over logs."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks import bandit_oracle as oracle
from msgspec.structs import replace
from tests.replay.logs import alternating, write
from tests.replay.test_what_if import ONLY_A, TODAY, asked, read

from splitsecond.core.service import RoutingChoice
from splitsecond.core.timing.columns import Integers
from splitsecond.replay.figures import Outcomes
from splitsecond.replay.robust import RobustOutcomes, Weights, first_targets

CALLS = 40_000
ODDS_OF_A = (0.8, 0.3)
"""Of easy and of hard calls."""
MS = ((100.0, 200.0), (400.0, 900.0))
"""Times at a and b of easy calls, then of hard ones."""


def outcomes(ms: np.ndarray, target: Integers) -> Outcomes:
    calls = len(ms)
    return Outcomes(
        ttft_ms=ms, total_ms=ms, usd=ms / 1000, failed=np.zeros(calls, bool), target=target
    )


def bandit(odds_ppm: Integers | None = None) -> tuple[RobustOutcomes, Outcomes, Weights]:
    """Return what is known of the policy "always a". Hard calls mostly went to b; the direct method
    sees no difficulty, and draws for calls that went to b from all that went to a."""
    random = np.random.default_rng(1)
    hard = (random.random(CALLS) < 0.5).astype(np.int64)
    odds = np.array(ODDS_OF_A)[hard]
    logged = (random.random(CALLS) >= odds).astype(np.int64)
    at_a = np.array(MS)[hard, 0] * random.lognormal(0, 0.1, CALLS)
    always_a = np.zeros(CALLS, np.int64)
    drawn = random.choice(at_a[logged == 0], CALLS)
    chance = np.round(np.where(logged == 0, odds, 1 - odds) * 1e6).astype(np.int64)
    weights = Weights(chance if odds_ppm is None else odds_ppm, (logged, always_a, always_a))
    own = outcomes(np.where(logged == 0, at_a, drawn), always_a)
    return RobustOutcomes(outcomes(drawn, always_a), own, weights), own, weights


def test_the_estimate_is_the_expectation_where_the_direct_is_not() -> None:
    robust, direct, weights = bandit()
    every = np.ones(CALLS, bool)
    ttft_p50, ttft_p95, _, _, usd, failed, at_a, at_b = robust.figures(every, 2)
    expected = 1000 * (0.5 * 0.1 + 0.5 * 0.4) * np.exp(0.005)
    assert usd == pytest.approx(expected, rel=0.02)
    assert direct.figures(every, 2)[4] < 0.9 * expected
    assert ttft_p95 == pytest.approx(400 * np.exp(0.1 * 1.2816), rel=0.03)  # 90% of the hard calls
    assert 130 < ttft_p50 < 320  # between the easy and the hard calls
    assert (failed, at_a, at_b) == pytest.approx((0, 1, 0), abs=1e-9)
    assert CALLS / 4 < weights.effective_calls(every) < CALLS
    assert weights.refusal(every) == ""


def test_means_are_those_of_the_open_bandit_pipeline() -> None:
    found, calls = oracle.bandit(), np.ones(oracle.CALLS, bool)
    always_0, chance = np.zeros(oracle.CALLS, np.int64), np.round(found["odds"] * 1e6)
    weights = Weights(chance.astype(np.int64), (found["target"], always_0, always_0))
    own = np.where(found["target"] == 0, found["reward"], found["by_model"])
    usd = {
        model: RobustOutcomes(
            outcomes(by_model * 1000, always_0), outcomes(own * 1000, always_0), weights
        ).figures(calls, 2)[4]
        / 1000
        for model, by_model in (("of prompts", found["by_model"]), ("none", 0 * found["by_model"]))
    }
    direct = outcomes(found["by_model"] * 1000, always_0).figures(calls, 2)[4] / 1000
    # by obp 0.4.1: `python -m benchmarks.bandit_oracle`
    assert direct == pytest.approx(0.165041, abs=1e-6)
    assert usd["none"] == pytest.approx(0.21962625, abs=1e-8)
    assert usd["of prompts"] == pytest.approx(0.21961933333, abs=1e-8)


def test_unknown_or_tiny_probabilities_are_refused() -> None:
    every = np.ones(CALLS, bool)
    _, _, unknown = bandit(np.zeros(CALLS, np.int64))
    assert unknown.refusal(every).endswith("choice of 0% of the calls")
    _, _, tiny = bandit(np.full(CALLS, 100))
    assert "few calls would count for most" in tiny.refusal(every)


def test_the_first_target_is_that_of_the_first_attempt() -> None:
    call, target, at = (np.array(each) for each in ([2, 0, 2, 0], [1, 0, 0, 1], [5, 9, 3, 1]))
    assert first_targets(call, target, at, 3).tolist() == [1, -1, 0]


def test_an_answer_tells_whether_probabilities_agree(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    records = alternating(800)
    write(file, [replace(each, choice=RoutingChoice(0, 3, 0.5)) for each in records])
    (answer,) = asked(read(file), ONLY_A).answers
    assert answer.robust.refused == ""
    assert answer.robust.effective_calls == pytest.approx(400)
    assert answer.robust.differs == []
    assert {each.name for each in answer.robust.figures} == {each.name for each in answer.figures}


def test_a_log_without_probabilities_has_the_direct_method(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/log.db"
    write(file, alternating(800))
    (answer,) = asked(read(file), ONLY_A, today=TODAY).answers
    assert "0% of the calls" in answer.robust.refused
    assert answer.robust.figures == []
