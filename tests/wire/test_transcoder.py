"""A transcoded answer decodes to the same content as the original."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.events import (
    Broken,
    Done,
    Event,
    Finish,
    Quiet,
    Token,
    TokenKind,
    ToolPart,
    Usage,
)
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, responses
from splitsecond.core.wire import transcoder as module
from splitsecond.core.wire.transcoder import Transcoder

CLIENTS: dict[str, Any] = {"openai": openai, "anthropic": anthropic, "responses": responses}
TARGETS: dict[str, Any] = {**CLIENTS, "cohere": cohere, "gemini": gemini, "ollama": ollama}
TEXT = st.text(st.characters(codec="utf-8"), min_size=1)


def transcoder_for(client: str) -> Transcoder:
    writer = CLIENTS[client].StreamWriter("chat", "m", id="x", created=1)
    return Transcoder(writer, "0123456789abcdef" * 4, single=client != "openai")


def heard(client: str, data: bytes) -> list[Event]:
    decoder = CLIENTS[client].decoder("chat")
    return [*decoder.feed(data, 1), *decoder.close(1)]


def runs(events: list[Event]) -> list[tuple[str, ...]]:
    """Return the content of an answer, however it is cut into tokens: reasoning, texts and tool
    calls in order."""
    found: list[list[str]] = []
    open_call: int | None = None
    for event in events:
        match event:
            case Token(kind="tool", tool=ToolPart(number, identity, name)):
                if number != open_call:
                    found.append(["tool", identity, name, ""])
                    open_call = number
                found[-1][3] += event.arguments
            case Token(kind="tool"):
                pass
            case Token(kind=kind, text=text):
                if not found or found[-1][0] != kind:
                    found.append([kind, ""])
                found[-1][1] += text
                open_call = None
    return [tuple(run) for run in found]


@st.composite
def answers(draw: st.DrawFn) -> list[Event]:
    """Events as decoders return them."""
    events: list[Event] = []
    calls = 0
    for kind in draw(
        st.lists(st.sampled_from(["text", "reasoning", "tool", "quiet", "usage"]), max_size=12)
    ):
        match kind:
            case "tool":
                name = draw(st.sampled_from(["f", "weather"]))
                arguments = draw(st.sampled_from(['{"a":1}', "{}", '{"b":"\\u0000\\n"}']))
                cut = draw(st.integers(0, len(arguments)))
                rest = ToolPart(calls)
                events.append(
                    Token(
                        1, name + arguments[:cut], "tool", tool=ToolPart(calls, f"id_{calls}", name)
                    )
                )
                if arguments[cut:]:
                    events.append(Token(1, arguments[cut:], "tool", tool=rest))
                calls += 1
            case "quiet":
                events.append(Quiet(1, "ping"))
            case "usage":
                events.append(Usage(1, draw(st.integers(1, 99)), draw(st.integers(1, 99))))
            case "text" | "reasoning" as said:
                events += [
                    Token(1, text, said) for text in draw(st.lists(TEXT, min_size=1, max_size=3))
                ]
    usage = Usage(
        1,
        draw(st.integers(20, 99)),
        draw(st.integers(1, 99)),
        cached_tokens=draw(st.sampled_from([None, 7])),
    )
    reason = draw(st.sampled_from(["stop", "end_turn", "MAX_TOKENS", "content_filter", "COMPLETE"]))
    return [*events, Finish(1, reason), usage, Done(1, True)]


@given(answers(), st.sampled_from(sorted(CLIENTS)), st.data())
def test_the_content_is_the_same_in_any_split(
    events: list[Event], client: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=4)))
    telling = transcoder_for(client)
    parts = [telling.encode(events[begin:end]) for begin, end in pairwise([0, *cuts, len(events)])]
    again = heard(client, b"".join(parts))
    assert isinstance(again[-1], Done)
    assert runs(again) == runs(events)
    counted = [event for event in events if isinstance(event, Usage)][-1]
    usage = [event for event in again if isinstance(event, Usage)][-1]
    assert (usage.input_tokens, usage.output_tokens) == (
        counted.input_tokens,
        counted.output_tokens,
    )
    assert (usage.cached_tokens or None) == counted.cached_tokens


@given(answers(), st.sampled_from(sorted(CLIENTS)), st.integers(0, 30))
def test_truncated_response_never_looks_complete(
    events: list[Event], client: str, end: int
) -> None:
    data = transcoder_for(client).encode(events[: min(end, len(events) - 1)])
    assert not any(isinstance(event, Done) for event in heard(client, data))


@each_case("client", CLIENTS)
@each_case("target", TARGETS)
def test_from_every_format_to_every_client_format(target: str, client: str) -> None:
    writer = TARGETS[target].StreamWriter("chat", "m", id="x", created=1)
    body = b"".join(
        [
            writer.opening(),
            writer.token("Hm. ", "reasoning"),
            writer.token("It says: "),
            writer.token('"😀\n"'),
            writer.tool_call("weather", "call_9"),
            writer.token('{"city":', "tool"),
            writer.token('"Bern"}', "tool"),
            writer.finish("tool_calls"),
            writer.usage(Usage(0, 20, 9)),
            writer.done(),
        ]
    )
    decoder = TARGETS[target].decoder("chat")
    events = [*decoder.feed(body, 1), *decoder.close(1)]
    again = heard(client, transcoder_for(client).encode(events))
    thought, text, call = runs(again)
    assert (thought, text) == (("reasoning", "Hm. "), ("text", 'It says: "😀\n"'))
    assert call[2:] == ("weather", '{"city":"Bern"}')
    assert call[1]
    assert not any(isinstance(event, Broken) for event in again)


@pytest.mark.parametrize(
    ("reason", "called", "words"),
    [
        ("STOP", False, ("stop", "end_turn", "completed")),
        ("STOP", True, ("tool_calls", "tool_use", "completed")),
        ("max_tokens", False, ("length", "max_tokens", "max_output_tokens")),
        ("SAFETY", False, ("content_filter", "refusal", "content_filter")),
        ("stop_sequence", False, ("stop", "end_turn", "completed")),
    ],
)
def test_finish_reasons(reason: str, called: bool, words: tuple[str, ...]) -> None:
    token = Token(1, "f{}", "tool", tool=ToolPart(0, "id", "f")) if called else Token(1, "a")
    for client, word in zip(CLIENTS, words, strict=True):
        data = transcoder_for(client).encode([token, Finish(1, reason), Done(1, False)])
        assert [event.reason for event in heard(client, data) if isinstance(event, Finish)] == [
            word
        ]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_empty_answer(client: str) -> None:
    assert isinstance(heard(client, transcoder_for(client).encode([Done(1, False)]))[-1], Done)


@pytest.mark.parametrize("client", CLIENTS)
def test_provider_tool_calls_are_dropped_and_missing_ids_added(client: str) -> None:
    events: list[Event] = [
        Token(1, "python", "tool"),
        Token(1, "f", "tool", tool=ToolPart(0, "", "f")),
        Token(1, "g", "tool", tool=ToolPart(1, "", "g")),
        Finish(1, "stop"),
        Done(1, False),
    ]
    first, second = runs(heard(client, transcoder_for(client).encode(events)))
    assert (first[2:], second[2:]) == (("f", "{}"), ("g", "{}"))
    assert first[1] != second[1]
    assert all(
        len(call[1]) <= 40 and call[1].replace("_", "").isalnum() for call in (first, second)
    )


def test_formats_with_one_choice_get_the_first() -> None:
    events: list[Event] = [
        Token(1, "a"),
        Token(1, "b", index=1),
        Finish(1, "stop", 1),
        Finish(1, "stop"),
        Done(1, True),
    ]
    assert runs(heard("anthropic", transcoder_for("anthropic").encode(events))) == [("text", "a")]
    both = heard("openai", transcoder_for("openai").encode(events))
    assert [(event.index, event.text) for event in both if isinstance(event, Token)] == [
        (0, "a"),
        (1, "b"),
    ]


@pytest.mark.parametrize(
    ("client", "kind"), [("anthropic", "image"), ("anthropic", "audio"), ("responses", "audio")]
)
def test_content_that_a_format_cannot_express(client: str, kind: TokenKind) -> None:
    telling = transcoder_for(client)
    telling.encode([Token(1, "a")])
    with pytest.raises(CallerFault, match=f"holds {kind}"):
        telling.encode([Token(1, "data:image/png;base64,AA==", kind)])


@pytest.mark.parametrize("client", ["openai", "responses"])
def test_images(client: str) -> None:
    url = "data:image/png;base64,AA=="
    again = heard(
        client,
        transcoder_for(client).encode([Token(1, url, "image"), Finish(1, "stop"), Done(1, True)]),
    )
    assert runs(again) == [("image", url)]


INTERLEAVED: list[Event] = [
    Token(1, 'f{"a":', "tool", tool=ToolPart(0, "a", "f")),
    Token(1, "g", "tool", tool=ToolPart(1, "b", "g")),
    Token(1, "1}", "tool", tool=ToolPart(0)),
    Token(1, "h{}", "tool", tool=ToolPart(2, "c", "h")),
    Token(1, '{"b":2}', "tool", tool=ToolPart(1)),
]


@pytest.mark.parametrize("client", CLIENTS)
def test_interleaved_calls_come_out_one_after_another(client: str) -> None:
    data = transcoder_for(client).encode([*INTERLEAVED, Finish(1, "tool_calls"), Done(1, True)])
    assert [run[2:] for run in runs(heard(client, data))] == [
        ("f", '{"a":1}'),
        ("g", '{"b":2}'),
        ("h", "{}"),
    ]


def test_a_call_after_a_complete_one_is_not_held_back() -> None:
    telling = transcoder_for("anthropic")
    telling.encode([Token(1, "f{}", "tool", tool=ToolPart(0, "a", "f"))])
    assert b'"g"' in telling.encode([Token(1, "g{}", "tool", tool=ToolPart(1, "b", "g"))])
    with pytest.raises(ProviderFault, match="tool call 1 came after"):
        telling.encode([Token(1, " {}", "tool", tool=ToolPart(0))])


def test_more_held_fragments_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HELD", 1)
    with pytest.raises(ProviderFault, match="more than 1 fragments"):
        transcoder_for("responses").encode(INTERLEAVED)


def test_an_unknown_reason_inside_a_call_is_a_failure() -> None:
    call = Token(1, 'f{"a":', "tool", tool=ToolPart(0, "a", "f"))
    transcoder_for("anthropic").encode([call, Finish(1, "length"), Done(1, True)])
    with pytest.raises(ProviderFault, match="inside a tool call, for the unknown reason 'odd'"):
        transcoder_for("anthropic").encode([call, Finish(1, "odd"), Done(1, True)])


def test_a_call_without_a_name_is_an_error() -> None:
    with pytest.raises(ProviderFault, match="tool call 1 has no name"):
        transcoder_for("anthropic").encode([Token(1, "{}", "tool", tool=ToolPart(0))])


def test_an_answer_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHARACTERS", 10)
    telling = transcoder_for("responses")
    telling.encode([Token(1, "a" * 10)])
    with pytest.raises(ProviderFault, match="longer than 10"):
        telling.encode([Token(1, "a")])
