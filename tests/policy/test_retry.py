"""Asking again: after which failures, how much later, and how often in all."""

from random import Random

import pytest
from tests.policy.branches import a_call, ask, bad_request, fails, play, refused, reset, scripted, silent, status

from splitsecond.errors import AllFailed, Fault
from splitsecond.policy.fallback import fallback
from splitsecond.policy.retry import retry
from splitsecond.service import Service
from splitsecond.testing.fake_service import FakeService, Script

GOOD = Script(ttft=0.2)


def with_chance(fake: FakeService, times: int = 2, extra_load: float = 0.1) -> Service:
    return retry(fake, times=times, extra_load=extra_load, chance=Random(1))


@pytest.mark.parametrize("fault", [reset(), status(500), status(503), status(429)])
def test_what_may_pass_is_tried_again_a_little_later(fault: Fault) -> None:
    fake = scripted(fails(fault, 0.1), fails(fault, 0.1), GOOD)

    async def main() -> None:
        seen = await ask(with_chance(fake))
        assert seen.fault is None
        assert 400 + 50 + 100 <= seen.ms <= 400 + 100 + 200
        assert len(fake.calls) == 3

    play(main, [fake])


@pytest.mark.parametrize("fault", [bad_request(), silent(), refused(), status(401)])
def test_what_cannot_pass_is_raised(fault: Fault) -> None:
    fake = scripted(fails(fault))

    async def main() -> None:
        assert (await ask(with_chance(fake))).fault is fault
        assert len(fake.calls) == 1

    play(main, [fake])


def test_after_the_last_try_all_failures_are_told() -> None:
    fake = scripted(fails(reset()), fails(status(503)), fails(status(500)))

    async def main() -> None:
        failed = (await ask(with_chance(fake))).fault
        assert isinstance(failed, AllFailed)
        assert [cause.kind for cause in failed.causes] == ["reset", "http_503", "http_500"]

    play(main, [fake])


def test_a_later_try_that_blames_the_caller_says_so() -> None:
    wrong = bad_request()
    fake = scripted(fails(reset()), fails(wrong))

    async def main() -> None:
        assert (await ask(with_chance(fake))).fault is wrong

    play(main, [fake])


def test_retry_after_is_kept() -> None:
    fake = scripted(fails(status(429, retry_after_s=7), 0.1), GOOD)

    async def main() -> None:
        assert (await ask(with_chance(fake))).ms == 7300

    play(main, [fake])


@pytest.mark.parametrize(("retry_after_s", "within_ms"), [(60, None), (3, 2000)])
def test_a_wait_that_is_too_long_is_not_begun(retry_after_s: float, within_ms: int | None) -> None:
    fake = scripted(fails(status(429, retry_after_s), 0.1), GOOD)

    async def main() -> None:
        seen = await ask(with_chance(fake), a_call(within_ms=within_ms))
        assert (seen.fault and seen.fault.kind, seen.ms) == ("http_429", 100)

    play(main, [fake])


def test_never_more_than_the_budget() -> None:
    fake = scripted(fails(status(503), 0.01))

    async def main() -> None:
        service = with_chance(fake, times=3, extra_load=0.1)
        for number in range(300):
            await ask(service, a_call(number))
            assert len(fake.calls) <= (number + 1) * 1.1 + 10
        assert len(fake.calls) > 320

    play(main, [fake])


def test_a_fallback_does_not_try_again_what_was_tried_again() -> None:
    first, second = scripted(fails(status(500))), scripted(GOOD)

    async def main() -> None:
        assert (await ask(fallback(with_chance(first), second))).fault is None
        assert len(first.calls) == 3

    play(main, [first, second])
