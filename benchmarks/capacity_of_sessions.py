"""How close a capacity search by sessions comes to the truth: the second table of docs/capacity.md.

The real search, with its real load generator and analysis, runs in virtual time against the engine
of the simulator with a prompt cache. On some servers the cache is too small from some number of
sessions on, on others prefill is too slow. The truth is a simulation of its own, of `TRUTH_TURNS`
turns at each number of sessions, without plan, blocks, texts and analysis.

`python -m benchmarks.capacity_of_sessions` prints the table in Markdown, in about an hour;
tests/loadgen/test_capacity_truth.py checks a search of each small server.
"""

import asyncio
from collections import Counter
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.capacity_truth import print_searches
from benchmarks.served_engine import ServedEngine
from splitsecond.benchmark.findings.capacity import capacity_of, capacity_statements
from splitsecond.benchmark.load.plan import Condition, PlanSettings
from splitsecond.benchmark.load.search_driver import LoadSearchDriver
from splitsecond.benchmark.load.session_block import SessionBlockRun
from splitsecond.benchmark.rows.condition import condition_rows
from splitsecond.benchmark.rows.records import AskedCondition, Capacity
from splitsecond.benchmark.rows.slo import parse_slo
from splitsecond.benchmark.statistics.search import Search
from splitsecond.benchmark.workload.sessions import Session, SessionSet, Turn
from splitsecond.benchmark.workload.synthetic_sessions import synthetic_sessions
from splitsecond.benchmark.workload.traced_prompts import PromptScale
from splitsecond.benchmark.workload.words import WORDS
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.wording import full
from splitsecond.simulator.content.tokens import CHARACTERS_PER_TOKEN
from splitsecond.simulator.engine import Engine
from splitsecond.simulator.profile import EngineSpec, PromptCacheSpec, load
from splitsecond.simulator.prompt_cache import Prefix, PromptCache, PromptPrefixes
from splitsecond.testing.virtual_time import run_virtual

SHARE = 0.95
TRUTH_TURNS = 20_000
"""Turns that show the true share at one number of sessions, after a warm-up of the share `WARM_UP`
of them."""
WARM_UP = 0.2
PAUSE_S = 0.1
"""Time between two blocks."""
SCALE = PromptScale(
    fixed=0, per_word=(sum(map(len, WORDS)) / len(WORDS) + 1) / CHARACTERS_PER_TOKEN
)


class SessionServer(Struct, frozen=True):
    """A server, the sessions that it gets, and the limit of TTFT of its turns. At most `last`
    sessions are tried."""

    engine: EngineSpec
    prompt_cache: PromptCacheSpec
    sessions: SessionSet
    ttft_s: float
    last: int = 64


def small_sessions(seed: int, tokens: int = 2_000) -> SessionSet:
    """Return sessions like those of agents, with short prompts: about `tokens` in the middle of a
    session."""
    random = Random(seed)
    made = []
    for number in range(100):
        turns = [Turn(input_tokens=round(tokens * random.uniform(0.3, 0.7)), output_tokens=3)]
        for _ in range(random.randint(10, 60)):
            before = turns[-1]
            turns.append(
                Turn(
                    input_tokens=before.input_tokens + 3 + round(random.expovariate(60 / tokens)),
                    output_tokens=random.randint(2, 5),
                    shared_tokens=before.input_tokens,
                    wait_ns=round(random.uniform(0.5, 6) * NS_PER_S),
                )
            )
        made.append(Session(id=f"s{number}", turns=turns))
    return SessionSet(name="small", format="made", sessions=made)


