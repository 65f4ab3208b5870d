"""Every fault of the simulator under every policy, through the whole gateway: what must hold
whatever goes wrong.

No hang beyond the deadline; no part of an answer that looks like a whole one; no usage that nobody
counted; every connection to a provider closed or idle, none in use for nobody; one record of each
call, and one of each attempt that a provider saw.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import pytest
from _pytest.mark import ParameterSet
from tests.cases import each_case
from tests.faults.world import INPUT_TOKENS, TEXT, TOKENS, World, play, profile
from tests.gateway.visitor import Visitor

from splitsecond.core import clock
from splitsecond.routing.construction.catalogue_of_policies import POLICIES
from splitsecond.routing.construction.expression import parse
from splitsecond.simulator.content.faults import FaultKind, InjectedFault

DEADLINE_S = 30.0
FOR_EVER_S = 86_400.0
PER_SORT = 3
POLICY: Mapping[str, str] = {
    "race": 'race("a/m", "b/m")',
    "hedge": 'hedge("a/m", "b/m")',
    "fallback": 'fallback("a/m", "b/m", ttft="2s")',
    "resume": 'resume("a/m", "b/m", stall="5s")',
    "deadline": 'deadline("a/m", ttft="2s", total="5s")',
    "retry": 'retry("a/m", times=2, extra_load=1)',
    "limit": 'limit("a/m", concurrency=1, queue=4)',
    "fastest": 'fastest("a/m", "b/m")',
    "cheapest": 'cheapest("a/m", "b/m")',
    "weighted": 'weighted("a/m", "b/m", weights="1,1")',
    "split": 'split("a/m", "b/m", share=0.5)',
    "sticky": 'sticky("a/m", "b/m")',
    "near": 'near("a/m", "b/m", region="eu")',
    "cascade": 'cascade("a/m", "b/m", hold="5s")',
    "pipeline": 'pipeline("a/m", "b/m", early="300ms")',
    "by_complexity": 'by_complexity(simple="a/m", complex="b/m")',
    "by_task": 'by_task(code="b/m", default="a/m")',
    "cap": 'cap("a/m", max_tokens=500)',
    "cache": 'cache("a/m", ttl="10m", sampled=True)',
}
FAULTS: Mapping[str, InjectedFault] = {
    "http": InjectedFault(kind="http", status=500),
    "http 400": InjectedFault(kind="http", status=400),
    "http 401": InjectedFault(kind="http", status=401),
    "http 404": InjectedFault(kind="http", status=404),
    "http 429": InjectedFault(kind="http", status=429),
    "http 429 with retry-after": InjectedFault(kind="http", status=429, retry_after=30),
    "refused": InjectedFault(kind="refused"),
    "reset": InjectedFault(kind="reset"),
    "slow_head": InjectedFault(kind="slow_head", seconds=FOR_EVER_S),
    "slow_first_token": InjectedFault(kind="slow_first_token", seconds=FOR_EVER_S),
    "stall": InjectedFault(kind="stall", after=3, seconds=FOR_EVER_S),
    "cut": InjectedFault(kind="cut", after=3),
    "cut at the end": InjectedFault(kind="cut", after=TOKENS),
    "malformed": InjectedFault(kind="malformed", after=3),
    "no_done": InjectedFault(kind="no_done"),
    "error_event": InjectedFault(kind="error_event", after=3),
    "error_event at once": InjectedFault(kind="error_event", after=0),
    "buffered": InjectedFault(kind="buffered"),
    "wrong_usage": InjectedFault(kind="wrong_usage", factor=3.0),
}
HARMLESS = ("no_done", "buffered", "wrong_usage")
"""What spoils no answer."""
AT_THE_HEAD = (
    "http",
    "http 401",
    "http 404",
    "http 429",
    "http 429 with retry-after",
    "refused",
    "reset",
    "error_event at once",
)
"""What is known before the first token, and another provider would not do."""
IN_THE_MIDDLE = ("stall", "cut", "cut at the end", "malformed", "error_event")
"""What spoils an answer that has begun. `resume` carries it on."""
GOES_ON = ("race", "fallback")
"""Policies that ask the other provider for the same call; of most others the failure of the chosen
one is raised."""


def test_every_policy_and_fault_is_covered() -> None:
    assert list(POLICY) == list(POLICIES)
    assert {fault.kind for fault in FAULTS.values()} == set(get_args(FaultKind))
    for name, policy in POLICY.items():
        assert repr(parse(policy)).startswith(name)


def pairs() -> Iterator[ParameterSet]:
    """Every policy with every fault. Fast are those that must succeed, and of the others each fault
    about once."""
    for row, policy in enumerate(POLICY):
        for column, fault in enumerate(FAULTS):
            must_succeed = (policy == "fallback" and fault in AT_THE_HEAD) or (
                policy == "resume" and fault in IN_THE_MIDDLE
            )
            fast = must_succeed or (row + column) % 24 == 0
            yield pytest.param(policy, fault, marks=() if fast else pytest.mark.system)


@each_case("policy, fault", list(pairs()))
def test_invariants_hold_for_every_fault_and_policy(
    policy: str, fault: str, tmp_path: Path
) -> None:
    async def story(world: World) -> None:
        for number in range(2 * PER_SORT):
            visitor = await asked(world, stream=number % 2 == 0)
            _check(visitor, fault)
            if policy in GOES_ON and fault in AT_THE_HEAD:
                assert visitor.status == 200
            if policy == "resume" and fault in IN_THE_MIDDLE:
                assert visitor.status == 200
                assert b'"error"' not in visitor.body
        for seconds in (0.0, 0.04, 0.09, 0.4):
            await asked(world, stream=True, leaves_after_s=seconds)
        await world.settled()

    world = play(
        f'deadline({POLICY[policy]}, total="30s")',
        tmp_path,
        story,
        a=profile(FAULTS[fault]),
        b=profile(),
    )
    assert all(provider.open == 0 for provider in world.simulated.values())
    _check_log(world)


async def asked(world: World, **how: Any) -> Visitor:
    """One call, which ends in time."""
    began_ns = clock.now_ns()
    visitor = await world.ask(**how)
    assert clock.now_ns() - began_ns <= (DEADLINE_S + 1) * clock.NS_PER_S
    return visitor


def _check(visitor: Visitor, fault: str) -> None:
    """Check that the client has a whole response or an error, and never the provider's address."""
    assert b"127.0.0.1" not in visitor.body
    if visitor.headers["content-type"].startswith("text/event-stream"):
        assert visitor.status == 200
        _check_stream(visitor.body, fault)
    elif visitor.status == 200:
        (choice,) = visitor.json["choices"]
        assert choice["message"]["content"] == TEXT
        assert choice["finish_reason"] == "stop"
        _check_usage(visitor.json["usage"], fault)
    else:
        assert fault not in HARMLESS
        assert 400 <= visitor.status <= 504
        assert visitor.json["error"]["message"]


