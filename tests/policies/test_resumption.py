"""Where a route's `resume` goes: to the policies that choose, inside of what stands around them."""

from hypothesis import given
from tests.cases import each_case
from tests.policies.test_expression import expressions, in_region, made

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import Expression, parse, targets
from splitsecond.routing.construction.resumption import resumed
from splitsecond.testing.fake_service import FakeService

PLACES = [
    ('"a/x"', '"a/x"'),
    ('deadline("a/x", total="9s")', 'deadline("a/x", total="9s")'),
    ('fallback("a/x", "b/x")', 'fallback("a/x", "b/x", resume="replay", stall="9s")'),
    (
        'fallback("a/x", "b/x", ttft="2s", stall="5s")',
        'fallback("a/x", "b/x", resume="replay", stall="5s", ttft="2s")',
    ),
    ('fallback("a/x", "b/x", resume="off")', 'fallback("a/x", "b/x", resume="off")'),
    ('resume("a/x", "b/x")', 'resume("a/x", "b/x")'),
    ('fastest("a/x", "b/x", at=0.9)', 'resume(fastest("a/x", "b/x", at=0.9), stall="9s")'),
    ('near("a/x", "b/x", region="eu")', 'resume(near("a/x", "b/x", region="eu"), stall="9s")'),
    (
        'cache(deadline(race("a/x", "b/x"), total="9s"))',
        'cache(deadline(resume(race("a/x", "b/x"), stall="9s"), total="9s"))',
    ),
    (
        'by_task(code=fallback("a/x", "b/x"), default="c/x")',
        'by_task(code=fallback("a/x", "b/x", resume="replay", stall="9s"), default="c/x")',
    ),
    (
        'fallback(fastest("a/x", "b/x"), "c/x")',
        'fallback(fastest("a/x", "b/x"), "c/x", resume="replay", stall="9s")',
    ),
]


@each_case(("policy", "expected"), PLACES)
def test_resume_is_added_to_the_policies_that_choose(policy: str, expected: str) -> None:
    assert repr(resumed(parse(policy), 9 * NS_PER_S)) == expected


def test_stall_is_written_in_the_largest_whole_unit() -> None:
    for stall_ns, text in [(1500 * NS_PER_MS, "1500ms"), (60 * NS_PER_S, "60s"), (1, "1ms")]:
        assert f'stall="{text}"' in repr(resumed(parse('race("a/x", "b/x")'), stall_ns))


@given(expressions())
def test_any_policy_can_be_resumed_once(expression: Expression) -> None:
    again = resumed(expression)
    assert targets(again) == targets(expression)
    assert resumed(again) == again
    assert parse(repr(again)) == again
    try:
        made(expression)
    except CallerFault:
        return
    assert repr(build(again, lambda name: FakeService(target=name), in_region()))
