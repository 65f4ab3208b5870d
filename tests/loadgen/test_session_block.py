"""Blocks of sessions in virtual time, through the client's sockets, against a simulated
provider."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from unittest import mock

import msgspec
from msgspec import structs
from tests.faults.world import Provider, profile

from splitsecond.benchmark.load.block import RequestBlock
from splitsecond.benchmark.load.session_block import SessionBlockRun
from splitsecond.benchmark.workload.sessions import Branch, Session, SessionSet, Turn
from splitsecond.benchmark.workload.traced_prompts import PromptScale
from splitsecond.benchmark.workload.words import WORDS
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.observation import Observation
from splitsecond.core.pacing import Pacer
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.timing.instrument import InstrumentReading
from splitsecond.core.transport.client import Client
from splitsecond.core.transport.connecting import OpenSocket
from splitsecond.core.upstream.spec import TargetSpec
from splitsecond.core.upstream.target import connect
from splitsecond.simulator.app import SimulatedProvider
from splitsecond.simulator.content.faults import InjectedFault
from splitsecond.simulator.content.tokens import CHARACTERS_PER_TOKEN, CHAT_TEMPLATE_TOKENS
from splitsecond.simulator.profile import Profile, PromptCacheSpec, ReplicasSpec
from splitsecond.simulator.truth import TruthLog, TruthRecord
from splitsecond.testing.virtual_time import run_virtual

BLOCK = 16
CACHED = PromptCacheSpec(from_tokens=BLOCK, block_tokens=BLOCK, ttl_s=3600)
SCALE = PromptScale(
    fixed=CHAT_TEMPLATE_TOKENS,
    per_word=(sum(map(len, WORDS)) / len(WORDS) + 1) / CHARACTERS_PER_TOKEN,
)
WAIT_NS = 4 * NS_PER_S


def turns(count: int, *, first: int = 300, added: int = 40, wait_ns: int = WAIT_NS) -> list[Turn]:
    return [
        Turn(
            input_tokens=first + number * added,
            output_tokens=10,
            shared_tokens=first + (number - 1) * added if number else 0,
            wait_ns=wait_ns if number else 0,
        )
        for number in range(count)
    ]


def session_set(*sessions: Sequence[Turn]) -> SessionSet:
    whole = [Session(id=f"s{number}", turns=list(each)) for number, each in enumerate(sessions)]
    return SessionSet(name="f", format="g", sessions=whole)


class Played:
    """A block of sessions: what was sent, what was observed, and what the provider knows."""

    def __init__(self, sessions: SessionSet, served: Profile, **block: Any) -> None:
        self.observations: list[Observation] = []
        self.readings: list[InstrumentReading] = []
        self.bodies: dict[str, list[dict[str, Any]]] = {}
        self.raw: dict[str, bytes] = {}
        self.abandoned = ""
        self._truth = TruthLog()
        self._sessions = sessions
        self._served = served
        self._block = RequestBlock(condition="c", target="t", **block)
        run_virtual(self._play())

    async def _play(self) -> None:
        with Pacer(asyncio.get_running_loop()) as pacer:
            served = SimulatedProvider(self._served, seed=1, pacer=pacer, truth=self._truth)
            provider = Provider(served)

            async def open_socket(*_: object) -> OpenSocket:
                return OpenSocket(await provider.connect(), None, "simulated", 0, 0, 0)

            spec = TargetSpec(name="t", base_url="http://127.0.0.1:1/v1", model="m")
            with mock.patch("splitsecond.core.transport.client.open_socket", open_socket):
                client = Client(gather=True)
                workload = Workload(run="r", sessions=self._sessions, scale=SCALE)
                self.abandoned = await SessionBlockRun(
                    self._block,
                    self._recording(connect(spec, lambda _: None, client=client)),
                    Composer(workload),
                    pacer,
                ).send(self.observations.append, self.readings.append)
                client.close()
            await asyncio.sleep(1)

    def _recording(self, service: Service) -> Service:
        async def recording(call: Call) -> Reply:
            self.raw[call.id] = bytes(call.body["messages"])
            self.bodies[call.id] = msgspec.json.decode(call.body["messages"])
            return await service(call)

        return recording

    @property
    def truth(self) -> dict[str, TruthRecord]:
        return {record.request_id: record for record in self._truth.records()}

    def role(self, role: str) -> list[Observation]:
        return [o for o in self.observations if o.role == role]

    def conversations(self) -> list[list[Observation]]:
        found = defaultdict(list)
        for o in sorted(self.observations, key=lambda o: o.start_ns):
            assert o.turn is not None
            found[o.turn.session, o.turn.branch].append(o)
        return list(found.values())


def served(*faults: InjectedFault, **more: Any) -> Profile:
    return structs.replace(profile(*faults), prompt_cache=CACHED, **more)


def place(o: Observation) -> Any:
    assert o.turn is not None
    return o.turn


def text_of(messages: list[dict[str, Any]]) -> str:
    """Return the text that the simulator's cache sees."""
    return "\n".join(message["content"] for message in messages)


