"""Headers with the timing and the cost of a whole response."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.test_app import MS, fake
from tests.gateway.visitor import CHAT, STREAM, OneRoute, visitor, visits

from splitsecond.core.money.closed_early import Billing
from splitsecond.core.observation import Observation
from splitsecond.core.service import Call, Reply, Service
from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.router.call_tracker import CallTracker
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import START_NS, run_virtual


def test_a_whole_response_has_a_header_with_its_timing() -> None:
    async def main() -> None:
        tracker = CallTracker()
        service = FakeService(script=lambda call: Script(ttft=0.2, tokens=11, tps=100))
        client = await visitor(service, tracker=tracker).asks(CHAT)
        timed = [value for name, value in client.answer.pairs if name == "server-timing"]
        assert timed == ["ttft;dur=200.000", "connect;dur=0.000, upstream;dur=300.000"]

    run_virtual(main())


PRICES = {"a/x": 1e-6, "b/x": 1e-3, "free/x": 0.0}


def per_token(attempt: Observation) -> float | None:
    """Return the cost of an attempt by `PRICES`, which hold for input and output."""
    price = PRICES.get(attempt.target)
    if price is None or attempt.input_tokens is None or attempt.output_tokens is None:
        return None
    return price * (attempt.input_tokens + attempt.output_tokens)


@pytest.mark.parametrize(
    ("policy", "body", "expected"),
    [
        ('"a/x"', CHAT, "0.000021"),
        # the loser costs its prompt, which is as long as the winner's
        ('race("a/x", "b/x")', CHAT, "0.010021"),
        ('"free/x"', CHAT, "0"),
        ('"nobody/knows"', CHAT, None),
        ('"a/x"', STREAM, None),  # the headers are sent before the cost is known
    ],
)
def test_a_whole_response_has_a_header_with_its_cost(
    policy: str, body: Any, expected: str | None
) -> None:
    async def main() -> None:
        tracker = CallTracker()
        ttft = {"b/x": 0.5}

        def target(name: str) -> Service:
            script = Script(ttft=ttft.get(name, 0.2), tokens=11, input_tokens=10)
            return FakeService(target=name, script=lambda call: script)

        client = visitor(fake(), tracker=tracker)
        routes: Any = OneRoute(build(parse(policy), target, make_encoder=continuation_encoder))
        client.gateway.use(routes, billing=Billing(per_token))
        await client.asks(body)
        assert client.status == 200
        assert client.headers.get("x-splitsecond-cost-usd") == expected

    run_virtual(main())


@pytest.mark.parametrize(
    ("stops", "expected"),
    [(True, ["0.010021", None, None]), (False, ["0.021021", "0.010021", "0.110021"]),
     (None, ["0.010021", "0.010021", "0.110021"])],
)  # fmt: skip
def test_the_cost_of_a_loser_follows_its_providers_billing_rule(
    stops: bool | None, expected: list[str | None]
) -> None:
    """b/x is closed before its first token. If the provider goes on billing, the expected answer
    has the winner's 11 tokens, and the longest one `max_tokens`."""

    async def main() -> None:
        def target(name: str) -> Service:
            script = Script(ttft={"b/x": 0.5}.get(name, 0.2), tokens=11, input_tokens=10)
            return FakeService(target=name, script=lambda call: script)

        client = visitor(fake(), tracker=CallTracker())
        routes: Any = OneRoute(
            build(parse('race("a/x", "b/x")'), target, make_encoder=continuation_encoder)
        )
        client.gateway.use(routes, billing=Billing(per_token, {"b/x": stops}.get))
        await client.asks({**CHAT, "max_tokens": 100})
        names = ("cost-usd", "cost-low-usd", "cost-high-usd")
        assert [client.headers.get(f"x-splitsecond-{name}") for name in names] == expected

    run_virtual(main())


class EndsLater:
    """Wrapper of `reply` whose body, and with it the attempt, ends `after_s` after its last
    event."""

    def __init__(self, reply: Reply, after_s: float, end: Callable[[], None]) -> None:
        self._reply, self._after_s, self._end = reply, after_s, end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reply, name)

    async def finished(self) -> None:
        await asyncio.sleep(self._after_s)
        self._end()


@pytest.mark.parametrize(
    ("after_ms", "expected", "sent_ms"),
    [(5, "0.000021", 305), (19, "0.000021", 319), (1000, None, 320)],
)
def test_end_of_the_attempt_is_awaited_20_ms_for_the_cost(
    after_ms: int, expected: str | None, sent_ms: int
) -> None:
    async def main() -> None:
        tracker = CallTracker()
        ended: list[Observation] = []
        fake_one = FakeService(
            target="a/x", script=lambda call: Script(ttft=0.2, tokens=11, tps=100, input_tokens=10)
        )

        async def ask(call: Call) -> Any:
            observe, call.notes.observer = call.notes.observer, ended.append
            assert observe is not None
            return EndsLater(await fake_one(call), after_ms / 1000, lambda: observe(ended[0]))

        client = visitor(ask, tracker=tracker)
        client.gateway.use(OneRoute(ask), billing=Billing(per_token))  # type: ignore[arg-type]
        await client.asks(CHAT)
        assert client.status == 200
        assert client.headers.get("x-splitsecond-cost-usd") == expected
        assert (client.times[0] - START_NS) // MS == sent_ms

    run_virtual(main())


def test_a_cached_response_costs_nothing() -> None:
    async def main() -> None:
        tracker = CallTracker()
        script = Script(ttft=0.2, tokens=11, input_tokens=10)
        target = FakeService(target="a/x", script=lambda call: script)
        client = visitor(fake(), tracker=tracker)
        routes: Any = OneRoute(
            build(
                parse('cache("a/x", ttl="1m", sampled=True)'),
                lambda name: target,
                make_encoder=continuation_encoder,
            )
        )
        client.gateway.use(routes, billing=Billing(per_token))
        answers = [await visits(client.gateway).asks(CHAT) for _ in range(2)]
        assert [each.headers["x-splitsecond-cache"] for each in answers] == ["miss", "hit"]
        assert [each.headers["x-splitsecond-cost-usd"] for each in answers] == ["0.000021", "0"]

    run_virtual(main())
