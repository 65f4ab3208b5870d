"""An invented run of sessions: two providers, of which one loses prompts from its cache, at two
concurrencies."""

from collections.abc import Sequence

from tests.analysis.simulated_sessions import Server, simulated

from splitsecond.benchmark.findings.session_statements import session_statements
from splitsecond.benchmark.findings.statements import statements
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Run
from splitsecond.benchmark.runs.concluding import add_answers
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import Observation

SERVERS = {
    "fireworks/qwen3-coder-480b": Server(agents=2, breaks=0.003),
    "groq/kimi-k2-instruct": Server(new_s=1 / 9_000, miss=0.2, reports=False),
}
PRICE = Price(input_usd=0.6, cached_usd=0.12, output_usd=2.5, as_of="2026-01-02", source="the test")


def invented_sessions(
    targets: Sequence[str] = tuple(SERVERS), concurrencies: Sequence[int] = (4, 8), turns: int = 400
) -> tuple[Run, list[Observation]]:
    """Return a run and its observations, the same every time."""
    asked, observations = [], list[Observation]()
    for target in targets:
        for concurrency in concurrencies:
            condition = f"{target}@c{concurrency}"
            asked.append(
                AskedCondition(condition=condition, target=target, concurrency=concurrency)
            )
            observations += simulated(
                SERVERS[target],
                concurrency,
                turns=turns,
                slots=concurrency,
                target=target,
                condition=condition,
            )
    conditions = condition_rows(asked, observations, [], prices=dict.fromkeys(targets, PRICE))
    run = Run(
        id="20261126-140302-7f3a",
        began="2026-11-26T14:03:02Z",
        began_ns=1_000 * NS_PER_S,
        version="0.1.0",
        asked={
            "command": f"splitsecond bench {' '.join(targets)} --sessions agent -c 4,8 -n {turns}"
        },
        finished=True,
        conditions=conditions,
    )
    add_answers(
        run, observations, session_statements(conditions) + statements(conditions, observations)
    )
    return run, observations
