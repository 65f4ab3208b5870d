"""Other facts while a gateway runs: what is learned of targets stays, what was held against an old key does not."""

import asyncio

from tests.policies.attempts import answered, failed
from tests.policies.branches import a_call, ask, fails, key_refused, reset, scripted, status

from splitsecond.core import clock
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
    standing = TargetStates(ACCOUNTS)
    for name in ACCOUNTS:
        standing.observe(failed(key_refused(), target=name))
    assert not any(map(standing.available, ACCOUNTS))
    return standing


def test_a_refused_key_stays_refused_until_it_is_another_one() -> None:
    standing = refused()
    standing.renew(ACCOUNTS.get)
    assert not any(map(standing.available, ACCOUNTS))
    standing.renew(ACCOUNTS.get, lambda target: target.startswith("a/"))
    assert [name for name in ACCOUNTS if standing.available(name)] == ["a/x", "a/y"]
    standing.observe(failed(key_refused(), target="a/x"))
    assert not standing.available("a/y")  # they still share one


def test_a_target_without_an_account_has_a_key_of_its_own() -> None:
    standing = refused()
    standing.renew(ACCOUNTS.get, lambda target: target == "c/x")
    assert [name for name in ACCOUNTS if standing.available(name)] == ["c/x"]


def test_a_target_that_moves_to_another_account_shares_its_fate() -> None:
    standing = refused()
    standing.renew({**ACCOUNTS, "a/y": TargetInfo(account="new")}.get)
    assert [name for name in ACCOUNTS if standing.available(name)] == ["a/y"]


def test_facts_change_and_speeds_stay() -> None:
    standing = TargetStates(ACCOUNTS)
    standing.observe(answered(200, target="a/x"))
    standing.renew({"a/x": TargetInfo(account="a", region="eu", input_usd=2.0)}.get, lambda _: True)
    assert (standing.info("a/x").region, standing.info("a/x").input_usd) == ("eu", 2.0)
    assert standing.info("b/x") == TargetInfo()
    estimate = standing.estimate("a/x")
    assert estimate is not None
    assert estimate.samples > 0


def test_a_target_that_became_another_server_is_untested() -> None:
    """Neither attempts in flight nor other workers bring back what is known of the server before."""

    async def main() -> None:
        standing = TargetStates(ACCOUNTS)
        slow = scripted(fails(reset(), 2.0), target="a/x", observer=standing.observe)
        guarded = standing.guard("a/x", slow, frozenset({"a/x"}))
        standing.observe(answered(200, target="a/x"))
        late = [asyncio.create_task(ask(guarded, a_call(number))) for number in range(9)]
        await asyncio.sleep(1.0)
        for _ in range(5):
            standing.observe(failed(status(500), target="a/x"))
        assert standing.status("a/x").state == "down"
        standing.renew(ACCOUNTS.get, moved=lambda target: target == "a/x")
        status_ = standing.status("a/x")
        assert (status_.state, status_.in_flight, status_.samples, status_.reason) == ("untested", 0, 0, "")
        now_ns = clock.now_ns()
        standing.state("a/x").breaker.receive_opening(now_ns, now_ns - 1, now_ns + 60 * NS_PER_S, "HTTP 500")
        await asyncio.sleep(0.5)
        fresh = asyncio.create_task(ask(guarded, a_call(99)))
        await asyncio.wait(late)
        assert (standing.status("a/x").state, standing.status("a/x").in_flight) == ("up", 1)
        await fresh
        assert standing.in_flight("a/x") == 0
        standing.observe(answered(200, target="a/y"))
        assert standing.state("a/x") in standing.state("a/y").siblings

    run_virtual(main())
