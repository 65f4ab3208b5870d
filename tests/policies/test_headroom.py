"""How much of a rate limit is left: what the provider said, less what was sent since."""

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.events import RateLimits
from splitsecond.routing.targets.headroom import LONGEST_NS, UNKNOWN_RESET_NS, RateLimitHeadroom

NOW = 100 * NS_PER_S
IN_A_MINUTE = RateLimits(requests_left=3, requests_reset_ns=60 * NS_PER_S)


def test_nothing_is_held_against_a_target_that_says_nothing() -> None:
    assert RateLimitHeadroom().exhausted_until_ns(NOW, 1000) == 0
    assert RateLimitHeadroom().remaining(NOW, 1000) == (None, None)


def test_what_was_sent_since_is_taken_off() -> None:
    quota = RateLimitHeadroom()
    quota.observe(IN_A_MINUTE, NOW, 10)
    assert [quota.remaining(NOW, number)[0] for number in (10, 11, 12, 13, 14)] == [3, 2, 1, 0, 0]
    assert quota.exhausted_until_ns(NOW, 12) == 0
    assert quota.exhausted_until_ns(NOW, 13) == NOW + 60 * NS_PER_S


def test_after_the_reset_nothing_is_known() -> None:
    quota = RateLimitHeadroom()
    quota.observe(IN_A_MINUTE, NOW, 10)
    assert quota.exhausted_until_ns(NOW + 60 * NS_PER_S, 20) == 0
    assert quota.remaining(NOW + 60 * NS_PER_S, 20) == (None, None)


def test_the_report_to_the_latest_request_counts() -> None:
    quota = RateLimitHeadroom()
    quota.observe(RateLimits(requests_left=0, requests_reset_ns=60 * NS_PER_S), NOW, 12)
    quota.observe(RateLimits(requests_left=9, requests_reset_ns=60 * NS_PER_S), NOW, 11)  # older, and ended later
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


def test_no_tokens_left_is_short_whatever_a_request_takes() -> None:
    quota = RateLimitHeadroom()
    quota.observe(RateLimits(tokens_left=0, tokens_reset_ns=30 * NS_PER_S), NOW, 1)
    assert quota.exhausted_until_ns(NOW, 1) == NOW + 30 * NS_PER_S


def test_a_reset_that_is_not_said_or_far_away() -> None:
    quota = RateLimitHeadroom()
    quota.observe(RateLimits(requests_left=0), NOW, 1)
    assert quota.exhausted_until_ns(NOW, 1) == NOW + UNKNOWN_RESET_NS
    quota.observe(RateLimits(requests_left=0, requests_reset_ns=24 * LONGEST_NS), NOW, 2)
    assert quota.exhausted_until_ns(NOW, 2) == NOW + LONGEST_NS
