"""What the requests of one client meet at a target does not take the target away from other
clients."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import cast

import msgspec
import pytest
from tests.policies.attempts import failed
from tests.policies.branches import (
    SILENT,
    Seen,
    a_call,
    ask,
    fails,
    key_refused,
    play,
    refused,
    reset,
    silent,
    status,
)
from tests.policies.world import GOOD

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import Fault, Overloaded
from splitsecond.core.service import Call
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse, targets
from splitsecond.routing.targets.circuit_breaker import IN_A_ROW, CircuitBreaker
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

ACCOUNT = TargetInfo(account="ours")
EXPENSIVE = {"max_tokens": 64_000}
CHEAP = {"max_tokens": 100}


class Clients:
    """A policy whose targets answer by what `script` returns for a call. Targets at "a" share an
    account."""

    def __init__(self, policy: str, script: Callable[[Call], Script], **scripts: Script) -> None:
        names = targets(parse(policy))
        self.states = TargetStates(dict.fromkeys(names, ACCOUNT), chance=Random(5))

        def script_of(provider: str) -> Callable[[Call], Script]:
            return (lambda call: scripts[provider]) if provider in scripts else script

        self.fakes = {
            name: FakeService(
                script=script_of(name[0]),
                target=name,
                observer=self.states.observe,
            )
            for name in names
        }
        self.service = build(parse(policy), self.fakes.__getitem__, self.states)
        self.number = 0

    def asked(self, name: str, client: str) -> int:
        """Return how many requests of `client` the target got."""
        return sum(each.call.client == client for each in self.fakes[name].calls)

    async def ask(
        self, client: str, times: int = 1, *, every_s: float = 0.0, body: dict[str, int] = CHEAP
    ) -> Seen:
        """Send `times` calls of `client`; return the result of the last."""
        seen = Seen()
        for _ in range(times):
            self.number += 1
            call = msgspec.structs.replace(a_call(self.number), client=client, body=body)
            seen = await ask(self.service, call)
            await asyncio.sleep(every_s)
        return seen


def of_mallory(fault: Fault, ttft: float = 0.1) -> Callable[[Call], Script]:
    """Return a script that answers all calls but those of the client "mallory", which fail."""
    return lambda call: fails(fault, ttft) if call.client == "mallory" else GOOD


def silent_for_mallory(call: Call) -> Script:
    return SILENT if call.client == "mallory" else GOOD


MET: list[Fault] = [
    status(401), status(402), status(403), status(404), status(429), status(429, 600), status(500),
    status(503, 600),
    reset(), silent(),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "policy", ['"a/x"', 'fallback("a/x", "b/x")', 'sticky("a/x", "b/x")', 'race("a/x", "b/x")']
)
@pytest.mark.parametrize("fault", MET, ids=str)
def test_failing_client_does_not_open_a_target_for_others(fault: Fault, policy: str) -> None:
    async def main() -> None:
        clients = Clients(policy, of_mallory(fault), b=Script(ttft=0.5))
        for _ in range(20):
            await clients.ask("mallory", 3, every_s=0.5)
            assert (await clients.ask("alice")).fault is None
            await asyncio.sleep(3)
        if "sticky" not in policy:  # which sends some of the calls to the other target
            assert clients.asked("a/x", "alice") == 20

    play(main)


def test_circuit_breaker_opens_for_one_failing_client() -> None:
    async def main() -> None:
        clients = Clients('fallback("a/x", "b/x")', of_mallory(reset()), b=GOOD)
        await clients.ask("mallory", 60, every_s=1)
        # each call asks it twice until the circuit breaker opens
        assert clients.asked("a/x", "mallory") < 20
        assert "down for client mallory (" in clients.states.unavailable_reason("a/x")

    play(main)


def test_later_client_is_served_by_the_same_target() -> None:
    async def main() -> None:
        clients = Clients('fallback("a/x", "b/x")', of_mallory(status(404)), b=GOOD)
        await clients.ask("mallory", 10)
        await clients.ask("alice", 10)
        assert clients.asked("a/x", "alice") == 10

    play(main)


@pytest.mark.parametrize("fault", [status(404), status(429, 60), reset(), silent()], ids=str)
def test_failures_for_two_clients_open_it_for_all(fault: Fault) -> None:
    async def main() -> None:
        clients = Clients('fallback("a/x", "b/x")', lambda call: fails(fault), b=GOOD)
        for client in ("alice", "bob"):
            await clients.ask(client, 5)
        await clients.ask("carol", 5)
        assert clients.asked("a/x", "carol") == 0

    play(main)


def test_refused_connections_open_it_for_all_at_once() -> None:
    breaker = CircuitBreaker(Random(1))
    for _ in range(IN_A_ROW):
        breaker.record_failure(NS_PER_S, NS_PER_S, "refused")
    assert breaker.is_down(NS_PER_S, "alice")


def test_a_single_failure_of_another_client_changes_nothing() -> None:
    breaker, now_ns = CircuitBreaker(Random(1)), 1000 * NS_PER_S
    for _ in range(100):
        now_ns += NS_PER_S
        for _ in range(IN_A_ROW):
            breaker.record_failure(now_ns, now_ns, "http_500", "mallory")
        breaker.record_failure(now_ns, now_ns, "http_500", "alice")
        assert not breaker.is_down(now_ns, "alice")
        breaker.record_success(now_ns + 1, now_ns + 1, "alice")


def test_failing_probes_of_one_client_do_not_keep_it_open() -> None:
    breaker, now_ns = CircuitBreaker(Random(1)), 1000 * NS_PER_S
    for client in ("mallory", "alice", "bob", "alice", "mallory"):
        breaker.record_failure(now_ns, now_ns, "http_500", client)
    assert breaker.is_down(now_ns, "alice")
    for _ in range(20):
        now_ns = max(breaker.open_until_ns, now_ns + 10 * NS_PER_S)
        breaker.record_failure(now_ns, now_ns, "http_500", "mallory")  # the probe is always its own
    assert not breaker.is_down(now_ns, "alice")


def test_silence_in_races_of_one_client_does_not_affect_others() -> None:
    async def main() -> None:
        clients = Clients('race("a/x", "b/x")', silent_for_mallory, b=Script(ttft=0.5))
        await clients.ask("alice", 100)
        await clients.ask("mallory", 60)
        before = clients.asked("a/x", "alice")
        await clients.ask("alice", 50)
        assert clients.asked("a/x", "alice") == before + 50

    play(main)


def test_deadlines_of_one_client_do_not_affect_others() -> None:
    async def main() -> None:
        clients = Clients('fallback("a/x", "b/x", ttft="2s")', silent_for_mallory, b=GOOD)
        await clients.ask("mallory", 20)
        assert (await clients.ask("mallory")).ms == 200
        assert clients.asked("a/x", "mallory") == IN_A_ROW
        await clients.ask("alice", 10)
        assert clients.asked("a/x", "alice") == 10

    play(main)


# Too little credit.


def poor(call: Call) -> Script:
    return fails(status(402)) if cast(int, call.body["max_tokens"]) >= 10_000 else GOOD


def test_request_above_the_balance_does_not_lock_the_account() -> None:
    async def main() -> None:
        clients = Clients('fallback("a/x", "a/y", "b/x")', poor, b=GOOD)
        await clients.ask("", body=EXPENSIVE)
        await clients.ask("", 100, every_s=1)
        assert clients.asked("a/x", "") == 101
        before = len(clients.fakes["a/y"].calls)
        await clients.ask("", body=EXPENSIVE)
        assert (clients.asked("a/x", ""), clients.asked("a/y", ""), before) == (101, 1, 1)
        assert clients.states.available("a/x")

    play(main)


def test_account_without_credit_is_locked_after_a_few_requests() -> None:
    async def main() -> None:
        clients = Clients('"a/x"', lambda call: fails(status(402)))
        for most in (64_000, 1_000, 8_000, 100, 50_000, 10, 10, 200):
            fault = (await clients.ask("", body={"max_tokens": most})).fault
        assert clients.asked("a/x", "") == 4
        assert isinstance(fault, Overloaded)
        assert (fault.status, "too little credit" in str(fault)) == (502, True)
        await clients.ask("", 1000, every_s=1)
        assert clients.asked("a/x", "") <= 4 + 1000 // 300

    play(main)


def test_a_request_is_sent_again_once_the_account_has_credit() -> None:
    async def main() -> None:
        rich_ns = clock.now_ns() + 400 * NS_PER_S
        clients = Clients(
            '"a/x"', lambda call: GOOD if clock.now_ns() > rich_ns else fails(status(402))
        )
        await clients.ask("", 200, every_s=5)
        asked = clients.asked("a/x", "")
        await clients.ask("", 10)
        assert (asked, clients.asked("a/x", "")) == (2 + (1000 - 600) // 5, asked + 10)
        assert not clients.states.state("a/x").credit

    play(main)


def test_rejected_key_locks_all_its_targets_for_all_clients() -> None:
    async def main() -> None:
        clients = Clients('fallback("a/x", "a/y", "b/x")', of_mallory(key_refused()), b=GOOD)
        await clients.ask("mallory")
        await clients.ask("alice")
        assert (clients.asked("a/x", "alice"), clients.asked("a/y", "alice")) == (0, 0)

    play(main)


def test_failures_before_sending_open_it_for_all_clients() -> None:
    async def main() -> None:
        states = TargetStates()
        state = states.state("a/x")
        for number in range(IN_A_ROW):
            state.record_start(f"c{number}", True, clock.now_ns(), "mallory")
            state.observe(failed(refused(), call=f"c{number}", sent=False), clock.now_ns())
        assert not states.available("a/x", "alice")

    play(main)
