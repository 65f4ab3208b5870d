"""`fallback`: which failures lead to the next branch, to a second attempt, or back to the
caller."""

import pytest
from tests.cases import each_case
from tests.policies.branches import (
    SILENT,
    Seen,
    a_call,
    ask,
    bad_request,
    fails,
    full,
    play,
    refused,
    reset,
    scripted,
    silent,
    status,
    too_long,
)

from splitsecond.core.errors import (
    AllFailed,
    CallerFault,
    Fault,
    NetworkFault,
    ProviderFault,
    TimedOut,
)
from splitsecond.core.service import Call
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.machinery.fault_handling import Remedy, remedy, retry_after_ns
from splitsecond.routing.policies.fallback import fallback
from splitsecond.routing.policies.race import race
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script

GOOD = Script(ttft=0.2)


def kind(fault_kind: str) -> ProviderFault:
    return ProviderFault("inside a 200", kind=fault_kind, phase="first token", status=200)


REMEDIES: list[tuple[Fault, Remedy]] = [
    (bad_request(), "change"),
    (CallerFault("too large", kind="http_413", status=413), "change"),
    (too_long(), "elsewhere"),
    (CallerFault("n 2 cannot be translated", kind="not_translatable"), "elsewhere"),
    (CallerFault("no access token from the credentials", kind="bad_key"), "elsewhere"),
    (reset(), "again"),
    (NetworkFault("closed", kind="closed", phase="head"), "again"),
    (status(500), "again"),
    (status(500, retry_after_s=2), "later"),
    (status(408), "later"),
    (status(429, retry_after_s=2), "later"),
    (status(502), "later"),
    (status(503), "later"),
    (status(529), "later"),
    (full(), "later"),
    (kind("in_band_error"), "later"),
    (kind("truncated"), "again"),
    (kind("empty_answer"), "elsewhere"),
    (kind("malformed"), "elsewhere"),
    (status(401), "elsewhere"),
    (status(404), "elsewhere"),
    (refused(), "elsewhere"),
    (NetworkFault("?", kind="certificate", phase="tls"), "elsewhere"),
    (silent(), "elsewhere"),
    (AllFailed([status(503), bad_request()]), "change"),
    (AllFailed([silent(), status(500)]), "later"),
    (AllFailed([silent(), refused()]), "elsewhere"),
]


@each_case(("fault", "expected"), REMEDIES)
def test_each_fault_has_its_remedy(fault: Fault, expected: Remedy) -> None:
    assert remedy(fault) == expected


@each_case(("fault", "expected"), REMEDIES)
def test_the_remedy_is_applied(fault: Fault, expected: Remedy) -> None:
    first, second = scripted(fails(fault)), scripted(GOOD)

    async def main() -> None:
        seen = await ask(fallback(first, second))
        if expected == "change":
            assert seen.fault is fault
            assert len(second.calls) == 0
        else:
            assert seen.fault is None
            assert len(first.calls) == (2 if expected == "again" else 1)
            assert len(second.calls) == 1

    play(main, [first, second])


def test_empty_response_leads_to_the_next_branch() -> None:
    first, second = scripted(Script(tokens=0)), scripted(GOOD)

    async def main() -> None:
        assert (await ask(fallback(first, second))).fault is None
        assert (len(first.calls), len(second.calls)) == (1, 1)

    play(main, [first, second])


def test_successful_retry_ends_the_fallback() -> None:
    first, second = scripted(fails(reset()), GOOD), scripted(GOOD)

    async def main() -> None:
        assert (await ask(fallback(first, second))).fault is None
        assert (len(first.calls), len(second.calls)) == (2, 0)

    play(main, [first, second])


def test_caller_fault_of_a_retry_is_raised() -> None:
    wrong = bad_request()
    first, second = scripted(fails(reset()), fails(wrong)), scripted(GOOD)

    async def main() -> None:
        assert (await ask(fallback(first, second))).fault is wrong

    play(main, [first, second])


