"""What a row says of a load, and what the rows of a search say together, in sentences."""

from typing import Any

import msgspec
import pytest
from tests.analysis.made import closed_loop, failure, request, row

from splitsecond.analysis.asked import AskedCondition
from splitsecond.analysis.capacity import capacity_of, judge
from splitsecond.analysis.capacity_statements import capacity_statements
from splitsecond.analysis.findings import ConditionFindings, Goodput
from splitsecond.analysis.run import summarise
from splitsecond.analysis.slo import parse_slo
from splitsecond.catalog.price import Price
from splitsecond.timing.observation import Observation

SLO = parse_slo("ttft=300ms,tpot=20ms")


def step(
    load: int,
    met: int,
    sent: int,
    *,
    speed: float | None = None,
    errors: dict[str, int] | None = None,
    invalid: str = "",
    **changes: Any,
) -> ConditionFindings:
    """A row under SLO of which `met` of `sent` requests met the limits."""
    good = Goodput(limits=SLO.limits, met=met, sent=sent, fraction=met / max(sent, 1), per_s=2.5)
    failed = errors or {}
    return row(
        condition=f"a/x@c{load}",
        concurrency=load,
        requests=sent,
        errors=sum(failed.values()),
        error_kinds=failed,
        goodput=good,
        output_tokens_per_s=speed,
        invalid=[invalid] if invalid else [],
        **changes,
    )


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (step(1, 90, 90), "holds"),
        (step(1, 20, 20), "promising"),
        (step(1, 89, 90), "promising"),
        (step(1, 84, 90), "undecided"),
        (step(1, 70, 90), "fails"),
        (step(1, 70, 90, errors={"http_429": 20}), "fails"),
        (step(1, 70, 90, errors={"http_503": 10, "overloaded": 10}), "fails"),
        (step(1, 70, 90, errors={"http_500": 20}), "breaks"),
        (step(1, 0, 11, errors={"refused": 10, "http_429": 1}), "breaks"),
        (step(1, 70, 90, errors={"http_429": 19, "http_500": 1}), "fails"),
        (step(1, 84, 90, errors={"http_500": 1}), "undecided"),
        (step(1, 90, 90, invalid="the client was late."), "invalid"),
        (step(1, 20, 90, invalid="the client was late."), "invalid"),
        # Where failures alone decide, the places that they left empty are not the client's fault.
        (step(1, 20, 40, errors={"http_500": 20}, invalid="concurrency 1 was not held."), "breaks"),
        (step(1, 20, 40, errors={"http_429": 20}, invalid="concurrency 1 was not held."), "fails"),
        (row(invalid=["nothing was measured."]), "invalid"),
    ],
)
def test_what_came_of_a_step(found: ConditionFindings, verdict: str) -> None:
    assert judge(found, 0.95) == verdict


def said(*rows: ConditionFindings) -> list[str]:
    found = capacity_of(rows, [], SLO, 0.95)
    assert found is not None
    return capacity_statements(found, rows)


LIMITS = "with TTFT ≤ 300 ms, TPOT ≤ 20 ms in 95 % of requests"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            [step(1, 20, 20), step(2, 90, 90), step(3, 60, 90)],
            f"a/x bears concurrency 2 {LIMITS} (90 of 90 kept to it), not 3 (60 of 90).",
        ),
        (
            [step(4, 90, 90), step(8, 60, 90), step(5, 340, 360), step(6, 338, 360), step(7, 60, 90)],
            f"a/x bears concurrency 4 {LIMITS} (90 of 90 kept to it), not 7 (60 of 90); not decided: 5 (340 of 360) "
            "and 6 (338 of 360).",
        ),
        (
            [step(1, 20, 20), step(2, 90, 90)],
            f"a/x bears concurrency 2 {LIMITS} (90 of 90 kept to it), the heaviest load of this search.",
        ),
        (
            [step(1, 90, 90), step(2, 342, 360)],
            f"a/x bears concurrency 1 {LIMITS} (90 of 90 kept to it); not decided: 2 (342 of 360).",
        ),
        ([step(1, 3, 90)], f"a/x does not bear even concurrency 1 {LIMITS} (3 of 90 kept to it)."),
        (
            [step(1, 20, 20), step(2, 0, 12, errors={"refused": 12})],
            f"It is not sure that a/x bears any load {LIMITS}; not decided: 1 (20 of 20), not 2 (0 of 12).",
        ),
        (
            [step(1, 90, 90, invalid="the client was late.")],
            "What a/x bears is not known: the figures at concurrency 1 are INVALID.",
        ),
        (
            [step(2, 90, 90), step(4, 90, 90, invalid="the client was late.")],
            f"a/x bears concurrency 2 {LIMITS} (90 of 90 kept to it).",
        ),
    ],
)
def test_how_much_it_bears_in_a_sentence(rows: list[ConditionFindings], sentence: str) -> None:
    assert said(*rows)[0] == sentence


