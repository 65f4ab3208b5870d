"""Limits of a key by the minute and by the day, in several workers, and the responses when they are
reached."""

import asyncio
import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cases import each_case
from tests.gateway.limits import conservative_input_tokens, key_limits
from tests.gateway.visitor import CHAT, STREAM, Visitor, visitor

from splitsecond.core import clock
from splitsecond.core.errors import ProviderFault
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call
from splitsecond.gateway.records.key_limits import MAX_RESERVED_USD, KeyLimits
from splitsecond.gateway.records.limits import DAY_S
from splitsecond.gateway.records.shared_counters import SharedCounters
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.policies.race import race
from splitsecond.routing.requests.error_response import LimitReached
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.routing.router.settings import ClientKey
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual

SECOND = clock.NS_PER_S
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
ATTEMPT = Observation(id="r.1", call="r", target="a/x")


def limited(
    name: str = "web", *, requests: int | None = None, usd: float | None = None
) -> ClientKey:
    return ClientKey(name, b"", requests_per_minute=requests, usd_per_day=usd)


class Moment:
    """A clock that is set by hand: seconds since noon, and since the beginning of a minute."""

    def __init__(self) -> None:
        self.s = 0.0

    def monotonic_ns(self) -> int:
        return round((6000 + self.s) * SECOND)

    def wall_ns(self) -> int:
        return round((NOON.timestamp() + self.s) * SECOND)


@pytest.fixture
def moment() -> Moment:
    return Moment()


def admitted(allowance: KeyLimits, key: ClientKey) -> bool:
    try:
        allowance.admit(key)
    except LimitReached:
        return False
    return True


def test_no_minute_admits_more_requests_than_the_limit(moment: Moment) -> None:
    key = limited(requests=30)
    with clock.using(moment.monotonic_ns, moment.wall_ns):
        allowance = key_limits([key], lambda attempt: None)
        times = []
        for tenth in range(3000):
            moment.s = tenth / 10
            if admitted(allowance, key):
                times.append(moment.s)
    busiest = max(sum(begin <= time < begin + 60 for time in times) for begin in times)
    assert busiest <= 31  # the minute before counts as if it had been even
    assert len(times) >= 0.95 * 5 * 30  # and what is allowed can be had


@pytest.mark.parametrize("used_at", [0.0, 10.0, 45.0])
def test_request_after_retry_after_is_admitted(moment: Moment, used_at: float) -> None:
    key = limited(requests=4)
    with clock.using(moment.monotonic_ns, moment.wall_ns):
        allowance = key_limits([key], lambda attempt: None)
        for at in (used_at, used_at + 60, used_at + 90):
            moment.s = max(at, moment.s)
            while admitted(allowance, key):
                pass
            with pytest.raises(LimitReached) as caught:
                allowance.admit(key)
            wait_s = (caught.value.retry_after_ns or 0) / SECOND
            before = moment.s
            moment.s = before + wait_s - 0.01
            assert not admitted(allowance, key)
            moment.s = before + wait_s + 0.01
            assert admitted(allowance, key)


def test_headers_state_the_remaining_requests(moment: Moment) -> None:
    key = limited(requests=3)
    with clock.using(moment.monotonic_ns, moment.wall_ns):
        allowance = key_limits([key], lambda attempt: None)
        said = [dict(allowance.admit(key)) for _ in range(3)]
        assert [each[b"x-ratelimit-remaining-requests"] for each in said] == [b"2", b"1", b"0"]
        assert said[0][b"x-ratelimit-limit-requests"] == b"3"
        with pytest.raises(LimitReached) as caught:
            allowance.admit(key)
        assert dict(caught.value.headers)[b"x-ratelimit-remaining-requests"] == b"0"
        assert allowance.admit(limited("other")) == []


class Interrupted(SharedCounters):
    """Another worker lets a request in, or not, at the worst moment: `between` the count and the
    look at all."""

    between: Callable[[], object] | None = None

    def requests(self, name: str, minute: int) -> tuple[int, int]:
        meanwhile, self.between = self.between, None
        if meanwhile is not None:
            meanwhile()
        return super().requests(name, minute)


@pytest.mark.parametrize("limit", [1, 5])
def test_workers_together_do_not_pass_a_limit_at_any_moment(moment: Moment, limit: int) -> None:
    key = limited(requests=limit)
    with clock.using(moment.monotonic_ns, moment.wall_ns):
        memory = Interrupted.create(2)
        tallies = [Interrupted(memory, workers=2, number=number) for number in (0, 1)]
        one, two = (
            key_limits([key], lambda attempt: None, counters=day_counters)
            for day_counters in tallies
        )
        let_in: list[bool] = []
        for _ in range(2 * limit):
            tallies[0].between = lambda: let_in.append(admitted(two, key))
            let_in.append(admitted(one, key))
        assert sum(let_in) == limit
        assert tallies[0].requests("web", 100) == (limit, 0)  # what was refused counts for nothing


