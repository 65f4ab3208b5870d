"""`resume` by replay: an answer that breaks continues where it was, or ends with the error that
broke it."""

import asyncio
import json
from typing import Any

import pytest
from tests.policies.branches import SILENT, fails, play, refused, scripted, status
from tests.policies.resumed import (
    ANSWER,
    CUT,
    WHOLE,
    WORDS,
    Resumed,
    answers,
    breaks,
    chat,
    receive,
)

from splitsecond.core.errors import CallerFault, ProviderFault, TimedOut
from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import FakeService, Script


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_truncated_response_continues_at_the_same_place(after: int) -> None:
    played = Resumed('fallback("a", "b", resume="replay")', a=breaks(after), b=ANSWER)
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)
    assert played.asked == {"a": 1, "b": 1}
    assert played.call is not None
    assert played.call.notes.chosen == "resumed at b"


def test_unbroken_response_passes_unchanged_without_delay() -> None:
    played = Resumed('resume("a", "b")', a=ANSWER, b=SILENT)
    plain = Resumed('"a"', a=ANSWER)
    assert played.received.data == plain.received.data
    assert played.received.ms == plain.received.ms
    assert played.asked == {"a": 1, "b": 0}


def test_resumed_response_keeps_the_first_targets_id_and_model() -> None:
    played = Resumed('resume("a", "b")', a=breaks(2), b=ANSWER)
    heads = {
        (chunk["id"], chunk["model"])
        for line in played.received.data.decode().split("\n\n")
        if line.startswith("data: {") and (chunk := json.loads(line.removeprefix("data: ")))
    }
    assert heads == {("call-1", "a")}


def test_different_second_response_raises_the_first_fault() -> None:
    played = Resumed('resume("a", "b")', a=breaks(2), b=answers("Once ", "there ", "was "))
    assert played.received.text == "Once upon "
    assert played.received.fault is CUT
    assert played.fakes["b"].calls[0].closed_at is not None
    assert b"[DONE]" not in played.received.data


def test_a_third_target_may_repeat_the_answer() -> None:
    played = Resumed('resume("a", "b", "c")', a=breaks(2), b=answers("Twice "), c=ANSWER)
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)


@pytest.mark.parametrize(
    "then", [fails(refused()), fails(status(429, 9)), Script(tokens=0), breaks(1), breaks(3)]
)
def test_target_that_cannot_continue_keeps_the_first_fault(then: Script) -> None:
    played = Resumed('resume("a", "b")', a=breaks(2), b=then)
    assert played.received.fault is CUT
    assert WHOLE.startswith(played.received.text)
    again = Resumed('resume("a", "b", "c")', a=breaks(2), b=then, c=ANSWER)
    assert (again.received.text, again.received.ended_well) == (WHOLE, True)


def test_second_response_that_ends_earlier_keeps_the_fault() -> None:
    played = Resumed('resume("a", "b")', a=breaks(3), b=answers("Once ", "upon "))
    assert played.received.fault is CUT
    assert played.received.text == "Once upon a "


def test_a_failure_before_the_first_token_is_raised() -> None:
    fault = refused()
    played = Resumed('resume("a", "b")', a=fails(fault), b=ANSWER)
    assert played.received.fault is fault
    assert played.received.refused
    assert played.asked == {"a": 1, "b": 0}


def test_an_answer_that_falls_silent_is_continued() -> None:
    slow = Script(texts=WORDS, tokens=4, tps=0.01)
    played = Resumed('resume("a", "b", stall="2s")', a=slow, b=ANSWER)
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)
    assert played.received.ms == 200 + 2000 + 200 + 30
    assert Resumed('resume("a", "b", stall="2s")', a=slow, b=slow).received.fault is not None


