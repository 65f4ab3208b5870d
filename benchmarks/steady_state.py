"""How close a short benchmark comes to the steady state: the table of docs/accuracy.md.

The real load generator sends its plan in virtual time to the engine of the simulator, which batches
its requests: each one slows the others down, and a prompt that is processed delays the tokens of
all. The truth comes from a long simulation of the same engine, without plan, blocks and analysis.

`python -m benchmarks.steady_state` prints the table in Markdown, in about a minute.
tests/loadgen/test_steady_state.py checks a few of its cells.
"""

import asyncio
import random
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from statistics import median

import numpy as np

from benchmarks.served_engine import ServedEngine
from splitsecond.benchmark.load.block import BlockRun, RequestBlock
from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.rows.condition import condition_findings
from splitsecond.benchmark.rows.records import AskedCondition, ConditionFindings
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import EngineSpec
from splitsecond.testing.virtual_time import run_virtual

TOKENS = 64
PROMPT = 512
SPEC = EngineSpec(
    slots=256,
    prefill_tokens_per_s=20_000,
    prefill_chunk_tokens=2048,
    step_base_ms=20,
    step_per_sequence_ms=1,
)
CONCURRENCIES = (1, 8, 32, 64)
REQUESTS = (50, 200)
RUNS = 10
FIGURES = ("TTFT p50", "TPS p50", "system tokens/s")


def measured(
    load: PlannedLoad, requests: int, *, response_s: float | None = None, seed: int = 0
) -> ConditionFindings:
    """Carry out the plan of one condition against the engine, and return its row."""
    plan = make_plan(
        {"t": "http://t"}, [load], PlanSettings(requests=requests, response_s=response_s, seed=seed)
    )
    return row_of(plan.lanes[0], load, seed=seed)


def unprepared(load: PlannedLoad, requests: int, *, seed: int = 0) -> ConditionFindings:
    """Send the requests of a closed loop in one block, without warm-ups and cool-downs, and return
    its row."""
    block = RequestBlock(
        condition=f"t@{load.label}",
        target="t",
        requests=requests,
        concurrency=load.concurrency,
        round=1,
    )
    return row_of([block], load, seed=seed)


def row_of(
    blocks: Sequence[RequestBlock], load: PlannedLoad, *, seed: int = 0
) -> ConditionFindings:
    """Send the blocks to an empty engine and return their row."""
    observations: list[Observation] = []

    async def main() -> None:
        engine = ServedEngine(SPEC, prompt_tokens=PROMPT)
        composer = Composer(Workload(run="r", output_tokens=TOKENS, seed=seed))
        async with engine.serving() as pacer:
            for block in blocks:
                await BlockRun(block, engine.service, composer, pacer).send(
                    observations.append, lambda reading: None
                )
                await asyncio.sleep(1)

    run_virtual(main())
    asked = AskedCondition(
        condition=blocks[0].condition, target="t", concurrency=load.concurrency, rate=load.rate
    )
    return condition_findings(asked, observations, [])


class Truth:
    """Medians and throughput of the engine in the long run, from a simulation of its own."""

    def __init__(self, load: PlannedLoad, *, responses: int = 4000) -> None:
        """`load`: a closed loop, or an open one with constant arrivals."""
        chance, engine = random.Random(7), Engine[int](SPEC)
        slots = load.concurrency or 0
        due: list[int] = [chance.randrange(2 * NS_PER_S) for _ in range(slots)]
        if load.rate is not None:
            due = [round(number * NS_PER_S / load.rate) for number in range(responses)]
        heapify(due)
        lengths: list[int] = []
        begun: list[int] = []
        first: dict[int, int] = {}
        ended: dict[int, int] = {}
        arrived: list[int] = []
        while len(ended) < responses:
            ends_ns = engine.next_ns
            if due and (ends_ns is None or due[0] <= ends_ns):
                begun.append(heappop(due))
                lengths.append(chance.randint(1, TOKENS) if len(begun) <= slots else TOKENS)
                engine.submit(
                    len(begun) - 1,
                    prompt_tokens=PROMPT,
                    output_tokens=lengths[-1],
                    now_ns=begun[-1],
                )
                continue
            assert ends_ns is not None
            for emission in engine.advance():
                key = emission.key
                first.setdefault(key, ends_ns)
                arrived.append(ends_ns)
                if emission.index == lengths[key] - 1:
                    ended[key] = ends_ns
                    if slots:
                        heappush(due, ends_ns)
        steady = [key for key in ended if responses // 5 < key < responses * 9 // 10]
        self.ttft_ms = float(np.median([(first[key] - begun[key]) / NS_PER_MS for key in steady]))
        self.tps = float(
            np.median([(TOKENS - 1) * NS_PER_S / (ended[key] - first[key]) for key in steady])
        )
        begin_ns, end_ns = begun[steady[0]], begun[steady[-1]]
        self.tokens_per_s = (
            sum(begin_ns < at <= end_ns for at in arrived) * NS_PER_S / (end_ns - begin_ns)
        )


def errors(row: ConditionFindings, truth: Truth) -> list[float]:
    """Return the relative errors of TTFT p50, TPS p50 and system tokens/s."""
    ttft, tps, throughput = row.ttft_ms.p50, row.tps.p50, row.output_tokens_per_s
    assert ttft is not None
    assert tps is not None
    assert throughput is not None
    return [ttft / truth.ttft_ms - 1, tps / truth.tps - 1, throughput / truth.tokens_per_s - 1]


def main() -> None:
    """Print the table: the median and the largest error of each figure over `RUNS` runs."""
    print(f"| concurrency | requests | how | {' | '.join(FIGURES)} |")
    print("|---|---|---|" + "---|" * len(FIGURES))
    for concurrency in CONCURRENCIES:
        load = PlannedLoad(concurrency=concurrency)
        truth = Truth(load)
        for requests in REQUESTS:
            for name, run in (
                ("as `bench` does", measured),
                ("without warm-up and cool-down", unprepared),
            ):
                rows = [run(load, requests, seed=seed) for seed in range(RUNS)]
                if all(row.output_tokens_per_s for row in rows):
                    cells = [
                        _cell(each)
                        for each in zip(*(errors(row, truth) for row in rows), strict=True)
                    ]
                else:
                    cells = ["load not reached"] * len(FIGURES)
                print(f"| {concurrency} | {requests} | {name} | {' | '.join(cells)} |", flush=True)


def _cell(found: Sequence[float]) -> str:
    """Return the median of errors, and the largest one if it differs."""
    typical, largest = (
        f"{round(each, 3) or 0:+.1%}" for each in (median(found), max(found, key=abs))
    )
    return typical if typical == largest else f"{typical}, up to {largest}"


if __name__ == "__main__":
    main()