def test_each_turn_contains_the_one_before_and_its_answer() -> None:
    played = Played(session_set(turns(6), turns(9)), served(), requests=20, concurrency=2)
    assert len(played.role("measured")) == 20
    assert all(o.ok for o in played.role("measured"))
    compared = 0
    for conversation in played.conversations():
        for one, other in pairwise(conversation):
            before, after = played.raw[one.call], played.raw[other.call]
            assert after.startswith(before[:-1])
            if not place(one).primes:
                sent = played.bodies[other.call]
                assert sent[-2] == {
                    "role": "assistant",
                    "content": "A simulated provider says nothing of interest, but it",
                }
            compared += 1
    assert compared > 15


def test_an_unlimited_cache_has_what_is_ideal() -> None:
    sessions = session_set(
        [
            *turns(3),
            Turn(input_tokens=420, output_tokens=10, shared_tokens=200, cut=True, wait_ns=WAIT_NS),
        ]
    )
    played = Played(sessions, served(), requests=12, concurrency=2)
    seen: dict[str, str] = {}
    for o in sorted(played.observations, key=lambda o: o.start_ns):
        if not o.ok:
            continue
        text, before = text_of(played.bodies[o.call]), seen.get(place(o).session, "")
        common = next(
            (at for at, (one, two) in enumerate(zip(text, before, strict=False)) if one != two),
            len(before),
        )
        assert o.cached_tokens == common // (4 * BLOCK) * BLOCK == played.truth[o.id].cached_tokens
        assert bool(place(o).reusable_tokens) == (place(o).turn > 1 and not place(o).primes)
        if place(o).reusable_tokens:
            assert abs(place(o).reusable_tokens - o.cached_tokens) <= 2 * BLOCK
        seen[place(o).session] = text
        assert (
            place(o).new_tokens + place(o).reusable_tokens
            == [300, 340, 380, 420][place(o).turn - 1]
        )


def test_a_turn_is_due_when_its_tool_has_ended() -> None:
    played = Played(session_set(turns(5)), served(), requests=8, concurrency=1)
    for conversation in played.conversations():
        for one, other in pairwise(conversation):
            if not place(one).primes:
                assert 0 <= other.due_ns - one.end_ns - WAIT_NS < NS_PER_MS
                assert (other.sent_ns or 0) - other.due_ns < NS_PER_MS
    assert place(played.role("measured")[-1]).wait_ns in (0, WAIT_NS)


def test_waits_are_limited() -> None:
    sessions = structs.replace(session_set(turns(5)), longest_wait_ns=NS_PER_S)
    played = Played(sessions, served(), requests=8, concurrency=1)
    assert {place(o).wait_ns for o in played.role("measured")} <= {0, NS_PER_S}


