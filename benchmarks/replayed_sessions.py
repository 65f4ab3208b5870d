"""Sessions of a WEKA trace, replayed in virtual time: `python -m benchmarks.replayed_sessions
FILE`.

The real load generator sends them through its own sockets to the simulator's server. `figures_of`
computes what the report says of them from the trace and the simulator's own records alone: it
shares no code with the analysis, and takes from the load generator only which request was which
turn, and whether it was measured. Printed are both, side by side.
tests/loadgen/test_replayed_sessions.py does the same with a small trace.
"""

import argparse
import asyncio
import gzip
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import msgspec
from msgspec import Struct
from tests.faults.world import Provider

from splitsecond.benchmark.load.plan import PlannedLoad, PlanSettings, make_plan
from splitsecond.benchmark.load.session_block import SessionBlockRun
from splitsecond.benchmark.rows.row_fields import SessionFindings
from splitsecond.benchmark.rows.sessions import session_findings
from splitsecond.benchmark.workload.session_files import read_sessions
from splitsecond.benchmark.workload.sessions import SessionSet, Turn
from splitsecond.benchmark.workload.traced_prompts import PromptScale
from splitsecond.benchmark.workload.words import WORDS
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.pacing import Pacer
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.connecting import OpenSocket
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.simulator.app import SimulatedProvider
from splitsecond.simulator.content.tokens import CHARACTERS_PER_TOKEN, CHAT_TEMPLATE_TOKENS
from splitsecond.simulator.profile import Profile, load
from splitsecond.simulator.truth import TruthLog, TruthRecord
from splitsecond.testing.virtual_time import run_virtual

SCALE = PromptScale(
    fixed=CHAT_TEMPLATE_TOKENS,
    per_word=(sum(map(len, WORDS)) / len(WORDS) + 1) / CHARACTERS_PER_TOKEN,
)
PRICE = Price(input_usd=0.6, output_usd=2.5, cached_usd=0.06)
CACHEABLE, MISSED = 1024, 0.5
"""Least ideal of a turn that can miss the cache, and the share of it that a turn finds at least, or
it has missed."""


class Replay(Struct):
    """What the client observed, and what the simulator recorded, by the ids of requests."""

    observations: list[Observation]
    records: Mapping[str, TruthRecord]


def replay(
    sessions: SessionSet, profile: Profile, *, concurrency: int, requests: int, rounds: int
) -> Replay:
    """Send the blocks of one row to a simulated provider."""
    truth, observations = TruthLog(max_stamps=1 << 40), list[Observation]()
    plan = make_plan(
        {"t": "http://t"},
        [PlannedLoad(concurrency=concurrency)],
        PlanSettings(
            requests=requests,
            blocks=rounds,
            sessions=sessions,
        ),
    )

    async def play() -> None:
        with Pacer(asyncio.get_running_loop()) as pacer:
            provider = Provider(SimulatedProvider(profile, seed=1, pacer=pacer, truth=truth))

            async def open_socket(*_: object) -> OpenSocket:
                return OpenSocket(await provider.connect(), None, "simulated", 0, 0, 0)

            spec = TargetSpec(name="t", base_url="http://127.0.0.1:1/v1", model=profile.model)
            composer = Composer(Workload(run="r", sessions=sessions, scale=SCALE))
            with mock.patch("splitsecond.core.transport.client.open_socket", open_socket):
                client = Client(gather=True)
                for block in plan.lanes[0]:
                    await SessionBlockRun(
                        block, connect(spec, lambda _: None, client=client), composer, pacer
                    ).send(observations.append, lambda _: None)
                    await asyncio.sleep(1)
                client.close()
            await asyncio.sleep(1)

    run_virtual(play())
    return Replay(observations, {record.request_id: record for record in truth.records()})


class TracedTurn(Struct):
    """A turn as the trace has it. `before`: the number of the parent's turn that waits for its
    sub-agent."""

    tokens: int
    shared: int
    before: int = 0


