"""Verdicts on loads from their rows, and the capacity, knee and bottleneck of a search, in
sentences."""

from typing import Any

import msgspec
from tests.analysis.made import closed_loop, failure, in_both_forms, request, row
from tests.cases import each_case
from tests.golden import Golden

from splitsecond.benchmark.findings.capacity import (
    batches_of,
    capacity_of,
    capacity_statements,
    judge,
)
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings
from splitsecond.benchmark.rows.row_fields import (
    Estimated,
    Goodput,
    ServerView,
    SessionFindings,
)
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.core.catalog.price import Price
from splitsecond.core.observation import Observation, SessionTurn
from splitsecond.core.wording import Statement, full
from splitsecond.log.statistics.proportion import Batches

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


@each_case(
    ("found", "verdict"),
    [
        (step(1, 240, 240), "holds"),
        (step(1, 20, 20), "promising"),
        (step(1, 90, 90), "promising"),
        (step(1, 89, 90), "promising"),
        (step(1, 84, 90), "undecided"),
        (step(1, 70, 90), "fails"),
        (step(1, 70, 90, errors={"http_429": 20}), "fails"),
        (step(1, 70, 90, errors={"http_503": 10, "overloaded": 10}), "fails"),
        (step(1, 70, 90, errors={"http_500": 20}), "breaks"),
        (step(1, 0, 11, errors={"refused": 10, "http_429": 1}), "breaks"),
        (step(1, 70, 90, errors={"http_429": 19, "http_500": 1}), "fails"),
        (step(1, 84, 90, errors={"http_500": 1}), "undecided"),
        (step(1, 240, 240, invalid="the client was late."), "invalid"),
        # A queue that grows is not the client's fault.
        (step(1, 240, 240, invalid="not stationary: TTFT changed."), "undecided"),
        (step(1, 70, 90, invalid="not stationary: TTFT changed."), "fails"),
        (step(1, 20, 90, invalid="the client was late."), "invalid"),
        # Where failures alone decide, the places that they left empty are not the client's fault.
        (step(1, 20, 40, errors={"http_500": 20}, invalid="concurrency 1 was not held."), "breaks"),
        (step(1, 20, 40, errors={"http_429": 20}, invalid="concurrency 1 was not held."), "fails"),
        (row(invalid=["nothing was measured."]), "invalid"),
    ],
)
def test_step_gets_its_verdict(found: ConditionFindings, verdict: str) -> None:
    assert judge(found, batches_of(requests(found), SLO, open_loop=False), 0.95) == verdict


