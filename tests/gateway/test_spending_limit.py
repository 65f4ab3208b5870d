"""A key's limit in dollars against clients that try to pass it, and while prices are not known."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
from tests.cases import each_case
from tests.gateway.limits import PricedTargets, key_limits

from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Spoken
from splitsecond.gateway.records.journal import Journal
from splitsecond.gateway.records.key_limits import KeyLimits, OpenReservation
from splitsecond.gateway.records.orphans import open_journal
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.requests.error_response import LimitReached
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.virtual_time import run_virtual

LIMIT_USD = 0.10
PRICE = Price(input_usd=3, output_usd=15, cache_write_usd=3.75, by_tier={"priority": 2.0})
KEY = ClientKey("web", b"", usd_per_day=LIMIT_USD)
LETTERS = "QUJD" * 15_000
TARGET = parse('"a/x"')
TRICKS: dict[str, tuple[Spoken, dict[str, Any], int]] = {
    "letters of base64 in a tool's input": (
        "anthropic",
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "input": {"data": LETTERS}}]}
            ]
        },
        15_000,
    ),
    "a hundred tiny pictures": (
        "anthropic",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": "iVBORw0K",
                            },
                        }
                    ]
                    * 100,
                }
            ]
        },
        150_000,
    ),
    "pictures by address": (
        "openai",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]
                    * 20,
                }
            ]
        },
        30_000,
    ),
    "a document by address": (
        "anthropic",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "document",
                            "source": {"type": "url", "url": "https://x.test/a.pdf"},
                        }
                    ],
                }
            ]
        },
        190_000,
    ),
    "a stored response": (
        "responses",
        {"input": "Go on.", "previous_response_id": "resp_1"},
        190_000,
    ),
    "a search of the provider": (
        "responses",
        {"input": "News?", "tools": [{"type": "web_search"}]},
        50_000,
    ),
}
"""Requests whose bytes are few for what their prompts cost: format, fields, and the tokens that a
provider counts."""


def costs(attempt: Observation) -> float:
    return PRICE.cost_usd(
        input_tokens=attempt.input_tokens or 0, output_tokens=attempt.output_tokens or 0
    )


class Targets(PricedTargets):
    """Targets that all have `PRICE`."""

    def dearest_usd(
        self,
        target: str,
        input_tokens: int,
        output_tokens: int,
        *,
        any_tier: bool,
        for_an_hour: bool = False,
    ) -> float | None:
        return PRICE.dearest_usd(
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            any_tier=any_tier,
            for_an_hour=for_an_hour,
        )


def limits(**settings: Any) -> KeyLimits:
    return KeyLimits([KEY], Targets(costs), **settings)


def made(api_format: Spoken = "openai", **fields: Any) -> Call:
    return Call(id="r", client="web", api_format=api_format, body={"max_tokens": 1, **fields})


def reserved(allowance: KeyLimits, **fields: Any) -> OpenReservation:
    found = allowance.reserve(made(**fields), "fast", TARGET)
    assert found is not None
    return found


@each_case("trick", TRICKS)
def test_parallel_calls_pass_the_limit_by_one_call_at_most(trick: str) -> None:
    api_format, fields, tokens = TRICKS[trick]
    allowance, admitted = limits(), 0
    with contextlib.suppress(LimitReached):
        for _ in range(30):
            allowance.admit(KEY)
            allowance.reserve(made(api_format, **fields), "fast", TARGET)
            admitted += 1
    assert 1 <= admitted < 30
    assert (admitted - 1) * PRICE.cost_usd(input_tokens=tokens, output_tokens=1) < LIMIT_USD


def test_reservation_assumes_the_dearest_tier_and_cache_write() -> None:
    allowance = limits()
    plain = reserved(allowance, messages=[{"role": "user", "content": "x" * 36_000}])
    usd = allowance.reserved_usd("web")
    assert usd == pytest.approx(9_010 * 3.75e-6, rel=0.01)
    plain.release()
    costly = reserved(
        allowance, messages=[{"role": "user", "content": "x" * 36_000}], service_tier="priority"
    )
    assert allowance.reserved_usd("web") == pytest.approx(2 * usd, rel=0.01)
    costly.release()
    hour = {"type": "ephemeral", "ttl": "1h"}
    reserved(allowance, messages=[{"role": "user", "content": "x" * 36_000, "cache_control": hour}])
    assert allowance.reserved_usd("web") == pytest.approx(9_010 * 6e-6, rel=0.01)


def test_a_call_is_checked_again_as_it_reserves() -> None:
    allowance = limits()
    for _ in range(2):
        allowance.admit(KEY)  # two calls that wait for a price
    reserved(allowance, max_tokens=100_000)
    with pytest.raises(LimitReached):
        allowance.reserve(made(), "fast", TARGET)


def test_a_longer_answer_extends_its_reservation() -> None:
    journal = Journal(open_journal(None, 0, print), print)
    allowance = limits(journal=journal)
    first, second = reserved(allowance, max_tokens=2_000), reserved(allowance)
    before = allowance.reserved_usd("web")
    assert first.extend("a/x", 1_900) is None
    assert allowance.reserved_usd("web") == before
    assert first.extend("a/x", 4_000) is None
    assert allowance.reserved_usd("web") == pytest.approx(before + 2_000 * 15e-6)
    assert sorted(each.usages[0].output_tokens for each in journal.entries()) == [1, 4_000]
    fault = second.extend("a/x", 4_000)
    assert isinstance(fault, CallerFault)
    assert (fault.kind, fault.status) == ("insufficient_quota", 429)
    assert "'web' has nothing left of its 0.1 USD" in fault.message
    for each in (first, second):
        each.release()
    assert allowance.reserved_usd("web") == 0
    assert journal.entries() == []


def test_last_call_may_use_its_whole_reservation() -> None:
    allowance = limits()
    last = reserved(allowance, max_tokens=100_000)
    assert last.extend("a/x", 99_000) is None


def test_a_call_waits_until_its_cost_is_known() -> None:
    async def main() -> None:
        unknown = ["the price of a/x"]
        waited: list[Sequence[str]] = []

        async def learn(targets: Sequence[str]) -> None:
            waited.append(targets)
            await asyncio.sleep(1)
            unknown.clear()

        allowance = limits(unknown=lambda targets: "".join(unknown), learn=learn)
        await allowance.cost_known("web", parse('race("a/x", "b/x")'))
        await allowance.cost_known("web", TARGET)
        assert waited == [["a/x", "b/x"]]

    run_virtual(main())


def test_a_cost_that_stays_unknown_refuses_the_call() -> None:
    async def learn(targets: Sequence[str]) -> None:
        """Learn nothing."""

    allowance = limits(unknown=lambda targets: f"the price of {targets[0]}", learn=learn)
    with pytest.raises(LimitReached, match="the price of a/x is not known yet") as caught:
        run_virtual(allowance.cost_known("web", TARGET))
    assert caught.value.retry_after_ns == 1_000_000_000


def test_a_target_without_a_price_refuses_a_limited_key() -> None:
    targets = PricedTargets(costs, {"b/x": "missing"})
    allowance = KeyLimits([KEY], targets)
    run_virtual(allowance.cost_known("web", TARGET))
    with pytest.raises(CallerFault, match="the price of b/x is not known") as caught:
        run_virtual(allowance.cost_known("web", parse('fallback("a/x", "b/x")')))
    assert (caught.value.kind, caught.value.status) == ("price_unknown", 403)


def test_call_without_cost_reserves_nothing() -> None:
    allowance = key_limits([KEY], lambda attempt: 0.0)
    assert allowance.reserve(made(), "fast", TARGET) is None