SMALL_ENGINE = EngineSpec(
    slots=256,
    prefill_tokens_per_s=4_000,
    prefill_chunk_tokens=1024,
    step_base_ms=40,
    step_per_sequence_ms=0.5,
)
SMALL_CACHE = PromptCacheSpec(from_tokens=32, block_tokens=32, ttl_s=86_400)
H100 = load("agent-vllm-h100")
AGENTS = synthetic_sessions("agent", 0)
ALONE = [
    replace(session, turns=[replace(turn, branches=[]) for turn in session.turns])
    for session in AGENTS.sessions
]
"""The sessions of "agent" without their sub-agents, which the truth does not know."""


def agents(capacity_tokens: int, speed: float, ttft_s: float) -> SessionServer:
    """Return agents at a server that is `speed` times an H100."""
    assert H100.engine is not None
    assert H100.prompt_cache is not None
    engine = replace(
        H100.engine,
        prefill_tokens_per_s=H100.engine.prefill_tokens_per_s * speed,
        prefill_chunk_tokens=round(H100.engine.prefill_chunk_tokens * speed),
    )
    cache = replace(H100.prompt_cache, capacity_tokens=capacity_tokens)
    return SessionServer(engine, cache, replace(AGENTS, sessions=ALONE), ttft_s)


SERVERS = {
    "small, eviction": SessionServer(
        SMALL_ENGINE, replace(SMALL_CACHE, capacity_tokens=50_000), small_sessions(1), 0.6
    ),
    "small, prefill": SessionServer(
        replace(SMALL_ENGINE, prefill_tokens_per_s=800, prefill_chunk_tokens=256),
        SMALL_CACHE,
        small_sessions(1),
        3.0,
    ),
    "agents, 8 H100": agents(3_504_000, 8, 3.0),
}


class LongRun(Struct, frozen=True):
    """What turns meet in the long run: the share within the limit, and the tokens in the cache ÷
    the ideal."""

    within: float
    cached_of_ideal: float


class _Playing(Struct):
    """A session in a slot: the turn that it is at, and the blocks of its prompt."""

    session: Session
    at: int
    blocks: list[Prefix]


