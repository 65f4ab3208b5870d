"""Events recognised by their bytes: the same tokens as by decoding, for any content."""

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.events import Event, Token, TokenRun, Usage
from splitsecond.core.observation import Observation
from splitsecond.core.timing.timeline import Sending, Timeline
from splitsecond.core.wire import anthropic, cohere, gemini, openai, responses
from splitsecond.core.wire.openai import decoder
from splitsecond.core.wire.streaming import Decoder
from splitsecond.core.wire.text_events import TextEvents

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6) | st.sampled_from(
    ['"', "\\", "\n", "\x7f", "word", ",", "choices", "é", '","', "{}"]
)


def _event(text: str, index: int = 0, **more: Any) -> bytes:
    chunk = {
        "id": "c-1",
        "model": "word",
        "choices": [{"index": index, "delta": {"content": text}, **more}],
    }
    return b"data: " + json.dumps(chunk, ensure_ascii=len(text) % 2 == 0).encode() + b"\n\n"


def _tokens(reads: list[bytes]) -> list[Event]:
    reading = decoder("chat")
    return [event for data in reads for event in reading.feed(data, 1) if isinstance(event, Token)]


@given(st.lists(st.tuples(TEXTS, st.integers(0, 1)), min_size=1, max_size=40))
def test_texts_are_read_back_unchanged(pieces: list[tuple[str, int]]) -> None:
    events = [_event(text, index) for text, index in pieces]
    expected = [Token(1, text, "text", index) for text, index in pieces]
    assert _tokens(events) == expected
    assert _tokens([b"".join(events)]) == expected


def test_other_field_with_the_same_value_is_not_the_text() -> None:
    escaped = b'{"id":"hi","choices":[{"index":0,"delta":{"content":"\\u0068i"}}]}'
    events = TextEvents()
    assert not events.learn(escaped, "", "hi", lambda data: "hi")
    assert not events.current
    assert events.read(b"data: " + escaped + b"\n\n", 0) == ([], 0)


def test_finish_reason_is_seen_in_a_similar_event() -> None:
    reading = decoder("chat")
    reads = [
        _event("word"),
        _event("more"),
        _event("last", finish_reason="stop"),
        b"data: [DONE]\n\n",
    ]
    kinds = [type(event).__name__ for data in reads for event in reading.feed(data, 1)]
    assert kinds == ["Token", "Token", "Token", "Finish", "Done"]


def test_events_that_all_differ_are_decoded_completely() -> None:
    reads = [_event("word")] + [_event("word", obfuscation="x" * n) for n in range(1, 30)]
    assert len(_tokens(reads)) == 30


@given(st.lists(st.tuples(TEXTS, st.integers(0, 1)), min_size=1, max_size=60), st.integers(0, 2000))
def test_a_run_of_tokens_is_the_same_observation_as_its_tokens(
    pieces: list[tuple[str, int]], cut: int
) -> None:
    end = (
        _event("", 0, finish_reason="stop")
        + _event("", 1, finish_reason="stop")
        + b"data: [DONE]\n\n"
    )
    body = b"".join(_event(text, index) for text, index in pieces) + end
    seen: list[Observation] = []
    for in_runs in (False, True):
        reading, timeline = decoder("chat"), Timeline(attempt="a", call="c", target="t")
        reading.in_runs = in_runs
        for at, read in enumerate((body[:cut], body[cut:])):
            timeline.record_events(reading.feed(read, at))
        timeline.record_events(reading.close(2))
        seen.append(timeline.observe(end_ns=3, sending=Sending()))
    assert seen[0] == seen[1]
    assert seen[0].ok
    assert len(seen[0].token_at) == len(pieces)


def test_similar_tokens_come_as_one_run_if_requested() -> None:
    reading = decoder("chat")
    reading.in_runs = True
    events = reading.feed(b"".join(_event("said") for _ in range(100)), 1)
    assert any(isinstance(event, TokenRun) and len(event.lengths) > 90 for event in events)
    assert len(events) < 10


@given(st.lists(TEXTS, min_size=1, max_size=30), st.lists(st.integers(0, 3000), max_size=6))
def test_reads_of_only_texts_give_the_same_observation(texts: list[str], cuts: list[int]) -> None:
    begin = _event("word") + _event("more")
    end = _event("", 0, finish_reason="stop") + b"data: [DONE]\n\n"
    events = [_event(text) for text in texts]
    wire = b"".join(events)
    bounds = sorted({0, len(wire), *(cut % len(wire) for cut in cuts)})
    seen: list[Observation] = []
    for reads in (events, [wire[a:b] for a, b in pairwise(bounds)]):
        for by_texts in (False, True):
            reading, timeline = decoder("chat"), Timeline(attempt="a", call="c", target="t")
            reading.in_runs = True
            for at, data in enumerate([begin, *reads, end]):
                if lengths := reading.feed_texts(data) if by_texts else ():
                    timeline.record_texts(at, lengths)
                else:
                    timeline.record_events(reading.feed(data, at))
            timeline.record_events(reading.close(99))
            seen.append(timeline.observe(end_ns=99, sending=Sending()))
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[1].ok
    assert len(seen[1].token_at) == len(texts) + 2


