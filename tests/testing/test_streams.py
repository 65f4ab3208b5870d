"""The corpus itself: every stream loads, is consistent in time, and our decoder makes of it exactly
its truth."""

import pytest
from tests.cases import each_case
from tests.streams import Stream, Truth, check_decoder, differences, load, seen

STREAMS = load()


@each_case("stream", STREAMS, ids=lambda stream: stream.name)
def test_the_decoder_sees_the_truth(stream: Stream) -> None:
    assert check_decoder(stream) == []


@each_case("stream", STREAMS, ids=lambda stream: stream.name)
def test_times_are_in_order(stream: Stream) -> None:
    sent = [stream.head_ns, *(packet.at_ns for packet in stream.packets), stream.end_ns]
    assert sent == sorted(sent)
    assert set(stream.truth.token_ns) <= set(sent)
    assert stream.truth.end_ns in sent


def test_the_corpus_is_large_and_covers_all_outcomes() -> None:
    assert len(STREAMS) >= 30
    outcomes = {stream.truth.outcome for stream in STREAMS}
    assert outcomes == {"ok", "truncated", "malformed", "in_band_error", "empty_answer"}


def test_a_difference_is_named_with_both_values() -> None:
    truth = Truth(outcome="ok", token_ns=(5, 9), end_ns=9)
    assert truth.first_token_ns == 5
    assert truth.last_token_ns == 9
    assert Truth(outcome="ok", end_ns=0).first_token_ns is None
    assert Truth(outcome="ok", end_ns=0).last_token_ns is None
    got = Truth(outcome="truncated", token_ns=(5, 9), end_ns=9)
    assert differences(truth, got) == ["outcome: got 'truncated', expected 'ok'"]
    assert differences(truth, truth) == []


def test_long_values_are_shortened() -> None:
    (line,) = differences(
        Truth(outcome="ok", text="x" * 999, end_ns=0), Truth(outcome="ok", end_ns=0)
    )
    assert len(line) < 260


def test_events_that_do_not_end_are_refused() -> None:
    from splitsecond.core.events import Quiet

    with pytest.raises(ValueError, match="must end with Done or Broken"):
        seen([Quiet(1)], {})
