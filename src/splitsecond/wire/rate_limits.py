"""What a provider says about its rate limits in the headers of an answer: how much is left, and until when.

Two families of names, and three ways to write a moment:

- OpenAI's ``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, which most took over. Some have several windows
  (Cerebras: ``-requests-day``, ``-tokens-minute``), some no unit (OpenRouter), Azure often no reset.
- Anthropic's ``anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}``.
- A reset is a duration (``6m0s``, ``120ms``), a number of seconds, or a moment (RFC 3339, or seconds or milliseconds
  since 1970). Moments are counted from the answer's own ``Date``, as our clock need not agree with theirs.

Of several windows the tightest counts. What cannot be read is taken for not said: a header that is wrong must not fail
an answer that is right.
"""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from splitsecond.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from splitsecond.events import RateLimits
from splitsecond.wire.refusals import http_date

LONGEST_NS = 24 * 3600 * NS_PER_S
"""A reset that is later than this counts as this."""

_WHAT = ("remaining", "limit", "reset")
_REQUESTS, _TOKENS = (
    tuple(
        [tuple(f"x-ratelimit-{what}{window}" for what in _WHAT) for window in windows]
        + [tuple(f"anthropic-ratelimit-{unit}-{what}" for what in _WHAT) for unit in units]
    )
    for windows, units in (
        (("-requests", "", "-requests-minute", "-requests-day"), ("requests",)),
        (("-tokens", "-tokens-minute", "-tokens-day"), ("tokens", "input-tokens")),
    )
)
"""For each window the names of what is left, of the limit, and of the reset."""
_OUTPUT = (tuple(f"anthropic-ratelimit-output-tokens-{what}" for what in _WHAT),)
_TELLING = frozenset(names[0] for names in (*_REQUESTS, *_TOKENS, *_OUTPUT))
_COUNT = re.compile(r"\s*(\d{1,15})(?:\.\d*)?\s*\Z", re.ASCII)
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|us|µs|ns|d|h|m|s)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_UNIT_NS = {
    "ns": 1, "us": NS_PER_US, "µs": NS_PER_US, "ms": NS_PER_MS,
    "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S, "d": 86400 * NS_PER_S,
}  # fmt: skip
_EPOCH_S = 1e9
"""Seconds: so many have passed since 1970, and nobody asks to wait so long."""
_EPOCH_MS = 1e11


_Window = tuple[int, int | None, int | None]
"""What is left of a limit, the limit, and in how long it is whole again."""
_UNSAID = (None, None, None)


def rate_limits(headers: Mapping[str, str]) -> RateLimits | None:
    """What `headers` (names in lower case) say; None where they say nothing."""
    if _TELLING.isdisjoint(headers):
        return None
    requests = _tightest(headers, _REQUESTS)
    tokens = _tightest(headers, _TOKENS)
    spent = _tightest(headers, _OUTPUT)
    if spent is not None and spent[0] == 0:  # while some are left they cannot be held against a prompt
        tokens = spent
    if requests is None and tokens is None:
        return None
    return RateLimits(*(requests or _UNSAID), *(tokens or _UNSAID))


def _tightest(headers: Mapping[str, str], windows: Sequence[Sequence[str]]) -> _Window | None:
    """Of `windows` that of which least is left; then that which lasts longest."""
    tightest: _Window | None = None
    for remaining, limit, reset in windows:
        if remaining in headers:
            left = _count(headers[remaining])
            if left is not None:
                window = (left, _count(headers.get(limit)), _reset_ns(headers.get(reset), headers))
                if tightest is None or (left, -(window[2] or 0)) < (tightest[0], -(tightest[2] or 0)):
                    tightest = window
    return tightest


def _count(text: str | None) -> int | None:
    found = _COUNT.match(text) if text else None
    return int(found[1]) if found else None


def _reset_ns(text: str | None, headers: Mapping[str, str]) -> int | None:
    """In how long: from 0 to `LONGEST_NS`. None: not said, or not to be understood."""
    if not text:
        return None
    ns = _duration_ns(text)
    if ns is None:
        ns = _until_ns(text, headers.get("date"))
    return None if ns is None else min(max(round(ns), 0), LONGEST_NS)


@lru_cache(maxsize=1024)
def _duration_ns(text: str) -> float | None:
    """``1h2m3s``, ``120ms``, or a plain number of seconds."""
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNIT_NS[unit] for number, unit in _PART.findall(text))
    seconds = _number(text)
    return None if seconds is None or seconds >= _EPOCH_S else seconds * NS_PER_S


def _until_ns(text: str, date: str | None) -> float | None:
    """From the answer's date to the moment that `text` names."""
    since = http_date(date)
    if since is None:
        return None
    seconds = _number(text)
    try:
        if seconds is not None:
            then = datetime.fromtimestamp(seconds / 1000 if seconds >= _EPOCH_MS else seconds, UTC)
        else:
            then = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return (then - since).total_seconds() * NS_PER_S


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