def test_daily_spending_limit_counts_all_workers(moment: Moment) -> None:
    key = limited(usd=1.0)
    with clock.using(moment.monotonic_ns, moment.wall_ns):
        day_counters = SharedCounters()
        one, two = (key_limits([key], lambda attempt: 0.3, counters=day_counters) for _ in range(2))
        one.carry_over({"web": (0.2, 0.0)})
        for worker in (one, two):
            worker.charge("web", ATTEMPT)
            worker.charge("nobody", ATTEMPT)
            assert admitted(worker, key)
        one.charge("web", ATTEMPT)
        with pytest.raises(LimitReached, match="1 USD") as caught:
            two.admit(key)
        assert caught.value.retry_after_ns == 12 * 3600 * SECOND
        moment.s = DAY_S / 2 + 1
        assert admitted(two, key)
        assert two.spent_usd("web") == 0


def test_a_step_of_the_wall_clock_and_back_frees_no_money(moment: Moment) -> None:
    key, step_s = limited(usd=1.0), 0

    def wall_ns() -> int:
        return moment.wall_ns() + step_s * SECOND

    with clock.using(moment.monotonic_ns, wall_ns):
        allowance = key_limits([key], lambda attempt: 1.5)
        allowance.charge("web", ATTEMPT)
        assert not admitted(allowance, key)
        step_s = DAY_S
        assert admitted(allowance, key)
        allowance.charge("web", ATTEMPT)
        step_s = 0
        assert not admitted(allowance, key)
        assert allowance.spent_usd("web") == 1.5


def test_an_attempt_without_a_known_price_counts_as_nothing(moment: Moment) -> None:
    key = limited(usd=0.1)
    with clock.using(moment.monotonic_ns, moment.wall_ns):
        allowance = key_limits([key], lambda attempt: None)
        allowance.charge("web", ATTEMPT)
        assert allowance.spent_usd("web") == 0


KEY = "a-key-of-a-client-of-ours"


def client_key(*, requests: int | None = None, usd: float | None = None) -> ClientKey:
    digest = hashlib.sha256(KEY.encode()).digest()
    return ClientKey("web", digest, requests_per_minute=requests, usd_per_day=usd)


def test_exceeded_rate_limit_has_openais_error_and_headers() -> None:
    async def main() -> None:
        key = client_key(requests=1)
        allowance = key_limits([key], lambda attempt: None)
        headers = {"authorization": f"Bearer {KEY}"}
        service = FakeService(script=lambda call: Script())
        first = await visitor(service, key, limits=allowance).asks(CHAT, headers=headers)
        assert first.status == 200
        assert first.headers["x-ratelimit-remaining-requests"] == "0"
        second = await visitor(service, key, limits=allowance).asks(CHAT, headers=headers)
        assert second.status == 429
        assert second.json["error"]["type"] == "rate_limit_error"
        assert second.json["error"]["code"] == "rate_limit_exceeded"
        assert int(second.headers["retry-after"]) >= 1
        assert second.headers["x-ratelimit-limit-requests"] == "1"
        assert KEY not in str(second.json)
        assert len(service.calls) == 1

    run_virtual(main())


def test_losers_are_charged_and_spent_budget_is_refused() -> None:
    async def main() -> None:
        key = client_key(usd=0.5)
        allowance = key_limits(
            [key], lambda attempt: 0.25 if attempt.outcome == "cancelled" else 0.30
        )
        tracker = CallTracker(charge=allowance.charge)

        def fake(ttft: float) -> FakeService:
            return FakeService(script=lambda call: Script(ttft=ttft))

        headers = {"authorization": f"Bearer {KEY}"}
        given: dict[str, Any] = {"limits": allowance, "tracker": tracker}
        assert (
            await visitor(race(fake(0.1), fake(0.9)), key, **given).asks(CHAT, headers=headers)
        ).status == 200
        assert allowance.spent_usd("web") == pytest.approx(0.55)
        refused = await visitor(race(fake(0.1), fake(0.9)), key, **given).asks(
            CHAT, headers=headers
        )
        assert refused.status == 429
        assert (
            refused.json["error"]["type"] == refused.json["error"]["code"] == "insufficient_quota"
        )
        assert int(refused.headers["retry-after"]) <= DAY_S

    run_virtual(main())