def test_retries_of_a_failing_branch_stay_within_the_budget() -> None:
    first, second = scripted(fails(status(500))), scripted(GOOD)

    async def main() -> None:
        service = fallback(first, second)
        for number in range(200):
            assert (await ask(service, a_call(number))).fault is None
        assert 200 < len(first.calls) <= 200 * 1.1 + 10

    play(main, [first, second])


@pytest.mark.parametrize(
    ("policy", "asked"),
    [
        ('fallback(sticky("a", "b"), "a", "b", "c")', ["a", "b", "c"]),
        ('fallback("a", "b", "a", "c")', ["a", "b", "c"]),
        ('fallback("a", "b", "a")', ["a", "b", "a"]),
        ('fallback("a", weighted("a", "b"), "c")', ["a", "a", "c"]),
    ],
)
def test_failed_target_is_not_retried_before_the_last_branch(policy: str, asked: list[str]) -> None:
    order: list[str] = []

    def target(name: str) -> FakeService:
        def script(call: Call) -> Script:
            order.append(name)
            return GOOD if name == "c" else fails(status(503))

        return FakeService(script=script, target=name)

    async def main() -> None:
        await ask(build(parse(policy), target, TargetStates()))

    play(main)
    assert [*sorted(order[:2]), *order[2:]] == asked  # a policy inside begins at any of its targets


def test_all_failed_lists_every_attempt_in_branch_order() -> None:
    fakes = (
        scripted(fails(reset()), fails(status(500))),
        scripted(fails(status(429, 30))),
        scripted(fails(too_long())),
    )

    async def main() -> None:
        failed = (await ask(fallback(*fakes))).fault
        assert isinstance(failed, AllFailed)
        assert [cause.kind for cause in failed.causes] == [
            "reset",
            "http_500",
            "http_429",
            "context_length_exceeded",
        ]
        assert retry_after_ns(failed) == 30_000_000_000

    play(main, fakes)


def test_causes_of_policies_inside_are_listed_one_by_one() -> None:
    fakes = scripted(fails(status(503))), scripted(fails(refused())), scripted(fails(silent()))

    async def main() -> None:
        failed = (await ask(fallback(race(*fakes[:2]), fakes[2]))).fault
        assert isinstance(failed, AllFailed)
        assert [cause.kind for cause in failed.causes] == [
            "http_503",
            "refused",
            "timeout_first_token",
        ]

    play(main, fakes)


def test_silent_branch_is_left_after_ttft_without_a_retry() -> None:
    first, second = scripted(SILENT), scripted(GOOD)

    async def main() -> None:
        seen = await ask(fallback(first, second, ttft="2s"))
        assert (seen.fault, seen.ms) == (None, 2200)
        assert len(first.calls) == 1

    play(main, [first, second])


def test_ttft_limit_includes_the_retry() -> None:
    first, second = scripted(fails(reset(), 1.5), SILENT), scripted(GOOD)

    async def main() -> None:
        assert (await ask(fallback(first, second, ttft="2s"))).ms == 2200

    play(main, [first, second])


def test_ttft_limit_does_not_end_a_stream() -> None:
    first, second = scripted(Script(ttft=0.1, tokens=50, tps=10)), scripted(GOOD)

    async def main() -> None:
        assert (await ask(fallback(first, second, ttft="200ms"))).fault is None
        assert len(second.calls) == 0

    play(main, [first, second])


def test_one_deadline_for_all_attempts() -> None:
    fakes = scripted(fails(status(503), 0.6)), scripted(SILENT), scripted(GOOD)

    async def main() -> None:
        seen = await ask(fallback(*fakes), a_call(within_ms=1000))
        assert seen.ms == 1000
        assert isinstance(seen.fault, AllFailed)
        assert [cause.phase for cause in seen.fault.causes] == ["head", "total", "total"]
        assert "before" in str(seen.fault.causes[2])
        assert len(fakes[2].calls) == 0

    play(main, fakes)


def test_no_second_try_after_the_deadline() -> None:
    first, second = scripted(fails(status(500), 1.0)), scripted(GOOD)

    async def main() -> None:
        seen = await ask(fallback(first, second), a_call(within_ms=1000))
        assert isinstance(seen.fault, AllFailed)
        assert (len(first.calls), len(second.calls)) == (1, 0)

    play(main, [first, second])


