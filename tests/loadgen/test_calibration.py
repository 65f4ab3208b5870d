"""Prompts of a requested length without a tokenizer, and the faults that end a run before it
begins."""

from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.benchmark.load.calibration import WHAT_TO_CHECK, Calibrated, calibrate
from splitsecond.benchmark.workload.workload import Composer, Workload
from splitsecond.core.errors import CallerFault, Fault, NetworkFault, ProviderFault, TimedOut
from splitsecond.core.service import Call
from splitsecond.testing.fake_service import FakeService, Script
from splitsecond.testing.virtual_time import run_virtual


def text_of(call: Call) -> str:
    messages: list[dict[str, str]] = call.body["messages"]  # type: ignore[assignment]
    return " ".join(message["content"] for message in messages)


def words_in(call: Call) -> int:
    return len(text_of(call).split())


def calibrated(
    count: Callable[[Call], int | None], wanted: int = 512, workload: Workload | None = None
) -> tuple[Calibrated, FakeService]:
    fake = FakeService(script=lambda call: Script(tokens=1, input_tokens=count(call)))
    asked = workload or Workload(run="r")
    return run_virtual(calibrate(fake, asked, input_tokens=wanted, name="t@calibration")), fake


@settings(deadline=None)
@given(st.integers(0, 60), st.floats(0.5, 3), st.sampled_from([256, 512, 1000, 20_000]))
def test_linear_tokenizer_is_met_within_two_percent(
    template: int, per_word: float, wanted: int
) -> None:
    found, fake = calibrated(lambda call: template + round(per_word * words_in(call)), wanted)
    assert found.input_tokens is not None
    if not found.note:
        assert found.input_tokens == pytest.approx(wanted, rel=0.02)
    else:  # the nonce and the instructions alone are longer
        assert found.workload.user_words == 0
    assert len(fake.calls) <= 5


@settings(deadline=None)
@given(st.lists(st.integers(-6, 6), min_size=5, max_size=5), st.sampled_from([64, 100, 512]))
@example([0, 0, 2, 6, 0], 64)
def test_noisy_token_counts_give_no_slope(noise: list[int], wanted: int) -> None:
    remaining = iter(noise)
    found, _ = calibrated(lambda call: 5 + words_in(call) + next(remaining), wanted)
    assert "tokens per added word" not in found.note
    words = words_in(Call(id="", body=Composer(found.workload).body("a", 0)))
    assert words + 5 == pytest.approx(wanted, rel=0.03, abs=13)


@pytest.mark.parametrize("characters", [3.0, 4.0, 5.6])
def test_a_tokenizer_that_counts_characters(characters: float) -> None:
    found, fake = calibrated(lambda call: 11 + round(len(text_of(call)) / characters))
    assert found.input_tokens == pytest.approx(512, rel=0.02)
    assert not found.note
    body = Composer(found.workload).body("t@c1-17", 17)
    token_count = 11 + round(
        sum(len(message["content"]) for message in body["messages"]) / characters
    )
    assert token_count == pytest.approx(512, rel=0.03)
    assert all(fake.call.body["max_tokens"] == 1 for fake in fake.calls)
    assert found.workload.output_tokens == 512


def test_the_system_prompt_is_256_tokens_of_512_and_half_of_less() -> None:
    for wanted, share in ((512, 0.5), (256, 0.5), (1024, 0.25)):
        workload = calibrated(lambda call: words_in(call), wanted)[0].workload
        words = workload.system_words + workload.user_words
        assert workload.system_words == pytest.approx(words * share, abs=1)


def test_workload_with_questions_has_its_filler_in_the_system() -> None:
    found = calibrated(lambda call: words_in(call), 4608, Workload(run="r", questions=True))[0]
    assert found.input_tokens == pytest.approx(4608, rel=0.02)
    assert (found.workload.system_words > 4500, found.workload.user_words) == (True, 0)


def test_length_below_the_instructions_is_noted() -> None:
    found, _ = calibrated(lambda call: 5 + words_in(call), wanted=10)
    assert found.workload.user_words == found.workload.system_words == 0
    assert "the instructions alone are longer" in found.note
    assert str(found.input_tokens) in found.note


@pytest.mark.parametrize(
    ("count", "reason"),
    [
        (lambda call: None, "the endpoint reports no usage"),
        (lambda call: 7, "0.00 tokens per added word"),
        (lambda call: 10_000 - words_in(call), "-1.00 tokens per added word"),
        (lambda call: words_in(call) if words_in(call) < 400 else None, "only for some requests"),
    ],
)
def test_untrusted_usage_gives_an_estimated_length_and_a_note(
    count: Callable[[Call], int | None], reason: str
) -> None:
    found, _ = calibrated(count)
    assert found.input_tokens is None
    assert found.note.startswith("input length not verified: ")
    assert reason in found.note
    words = words_in(Call(id="", body=Composer(found.workload).body("a", 0)))
    assert words == pytest.approx(512, rel=0.05)


def failing(fault: Fault, workload: Workload) -> Calibrated:
    fake = FakeService(script=lambda call: Script(fault=fault))
    return run_virtual(calibrate(fake, workload, input_tokens=512, name="t"))


GIVEN = Workload(run="r", prompts=[{"messages": [{"role": "user", "content": "hi"}]}])


