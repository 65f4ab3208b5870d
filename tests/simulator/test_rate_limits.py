"""A provider with rate limits: the remaining amounts, the 429 of each API format, and the time to
wait."""

import asyncio
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case
from tests.simulator.in_virtual_time import Client, Exchange

from splitsecond.core import clock
from splitsecond.core.errors import ProviderFault
from splitsecond.core.events import RateLimits
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, responses
from splitsecond.core.wire.rate_limits import rate_limits
from splitsecond.simulator.profile import Profile, Quantiles, RateLimitSpec, TableRow
from splitsecond.simulator.rate_limit import SimulatedRateLimit
from splitsecond.testing.virtual_time import run_virtual

SECOND = clock.NS_PER_S
CHAT = "/v1/chat/completions"
USER = {"messages": [{"role": "user", "content": "hello"}]}
WAYS: Mapping[str, tuple[ModuleType, str, dict[str, Any]]] = {
    "openai": (openai, CHAT, USER),
    "responses": (responses, "/v1/responses", {"input": "hello"}),
    "anthropic": (anthropic, "/v1/messages", USER | {"max_tokens": 5}),
    "gemini": (
        gemini,
        "/v1beta/models/m:generateContent",
        {"contents": [{"parts": [{"text": "hello"}]}]},
    ),
    "cohere": (cohere, "/v2/chat", USER),
    "ollama": (ollama, "/api/chat", USER),
}
WITH_HEADERS = ("openai", "responses", "anthropic")
TOKENS = 13 + 5
"""Of a request and its answer."""


def limited(requests: int | None = None, tokens: int | None = None) -> Profile:
    rows = (TableRow(concurrency=1, ttft_ms=Quantiles(1, 1), tps=Quantiles(1000, 1000)),)
    limits = RateLimitSpec(requests_per_minute=requests, tokens_per_minute=tokens)
    return Profile(name="p", title="t", model="m", table=rows, output_tokens=5, rate_limits=limits)


def asked(
    profile: Profile, name: str, times: int, *, pause_s: float = 0.0, stream: bool = False
) -> list[Exchange]:
    """Return the exchanges of `times` requests in one API format, each after the pause."""
    _, path, body = WAYS[name]
    fields: dict[str, Any] = {**body, **({} if name == "gemini" else {"stream": stream})}

    async def play() -> list[Exchange]:
        client = Client(profile)
        exchanges = []
        for _ in range(times):
            exchanges.append(await client.send(path=path, **fields))
            await asyncio.sleep(pause_s)
        return exchanges

    return run_virtual(play())


def headers_of(exchange: Exchange) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in exchange.headers.items()}


@each_case("name", WAYS)
def test_excess_request_is_refused_in_its_api_format(name: str) -> None:
    first, second, third = asked(limited(requests=2), name, 3)
    assert (first.status, second.status, third.status) == (200, 200, 429)
    fault = WAYS[name][0].fault_from_response(429, headers_of(third), third.body)
    assert isinstance(fault, ProviderFault)
    assert (
        "Rate limit reached for requests per minute: limit 2. Please try again in 29.9"
        in fault.message
    )
    assert fault.retry_after_ns is not None
    assert 29.9 <= fault.retry_after_ns / SECOND <= 30
    assert ("retry-after" in headers_of(third)) == (name != "gemini")


def test_gemini_sends_the_retry_delay_in_the_body() -> None:
    *_, refused = asked(limited(requests=1), "gemini", 2)
    error = refused.json["error"]
    assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
    (detail,) = error["details"]
    assert detail["@type"] == "type.googleapis.com/google.rpc.RetryInfo"
    assert detail["retryDelay"].startswith("59.9")
    assert detail["retryDelay"].endswith("s")


def test_openai_error_type_names_the_exceeded_limit() -> None:
    *_, of_requests = asked(limited(requests=1), "openai", 2)
    *_, of_tokens = asked(limited(requests=9, tokens=TOKENS), "openai", 2)
    assert (of_requests.json["error"]["type"], of_tokens.json["error"]["type"]) == (
        "requests",
        "tokens",
    )
    assert of_requests.json["error"]["code"] == "rate_limit_exceeded"


