"""Other facts while a gateway runs: what is learned of targets stays, what was held against an old
key does not."""

import asyncio

from tests.policies.attempts import answered, failed
from tests.policies.branches import a_call, ask, fails, key_refused, reset, scripted, status

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.clock import NS_PER_S
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.virtual_time import run_virtual

ACCOUNTS = {
    "a/x": TargetInfo(account="a"),
    "a/y": TargetInfo(account="a"),
    "b/x": TargetInfo(account="b"),
    "c/x": TargetInfo(),
}


def refused() -> TargetStates:
    """Of targets whose keys were all refused."""
    states = TargetStates(ACCOUNTS)
    for name in ACCOUNTS:
        states.observe(failed(key_refused(), target=name))
    assert not any(map(states.available, ACCOUNTS))
    return states


def test_rejected_key_stays_locked_until_it_changes() -> None:
    states = refused()
    states.renew(ACCOUNTS.get)
    assert not any(map(states.available, ACCOUNTS))
    states.renew(ACCOUNTS.get, lambda target: target.startswith("a/"))
    assert [name for name in ACCOUNTS if states.available(name)] == ["a/x", "a/y"]
    states.observe(failed(key_refused(), target="a/x"))
    assert not states.available("a/y")  # they still share one


def test_a_target_without_an_account_has_a_key_of_its_own() -> None:
    states = refused()
    states.renew(ACCOUNTS.get, lambda target: target == "c/x")
    assert [name for name in ACCOUNTS if states.available(name)] == ["c/x"]


def test_target_moved_to_another_account_takes_its_state() -> None:
    states = refused()
    states.renew({**ACCOUNTS, "a/y": TargetInfo(account="new")}.get)
    assert [name for name in ACCOUNTS if states.available(name)] == ["a/y"]


def test_renewal_changes_facts_and_keeps_live_speed() -> None:
    states = TargetStates(ACCOUNTS)
    states.observe(answered(200, target="a/x"))
    states.renew(
        {"a/x": TargetInfo(account="a", region="eu", price=Price(input_usd=2.0))}.get,
        lambda _: True,
    )
    assert (states.info("a/x").region, states.info("a/x").price) == ("eu", Price(input_usd=2.0))
    assert states.info("b/x") == TargetInfo()
    estimate = states.estimate("a/x")
    assert estimate is not None
    assert estimate.samples > 0


def test_target_with_a_new_server_is_untested() -> None:
    """Neither attempts in flight nor other workers bring back what is known of the server
    before."""

    async def main() -> None:
        states = TargetStates(ACCOUNTS)
        slow = scripted(fails(reset(), 2.0), target="a/x", observer=states.observe)
        guarded = states.guard("a/x", slow, frozenset({"a/x"}))
        states.observe(answered(200, target="a/x"))
        late = [asyncio.create_task(ask(guarded, a_call(number))) for number in range(9)]
        await asyncio.sleep(1.0)
        for _ in range(5):
            states.observe(failed(status(500), target="a/x"))
        assert states.status("a/x").state == "down"
        states.renew(ACCOUNTS.get, moved=lambda target: target == "a/x")
        status_ = states.status("a/x")
        assert (status_.state, status_.in_flight, status_.samples, status_.reason) == (
            "untested",
            0,
            0,
            "",
        )
        now_ns = clock.now_ns()
        states.state("a/x").breaker.receive_opening(
            now_ns, now_ns - 1, now_ns + 60 * NS_PER_S, "HTTP 500"
        )
        await asyncio.sleep(0.5)
        fresh = asyncio.create_task(ask(guarded, a_call(99)))
        await asyncio.wait(late)
        assert (states.status("a/x").state, states.status("a/x").in_flight) == ("up", 1)
        await fresh
        assert states.in_flight("a/x") == 0
        states.observe(answered(200, target="a/y"))
        assert states.state("a/x") in states.state("a/y").siblings

    run_virtual(main())
