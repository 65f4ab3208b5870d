"""What the response headers of providers tell: rate limits, and processing times.

Two families of names, and three forms of a reset:

- OpenAI's ``x-ratelimit-{limit,remaining,reset}-{requests,tokens}``, which most providers use. Some
have several windows (Cerebras: ``-requests-day``, ``-tokens-minute``), some no unit (OpenRouter),
Azure often no reset.

- Anthropic's
  ``anthropic-ratelimit-{requests,tokens,input-tokens,output-tokens}-{limit,remaining,reset}``.

- A reset is a duration (``6m0s``, ``120ms``), a number of seconds, or a moment (RFC 3339, or
seconds or milliseconds since 1970), relative to the response's own ``Date``.

Of several windows the tightest counts. An unreadable header counts as missing: it must not fail a
valid response.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from splitsecond.core.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from splitsecond.core.events import RateLimits
from splitsecond.core.wire.provider_errors import finite_number, http_date

PROCESSING_HEADER = "openai-processing-ms"
"""OpenAI's and Azure's: milliseconds from the request's arrival to the response's headers."""
LONGEST_NS = 24 * 3600 * NS_PER_S
"""Maximum of a reset; later ones are shortened to it."""

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
"""For each window the names of what remains, of the limit, and of the reset."""
_OUTPUT = (tuple(f"anthropic-ratelimit-output-tokens-{what}" for what in _WHAT),)
_REMAINING = frozenset(names[0] for names in (*_REQUESTS, *_TOKENS, *_OUTPUT))
_COUNT = re.compile(r"\s*(\d{1,15})(?:\.\d*)?\s*\Z", re.ASCII)
_PART = re.compile(r"(\d{1,12}(?:\.\d{1,12})?)(ms|us|µs|ns|d|h|m|s)", re.ASCII)
_DURATION = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_UNIT_NS = {
    "ns": 1, "us": NS_PER_US, "µs": NS_PER_US, "ms": NS_PER_MS,
    "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S, "d": 86400 * NS_PER_S,
}  # fmt: skip
_EPOCH_S = 1e9
"""Numbers from here on are seconds since 1970, as no wait is that long."""
_EPOCH_MS = 1e11


_Window = tuple[int, int | None, int | None]
"""What remains of a limit, the limit, and the nanoseconds until it is full again."""
_UNKNOWN = (None, None, None)


def rate_limits(headers: Mapping[str, str]) -> RateLimits | None:
    """Return the limits in `headers` (names in lower case); None if there are none."""
    if _REMAINING.isdisjoint(headers):
        return None
    requests = _tightest(headers, _REQUESTS)
    tokens = _tightest(headers, _TOKENS)
    spent = _tightest(headers, _OUTPUT)
    if spent is not None and spent[0] == 0:  # while some remain, they do not limit a prompt
        tokens = spent
    if requests is None and tokens is None:
        return None
    return RateLimits(*(requests or _UNKNOWN), *(tokens or _UNKNOWN))


def _tightest(headers: Mapping[str, str], windows: Sequence[Sequence[str]]) -> _Window | None:
    """Return the window with the least remaining; of equal ones that with the latest reset."""
    tightest: _Window | None = None
    for remaining, limit, reset in windows:
        if remaining in headers:
            left = _count(headers[remaining])
            if left is not None:
                window = (left, _count(headers.get(limit)), _reset_ns(headers.get(reset), headers))
                if tightest is None or (left, -(window[2] or 0)) < (
                    tightest[0],
                    -(tightest[2] or 0),
                ):
                    tightest = window
    return tightest


def _count(text: str | None) -> int | None:
    match = _COUNT.match(text) if text else None
    return int(match[1]) if match else None


def _reset_ns(text: str | None, headers: Mapping[str, str]) -> int | None:
    """Return the nanoseconds until the reset, from 0 to `LONGEST_NS`. None: missing or
    unreadable."""
    if not text:
        return None
    ns = _duration_ns(text)
    if ns is None:
        ns = _until_ns(text, headers.get("date"))
    return None if ns is None else min(max(round(ns), 0), LONGEST_NS)


@lru_cache(maxsize=1024)
def _duration_ns(text: str) -> float | None:
    if _DURATION.fullmatch(text):
        return sum(float(number) * _UNIT_NS[unit] for number, unit in _PART.findall(text))
    seconds = finite_number(text)
    return None if seconds is None or not 0 <= seconds < _EPOCH_S else seconds * NS_PER_S


def _until_ns(text: str, date: str | None) -> float | None:
    since = http_date(date)
    if since is None:
        return None
    seconds = finite_number(text)
    try:
        if seconds is not None and seconds >= 0:
            then = datetime.fromtimestamp(seconds / 1000 if seconds >= _EPOCH_MS else seconds, UTC)
        else:
            then = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return (then - since).total_seconds() * NS_PER_S


def processing_times(headers: Mapping[str, str]) -> dict[str, float]:
    """Return the times in `headers` (names in lower case), by names with their units."""
    text = headers.get(PROCESSING_HEADER, "").strip()
    return (
        {"processing_ms": float(text)}
        if text.isascii() and text.isdigit() and len(text) < 12
        else {}
    )