def traced(path: Path) -> dict[str, dict[tuple[str, int], TracedTurn]]:
    """Return the turns of each session of a trace, by sub-agent ("" for none) and number.

    Sub-agents after the last request of their parent are left out, because nothing waits for them.
    """
    text = (
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    ).decode()
    found: dict[str, dict[tuple[str, int], TracedTurn]] = {}
    for record in map(msgspec.json.decode, text.splitlines()):
        own: dict[tuple[str, int], TracedTurn] = {}
        parents = agents = 0
        for row in record["requests"]:
            if row["type"] == "subagent":
                agents += 1
                for number, inner in enumerate(row["requests"], 1):
                    own[str(agents), number] = _traced(inner, record["block_size"], parents + 1)
            else:
                parents += 1
                own["", parents] = _traced(row, record["block_size"])
        found[record["id"]] = {place: turn for place, turn in own.items() if turn.before <= parents}
    return found


def _traced(row: Mapping[str, Any], block: int, before: int = 0) -> TracedTurn:
    return TracedTurn(row["in"], row["shared_prefix_blocks"] * block, before)


class Sent(Struct):
    """A request of a session: its turn in the trace, and the simulator's record of it."""

    session: str
    branch: str
    number: int
    traced: TracedTurn
    record: TruthRecord
    round: int
    measured: bool
    last: bool

    @property
    def begin(self) -> int:
        return self.record.arrived_ns

    @property
    def first(self) -> int:
        return self.record.actual_ns[0] if self.record.actual_ns else self.end

    @property
    def end(self) -> int:
        return self.record.actual_ns[-1] if self.record.actual_ns else self.record.ended_ns

    @property
    def ideal(self) -> float:
        return self.traced.shared * self.record.prompt_tokens / self.traced.tokens


def sent_of(
    replay: Replay, trace: Mapping[str, Mapping[tuple[str, int], TracedTurn]]
) -> list[Sent]:
    """Return the requests of sessions; those that only fill the cache have number 0."""
    found = []
    for o in replay.observations:
        if o.turn is None or o.id not in replay.records:
            continue
        turns = trace[o.turn.session.split("-", 2)[2]]
        found.append(
            Sent(
                session=o.turn.session,
                branch=o.turn.branch,
                number=0 if o.turn.primes else o.turn.turn,
                traced=turns[o.turn.branch, o.turn.turn],
                record=replay.records[o.id],
                round=o.round,
                measured=o.role == "measured",
                last=not o.turn.branch and ("", o.turn.turn + 1) not in turns,
            )
        )
    return found


def figures_of(sent: Sequence[Sent]) -> dict[str, float]:
    """Return the figures of a row of sessions in which no request failed."""
    turns = [each for each in sent if each.measured]
    prompts = sum(each.record.prompt_tokens for each in turns)
    cached = sum(each.record.cached_tokens for each in turns)
    ideal = sum(each.ideal for each in turns)
    could = [each for each in turns if each.ideal >= CACHEABLE]
    found = {
        "TTFT p50 of first turns, ms": median(_ttft_ms(turns, first=True)),
        "TTFT p50 of later turns, ms": median(_ttft_ms(turns, first=False)),
        "cached ÷ input": cached / prompts,
        "ideal ÷ input": ideal / prompts,
        "cached ÷ ideal": cached / ideal,
        "misses": sum(each.record.cached_tokens < MISSED * each.ideal for each in could),
        "turns that can miss": len(could),
    }
    spans = {
        number: (min(each.begin for each in own), max(each.end for each in own))
        for number in {each.round for each in turns}
        if (own := [each for each in turns if each.round == number])
    }
    by_session: dict[str, list[Sent]] = defaultdict(list)
    for each in sent:
        by_session[each.session].append(each)
    whole = waiting = generating = finished = cost = 0.0
    for own in by_session.values():
        if own[0].round not in spans:
            continue
        low, high = spans[own[0].round]
        primed = [each.end for each in own if not each.number]
        requests = [each for each in own if each.number]
        over = any(each.last and not each.record.closed_by_client for each in requests)
        last = max((each.end for each in requests), default=high)
        # a session with whose end the round ends was chosen by its length
        finished += over and last < high
        begin = max(primed) if primed else min(each.begin for each in requests)
        whole += max(min(last if over else high, high) - max(begin, low), 0)
        for each in _path(requests):
            waiting += max(min(each.first, high) - max(each.begin, low), 0)
            generating += max(min(each.end, high) - max(each.first, low), 0)
        cost += sum(_usd(each.record) for each in requests if not each.record.closed_by_client)
    return found | {
        "session time, s": whole / finished / NS_PER_S,
        "of it waiting": waiting / whole,
        "of it generating": generating / whole,
        "of it tools": 1 - (waiting + generating) / whole,
        "$ a session": cost / finished,
    }


