"""Resumed streams, cut at any byte: the client gets the whole answer once, or its beginning and an
error."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policies.branches import play, scripted
from tests.policies.resumed import (
    ANSWER,
    CUT,
    WHOLE,
    WORDS,
    Received,
    Stream,
    answers,
    breaks,
    chat,
    chunked,
    receive,
    stream,
)
from tests.policies.test_delivered import pieces

from splitsecond.core.errors import Fault
from splitsecond.core.events import Broken, Done, Event, Token
from splitsecond.core.service import Service
from splitsecond.core.wire.openai.client_side import continuation_encoder
from splitsecond.routing.construction.building import build
from splitsecond.routing.construction.expression import parse
from splitsecond.routing.machinery.replies.resumable import BLOCK_BYTES
from splitsecond.routing.targets.target_states import TargetStates
from splitsecond.testing.fake_service import Script


def test_a_break_after_the_end_of_an_answer_is_ignored() -> None:
    targets: dict[str, Service] = {
        "a": Stream("a", [stream("a", WORDS)], CUT),
        "b": Stream("b", [stream("b", WORDS)]),
    }

    async def main() -> None:
        service = build(
            parse('resume("a", "b")'),
            targets.__getitem__,
            TargetStates(),
            make_encoder=continuation_encoder,
        )
        received = await receive(service, chat())
        assert (received.text, received.ended_well) == (WHOLE, True)

    play(main)


@pytest.mark.parametrize("stall", ["", ', stall="9s"'])
def test_long_response_is_resumed_within_an_event(stall: str) -> None:
    """Longer than what is compressed together, and cut within an event."""
    words = [f"word{number} " for number in range(1000)]
    first = stream("a", words)
    chunks = [first[begin : begin + 1000] for begin in range(0, len(first), 1000)]
    assert len(first) > 4 * BLOCK_BYTES
    again = stream("b", ["".join(words[n : n + 3]) for n in range(0, 1000, 3)])
    targets: dict[str, Service] = {"a": Stream("a", chunks[:-20], CUT), "b": Stream("b", [again])}

    async def main() -> None:
        service = build(
            parse(f'resume("a", "b"{stall})'),
            targets.__getitem__,
            TargetStates(),
            make_encoder=continuation_encoder,
        )
        received = await receive(service, chat())
        assert (received.text, received.ended_well) == ("".join(words), True)

    play(main)


@pytest.mark.parametrize("again", [ANSWER, answers("Twice ")])
def test_events_and_bytes_of_a_watched_call_agree(again: Script) -> None:
    fakes = {"a": scripted(breaks(2), target="a"), "b": scripted(again, target="b")}

    async def main() -> None:
        service = build(
            parse('resume("a", "b")'),
            fakes.__getitem__,
            TargetStates(),
            make_encoder=continuation_encoder,
        )
        received, events = Received(), list[Event]()
        async with await service(msgspec.structs.replace(chat(), watched=True)) as reply:
            try:
                while data := await reply.read():
                    received.data += data
                    events += reply.arrived()
            except Fault as fault:
                received.fault = fault
            events += reply.arrived()
        tokens = [event.text for event in events if isinstance(event, Token)]
        assert "".join(tokens) == received.text
        assert received.text == (WHOLE if again is ANSWER else "Once upon ")
        assert isinstance(events[-1], Done if again is ANSWER else Broken)

    play(main, list(fakes.values()))


@pytest.mark.parametrize("again", [ANSWER, answers("Twice ")])
def test_events_alone_show_the_resumed_response(again: Script) -> None:
    fakes = {"a": scripted(breaks(2), target="a"), "b": scripted(again, target="b")}

    async def main() -> None:
        service = build(
            parse('resume("a", "b")'),
            fakes.__getitem__,
            TargetStates(),
            make_encoder=continuation_encoder,
        )
        async with await service(chat()) as reply:
            events = [event async for event in reply]
            assert reply.arrived() == []
        assert "".join(event.text for event in events if isinstance(event, Token)) == (
            WHOLE if again is ANSWER else "Once upon "
        )
        assert isinstance(events[-1], Done if again is ANSWER else Broken)
        async with await service(chat()) as reply:
            await reply.finished()

    play(main, list(fakes.values()))


TEXTS = st.text(min_size=1, max_size=12) | st.text("ab", min_size=1, max_size=12)


@given(TEXTS, st.data())
def test_client_gets_the_whole_response_or_beginning_and_error(
    whole: str, data: st.DataObject
) -> None:
    """Any cut at any byte, any tokens, the same text or another: never lost, never doubled, never
    made up."""
    newline = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    first = stream("a", pieces(whole, data), newline)
    cut = data.draw(st.integers(1, len(first)))
    others = [data.draw(st.just(whole) | TEXTS | st.just(whole + "!")) for _ in range(2)]
    targets: dict[str, Service] = {"a": Stream("a", chunked(first[:cut], data), CUT)}
    for name, other in zip("bc", others, strict=True):
        sent = stream(name, pieces(other, data))
        ends = data.draw(st.none() | st.integers(1, len(sent)))
        targets[name] = Stream(name, chunked(sent[:ends], data), CUT if ends else None)
    received = Received()

    async def main() -> None:
        nonlocal received
        service = build(
            parse('resume("a", "b", "c")'),
            targets.__getitem__,
            TargetStates(),
            make_encoder=continuation_encoder,
        )
        received = await receive(service, chat())

    play(main)
    if received.fault is None:
        assert received.text in {whole, *others}
        assert received.ended_well
        assert any(isinstance(event, Done) for event in received.events)
    else:
        assert received.fault is CUT
        assert any(full.startswith(received.text) for full in [whole, *others])
        assert received.data.endswith((b"\n\n", b"\r\n\r\n", b""))


@given(TEXTS, st.data())
def test_same_text_in_any_tokens_is_always_completed(whole: str, data: st.DataObject) -> None:
    first = stream("a", pieces(whole, data))
    cut = data.draw(st.integers(1, len(first) - len(b"data: [DONE]\n\n")))
    again = stream("b", pieces(whole, data))
    targets: dict[str, Service] = {
        "a": Stream("a", chunked(first[:cut], data), CUT),
        "b": Stream("b", chunked(again, data)),
    }

    async def main() -> None:
        service = build(
            parse('resume("a", "b")'),
            targets.__getitem__,
            TargetStates(),
            make_encoder=continuation_encoder,
        )
        received = await receive(service, chat())
        assert (received.text, received.ended_well) == (whole, True)

    play(main)