def test_broken_stream_is_not_restarted() -> None:
    first: FakeService = scripted(Script(fault=reset(), breaks_after=2))
    second = scripted(GOOD)

    async def main() -> None:
        assert (await ask(fallback(first, second))).fault is None  # it is an event of the stream
        assert (len(first.calls), len(second.calls)) == (1, 0)

    play(main, [first, second])


def test_expired_deadline_raises_without_any_request() -> None:
    first, second = scripted(GOOD), scripted(GOOD)

    async def main() -> None:
        seen = await ask(fallback(first, second), a_call(within_ms=0))
        assert isinstance(seen.fault, AllFailed)
        assert isinstance(seen.fault.causes[0], TimedOut)
        assert len(first.calls) == 0

    play(main, [first, second])


def long_prompt(
    scripts: dict[str, Script],
    contexts: dict[str, int],
    policy: str = 'fallback("a/x", "b/x", "c/x")',
) -> tuple[Seen, list[str]]:
    """Return the outcome of a call and the called targets, given the context lengths of the
    targets."""
    states = TargetStates(
        {name: TargetInfo(context_tokens=tokens) for name, tokens in contexts.items()}
    )
    fakes = {
        name: scripted(script, target=name, observer=states.observe)
        for name, script in scripts.items()
    }
    seen, call = Seen(), a_call()

    async def main() -> None:
        nonlocal seen, call
        call = a_call()
        seen = await ask(build(parse(policy), fakes.__getitem__, states), call)

    play(main, list(fakes.values()))
    return seen, call.notes.attempted


def test_too_long_prompt_goes_to_branches_with_more_context() -> None:
    scripts = {"a/x": fails(too_long()), "b/x": GOOD, "c/x": GOOD}
    for contexts, asked in [
        ({"a/x": 8000, "b/x": 4000, "c/x": 32000}, ["a/x", "c/x"]),
        ({"a/x": 8000, "b/x": 8000, "c/x": 8001}, ["a/x", "c/x"]),
        # one of which nothing is known may take more
        ({"a/x": 8000, "c/x": 32000}, ["a/x", "b/x"]),
        ({"b/x": 4000, "c/x": 32000}, ["a/x", "b/x"]),
    ]:
        seen, went = long_prompt(scripts, contexts)
        assert (seen.fault, went) == (None, asked)


def test_prompt_too_long_for_all_branches_raises_at_once() -> None:
    fault = too_long()
    seen, asked = long_prompt(
        {"a/x": fails(fault), "b/x": GOOD, "c/x": GOOD}, {"a/x": 8000, "b/x": 4000, "c/x": 8000}
    )
    assert seen.fault is fault
    assert asked == ["a/x"]


def test_context_fault_after_another_failure_lists_both() -> None:
    seen, asked = long_prompt(
        {"a/x": fails(status(503)), "b/x": fails(too_long()), "c/x": GOOD},
        {"b/x": 8000, "c/x": 8000},
    )
    assert isinstance(seen.fault, AllFailed)
    assert [cause.kind for cause in seen.fault.causes] == ["http_503", "context_length_exceeded"]
    assert asked == ["a/x", "b/x"]


def test_context_of_an_inner_policy_is_its_largest_targets() -> None:
    scripts = {"a/x": fails(too_long()), "b/x": fails(too_long(), 0.3), "c/x": GOOD, "d/x": GOOD}
    contexts = {"a/x": 8000, "b/x": 16000, "c/x": 4000, "d/x": 20000}
    seen, asked = long_prompt(
        scripts, contexts, 'fallback(race("a/x", "b/x"), "c/x", weighted("c/x", "d/x"))'
    )
    assert seen.fault is None
    assert asked[:2] == ["a/x", "b/x"]
    assert long_prompt(scripts, contexts, 'fallback(race("a/x", "b/x"), "c/x")')[1] == [
        "a/x",
        "b/x",
    ]