def requests(row: ConditionFindings) -> list[Observation]:
    """Measured requests of a row in five rounds, of which as many met the limits as it says, spread
    evenly."""
    met, sent = (row.goodput.met, row.goodput.sent) if row.goodput else (0, 0)
    late = [(number + 1) * met // sent == number * met // sent for number in range(sent)]
    return [
        request(
            1000.0 + number,
            ttft_ms=400 if miss else 100,
            condition=row.condition,
            round=1 + 5 * number // sent,
        )
        for number, miss in enumerate(late)
    ]


def test_batches_are_rounds_and_parts_of_few_rounds() -> None:
    def sent(rounds: int) -> list[Observation]:
        return [
            request(1000.0 + at, round=number, ttft_ms=400 if at == 0 else 100)
            for number in range(1, rounds + 1)
            for at in range(20)
        ]

    assert batches_of(sent(5), SLO, open_loop=False) == Batches([19] * 5, [20] * 5)
    assert batches_of(sent(1), SLO, open_loop=False) == Batches(
        [3, 4, 4, 4, 4], [4] * 5, rounds=False
    )
    assert batches_of(sent(3), SLO, open_loop=False) == Batches([9, 10] * 3, [10] * 6, rounds=False)
    assert batches_of([], SLO, open_loop=False) == Batches([], [], rounds=False)


def test_rounds_of_sessions_are_not_divided() -> None:
    place = SessionTurn(session="s", turn=1, new_tokens=1, reusable_tokens=0)
    turns = [
        msgspec.structs.replace(o, turn=place, round=1)
        for o in observed("a/x@c1", *[request(ttft_ms=400)] * 20)
    ]
    assert batches_of(turns, SLO, open_loop=False) == Batches([0], [20])


def sessions(cached: float, misses: int = 0) -> dict[str, Any]:
    """The figures of sessions whose prompts are known to 96%, and in the cache to the share
    `cached`."""
    found = SessionFindings(
        sessions=9,
        turns=90,
        misses=misses,
        reusing=80,
        cached_share=Estimated(cached),
        ideal_cached_share=Estimated(0.96),
        cached_of_ideal=Estimated(cached / 0.96),
    )
    return {"session": found}


@each_case(
    ("cached", "cause"),
    [
        ((0.95, 0.6), "eviction"),
        ((0.95, 0.94), "computing"),
        ((0.5, 0.49), "computing"),
        ((None, None), ""),
    ],
)
def test_the_cause_is_what_more_sessions_change(cached: tuple[Any, Any], cause: str) -> None:
    rows = [step(load, met, 240, **sessions(0)) for load, met in ((4, 240), (5, 160))]
    for each, share in zip(rows, cached, strict=True):
        assert each.session is not None
        each.session.cached_share = Estimated(share)
    found = capacity_of(rows, [o for row in rows for o in requests(row)], SLO, 0.95)
    assert found is not None
    assert found.cause == cause


def test_the_cause_of_too_many_sessions_in_sentences(golden: Golden) -> None:
    likely = step(5, 355, 360, **sessions(0.94))
    searches = [
        [step(4, 240, 240, **sessions(0.95)), step(6, 60, 240, **sessions(0.61, misses=31))],
        [step(4, 240, 240, **sessions(0.95)), likely, step(6, 60, 240, **sessions(0.93))],
    ]
    golden.check("\n".join(in_both_forms(said(*rows)) for rows in searches))


def said(*rows: ConditionFindings) -> list[Statement]:
    found = capacity_of(rows, [o for row in rows for o in requests(row)], SLO, 0.95)
    assert found is not None
    return capacity_statements(found, rows)


def test_the_capacity_in_sentences(golden: Golden) -> None:
    late = "the client was late."
    searches = [
        [step(1, 20, 20), step(2, 240, 240), step(3, 160, 240)],
        [
            step(4, 240, 240),
            step(8, 160, 240),
            step(5, 340, 360),
            step(6, 338, 360),
            step(7, 160, 240),
        ],
        [step(1, 20, 20), step(2, 240, 240)],
        [step(1, 240, 240), step(2, 342, 360)],
        [step(1, 3, 90)],
        [step(1, 20, 20), step(2, 0, 12, errors={"refused": 12})],
        [step(1, 240, 240, invalid=late)],
        [step(2, 240, 240), step(4, 240, 240, invalid=late)],
        [step(2, 240, 240), step(4, 3, 15, errors={"refused": 10, "http_500": 2})],
    ]
    golden.check("\n".join(in_both_forms(said(*rows)) for rows in searches))


def in_rounds(made: list[Observation]) -> list[Observation]:
    return [msgspec.structs.replace(o, round=1 + 5 * at // len(made)) for at, o in enumerate(made)]


def observed(condition: str, *made: Observation) -> list[Observation]:
    return [msgspec.structs.replace(o, condition=condition, role="measured") for o in made]


def test_the_bottleneck_is_the_limit_that_most_requests_missed(golden: Golden) -> None:
    slow = observed(
        "a/x@c4", *[request(ttft_ms=400)] * 20, *[request(ttft_ms=400, gap_ms=30)] * 5, failure()
    )
    rows = [step(2, 90, 90), step(4, 64, 90)]
    found = capacity_of(rows, slow, SLO, 0.95)
    assert found is not None
    assert found.steps[1].missed == {"ttft": 25, "tpot": 5, "errors": 1}
    golden.check(in_both_forms(capacity_statements(found, rows)[1:2]))


@each_case(
    ("speeds", "knee"),
    [
        ({1: 100, 2: 200, 4: 400}, None),
        ({1: 100, 2: 190, 4: 200, 8: 205}, 2),
        # 8 is a third more load than 6, and gives almost no more
        ({1: 100, 2: 180, 4: 300, 6: 350, 8: 360}, 6),
        ({1: 100, 2: 101, 4: 180}, None),  # a flat start is none
        ({4: 300}, None),
        ({4: 300, 5: 301}, 4),
    ],
)
def test_knee_is_where_throughput_stops_growing_with_load(
    speeds: dict[int, float], knee: int | None
) -> None:
    found = capacity_of(
        [step(load, 90, 90, speed=speed) for load, speed in speeds.items()], [], SLO, 0.95
    )
    assert found is not None
    assert found.knee == knee


def test_a_step_that_the_client_could_not_drive_shows_no_knee() -> None:
    rows = [step(1, 90, 90, speed=100), step(2, 90, 90, speed=100, invalid="the client was late.")]
    found = capacity_of(rows, [], SLO, 0.95)
    assert found is not None
    assert found.knee is None
    assert not any(
        sentence.startswith("System tokens/s")
        for sentence in full(capacity_statements(found, rows))
    )


def test_last_try_of_a_load_decides_its_verdict() -> None:
    again = step(4, 240, 240)
    found = capacity_of(
        [step(4, 240, 240, invalid="disturbed."), again], requests(again), SLO, 0.95
    )
    assert found is not None
    assert (found.holds, found.ceiling) == (4, None)
    assert [one.verdict for one in found.steps] == ["invalid", "holds"]


def test_from_observations_to_sentences_with_what_it_costs(golden: Golden) -> None:
    """Ten tokens a tenth of a second after the first: 11 tokens in 200 ms, so 8 places give 440
    tokens/s."""
    asked = [AskedCondition(condition=f"c{c}", target="a/x", concurrency=c) for c in (1, 8)]
    light, heavy = closed_loop(1, 240), closed_loop(8, 90)
    observations = [*observed("c1", *light), *observed("c8", *in_rounds(heavy))]
    rows = condition_rows(
        asked, observations, [], slo=SLO, prices={"a/x": Price(per_hour_usd=1.584)}
    )
    found = capacity_of(rows, observations, SLO, 0.95)
    assert found is not None
    golden.check(in_both_forms(capacity_statements(found, rows)))


def test_capacity_is_none_without_steps() -> None:
    assert capacity_of([], [], SLO, 0.95) is None


def test_limits_of_a_use_keep_its_name() -> None:
    found = capacity_of([step(1, 90, 90)], [], parse_slo("voice"), 0.95)
    assert found is not None
    assert (found.use, found.limits) == ("voice", {"ttft": 300.0})


QUIET = ServerView(title="vLLM", running=8.0, running_max=8.0, waiting=0.0, kv_use_max=0.5)
WAITS = msgspec.structs.replace(QUIET, waiting=11.0, ttft_ms=1000.0, queue_ms=900.0)


@each_case(
    ("view", "cause", "words"),
    [
        (
            msgspec.structs.replace(WAITS, kv_use_max=0.97, preemptions=34.0),
            "memory",
            "The KV cache is full, so requests",
        ),
        (
            WAITS,
            "slots",
            "Requests wait for a free place in the batch at concurrency "
            "16 (11 waiting at the median;",
        ),
        (
            msgspec.structs.replace(QUIET, power_capped=0.4),
            "throttling",
            "power cap for 40% of the time).",
        ),
        (
            QUIET,
            "computing",
            "No request waits, so computing takes the time at concurrency 16 (0 waiting",
        ),
        (None, "", ""),
    ],
)
def test_servers_own_series_names_the_cause(
    view: ServerView | None, cause: str, words: str
) -> None:
    rows = [step(8, 240, 240), step(16, 70, 90, server=view)]
    found = capacity_of(rows, [o for row in rows for o in requests(row)], SLO, 0.95)
    assert found is not None
    assert found.cause == cause
    assert words in "\n".join(full(capacity_statements(found, rows)))


def test_eviction_by_usage_of_sessions_comes_before_the_series() -> None:
    rows = [
        step(8, 240, 240, **sessions(0.9)),
        step(16, 70, 90, server=WAITS, **sessions(0.2, misses=9)),
    ]
    words = "\n".join(full(said(*rows)))
    assert "The cause is eviction" in words
    assert "waiting at the median" not in words
