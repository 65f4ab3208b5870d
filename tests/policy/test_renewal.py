"""Other facts while a gateway runs: what is learned of targets stays, what was held against an old key does not."""

from tests.policy.attempts import answered, failed
from tests.policy.branches import status

from splitsecond.policy.targets.facts import Facts
from splitsecond.policy.targets.standing import Standing

ACCOUNTS = {"a/x": Facts(account="a"), "a/y": Facts(account="a"), "b/x": Facts(account="b"), "c/x": Facts()}


def refused() -> Standing:
    """Of targets whose keys were all refused."""
    standing = Standing(ACCOUNTS)
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
    standing.renew({**ACCOUNTS, "a/y": Facts(account="new")}.get)
    assert [name for name in ACCOUNTS if standing.available(name)] == ["a/y"]


def test_facts_change_and_speeds_stay() -> None:
    standing = Standing(ACCOUNTS)
    standing.observe(answered(200, target="a/x"))
    standing.renew({"a/x": Facts(account="a", region="eu", input_usd=2.0)}.get, lambda _: True)
    assert (standing.facts("a/x").region, standing.facts("a/x").input_usd) == ("eu", 2.0)
    assert standing.facts("b/x") == Facts()
    estimate = standing.estimate("a/x")
    assert estimate is not None
    assert estimate.samples > 0