def long_run(server: SessionServer, sessions: int, turns: int = TRUTH_TURNS) -> LongRun:
    """Simulate `sessions` at a time, and return what `turns` of them meet after a warm-up."""
    random, engine, cache = Random(1), Engine[int](server.engine), PromptCache(server.prompt_cache)
    block, numbers, warm_up = server.prompt_cache.block_tokens, count(1), round(WARM_UP * turns)
    due: list[tuple[int, int, _Playing]] = []
    for session, first in server.sessions.in_progress(random, sessions, 0.5):
        due.append(
            (random.randrange(10 * NS_PER_S), next(numbers), _Playing(session, first - 1, []))
        )
    heapify(due)
    open_turns: dict[int, tuple[_Playing, int, int]] = {}
    seen = met = cached = ideal = 0
    while seen < warm_up + turns:
        while due and (engine.next_ns is None or due[0][0] <= engine.next_ns):
            at_ns, number, playing = heappop(due)
            turn = playing.session.turns[playing.at]
            kept = playing.blocks[: turn.shared_tokens // block]
            new = range(len(kept), turn.input_tokens // block)
            playing.blocks = kept + [Prefix(next(numbers), (each + 1) * block) for each in new]
            found = cache.look_up(PromptPrefixes(playing.blocks), at_ns)
            cache.use(found)
            left = turn.input_tokens - found.read_tokens
            open_turns[number] = playing, at_ns, found.read_tokens
            engine.submit(
                number, prompt_tokens=left, output_tokens=turn.output_tokens, now_ns=at_ns
            )
        now_ns = engine.next_ns or 0
        for emission in engine.advance():
            playing, at_ns, read = open_turns[emission.key]
            turn = playing.session.turns[playing.at]
            if not emission.index:
                cache.store(playing.blocks, now_ns)
                seen += 1
                if seen > warm_up:
                    met += now_ns - at_ns <= server.ttft_s * NS_PER_S
                    cached, ideal = cached + read, ideal + turn.shared_tokens
            if emission.index < turn.output_tokens - 1:
                continue
            del open_turns[emission.key]
            wait_ns = 0
            playing.at += 1
            if playing.at == len(playing.session.turns):
                playing = _Playing(server.sessions.next_session(random), 0, [])
            else:
                wait_ns = server.sessions.wait_ns(playing.session.turns[playing.at])
            heappush(due, (now_ns + wait_ns, next(numbers), playing))
    return LongRun(met / (seen - warm_up), cached / ideal)


def truth(server: SessionServer, turns: int = TRUTH_TURNS) -> int:
    """Return the most sessions at which `SHARE` of the turns meet the limit in the long run."""
    low, high = 0, server.last + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if long_run(server, middle, turns).within >= SHARE else (low, middle)
        )
    return low


class Result(Struct, frozen=True):
    """The result of a search, its sentences, and how long it took, in simulated minutes."""

    capacity: Capacity
    statements: list[str]
    minutes: float


def searched(server: SessionServer, seed: int, *, first: int = 1) -> Result:
    """Search for the number of sessions that a server carries."""
    slo = parse_slo(f"ttft={server.ttft_s}s")
    search = Search(first, server.last, whole=True)
    driver = LoadSearchDriver(
        "t", "http://t", search, slo, SHARE, PlanSettings(seed=seed, sessions=server.sessions)
    )
    observations: list[Observation] = []
    readings: list[InstrumentReading] = []

    def asked(condition: Condition) -> AskedCondition:
        return AskedCondition(
            condition=condition.condition, target="t", concurrency=condition.load.concurrency
        )

    def read(reading: InstrumentReading) -> None:
        """Drop the run-queue wait, which is real time, from the reading."""
        readings.append(replace(reading, runqueue_wait_ns=None))

    async def main() -> None:
        engine = ServedEngine(server.engine, prompt_cache=server.prompt_cache)
        composer = Composer(
            Workload(run=f"r{seed}", sessions=server.sessions, scale=SCALE, seed=seed)
        )
        async with engine.serving() as pacer:
            for block in driver.blocks(asked, observations, readings, lambda row, verdict: None):
                await SessionBlockRun(block, engine.service, composer, pacer).send(
                    observations.append, read
                )
                engine.service.calls.clear()
                await asyncio.sleep(PAUSE_S)

    run_virtual(main())
    rows = condition_rows(
        [asked(each) for each in driver.conditions], observations, readings, slo=slo
    )
    found = capacity_of(rows, observations, slo, SHARE)
    assert found is not None
    took_ns = max(o.end_ns for o in observations) - min(o.start_ns for o in observations)
    return Result(found, full(capacity_statements(found, rows)), took_ns / NS_PER_S / 60)


HEADINGS = (
    "server",
    "truth",
    "searches",
    "certain / truth",
    "likely / truth",
    "cause",
    "median minutes",
    "longest",
)


def row(name: str, searches: int) -> tuple[str, ...]:
    """Return a row of the table."""
    server = SERVERS[name]
    true = truth(server)
    found = [searched(server, seed) for seed in range(searches)]
    certain = [(each.capacity.holds or 0) / true for each in found]
    likely = [(each.capacity.likely or each.capacity.holds or 0) / true for each in found]
    causes = Counter(each.capacity.cause for each in found)
    return (
        name,
        f"{true}",
        f"{searches}",
        f"{median(certain):.2f} ({min(certain):.2f}–{max(certain):.2f})",
        f"{median(likely):.2f} ({min(likely):.2f}–{max(likely):.2f})",
        ", ".join(f"{cause or 'unknown'}: {times}" for cause, times in causes.items()),
        f"{median(each.minutes for each in found):.0f}",
        f"{max(each.minutes for each in found):.0f}",
    )


def main() -> None:
    """Print the table."""
    print_searches(__doc__, HEADINGS, {name: partial(row, name) for name in SERVERS}, searches=10)


if __name__ == "__main__":
    main()