@pytest.mark.parametrize("policy", ["resume({})", "fallback({}, resume='replay')"])
def test_an_answer_that_is_too_slow_is_continued(policy: str) -> None:
    slow = Script(texts=WORDS, tokens=40, tps=2)
    text = policy.format('"a", "b", floor="8tok/s", over="4.1s"').replace("'", '"')
    played = Resumed(text, a=slow, b=answers(*WORDS, *["word"] * 36))
    assert played.received.ended_well
    assert played.received.text == WHOLE + "word" * 36
    assert played.received.ms == 200 + 4100 + 200 + 390
    (observation,) = [fake.observation for fake in played.fakes["a"].calls]
    assert observation is not None
    assert observation.fault is not None
    assert observation.fault.kind == "timeout_between_tokens"
    assert (
        observation.fault.message == "2 tokens per second in the last 4.1 s, below the floor of 8"
    )


def test_an_answer_that_is_fast_enough_stays_at_its_target() -> None:
    played = Resumed(
        'resume("a", "b", floor="8tok/s", over="4s")', a=Script(tokens=100, tps=9), b=ANSWER
    )
    assert (played.received.ended_well, played.asked) == (True, {"a": 1, "b": 0})


def test_the_wait_for_the_first_token_does_not_count_as_slow() -> None:
    played = Resumed(
        'resume("a", "b", floor="8tok/s", over="4s")',
        a=Script(ttft=60, tokens=100, tps=9),
        b=ANSWER,
    )
    assert (played.received.ended_well, played.asked) == (True, {"a": 1, "b": 0})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ('floor="8"', 'floor is "8", expected tokens per second such as "8tok/s"'),
        ("floor=8", "floor is 8, expected tokens per second"),
        ('floor="0tok/s"', 'floor is "0tok/s", expected tokens per second'),
        ('over="20s"', "over has no effect without floor"),
        ('floor="1tok/s", over="3s"', 'floor is "1tok/s", fewer than 4 tokens in 3 s'),
    ],
)
def test_an_invalid_floor_is_refused(settings: str, words: str) -> None:
    for policy in (f'resume("a", "b", {settings})', f'fallback("a", "b", {settings})'):
        with pytest.raises(CallerFault) as raised:
            build(parse(policy), lambda name: FakeService(target=name), TargetStates())
        assert words in raised.value.message


BEGINS = [
    'resume("a", "b", "c", stall="2s")',
    'fallback("a", "b", "c", ttft="2s", resume="replay", stall="5s")',
    'fallback("a", "b", "c", resume="replay", stall="2s")',
]


@pytest.mark.parametrize("policy", BEGINS)
def test_stall_limit_holds_for_the_target_that_continues(policy: str) -> None:
    played = Resumed(policy, a=breaks(2), b=SILENT, c=ANSWER)
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)
    assert played.received.ms == 200 + 20 + 2000 + 200 + 30


def test_fallback_without_resume_ends_on_a_stall() -> None:
    played = Resumed(
        'fallback("a", "b", stall="2s", resume="off")',
        a=Script(texts=WORDS, tokens=4, tps=0.01),
        b=ANSWER,
    )
    assert isinstance(played.received.fault, TimedOut)
    assert played.received.fault.phase == "between tokens"
    assert (played.received.ms, played.received.text) == (2200, "Once ")
    assert played.asked == {"a": 1, "b": 0}


@pytest.mark.parametrize(
    "policy",
    [
        'fallback("a", "b")',
        'fallback(retry("a"), "b")',
        'fallback("a", fallback("c", "b"))',
        'deadline(fallback("a", "b"), total="1m")',
        'fallback(fallback("a", "b"), "c", resume="off")',
    ],
)
def test_a_fallback_resumes_by_default(policy: str) -> None:
    played = Resumed(policy, a=breaks(2), b=ANSWER, c=breaks(0))
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)
    assert played.asked["a"] == played.asked["b"] == 1


def test_fallback_inside_a_resume_does_not_resume() -> None:
    played = Resumed('resume(fallback("a", "b"), "c")', a=breaks(2), b=ANSWER, c=ANSWER)
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)
    assert played.asked == {"a": 1, "b": 0, "c": 1}


