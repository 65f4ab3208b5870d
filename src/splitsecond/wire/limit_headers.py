"""The server role, writing: rate limits as headers, in the two families that `rate_limits` reads."""

from datetime import datetime, timedelta

from splitsecond.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from splitsecond.events import RateLimits

Headers = list[tuple[bytes, bytes]]


def openai_limits(limits: RateLimits, now: datetime) -> Headers:
    """OpenAI's: a reset is a duration (``120ms``, ``6m0s``)."""
    return [
        (f"x-ratelimit-{what}-{unit}".encode(), value.encode())
        for unit, left, limit, reset_ns in _windows(limits)
        for what, value in (("limit", f"{limit}"), ("remaining", f"{left}"), ("reset", _duration(reset_ns)))
    ]


def anthropic_limits(limits: RateLimits, now: datetime) -> Headers:
    """Anthropic's: a reset is a moment, in whole seconds; counted from `now`, in UTC."""
    return [
        (f"anthropic-ratelimit-{unit}-{what}".encode(), value.encode())
        for unit, left, limit, reset_ns in _windows(limits)
        for what, value in (("limit", f"{limit}"), ("remaining", f"{left}"), ("reset", _moment(now, reset_ns)))
    ]


def _windows(limits: RateLimits) -> list[tuple[str, int, int | None, int]]:
    both = (
        ("requests", limits.requests_left, limits.requests_limit, limits.requests_reset_ns),
        ("tokens", limits.tokens_left, limits.tokens_limit, limits.tokens_reset_ns),
    )
    return [(unit, left, limit, reset_ns or 0) for unit, left, limit, reset_ns in both if left is not None]


def _duration(ns: int) -> str:
    if ns < NS_PER_S:
        return f"{-(-ns // NS_PER_MS)}ms"
    seconds = -(-ns // NS_PER_MS) / 1000
    minutes = int(seconds // 60)
    rest = f"{seconds - 60 * minutes:.3f}".rstrip("0").rstrip(".")
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def _moment(now: datetime, ns: int) -> str:
    then = now + timedelta(microseconds=ns // NS_PER_US)
    if then.microsecond:
        then = then.replace(microsecond=0) + timedelta(seconds=1)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")
