"""Rate limits as headers: what is written is what is read again, in each family; and what it looks
like."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.events import RateLimits
from splitsecond.core.wire.rate_limits import rate_limits
from splitsecond.simulator.rate_limit import Headers, anthropic_limits, openai_limits

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
DATE = {"date": "Sat, 21 Nov 2026 12:00:00 GMT"}
counts = st.integers(0, 10**9)
resets = st.integers(0, 3600 * NS_PER_S)


def as_read(headers: Headers) -> dict[str, str]:
    return DATE | {name.decode(): value.decode() for name, value in headers}


@each_case(
    "reset_ns, duration, moment",
    [
        (0, "0ms", "2026-11-21T12:00:00Z"),
        (120 * NS_PER_MS, "120ms", "2026-11-21T12:00:01Z"),
        (1, "1ms", "2026-11-21T12:00:00Z"),
        (1500 * NS_PER_MS, "1.5s", "2026-11-21T12:00:02Z"),
        (360 * NS_PER_S, "6m0s", "2026-11-21T12:06:00Z"),
        (90_250 * NS_PER_MS, "1m30.25s", "2026-11-21T12:01:31Z"),
    ],
)
def test_reset_is_a_duration_or_a_timestamp(reset_ns: int, duration: str, moment: str) -> None:
    limits = RateLimits(3, 5, reset_ns)
    assert dict(openai_limits(limits, NOW)) == {
        b"x-ratelimit-limit-requests": b"5",
        b"x-ratelimit-remaining-requests": b"3",
        b"x-ratelimit-reset-requests": duration.encode(),
    }
    assert dict(anthropic_limits(limits, NOW)) == {
        b"anthropic-ratelimit-requests-limit": b"5",
        b"anthropic-ratelimit-requests-remaining": b"3",
        b"anthropic-ratelimit-requests-reset": moment.encode(),
    }


@pytest.mark.parametrize(
    ("write", "step_ns"), [(openai_limits, NS_PER_MS), (anthropic_limits, NS_PER_S)]
)
@given(limits=st.builds(RateLimits, counts, counts, resets, counts, counts, resets))
def test_written_rate_limit_headers_are_read_back(
    write: Callable[[RateLimits, datetime], Headers], step_ns: int, limits: RateLimits
) -> None:
    read = rate_limits(as_read(write(limits, NOW)))
    assert read is not None
    assert (read.requests_left, read.requests_limit) == (
        limits.requests_left,
        limits.requests_limit,
    )
    assert (read.tokens_left, read.tokens_limit) == (limits.tokens_left, limits.tokens_limit)
    for said, meant in (
        (read.requests_reset_ns, limits.requests_reset_ns),
        (read.tokens_reset_ns, limits.tokens_reset_ns),
    ):
        assert said is not None
        assert meant is not None
        assert -1000 <= said - meant <= step_ns, (
            "never sooner than it is, but for less than a microsecond"
        )


def test_unlimited_keys_get_no_rate_limit_headers() -> None:
    assert openai_limits(RateLimits(), NOW) == anthropic_limits(RateLimits(), NOW) == []
