"""Replicas behind one address: which one a request goes to, and that each has its own prompt cache
and engine."""

import asyncio
from typing import Literal

import pytest
from tests.simulator.in_virtual_time import Client

from splitsecond.simulator.profile import (
    EngineSpec,
    Profile,
    PromptCacheSpec,
    Quantiles,
    ReplicasSpec,
    TableRow,
)
from splitsecond.simulator.request import SESSION_HEADERS, session_id
from splitsecond.simulator.truth import TruthRecord
from splitsecond.testing.virtual_time import run_virtual

ROWS = (TableRow(concurrency=1, ttft_ms=Quantiles(100, 100), tps=Quantiles(100, 100)),)
CACHE = PromptCacheSpec(from_tokens=8, block_tokens=8)
ENGINE = EngineSpec(
    slots=1,
    prefill_tokens_per_s=1e9,
    prefill_chunk_tokens=10_000,
    step_base_ms=10,
    step_per_sequence_ms=0,
)


def served(
    routing: Literal["random", "session", "prefix"], requests: list[tuple[str, str]]
) -> list[TruthRecord]:
    """Send requests (session, prompt) one after another to four replicas; return the records."""
    replicas = ReplicasSpec(count=4, routing=routing)
    profile = Profile(
        name="p",
        title="t",
        model="m",
        table=ROWS,
        output_tokens=1,
        prompt_cache=CACHE,
        replicas=replicas,
    )

    async def play() -> list[TruthRecord]:
        client = Client(profile)
        for session, prompt in requests:
            headers = {"x-session-id": session} if session else {}
            await client.send(headers=headers, messages=[{"role": "user", "content": prompt}])
        return client.truth()

    return run_virtual(play())


def conversations(count: int, turns: int, begin: str = "") -> list[tuple[str, str]]:
    """Turns of several sessions in turn; each has 40 tokens more than the one before it."""
    return [
        (
            f"session {number}",
            begin
            + "".join(f"{number:4} {turn:3}".ljust(160, ".") for turn in range(turns_so_far + 1)),
        )
        for turns_so_far in range(turns)
        for number in range(count)
    ]


def test_a_session_stays_at_its_replica() -> None:
    records = served("session", conversations(8, 3))
    assert len({record.replica for record in records}) > 1
    replicas = {record.session: record.replica for record in records}
    assert [record.replica for record in records] == [
        replicas[record.session] for record in records
    ]
    assert [record.cached_tokens for record in records] == [0] * 8 + [40] * 8 + [80] * 8


def test_random_replicas_lose_what_another_one_has_cached() -> None:
    records = served("random", conversations(8, 3))
    assert {record.replica for record in records} == {0, 1, 2, 3}
    assert sum(record.cached_tokens for record in records) < 8 * (40 + 80) / 2
    assert records[0].session == "session 0"


def test_without_a_session_the_replica_is_random() -> None:
    records = served("session", [("", "hello")] * 40)
    assert {record.replica for record in records} == {0, 1, 2, 3}
    assert {record.session for record in records} == {""}


def test_a_prompt_goes_where_most_of_it_is_cached() -> None:
    records = served("prefix", [("", prompt) for _, prompt in conversations(8, 3)])
    assert [record.cached_tokens for record in records] == [0] * 8 + [40] * 8 + [80] * 8
    assert sorted(record.replica for record in records) == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6


def test_a_shared_beginning_alone_does_not_choose_the_replica() -> None:
    records = served(
        "prefix", [("", prompt) for _, prompt in conversations(8, 1, begin="tools" * 16)]
    )
    assert sorted(record.replica for record in records) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_each_replica_has_an_engine_of_its_own() -> None:
    def times_ms(count: int) -> list[float]:
        replicas = ReplicasSpec(count=count, routing="session")
        profile = Profile(
            name="p", title="t", model="m", engine=ENGINE, output_tokens=1, replicas=replicas
        )

        async def play() -> list[float]:
            client = Client(profile)
            await asyncio.gather(
                *(client.send(headers={"session-id": f"session {number}"}) for number in range(4))
            )
            return sorted(
                (record.planned_ns[0] - record.arrived_ns) / 1e6 for record in client.truth()
            )

        return run_virtual(play())

    assert times_ms(1) == pytest.approx([10, 20, 30, 40], abs=0.01)
    assert times_ms(256) == pytest.approx([10, 10, 10, 10], abs=0.01)


@pytest.mark.parametrize("name", SESSION_HEADERS)
def test_the_session_is_in_any_of_the_usual_headers(name: bytes) -> None:
    assert session_id({b"host": b"localhost", name: b"s-1"}) == "s-1"
    assert session_id({b"host": b"localhost"}) == ""
