"""Rate-limit headers as providers send them, and as they should not."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.events import RateLimits
from splitsecond.core.wire.rate_limits import LONGEST_NS, rate_limits

DATE = {"date": "Tue, 04 Mar 2025 10:00:00 GMT"}
MINUTE = 60 * NS_PER_S


def openai(what: str, **values: str) -> dict[str, str]:
    return {f"x-ratelimit-{name}-{what}": text for name, text in values.items()}


def anthropic(what: str, **values: str) -> dict[str, str]:
    return {f"anthropic-ratelimit-{what}-{name}": text for name, text in values.items()}


@each_case(
    "headers, said",
    [
        pytest.param({}, None, id="nothing"),
        pytest.param({"content-type": "text/event-stream", **DATE}, None, id="other headers"),
        pytest.param(
            {
                **openai("requests", limit="10000", remaining="9999", reset="8.64s"),
                **openai("tokens", limit="200000", remaining="199700", reset="6m0s"),
            },
            RateLimits(9999, 10000, 8640 * NS_PER_MS, 199700, 200000, 6 * MINUTE),
            id="OpenAI",
        ),
        pytest.param(
            {
                **openai("requests", limit="14400", remaining="14370", reset="2m59.56s"),
                **openai("tokens", limit="18000", remaining="17997", reset="7.66ms"),
            },
            RateLimits(14370, 14400, 179_560 * NS_PER_MS, 17997, 18000, 7_660_000),
            id="Groq",
        ),
        pytest.param(
            {**openai("requests", remaining="57"), **openai("tokens", remaining="9000")},
            RateLimits(requests_left=57, tokens_left=9000),
            id="Azure: no reset",
        ),
        pytest.param(
            {
                **anthropic("requests", limit="50", remaining="49", reset="2025-03-04T10:00:01Z"),
                **anthropic(
                    "tokens", limit="48000", remaining="47000", reset="2025-03-04T10:00:30Z"
                ),
                **anthropic(
                    "input-tokens", limit="40000", remaining="39000", reset="2025-03-04T10:00:20Z"
                ),
                **anthropic(
                    "output-tokens", limit="8000", remaining="8000", reset="2025-03-04T10:00:00Z"
                ),
                **DATE,
            },
            RateLimits(49, 50, NS_PER_S, 39000, 40000, 20 * NS_PER_S),
            id="Anthropic",
        ),
        pytest.param(
            {
                **anthropic(
                    "tokens", limit="48000", remaining="47000", reset="2025-03-04T10:00:30Z"
                ),
                **anthropic(
                    "output-tokens", limit="8000", remaining="0", reset="2025-03-04T10:00:40Z"
                ),
                **DATE,
            },
            RateLimits(tokens_left=0, tokens_limit=8000, tokens_reset_ns=40 * NS_PER_S),
            id="Anthropic: no output left",
        ),
        pytest.param(
            {
                **openai("requests-day", limit="14400", remaining="3", reset="33011.382867"),
                **openai("requests-minute", limit="30", remaining="29", reset="11.38"),
                **openai("tokens-minute", limit="60000", remaining="60000", reset="11.38"),
            },
            RateLimits(3, 14400, 33_011_382_867_000, 60000, 60000, 11_380 * NS_PER_MS),
            id="Cerebras: several windows",
        ),
        pytest.param(
            {
                "x-ratelimit-limit": "20",
                "x-ratelimit-remaining": "0",
                "x-ratelimit-reset": "1741082460000",
                **DATE,
            },
            RateLimits(0, 20, MINUTE),
            id="OpenRouter: milliseconds since 1970",
        ),
        pytest.param(
            openai("requests", remaining="0", reset="2025-03-04T10:00:01Z"),
            RateLimits(requests_left=0),
            id="a moment without a date",
        ),
        pytest.param(
            {**openai("requests", remaining="0", reset="2025-03-04T09:00:00Z"), **DATE},
            RateLimits(requests_left=0, requests_reset_ns=0),
            id="a moment that has passed",
        ),
        pytest.param(
            openai("requests", remaining="1", reset="400d"),
            RateLimits(requests_left=1, requests_reset_ns=LONGEST_NS),
            id="too long",
        ),
        pytest.param(
            openai("requests", remaining="-1", limit="5"), None, id="less than none: not known"
        ),
        pytest.param(openai("requests", remaining="many", reset="soon"), None, id="words"),
        pytest.param(
            openai("requests", remaining="5", limit="", reset="6m0"),
            RateLimits(requests_left=5),
            id="half a duration",
        ),
    ],
)
def test_rate_limit_headers_of_each_provider_are_read(
    headers: Mapping[str, str], said: RateLimits | None
) -> None:
    assert rate_limits(headers) == said


NAMES = st.sampled_from(
    [
        *openai("requests", limit="", remaining="", reset=""),
        *openai("tokens-minute", limit="", remaining="", reset=""),
        *anthropic("input-tokens", limit="", remaining="", reset=""),
        "x-ratelimit-remaining",
        "date",
        "x-ratelimit-over-limit",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.integers().map(str),
    st.floats().map(str),
    st.datetimes().map(lambda moment: moment.isoformat()),
    st.from_regex(r"\A(\d+(\.\d+)?(ms|s|m|h))+\Z"),
    st.just("Tue, 04 Mar 2025 10:00:00 GMT"),
)


@given(st.dictionaries(NAMES, TEXTS))
def test_any_headers_give_plausible_rate_limits_or_none(headers: dict[str, str]) -> None:
    said = rate_limits(headers)
    if said is None:
        return
    assert said.requests_left is not None or said.tokens_left is not None
    for left, reset_ns in (
        (said.requests_left, said.requests_reset_ns),
        (said.tokens_left, said.tokens_reset_ns),
    ):
        assert left is None or left >= 0
        assert reset_ns is None or 0 <= reset_ns <= LONGEST_NS
