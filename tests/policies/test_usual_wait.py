"""The default limit of `fallback` for the first token of a branch: ten times its usual p95, at
least 10 s."""

import pytest
from tests.policies.attempts import answered, failed
from tests.policies.branches import SILENT, ask, play, refused, scripted

from splitsecond.core import clock
from splitsecond.core.service import Call
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_info import TargetInfo
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import Script


def waited_s(
    *,
    usual_ms: float | None = None,
    facts: TargetInfo | None = None,
    down: str = "",
    policy: str = "",
    body: dict[str, object] | None = None,
) -> float | None:
    """How long a silent first branch is waited for; None: until the end of the test, 200 s
    later."""
    found: list[float | None] = []

    async def main() -> None:
        states = TargetStates({"a/x": facts or TargetInfo()})
        for _ in range(20 if usual_ms else 0):
            states.observe(answered(usual_ms or 0, target="a/x"))
        for _ in range(5 if down else 0):
            states.observe(failed(refused(), target=down))
        fakes = {
            name: scripted(script, target=name)
            for name, script in {"a/x": SILENT, "b/x": Script(ttft=0)}.items()
        }
        service = build(parse(policy or 'fallback("a/x", "b/x")'), fakes.__getitem__, states)
        deadline_ns = clock.now_ns() + 200 * clock.NS_PER_S
        seen = await ask(
            service, Call(id="c", body=body or {}, start_ns=clock.now_ns(), deadline_ns=deadline_ns)
        )
        found.append(None if seen.fault is not None else seen.ms / 1000)

    play(main)
    return found[0]


@pytest.mark.parametrize(("usual_ms", "wait_s"), [(200, 10), (2000, 20), (None, 12)])
def test_default_limit_follows_the_usual_ttft(usual_ms: float | None, wait_s: float) -> None:
    assert waited_s(usual_ms=usual_ms) == pytest.approx(wait_s, rel=0.05)


def test_the_limit_for_an_unknown_target_grows_with_the_prompt() -> None:
    body: dict[str, object] = {"messages": [{"role": "user", "content": "word " * 8000}]}
    assert waited_s(body=body) == pytest.approx(12 + 0.002 * 8000, rel=0.3)
    assert waited_s(body=body, usual_ms=200) == pytest.approx(10, rel=0.05)


def test_configured_limit_replaces_the_default() -> None:
    assert waited_s(policy='fallback("a/x", "b/x", ttft="2s")') == 2


@pytest.mark.parametrize("body", [{"reasoning_effort": "high"}, {"thinking": {"type": "enabled"}}])
def test_a_call_that_asks_for_reasoning_has_no_such_limit(body: dict[str, object]) -> None:
    assert waited_s(usual_ms=200, body=body) is None


def test_a_model_that_always_reasons_has_no_such_limit() -> None:
    assert waited_s(usual_ms=200, facts=TargetInfo(reasons_silently=True)) is None


def test_the_last_branch_that_is_available_has_no_such_limit() -> None:
    assert waited_s(usual_ms=200, down="b/x") is None