def _check_stream(body: bytes, fault: str) -> None:
    *events, after = body.split(b"\n\n")
    assert after == b""
    assert all(event.startswith(b"data: ") for event in events), events
    *said, last = [event.removeprefix(b"data: ") for event in events]
    chunks = [json.loads(event) for event in said]
    reasons = [
        choice["finish_reason"]
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["finish_reason"]
    ]
    text = "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )
    usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    if last == b"[DONE]":
        assert (text, reasons) == (TEXT, ["stop"])
        assert len(usage) == 1
        _check_usage(usage[0], fault)
    else:
        assert fault not in HARMLESS
        assert json.loads(last)["error"]["message"]
        assert (reasons, usage) == ([], [])
        assert TEXT.startswith(text)


def _check_usage(usage: dict[str, Any], fault: str) -> None:
    possible_counts = {TOKENS, 3 * TOKENS} if fault == "wrong_usage" else {TOKENS}
    assert usage["completion_tokens"] in possible_counts
    assert usage["prompt_tokens"] >= INPUT_TOKENS


def _check_log(world: World) -> None:
    """Each call has one record, and each request that a provider saw is an attempt of one of
    them."""
    with closing(sqlite3.connect(world.database)) as log:
        calls = [call for (call,) in log.execute("select call from calls")]
        attempts = {identity for (identity,) in log.execute("select id from attempts")}
        counted, in_calls = log.execute(
            "select count(*), (select sum(attempts) from calls) from attempts"
        ).fetchone()
    assert len(set(calls)) == len(calls) == world.asked
    assert counted == len(attempts) == in_calls
    assert {
        record.request_id for name in world.simulated for record in world.requests(name)
    } <= attempts