def _usd(record: TruthRecord) -> float:
    micro_usd = (record.prompt_tokens - record.cached_tokens) * PRICE.input_usd
    return (
        micro_usd
        + record.cached_tokens * (PRICE.cached_usd or 0)
        + record.output_tokens * PRICE.output_usd
    ) / 1e6


def _ttft_ms(turns: Sequence[Sent], *, first: bool) -> list[float]:
    return [(each.first - each.begin) / NS_PER_MS for each in turns if (each.number == 1) == first]


def _path(requests: Sequence[Sent]) -> Iterator[Sent]:
    """Yield the turns that a session waits for: its own, and before each those of the sub-agent
    that ended last."""
    agents: dict[int, dict[str, list[Sent]]] = defaultdict(lambda: defaultdict(list))
    for each in requests:
        if each.branch:
            agents[each.traced.before][each.branch].append(each)
        else:
            yield each
    for beside in agents.values():
        # Of those that were cut off at the same time, the one that waited longer.
        yield from max(
            beside.values(), key=lambda own: max((each.end, -each.begin) for each in own)
        )


def reported(found: SessionFindings) -> dict[str, float | None]:
    """Return the same figures as the report has them."""
    ttft = {each.low: each.ttft_ms.p50 for each in found.classes if each.by == "turn"}
    return {
        "TTFT p50 of first turns, ms": ttft[1],
        "TTFT p50 of later turns, ms": ttft[2],
        "cached ÷ input": found.cached_share.value,
        "ideal ÷ input": found.ideal_cached_share.value,
        "cached ÷ ideal": found.cached_of_ideal.value,
        "misses": found.misses,
        "turns that can miss": found.reusing,
        "session time, s": found.session_s.value,
        "of it waiting": found.waiting_share.value,
        "of it generating": found.generating_share.value,
        "of it tools": found.tools_share.value,
        "$ a session": found.usd.value,
    }


def ideals(sessions: SessionSet) -> dict[str, list[int]]:
    """Return the ideals of the turns of each session, as they are sent."""
    return {
        session.id: [turn.shared_tokens for turn in _in_order(session.turns)]
        for session in sessions.sessions
    }


def _in_order(turns: Sequence[Turn]) -> Iterator[Turn]:
    for turn in turns:
        for branch in turn.branches:
            yield from _in_order(branch.turns)
        yield turn


def compared(
    path: Path, profile: Profile, **load: int
) -> tuple[dict[str, float], dict[str, float | None]]:
    """Return the figures of a replay by the simulator's records, and as they are reported."""
    replayed = replay(read_sessions(path), profile, **load)
    own = [o for o in replayed.observations if o.turn is not None]
    found = session_findings(own, {"t": PRICE}, intervals=False)
    assert found is not None
    return figures_of(sent_of(replayed, traced(path))), reported(found)


def main() -> None:
    """Print whether all ideals are those of the trace, and the figures of a replay."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("-c", "--concurrency", type=int, default=8)
    parser.add_argument("-n", "--requests", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", default="agent-cloud")
    given = parser.parse_args()
    sent, recorded = ideals(read_sessions(given.trace)), traced(given.trace)
    same = sum(
        own == [each.shared for each in recorded[name].values()] for name, own in sent.items()
    )
    print(
        f"{same} of {len(sent)} sessions have the ideals of the trace "
        f"({sum(map(len, sent.values())):,} turns)\n"
    )
    load_of_row = {
        "concurrency": given.concurrency,
        "requests": given.requests,
        "rounds": given.rounds,
    }
    true, seen = compared(given.trace, load(given.profile), **load_of_row)
    print("| figure | by the simulator's records | reported |\n|---|---|---|")
    for name, value in true.items():
        print(f"| {name} | {value:.6g} | {seen[name]:.6g} |")


if __name__ == "__main__":
    main()