Visits = Callable[[], Visitor]
AS_WEB = {"authorization": f"Bearer {KEY}"}
TEN = Script(tokens=10, ttft=1)


def purse(usd: float, script: Script) -> tuple[KeyLimits, Visits]:
    """A key with so much for a day, whose calls cost a cent for each token that they may have: what
    is left of it, and how it visits."""
    key = client_key(usd=usd)
    allowance = key_limits([key], lambda attempt: (attempt.output_tokens or 0) / 100)
    tracker = CallTracker(charge=allowance.charge)
    service = FakeService(script=lambda call: script)
    return allowance, lambda: visitor(service, key, limits=allowance, tracker=tracker)


def test_many_calls_at_once_do_not_pass_a_limit_in_money() -> None:
    async def main() -> None:
        allowance, visits = purse(0.35, TEN)
        visitors = [visits() for _ in range(20)]
        async with asyncio.TaskGroup() as group:
            for each in visitors:
                group.create_task(each.asks(CHAT | {"max_tokens": 10}, headers=AS_WEB))
        assert [each.status for each in visitors] == [200] * 4 + [429] * 16
        assert allowance.spent_usd("web") == pytest.approx(0.4)
        refused = visitors[-1]
        assert refused.json["error"]["code"] == "rate_limit_exceeded"  # not for the day
        assert refused.headers["retry-after"] == "1"
        assert (await visits().asks(CHAT, headers=AS_WEB)).json["error"][
            "code"
        ] == "insufficient_quota"

    run_virtual(main())


def test_unused_reservation_is_available_to_later_calls() -> None:
    async def main() -> None:
        allowance, visits = purse(0.35, TEN)
        dear = CHAT | {"max_tokens": 1000}
        for _ in range(3):
            assert (await visits().asks(dear, headers=AS_WEB)).status == 200
        assert allowance.reserved_usd("web") == 0
        assert allowance.spent_usd("web") == pytest.approx(0.3)

    run_virtual(main())


FAULT = ProviderFault("down", kind="http_500", phase="head", status=500)


@each_case("body", [CHAT, STREAM], ids=["whole", "streamed"])
@each_case("leaves_s", [None, 0.5, 1.05], ids=str)
@each_case(
    "script", [TEN, Script(fault=FAULT), Script(fault=FAULT, breaks_after=3, ttft=1)], ids=str
)
def test_reservation_is_released_once_however_the_call_ends(
    body: dict[str, Any], leaves_s: float | None, script: Script
) -> None:
    async def main() -> None:
        allowance, visits = purse(9.0, script)
        for _ in range(3):
            client = visits()
            if leaves_s is not None:
                asyncio.get_running_loop().call_later(leaves_s, client.leave)
            task = asyncio.create_task(client.asks(body | {"max_tokens": 100}, headers=AS_WEB))
            await asyncio.sleep(0.1)
            assert allowance.reserved_usd("web") == pytest.approx(1.0)
            await task
            await asyncio.sleep(3)
            assert allowance.reserved_usd("web") == 0

    run_virtual(main())


def test_race_reserves_dearest_response_and_all_other_prompts() -> None:
    prices = {"a/x": 1.0, "b/x": 3.0}

    def price(attempt: Observation) -> float | None:
        usd = prices.get(attempt.target)
        return (
            None
            if usd is None
            else usd * ((attempt.input_tokens or 0) + 10 * (attempt.output_tokens or 0))
        )

    allowance = key_limits([limited(usd=1.0)], price)
    made = Call(
        id="c", client="web", body={"prompt": "a" * 38, "max_tokens": 5}, operation="completions"
    )
    reservation = allowance.reserve(made, "fast", parse('race("a/x", "b/x", "c/x")'))
    assert reservation is not None
    tokens = conservative_input_tokens(made)
    assert allowance.reserved_usd("web") == pytest.approx(3.0 * (tokens + 50) + 1.0 * tokens)
    reservation.release()
    assert allowance.reserved_usd("web") == 0
    assert allowance.reserve(made, "fast", parse('"c/x"')) is None


def test_absurd_reservation_is_capped_at_the_maximum() -> None:
    allowance = key_limits([limited(usd=1.0)], lambda attempt: 1e6 * (attempt.output_tokens or 0))
    body = {"messages": [], "max_tokens": 10**30, "n": 10**30}
    call = Call(id="c", client="web", body=body)
    reservation = allowance.reserve(call, "fast", parse('"a/x"'))
    assert reservation is not None
    assert allowance.reserved_usd("web") == MAX_RESERVED_USD
    with pytest.raises(LimitReached):
        allowance.reserve(call, "fast", parse('"a/x"'))
    reservation.release()
    assert allowance.reserved_usd("web") == 0
