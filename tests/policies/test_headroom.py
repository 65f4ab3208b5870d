"""How much of a rate limit is left: what the provider said, less what was sent since."""

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.events import RateLimits
from splitsecond.routing.targets.headroom import LONGEST_NS, UNKNOWN_RESET_NS, RateLimitHeadroom

NOW = 100 * NS_PER_S
IN_A_MINUTE = RateLimits(requests_left=3, requests_reset_ns=60 * NS_PER_S)


def test_headroom_without_reports_is_unlimited() -> None:
    assert RateLimitHeadroom().exhausted_until_ns(NOW, 1000) == 0
    assert RateLimitHeadroom().remaining(NOW, 1000) == (None, None)


def test_requests_sent_since_the_report_reduce_headroom() -> None:
    quota = RateLimitHeadroom()
    quota.observe(IN_A_MINUTE, NOW, 10)
    assert [quota.remaining(NOW, number)[0] for number in (10, 11, 12, 13, 14)] == [3, 2, 1, 0, 0]
    assert quota.exhausted_until_ns(NOW, 12) == 0
    assert quota.exhausted_until_ns(NOW, 13) == NOW + 60 * NS_PER_S


def test_headroom_is_unknown_after_the_reset() -> None:
    quota = RateLimitHeadroom()
    quota.observe(IN_A_MINUTE, NOW, 10)
    assert quota.exhausted_until_ns(NOW + 60 * NS_PER_S, 20) == 0
    assert quota.remaining(NOW + 60 * NS_PER_S, 20) == (None, None)


def test_report_on_the_latest_request_counts() -> None:
    quota = RateLimitHeadroom()
    quota.observe(RateLimits(requests_left=0, requests_reset_ns=60 * NS_PER_S), NOW, 12)
    # older, and ended later
    quota.observe(RateLimits(requests_left=9, requests_reset_ns=60 * NS_PER_S), NOW, 11)
    assert quota.exhausted_until_ns(NOW, 12)
    quota.observe(RateLimits(requests_left=9, requests_reset_ns=60 * NS_PER_S), NOW, 13)
    assert not quota.exhausted_until_ns(NOW, 13)


def test_tokens_are_counted_as_requests_use_them() -> None:
    quota = RateLimitHeadroom()
    quota.observe(RateLimits(tokens_left=5000, tokens_reset_ns=30 * NS_PER_S), NOW, 1)
    assert quota.remaining(NOW, 9) == (None, 5000)  # nobody knows what one takes
    quota.record_tokens(1000)
    assert quota.remaining(NOW, 4) == (None, 2000)
    assert quota.exhausted_until_ns(NOW, 5) == 0
    assert quota.exhausted_until_ns(NOW, 6) == NOW + 30 * NS_PER_S
    for _ in range(100):
        quota.record_tokens(100)
    assert quota.remaining(NOW, 6)[1] == 4500


def test_zero_tokens_left_exhausts_the_limit_for_any_request() -> None:
    quota = RateLimitHeadroom()
    quota.observe(RateLimits(tokens_left=0, tokens_reset_ns=30 * NS_PER_S), NOW, 1)
    assert quota.exhausted_until_ns(NOW, 1) == NOW + 30 * NS_PER_S


def test_missing_or_distant_reset_times_have_bounds() -> None:
    quota = RateLimitHeadroom()
    quota.observe(RateLimits(requests_left=0), NOW, 1)
    assert quota.exhausted_until_ns(NOW, 1) == NOW + UNKNOWN_RESET_NS
    quota.observe(RateLimits(requests_left=0, requests_reset_ns=24 * LONGEST_NS), NOW, 2)
    assert quota.exhausted_until_ns(NOW, 2) == NOW + LONGEST_NS
