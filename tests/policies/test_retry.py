"""`retry`: after which failures, after which wait, and how often."""

from random import Random

import pytest
from tests.policies.branches import (
    a_call,
    ask,
    bad_request,
    fails,
    play,
    refused,
    reset,
    scripted,
    silent,
    status,
)

from splitsecond.core import clock
from splitsecond.core.errors import AllFailed, Fault
from splitsecond.core.service import Service
from splitsecond.routing.machinery.definition import PolicyContext
from splitsecond.routing.policies.fallback import fallback
from splitsecond.routing.policies.retry import TIMER_NS, retry
from splitsecond.testing.fake_service import FakeService, Script

GOOD = Script(ttft=0.2)


def with_chance(fake: FakeService, times: int = 2, extra_load: float = 0.1) -> Service:
    return retry(fake, times=times, extra_load=extra_load, context=PolicyContext(chance=Random(1)))


@pytest.mark.parametrize("fault", [reset(), status(500), status(503), status(429)])
def test_transient_failure_is_retried_after_a_wait(fault: Fault) -> None:
    fake = scripted(fails(fault, 0.1), fails(fault, 0.1), GOOD)

    async def main() -> None:
        seen = await ask(with_chance(fake))
        assert seen.fault is None
        assert 400 + 50 + 100 <= seen.ms <= 400 + 100 + 200
        assert len(fake.calls) == 3

    play(main, [fake])


@pytest.mark.parametrize("fault", [bad_request(), silent(), refused(), status(401)])
def test_a_permanent_failure_is_raised(fault: Fault) -> None:
    fake = scripted(fails(fault))

    async def main() -> None:
        assert (await ask(with_chance(fake))).fault is fault
        assert len(fake.calls) == 1

    play(main, [fake])


def test_after_the_last_attempt_all_failures_are_listed() -> None:
    fake = scripted(fails(reset()), fails(status(503)), fails(status(500)))

    async def main() -> None:
        failed = (await ask(with_chance(fake))).fault
        assert isinstance(failed, AllFailed)
        assert [cause.kind for cause in failed.causes] == ["reset", "http_503", "http_500"]

    play(main, [fake])


def test_an_invalid_request_in_a_later_attempt_is_raised() -> None:
    wrong = bad_request()
    fake = scripted(fails(reset()), fails(wrong))

    async def main() -> None:
        assert (await ask(with_chance(fake))).fault is wrong

    play(main, [fake])


def test_retry_waits_for_the_retry_after() -> None:
    fake = scripted(fails(status(429, retry_after_s=7), 0.1), GOOD)

    async def main() -> None:
        # timers can fire early
        assert (await ask(with_chance(fake))).ms == 7300 + TIMER_NS / clock.NS_PER_MS

    play(main, [fake])


@pytest.mark.parametrize(("retry_after_s", "within_ms"), [(60, None), (3, 2000)])
def test_retry_after_that_is_too_long_is_not_waited_for(
    retry_after_s: float, within_ms: int | None
) -> None:
    fake = scripted(fails(status(429, retry_after_s), 0.1), GOOD)

    async def main() -> None:
        seen = await ask(with_chance(fake), a_call(within_ms=within_ms))
        assert (seen.fault and seen.fault.kind, seen.ms) == ("http_429", 100)

    play(main, [fake])


@pytest.mark.parametrize(("wait", "asked"), [("2s", 2), ("1999ms", 1), ("100ms", 1)])
def test_setting_wait_is_the_longest_wait(wait: str, asked: int) -> None:
    fake = scripted(fails(status(429, retry_after_s=2), 0.1), GOOD)

    async def main() -> None:
        await ask(retry(fake, wait=wait))
        assert len(fake.calls) == asked

    play(main, [fake])


def test_retries_never_exceed_the_budget() -> None:
    fake = scripted(fails(status(503), 0.01))

    async def main() -> None:
        service = with_chance(fake, times=3, extra_load=0.1)
        for number in range(300):
            await ask(service, a_call(number))
            assert len(fake.calls) <= (number + 1) * 1.1 + 10
        assert len(fake.calls) > 320

    play(main, [fake])


def test_a_fallback_does_not_repeat_what_retry_repeated() -> None:
    first, second = scripted(fails(status(500))), scripted(GOOD)

    async def main() -> None:
        assert (await ask(fallback(with_chance(first), second))).fault is None
        assert len(first.calls) == 3

    play(main, [first, second])
