"""Rate limits of the simulated provider in response headers, in the two forms that
`core/wire/rate_limits` reads."""

from collections.abc import Callable
from datetime import datetime, timedelta

from splitsecond.core.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from splitsecond.core.events import RateLimits

Headers = list[tuple[bytes, bytes]]


def openai_limits(limits: RateLimits, now: datetime) -> Headers:
    """Return the headers of OpenAI: a reset is a duration (``120ms``, ``6m0s``)."""
    return _headers(limits, "x-ratelimit-{what}-{unit}", _duration_text)


def anthropic_limits(limits: RateLimits, now: datetime) -> Headers:
    """Return the headers of Anthropic: a reset is a moment in whole seconds, relative to `now`, in
    UTC."""
    return _headers(
        limits, "anthropic-ratelimit-{unit}-{what}", lambda reset_ns: _moment_text(now, reset_ns)
    )


def _headers(limits: RateLimits, name: str, reset: Callable[[int], str]) -> Headers:
    both = (
        ("requests", limits.requests_left, limits.requests_limit, limits.requests_reset_ns),
        ("tokens", limits.tokens_left, limits.tokens_limit, limits.tokens_reset_ns),
    )
    return [
        (name.format(unit=unit, what=what).encode(), value.encode())
        for unit, left, limit, reset_ns in both
        if left is not None
        for what, value in (
            ("limit", f"{limit}"),
            ("remaining", f"{left}"),
            ("reset", reset(reset_ns or 0)),
        )
    ]


def _duration_text(ns: int) -> str:
    if ns < NS_PER_S:
        return f"{-(-ns // NS_PER_MS)}ms"
    seconds = -(-ns // NS_PER_MS) / 1000
    minutes = int(seconds // 60)
    rest = f"{seconds - 60 * minutes:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _moment_text(now: datetime, ns: int) -> str:
    then = now + timedelta(microseconds=ns // NS_PER_US)
    if then.microsecond:
        then = then.replace(microsecond=0) + timedelta(seconds=1)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")
