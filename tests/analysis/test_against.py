"""Production speed against a run or published figures: verdicts, and what could explain them."""

from typing import Any

import numpy as np
import pytest
from benchmarks.production import SimulatedTarget, log_of
from msgspec.structs import replace
from tests.cases import each_case
from tests.power import repeated

from splitsecond.core.wording import full
from splitsecond.log.production.against import (
    KnownFigure,
    KnownSpeed,
    SpeedAgainst,
    against_statements,
    published_speeds,
    speeds_against,
)
from splitsecond.log.production.speed import ProductionSpeed
from splitsecond.log.statistics.summary import Summary


def median(value: float, error: float = 0.03) -> Summary:
    return Summary(
        n=900, p50=value, ci95={"p50": (value * (1 - error), value * (1 + error))}, rounds=5
    )


def served(ttft_ms: float = 400, tps: float = 200, name: str = "groq/m") -> ProductionSpeed:
    return ProductionSpeed(
        name=name, requests=900, answered=900, failed=0, closed=0, grade=None,
        total_tps=median(tps * 0.8), tps=median(tps), ttft_ms=median(ttft_ms),
        input_tokens=500.0, output_tokens=200.0, in_flight=1.0, periods=14, period="day",
        token_source={"usage": 900},
    )  # fmt: skip


def known(ttft_ms: float = 400, tps: float = 200, **changes: object) -> KnownSpeed:
    figures = {"ttft_ms": median(ttft_ms), "tps": median(tps)}
    found = KnownSpeed(
        target="groq/m", source="runs/monday of 2026-11-20", load="at concurrency 1",
        figures={name: each for name, s in figures.items() if (each := KnownFigure.of(s))},
        in_flight=1.0, input_tokens=500.0, output_tokens=200.0, token_source="usage",
    )  # fmt: skip
    return replace(found, **changes)


def one(speed: ProductionSpeed, other: KnownSpeed) -> SpeedAgainst:
    (found,) = speeds_against([speed], [other])
    return found


@each_case(
    ("ttft_ms", "tps", "verdict"),
    [
        (600, 200, "slower"),
        (400, 150, "slower"),
        (300, 200, "faster"),
        (404, 198, "same"),
        (600, 300, "unclear"),  # a later first token, but faster then
    ],
)
def test_verdict_of_both_figures(ttft_ms: float, tps: float, verdict: str) -> None:
    assert one(served(ttft_ms, tps), known()).verdict == verdict


def test_ratio_combines_both_intervals() -> None:
    found = one(served(600), known()).figures[0]
    assert (found.figure, found.verdict) == ("ttft_ms", "slower")
    assert found.ratio == pytest.approx(1.5)
    half = np.log(1.03 / 0.97) / 2 * np.sqrt(2)
    assert found.ci95 == pytest.approx((1.5 * np.exp(-half), 1.5 * np.exp(half)))


def test_statement_has_the_values_and_the_ratio() -> None:
    said = one(served(600, 199), known()).statement
    assert said.startswith(
        "groq/m in production, against runs/monday of 2026-11-20 at concurrency 1: "
        "TTFT slower, 600 against 400 ms (1.50 times, 95% interval 1.44 to 1.57); "
        "TPS the same within "
    )


@each_case(
    ("changes", "words"),
    [
        ({"input_tokens": 60.0}, "prompts have 500 against 60 tokens"),
        ({"token_source": "events"}, "tokens are counted by usage against events"),
        ({"few_rounds": True}, "the run has fewer than five rounds"),
        ({"input_tokens": 5000.0}, ""),  # longer there: no excuse for a later first token here
        ({"in_flight": 32.0}, ""),
        ({"in_flight": 0.9}, ""),  # a request is never alone with less than itself
    ],
)
def test_what_could_explain_a_slower_ttft(changes: dict[str, Any], words: str) -> None:
    found = one(replace(served(600), in_flight=0.2), known(**changes))
    assert (words in " ".join(found.differs)) if words else not found.differs
    assert ("This may explain it" in found.statement) == bool(words)


@each_case(
    ("figure", "verdict", "words"),
    [
        (KnownFigure(None, 300, float("inf")), "slower", "200 against over 300"),
        (KnownFigure(None, 0, 100), "faster", "200 against under 100"),
        (KnownFigure(None, 150, 250), "same", "within the published range, 200 against 150 to 250"),
        (KnownFigure(205), "same", "the same within"),
        (KnownFigure(None, 198, 240), "same", "within"),
    ],
)
def test_published_range(figure: KnownFigure, verdict: str, words: str) -> None:
    found = one(served(), known(figures={"tps": figure}))
    assert found.verdict == verdict
    assert words in found.statement


def test_load_in_production_could_explain_it() -> None:
    found = one(replace(served(600), in_flight=8.0), known())
    assert found.differs == ["the load is 8 against 1 requests at a time"]


def test_without_an_interval_there_is_no_verdict() -> None:
    few = replace(served(900), ttft_ms=Summary(n=3, p50=900.0))
    found = one(few, known(figures={"ttft_ms": KnownFigure(100.0, 90.0, 110.0)}))
    assert found.verdict == "unclear"
    assert "TTFT cannot tell yet" in found.statement


def test_one_sentence_for_all_targets_comes_first() -> None:
    names = {"groq/m": 600.0, "a/m": 400.0, "b/m": 200.0}
    speeds = [served(ttft, name=name) for name, ttft in names.items()]
    found = speeds_against(speeds, [known(target=name) for name in names])
    assert full(against_statements(found))[0] == (
        "Slower in production: groq/m; faster: b/m; the same: a/m."
    )
    *_, last = full(against_statements(found, [*names, "c/m"]))
    assert last == "Not compared, as only the log has them: c/m."


def test_published_speeds_of_the_same_model_and_provider() -> None:
    found = published_speeds(["azure/gpt-4o", "own/gpt-4o", "gemini/gemini-1.5-flash", "plain"])
    assert {each.target for each in found} == {"azure/gpt-4o", "gemini/gemini-1.5-flash"}
    groq = published_speeds(["groq/llama-3.1-70b-versatile"])
    assert [(each.load, each.figures["ttft_ms"].value) for each in groq] == [
        ("at concurrency 1", 230)
    ]


@repeated(40, 200)
def test_equal_speeds_rarely_have_a_verdict(repeats: int) -> None:
    """A fortnight of a target whose true median is 60 total tokens/s, against a run with the same
    truth and an error of 3%: at most about one report in twenty names a difference."""
    different = 0
    for seed in range(repeats):
        random = np.random.default_rng([seed, 11])
        (speed,) = log_of(random, 14, SimulatedTarget("groq/m")).speeds()
        measured = 60 * float(np.exp(random.normal(0, 0.03)))
        bounds = (measured * float(np.exp(-1.96 * 0.03)), measured * float(np.exp(1.96 * 0.03)))
        figures = {"total_tps": KnownFigure(measured, *bounds)}
        different += one(speed, known(figures=figures)).verdict in ("slower", "faster")
    assert different <= 0.1 * repeats