def test_stall_limit_restarts_with_each_token() -> None:
    played = Resumed(
        'fallback("a", "b", stall="2s")', a=Script(texts=WORDS, tokens=4, tps=0.6), b=ANSWER
    )
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)


def test_the_deadline_of_the_call_holds_for_all_targets() -> None:
    played = Resumed('deadline(resume("a", "b"), total="300ms")', a=breaks(2), b=SILENT)
    assert played.received.fault is CUT
    assert played.received.ms == 300
    late = Resumed('deadline(resume("a", "b"), total="210ms")', a=breaks(4), b=ANSWER)
    assert isinstance(late.received.fault, TimedOut)
    assert late.asked == {"a": 1, "b": 0}


def test_an_answer_that_is_too_long_is_not_continued() -> None:
    fault = ProviderFault("too long", kind="too_long", phase="between tokens", status=200)
    assert Resumed('resume("a", "b")', a=breaks(2, fault=fault), b=ANSWER).asked == {"a": 1, "b": 0}


def test_single_branch_is_retried_without_the_broken_targets() -> None:
    played = Resumed('resume(fastest("a", "b", "c"))', a=breaks(2), b=breaks(3), c=breaks(1))
    assert played.received.fault is CUT
    assert played.asked == {"a": 1, "b": 1, "c": 1}
    played = Resumed('resume(fallback("a", "b"))', a=breaks(2), b=ANSWER)
    assert (played.received.text, played.asked) == (WHOLE, {"a": 1, "b": 1})


def test_target_that_failed_before_a_token_may_continue() -> None:
    played = Resumed(
        'fallback("a", "b", resume="replay")', a=[fails(status(503)), ANSWER], b=breaks(2)
    )
    assert (played.received.text, played.received.ended_well) == (WHOLE, True)
    assert played.asked == {"a": 2, "b": 1}


def test_an_answer_that_is_not_streamed_is_requested_again() -> None:
    call = chat(stream=False)
    played = Resumed('resume("a", "b")', call=call, a=breaks(3), b=answers("Something ", "else."))
    assert (played.received.text, played.received.ended_well) == ("Something else.", True)


@pytest.mark.parametrize("fields", [{"logprobs": True}, {"top_logprobs": 2}])
def test_an_answer_with_log_probabilities_is_not_continued(fields: dict[str, Any]) -> None:
    played = Resumed('resume("a", "b")', call=chat(**fields), a=breaks(2), b=ANSWER)
    assert played.received.fault is CUT
    assert played.asked["b"] == 0


def test_without_an_encoder_a_broken_answer_is_not_continued() -> None:
    first, second = scripted(breaks(2), target="a"), scripted(ANSWER, target="b")

    async def main() -> None:
        service = build(parse('resume("a", "b")'), {"a": first, "b": second}.__getitem__)
        received = await receive(service, chat())
        assert received.fault is CUT
        assert len(second.calls) == 0

    play(main, [first, second])


def test_the_usage_is_sent_once_and_is_that_of_the_second_target() -> None:
    played = Resumed(
        'resume("a", "b")', a=breaks(2), b=Script(texts=WORDS, tokens=4, input_tokens=9)
    )
    assert played.received.usage is not None
    assert (played.received.usage.input_tokens, played.received.usage.output_tokens) == (9, 4)


def test_disconnect_during_the_continuation_closes_all_requests() -> None:
    fakes = {
        "a": scripted(breaks(2), target="a"),
        "b": scripted(Script(ttft=5, tokens=4, texts=WORDS), target="b"),
    }
    for after_ms in (0, 200, 219, 220, 221, 3000, 5220, 5225):

        async def main(after_ms: int = after_ms) -> None:
            service = build(
                parse('resume("a", "b")'),
                fakes.__getitem__,
                TargetStates(),
                make_encoder=continuation_encoder,
            )
            receiving = asyncio.create_task(receive(service, chat()))
            await asyncio.sleep(after_ms / 1000)
            receiving.cancel()
            await asyncio.wait([receiving])
            assert receiving.cancelled()

        play(main, list(fakes.values()))
