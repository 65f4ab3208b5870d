"""Other facts while a gateway runs: what is learned of targets stays, what was held against an old key does not."""

from tests.policies.attempts import answered, failed
from tests.policies.branches import status

from splitsecond.policies.targets.target_info import TargetInfo
from splitsecond.policies.targets.target_states import TargetStates

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
        standing.observe(failed(status(401), target=name))
    assert not any(map(standing.available, ACCOUNTS))
    return standing


def test_a_refused_key_stays_refused_until_it_is_another_one() -> None:
    standing = refused()
    standing.renew(ACCOUNTS.get)
    assert not any(map(standing.available, ACCOUNTS))
    standing.renew(ACCOUNTS.get, lambda target: target.startswith("a/"))
    assert [name for name in ACCOUNTS if standing.available(name)] == ["a/x", "a/y"]
    standing.observe(failed(status(401), target="a/x"))
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