@pytest.mark.parametrize(
    ("ceiling", "sentence"),
    [
        (
            step(4, 3, 15, errors={"refused": 10, "http_500": 2}),
            "At concurrency 4 it broke, and the search ended: 12 of 15 requests failed (10 refused, 2 http_500).",
        ),
        (
            step(4, 90, 90, invalid="the client was late."),
            "At concurrency 4 the figures are INVALID, so it is not known whether it bears that: the client was late.",
        ),
    ],
)
def test_why_there_is_a_ceiling(ceiling: ConditionFindings, sentence: str) -> None:
    assert said(step(2, 90, 90), ceiling)[1] == sentence


def observed(condition: str, *made: Observation) -> list[Observation]:
    return [msgspec.structs.replace(o, condition=condition, role="measured") for o in made]


def test_what_gives_first_is_the_limit_that_most_requests_missed() -> None:
    slow = observed("a/x@c4", *[request(ttft_ms=400)] * 20, *[request(ttft_ms=400, gap_ms=30)] * 5, failure())
    rows = [step(2, 90, 90), step(4, 64, 90)]
    found = capacity_of(rows, slow, SLO, 0.95)
    assert found is not None
    assert found.steps[1].missed == {"ttft": 25, "tpot": 5, "errors": 1}
    assert capacity_statements(found, rows)[1] == (
        "What gives first is TTFT: at concurrency 4 requests missed TTFT in 25 of 90, TPOT in 5 of 90 and an answer in "
        "1 of 90."
    )


@pytest.mark.parametrize(
    ("speeds", "knee"),
    [
        ({1: 100, 2: 200, 4: 400}, None),
        ({1: 100, 2: 190, 4: 200, 8: 205}, 2),
        ({1: 100, 2: 180, 4: 300, 6: 350, 8: 360}, 6),  # of 6 to 8, a third more load, hardly anything is left
        ({1: 100, 2: 101, 4: 180}, None),  # a flat start is none
        ({4: 300}, None),
        ({4: 300, 5: 301}, 4),
    ],
)
def test_the_knee_is_where_more_load_buys_hardly_more_throughput(speeds: dict[int, float], knee: int | None) -> None:
    found = capacity_of([step(load, 90, 90, speed=speed) for load, speed in speeds.items()], [], SLO, 0.95)
    assert found is not None
    assert found.knee == knee


def test_a_step_that_the_client_could_not_drive_shows_no_knee() -> None:
    rows = [step(1, 90, 90, speed=100), step(2, 90, 90, speed=100, invalid="the client was late.")]
    found = capacity_of(rows, [], SLO, 0.95)
    assert found is not None
    assert found.knee is None
    assert not any(sentence.startswith("System tokens/s") for sentence in capacity_statements(found, rows))


def test_a_load_that_was_tried_again_is_what_it_was_the_last_time() -> None:
    found = capacity_of([step(4, 90, 90, invalid="disturbed."), step(4, 90, 90)], [], SLO, 0.95)
    assert found is not None
    assert (found.holds, found.ceiling) == (4, None)
    assert [one.verdict for one in found.steps] == ["invalid", "holds"]


def test_from_observations_to_sentences_with_what_it_costs() -> None:
    """Ten tokens a tenth of a second after the first: 11 tokens in 200 ms, so 8 places give 440 tokens/s."""
    asked = [AskedCondition(condition=f"c{c}", target="a/x", concurrency=c) for c in (1, 8)]
    light, heavy = closed_loop(1, 90), closed_loop(8, 90)
    observations = [*observed("c1", *light), *observed("c8", *heavy)]
    rows = summarise(asked, observations, [], slo=SLO, prices={"a/x": Price(per_hour_usd=1.584)})
    found = capacity_of(rows, observations, SLO, 0.95)
    assert found is not None
    borne, at_capacity, throughput = capacity_statements(found, rows)
    assert borne.startswith("a/x bears concurrency 8 with TTFT ≤ 300 ms")
    assert at_capacity == (
        "At concurrency 8 it gives 440 tokens/s in all, 40 good requests/s, TTFT p95 100 ms, TPS p50 100, "
        "$1.00 a million output tokens."
    )
    assert throughput == ("System tokens/s grow up to concurrency 8: 440, 8.00 times those of concurrency 1.")


def test_nothing_that_came_to_a_verdict_is_no_capacity() -> None:
    assert capacity_of([], [], SLO, 0.95) is None


def test_limits_of_a_use_keep_its_name() -> None:
    found = capacity_of([step(1, 90, 90)], [], parse_slo("voice"), 0.95)
    assert found is not None
    assert (found.use, found.limits) == ("voice", {"ttft": 300.0})