def test_slots_begin_in_the_middle_when_all_caches_are_filled() -> None:
    played = Played(session_set(turns(30)), served(), requests=40, concurrency=8)
    primes, measured = played.role("warmup"), played.role("measured")
    assert all(place(o).primes and o.output_tokens == 1 for o in primes)
    assert len(primes) >= 7
    first = [each[0] for each in played.conversations()][:8]
    assert len({place(o).turn for o in first}) > 3
    assert min(o.start_ns for o in measured) >= max(o.end_ns for o in primes)
    for conversation in played.conversations():
        if place(conversation[0]).primes:
            assert place(conversation[1]).turn == place(conversation[0]).turn + 1
    starts = [o.due_ns for o in sorted(measured, key=lambda o: o.due_ns)][:8]
    assert starts[-1] - starts[0] > WAIT_NS / 4  # not all at once


def test_sub_agents_run_beside_their_parent_which_waits() -> None:
    agents = [Branch("1", turns(3, first=100)), Branch("2", turns(2, first=100))]
    parent = turns(3)
    parent[1] = structs.replace(parent[1], branches=agents, wait_ns=NS_PER_S)
    played = Played(session_set(parent), served(), requests=40, concurrency=1)
    whole = [o for o in played.observations if place(o).session == "c-0.2-s0"]
    by_branch = {name: [o for o in whole if place(o).branch == name] for name in ("", "1", "2")}
    assert [len(found) for found in by_branch.values()] == [3, 3, 2]
    began = by_branch[""][0].end_ns
    assert all(abs(by_branch[name][0].due_ns - began) < NS_PER_MS for name in ("1", "2"))
    ended = max(o.end_ns for name in ("1", "2") for o in by_branch[name])
    assert 0 <= by_branch[""][1].due_ns - ended - NS_PER_S < NS_PER_MS
    assert [place(o).last for o in by_branch[""]] == [False, False, True]


def test_a_failed_turn_ends_its_session() -> None:
    fault = InjectedFault(kind="http", status=500, every=7)
    played = Played(session_set(turns(30)), served(fault), requests=40, concurrency=2)
    failed = [o for o in played.observations if o.outcome == "failed"]
    assert len(failed) >= 5
    for conversation in played.conversations():
        assert all(o.ok or o.outcome == "cancelled" for o in conversation[:-1])
    assert len(played.role("measured")) == 40
    assert len(played.conversations()) >= len(failed)


def test_a_broken_answer_ends_its_session() -> None:
    fault = InjectedFault(kind="cut", every=5)
    played = Played(session_set(turns(30)), served(fault), requests=20, concurrency=1)
    for conversation in played.conversations():
        assert all(o.ok or o.outcome == "cancelled" for o in conversation[:-1])


def test_measuring_ends_while_all_slots_are_busy() -> None:
    played = Played(session_set(turns(12)), served(), requests=30, concurrency=4)
    end = max(o.end_ns for o in played.role("measured"))
    late = [o for o in played.observations if o.start_ns > end]
    assert not late
    cut = [each[-1] for each in played.conversations() if each[-1].ok and not place(each[-1]).last]
    cut += [o for o in played.role("cooldown") if o.outcome == "cancelled"]
    assert len({place(o).session for o in cut}) >= 3


def test_new_sessions_start_at_a_rate() -> None:
    due = [NS_PER_S * number for number in range(60)]
    played = Played(session_set(turns(2)), served(), requests=40, concurrency=3, due=due)
    begins = sorted(each[0].due_ns for each in played.conversations() if not place(each[0]).primes)
    gaps = [after - before for before, after in pairwise(begins)][4:]
    assert all(abs(gap - NS_PER_S) < NS_PER_MS for gap in gaps)
    assert len(played.role("measured")) == 40


def test_sessions_reach_their_replica() -> None:
    replicas = ReplicasSpec(count=4, routing="session")
    played = Played(session_set(turns(6)), served(replicas=replicas), requests=40, concurrency=3)
    used = defaultdict(set)
    for o in played.observations:
        if o.ok:
            used[place(o).session].add((played.truth[o.id].replica, played.truth[o.id].session))
    assert all(len(found) == 1 for found in used.values())
    assert len({replica for found in used.values() for replica, _ in found}) > 1


def test_a_silent_target_is_given_up() -> None:
    fault = InjectedFault(kind="refused", every=1)
    played = Played(session_set(turns(5)), served(fault), requests=40, concurrency=2)
    assert "none of the first" in played.abandoned
