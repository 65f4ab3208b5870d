"""`resume` by prefill: another target continues the beginning of an answer."""

from typing import Any

import pytest
from tests.policies.branches import fails, silent, status
from tests.policies.resumed import ANSWER, CUT, PREFILL, WHOLE, Resumed, answers, breaks, chat

from splitsecond.errors import Fault
from splitsecond.policies.targets.target_info import TargetInfo


def test_the_rest_of_the_answer_is_requested() -> None:
    call = chat(max_tokens=10)
    played = Resumed(
        'resume("a", "b", how="prefill")',
        call=call,
        facts={"b": PREFILL},
        a=breaks(2),
        b=answers("a ", "time.", input_tokens=20),
    )
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)
    assert played.sent("b") == {
        "messages": [{"role": "user", "content": "Tell me a story."}, {"role": "assistant", "content": "Once upon"}],
        "max_tokens": 8,
    }
    assert played.received.usage is not None
    assert (played.received.usage.input_tokens, played.received.usage.output_tokens) == (18, 4)


@pytest.mark.parametrize("mark", ["prefix", "partial"])
def test_the_beginning_of_the_answer_is_marked_as_the_target_needs_it(mark: str) -> None:
    facts = {"b": TargetInfo(prefill=True, mark=mark)}
    played = Resumed('fallback("a", "b", resume="prefill")', facts=facts, a=breaks(2), b=answers("a ", "time."))
    assert played.sent("b")["messages"][-1] == {"role": "assistant", "content": "Once upon", mark: True}
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)


def test_only_targets_that_support_prefill_are_asked() -> None:
    played = Resumed(
        'fallback("a", "b", "c", resume="prefill")',
        facts={"c": PREFILL},
        a=breaks(2),
        b=ANSWER,
        c=answers("a ", "time."),
    )
    assert (played.received.text, played.asked) == (WHOLE, {"a": 1, "b": 0, "c": 1})
    played = Resumed('fallback("a", "b", resume="prefill")', a=breaks(2), b=ANSWER)
    assert played.received.fault is CUT
    assert played.asked["b"] == 0


def test_a_continuation_that_breaks_is_continued() -> None:
    facts = {"b": PREFILL, "c": PREFILL}
    played = Resumed(
        'resume("a", "b", "c", how="prefill")', facts=facts, a=breaks(2), b=breaks(1, "a "), c=answers("time.")
    )
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)
    assert played.sent("c")["messages"][-1]["content"] == "Once upon a"


NOT_PLAIN: list[dict[str, Any]] = [
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"functions": [{"name": "f"}]},
    {"n": 2},
    {"response_format": {"type": "json_object"}},
    {"logprobs": True},
    {"max_tokens": 2},
    {"max_completion_tokens": 1},
    {"messages": "none"},
]


@pytest.mark.parametrize("fields", NOT_PLAIN)
def test_an_answer_that_is_not_plain_text_is_not_continued(fields: dict[str, Any]) -> None:
    played = Resumed(
        'resume("a", "b", how="prefill")', call=chat(**fields), facts={"b": PREFILL}, a=breaks(2), b=ANSWER
    )
    assert played.received.fault is CUT
    assert played.asked["b"] == 0


@pytest.mark.parametrize("fault", [status(400), status(503), silent()])
def test_a_target_that_refuses_to_continue_does_not_replace_the_first_fault(fault: Fault) -> None:
    played = Resumed('resume("a", "b", how="prefill")', facts={"b": PREFILL}, a=breaks(2), b=fails(fault))
    assert played.received.fault is CUT