def test_only_complete_events_with_a_text_count_as_texts() -> None:
    reading = decoder("chat")
    assert reading.feed_texts(_event("word")) == ()
    reading.in_runs = True
    assert reading.feed_texts(_event("word")) == (), "nothing has begun"
    reading.feed(_event("word") + _event("more"), 0)
    assert reading.feed_texts(_event("word")) == [4]
    assert reading.feed_texts(_event('a "quote"\n') + _event("é")) == [10, 1]
    for other in (
        _event("word")[:-1],
        _event(""),
        _event("word", finish_reason="stop"),
        _event("word", 1),
    ):
        assert reading.feed_texts(other) == (), other
        assert reading.feed_texts(_event("word") + other) == (), other


def _timed(packets: list[bytes], *, together: bool) -> tuple[list[int], list[int]]:
    """Return the times and the lengths of the tokens in `packets`, of which the number 10 came at
    10."""
    reading, timeline = decoder("chat"), Timeline(attempt="c.1", call="c", target="x/y")
    reading.in_runs = True
    for data in (_event("word"), _event("more")):
        timeline.record_events(reading.feed(data, 0))
    times = list(range(1, len(packets) + 1))
    run = reading.feed_packets(packets, times) if together else None
    if run is not None:
        timeline.record_events([run])
    else:
        for data, at in zip(packets, times, strict=True):
            timeline.record_events(reading.feed(data, at))
    seen = timeline.observe(end_ns=99, sending=Sending())
    return list(seen.token_at), list(seen.token_lengths)


@given(
    st.lists(TEXTS, min_size=1, max_size=12),
    st.lists(st.integers(0, 3000), max_size=6),
    st.booleans(),
)
def test_packets_that_are_decoded_together_keep_their_times(
    texts: list[str], cuts: list[int], whole: bool
) -> None:
    events = [_event(text) for text in texts]
    wire = b"".join(events)
    bounds = sorted({0, len(wire), *(cut % len(wire) for cut in cuts)})
    packets = events if whole else [wire[a:b] for a, b in pairwise(bounds)]
    assert _timed(packets, together=True) == _timed(packets, together=False)


def test_packets_with_one_plain_token_each_are_decoded_together() -> None:
    reading = decoder("chat")
    reading.in_runs = True
    assert reading.feed_packets([_event("a")], [1]) is None  # nothing has begun
    for data in (_event("word"), _event("more")):
        reading.feed(data, 0)
    assert reading.feed_packets([_event("ab"), _event("c")], [1, 2]) == TokenRun(2, [2, 1], [1, 2])
    assert reading.feed_packets([_event("a") + _event("b"), _event("c")], [1, 2]) is None
    assert reading.feed_packets([_event("a"), _event("b", finish_reason="stop")], [1, 2]) is None
    assert reading.feed_packets([_event("a")[:-1], b"\n" + _event("b")], [1, 2]) is None
    assert reading.feed_packets([_event("a"), _event("b") + _event("c")[:-1]], [1, 2]) is None
    assert reading.feed_packets([_event("a"), b"\n"], [1, 2]) is None
    assert reading.feed_packets([_event("a"), _event("")], [1, 2]) is None
    assert reading.feed_packets([_event("a"), _event("b\x7f")], [1, 2]) is None
    assert reading.feed_packets([_event("a|").replace(b"|", b"\\"), _event("b")], [1, 2]) is None


FORMATS: dict[str, Any] = {
    "openai": openai,
    "anthropic": anthropic,
    "cohere": cohere,
    "responses": responses,
    "gemini": gemini,
}


@each_case("name", FORMATS)
def test_runs_of_each_kind_are_learned_in_each_format(name: str) -> None:
    write = FORMATS[name].StreamWriter("chat", "m", id="x", created=1)
    parts = [write.opening(), *(write.token(f"t{n}", "reasoning") for n in range(9))]
    parts += [write.token(f"w{n}") for n in range(9)]
    for call in ("a", "b"):
        arguments = ('{"x":"', *(f"{call}{n}" for n in range(9)), '"}')
        parts += [write.tool_call("f", call), *(write.token(each, "tool") for each in arguments)]
    parts += [write.token(f"v{n}") for n in range(9)] if name != "gemini" else []
    parts.append(write.end("tool_calls", Usage(1, 5, 50)))
    body, seen, kinds = b"".join(parts), list[Observation](), set[str]()
    expected = [
        (event.kind, event.text, event.tool)
        for event in _read(name, [body])
        if isinstance(event, Token)
    ]
    for pieces in ([body], parts, [body[at : at + 50] for at in range(0, len(body), 50)]):
        events = _read(name, pieces)
        assert [
            (event.kind, event.text, event.tool) for event in events if isinstance(event, Token)
        ] == expected
        for in_runs in (False, True):
            timeline = Timeline(attempt="a", call="c", target="t")
            found = _read(name, pieces, in_runs=in_runs)
            timeline.record_events(found)
            kinds |= {type(event).__name__ for event in found}
            seen.append(timeline.observe(end_ns=3, sending=Sending()))
        assert seen[-1] == seen[-2]
    assert ("TokenRun" in kinds) == (name in ("openai", "anthropic", "cohere"))


def _read(name: str, pieces: list[bytes], *, in_runs: bool = False) -> list[Event]:
    reading: Decoder = FORMATS[name].decoder("chat")
    reading.in_runs = in_runs
    return [event for piece in pieces for event in reading.feed(piece, 1)] + reading.close(1)