@each_case("stream", [True, False])
@each_case("name", WITH_HEADERS)
def test_every_response_reports_the_remaining_limits(name: str, stream: bool) -> None:
    exchanges = asked(limited(requests=2, tokens=100), name, 3, stream=stream)
    said = [rate_limits({**headers_of(exchange), "date": _now()}) for exchange in exchanges]
    assert None not in said
    left = [
        (one.requests_left, one.requests_limit, one.tokens_left, one.tokens_limit)
        for one in said
        if one
    ]
    assert left == [
        (1, 2, 100 - TOKENS, 100),
        (0, 2, 100 - 2 * TOKENS, 100),
        (0, 2, 100 - 2 * TOKENS, 100),
    ]
    resets = [one.requests_reset_ns for one in said if one]
    for reset, expected_s in zip(resets, (30, 60, 60), strict=True):
        assert reset is not None
        # a moment is sent in whole seconds
        assert expected_s - 0.1 <= reset / SECOND <= expected_s + 1


def _now() -> str:
    """Return the test's wall-clock time as an HTTP date."""
    return run_virtual(_date())


async def _date() -> str:
    return clock.wall_time().strftime("%a, %d %b %Y %H:%M:%S GMT")


@pytest.mark.parametrize("name", [name for name in WAYS if name not in WITH_HEADERS])
def test_api_format_without_limit_headers_sends_none(name: str) -> None:
    for exchange in asked(limited(requests=1), name, 2):
        assert rate_limits(headers_of(exchange)) is None


def test_rate_limit_refills_over_time() -> None:
    exchanges = asked(limited(requests=6), "openai", 20, pause_s=5)
    statuses = [exchange.status for exchange in exchanges]
    assert statuses[:10] == [200] * 10
    # 6 at first, one in 10 s of the 95 after that
    assert sum(status == 200 for status in statuses) in (15, 16)


def test_no_limit_headers_without_limits() -> None:
    async def play() -> Exchange:
        return await Client(Profile(name="p", title="t", model="m", table=limited(1).table)).send(
            max_tokens=1
        )

    assert rate_limits(headers_of(run_virtual(play()))) is None


def test_refused_request_is_in_the_truth_and_uses_no_limit() -> None:
    async def play() -> list[str]:
        client = Client(limited(requests=9, tokens=2 * TOKENS))
        for _ in range(4):
            await client.send(path=CHAT)
        return [record.fault for record in client.truth()]

    assert run_virtual(play()) == ["", "", "rate_limited", "rate_limited"]


def test_request_above_the_token_limit_waits_for_a_full_limit() -> None:
    allowance = SimulatedRateLimit(RateLimitSpec(tokens_per_minute=60))
    assert allowance.take(100, 0) is None
    short = allowance.take(100, 15 * SECOND)
    assert short is not None
    assert short.wait_ns == 45 * SECOND
    assert allowance.take(100, 60 * SECOND) is None


def test_longest_wait_of_both_limits_is_reported() -> None:
    allowance = SimulatedRateLimit(RateLimitSpec(requests_per_minute=1, tokens_per_minute=600))
    assert allowance.take(100, 0) is None
    short = allowance.take(600, SECOND)
    assert short is not None
    assert (short.unit, short.limit, short.wait_ns) == ("requests", 1, 59 * SECOND)
    assert allowance.state() == RateLimits(0, 1, 59 * SECOND, 510, 600, 9 * SECOND)


@given(
    st.integers(1, 100),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30 * SECOND)), max_size=40),
)
def test_request_after_retry_after_is_served_within_the_limit(
    limit: int, asked: list[tuple[int, int]]
) -> None:
    allowance = SimulatedRateLimit(RateLimitSpec(tokens_per_minute=limit))
    now, served = 0, 0
    for tokens, pause_ns in asked:
        now += pause_ns
        short = allowance.take(tokens, now)
        if short is not None:
            now += short.wait_ns
            assert allowance.take(tokens, now) is None
        served += min(tokens, limit)
        assert (served - limit) * 60 * SECOND <= now * limit