@each_case("workload", [Workload(run="r"), GIVEN])
@each_case("kind", WHAT_TO_CHECK)
def test_permanent_fault_ends_the_run_with_a_hint(kind: str, workload: Workload) -> None:
    with pytest.raises(Fault) as raised:
        failing(ProviderFault("no", kind=kind, phase="head"), workload)
    assert raised.value.hint == WHAT_TO_CHECK[kind]


def test_too_long_context_ends_the_run_but_http_400_does_not() -> None:
    """The 400 may be for the one token that calibration asks for, which some models find too
    few."""
    with pytest.raises(CallerFault):
        failing(
            CallerFault("1000 tokens, at most 512", kind="context_length_exceeded", phase="head"),
            Workload(run="r"),
        )
    found = failing(
        CallerFault("max_tokens is below 16", kind="http_400", phase="head"), Workload(run="r")
    )
    assert "max_tokens is below 16" in found.note


def test_existing_hint_is_kept() -> None:
    with pytest.raises(ProviderFault) as raised:
        failing(
            ProviderFault("no", kind="http_404", phase="head", hint="There is a model called x."),
            GIVEN,
        )
    assert raised.value.hint == "There is a model called x."


@pytest.mark.parametrize(
    "fault",
    [
        ProviderFault("busy", kind="http_429", phase="head", status=429),
        NetworkFault("no", kind="refused", phase="connect"),
        TimedOut("no", phase="head"),
    ],
)
def test_other_failures_are_noted_and_left_to_the_measurement(fault: Fault) -> None:
    assert (
        "input length not verified: the request to calibrate it failed"
        in failing(fault, Workload(run="r")).note
    )
    assert failing(fault, GIVEN).note.startswith("the first request failed")


@pytest.mark.parametrize(
    "fault",
    [
        ProviderFault("busy", kind="http_429", phase="head", status=429),
        ProviderFault("cut", kind="truncated", phase="between tokens", status=200),
        NetworkFault("reset", kind="reset", phase="head"),
    ],
)
def test_a_failure_that_passes_costs_no_precision(fault: Fault) -> None:
    def script(call: Call) -> Script:
        failing = call.id.endswith(("-1", "-3"))
        return Script(tokens=1, input_tokens=words_in(call), fault=fault if failing else None)

    fake = FakeService(script=script)
    found = run_virtual(calibrate(fake, Workload(run="r"), input_tokens=64, name="t"))
    assert (found.note, found.fault) == ("", None)
    assert found.input_tokens == pytest.approx(64, rel=0.02)


def test_503_is_retried_twice_and_other_failures_never() -> None:
    for fault, sent in (
        (ProviderFault("down", kind="http_503", phase="head", status=503), 3),
        (NetworkFault("no", kind="refused", phase="connect"), 1),
        (CallerFault("max_tokens is below 16", kind="http_400", phase="head"), 1),
    ):
        fake = FakeService(script=lambda call, fault=fault: Script(fault=fault))  # type: ignore[misc]
        run_virtual(calibrate(fake, Workload(run="r"), input_tokens=64, name="t"))
        assert len(fake.calls) == sent


def test_a_stream_that_breaks_counts_as_a_failed_calibration() -> None:
    fault = NetworkFault("reset", kind="reset", phase="between tokens")
    fake = FakeService(script=lambda call: Script(fault=fault, breaks_after=1))
    found = run_virtual(calibrate(fake, Workload(run="r"), input_tokens=512, name="t"))
    assert "reset" in found.note


def test_prompts_from_a_file_need_one_calibration_request() -> None:
    found, fake = calibrated(lambda call: 9, workload=GIVEN)
    assert (found.workload, found.input_tokens, found.note, len(fake.calls)) == (GIVEN, 9, "", 1)


def test_calibration_limits_the_length_field_in_use() -> None:
    extra = {"max_completion_tokens": 100, "min_tokens": 100}
    _, fake = calibrated(lambda call: words_in(call), workload=Workload(run="r", extra=extra))
    body = fake.calls[0].call.body
    assert body["max_completion_tokens"] == 1
    assert "max_tokens" not in body
    assert "min_tokens" not in body


@pytest.mark.parametrize("workload", [Workload(run="r"), GIVEN])
def test_calibration_fault_separates_mute_from_busy_targets(workload: Workload) -> None:
    mute = [
        NetworkFault("no", kind="refused", phase="connect"),
        TimedOut("no", phase="head"),
        ProviderFault("a web page", kind="malformed", phase="first token", status=200),
        ProviderFault("moved", kind="http_308", phase="head", status=308),
    ]
    passing = [
        ProviderFault("busy", kind="http_429", phase="head", status=429),
        ProviderFault("down", kind="http_503", phase="head", status=503),
        ProviderFault("overloaded", kind="in_band_error", phase="first token", status=200),
        CallerFault("max_tokens is below 16", kind="http_400", phase="head"),
    ]
    for fault in mute:
        record = failing(fault, workload).fault
        assert record is not None
        assert (record.kind, record.message) == (fault.kind, fault.message)
    assert [failing(fault, workload).fault for fault in passing] == [None] * len(passing)


def test_failure_after_the_first_answer_is_no_calibration_fault() -> None:
    fault = NetworkFault("no", kind="refused", phase="connect")
    fake = FakeService(
        script=lambda call: Script(input_tokens=9, fault=None if call.id.endswith("-0") else fault)
    )
    assert run_virtual(calibrate(fake, Workload(run="r"), input_tokens=512, name="t")).fault is None
