"""Tool calls: numbered as they arrive, and written in every API format such that they read back the
same."""

import json
from collections.abc import Iterable
from types import ModuleType

from tests.cases import each_case

from splitsecond.core.events import Event, Token, ToolPart, Usage
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, responses
from splitsecond.core.wire.api_format import CalledTool, ServerAnswer
from splitsecond.core.wire.tool_calls import ToolCalls

API_FORMATS = (anthropic, cohere, gemini, ollama, openai, responses)
CALLS = (
    CalledTool("c1", "weather", '{"city":"Genève"}'),
    CalledTool("c2", "now"),
    CalledTool("c3", "weather", '{"city":"Wien","days":[1,2]}'),
)


def calls_in(events: Iterable[Event]) -> list[CalledTool]:
    """The tool calls of an answer, put together from its tokens as anyone would who tells it in
    another api_format."""
    calls: dict[int, CalledTool] = {}
    for token in events:
        if isinstance(token, Token) and token.tool is not None:
            part = token.tool
            begun = calls.get(part.number, CalledTool("", "", ""))
            calls[part.number] = CalledTool(
                begun.id or part.id, begun.name or part.name, begun.arguments + token.arguments
            )
    return [
        CalledTool(call.id, call.name, call.arguments or "{}") for _, call in sorted(calls.items())
    ]


def meant(calls: Iterable[CalledTool]) -> list[tuple[str, str, object]]:
    return [(call.id, call.name, json.loads(call.arguments)) for call in calls]


@each_case("api_format", API_FORMATS, ids=lambda api_format: api_format.__name__.rpartition(".")[2])
def test_calls_read_back_streamed_and_whole(api_format: ModuleType) -> None:
    write = api_format.StreamWriter("chat", "m", id="x", created=1)
    data = write.opening() + write.token("I will look.")
    for call in CALLS:
        data += write.tool_call(call.name, call.id)
        if call.arguments != "{}":
            data += write.token(call.arguments[:5], "tool") + write.token(
                call.arguments[5:], "tool"
            )
    data += write.finish("tool_calls") + write.usage(Usage(0, 1, 2)) + write.done()
    answer = ServerAnswer(text="I will look.", calls=CALLS, finish="tool_calls")
    for body in (
        data,
        api_format.StreamWriter("chat", "m", id="x", created=1).whole([answer], Usage(0, 1, 2)),
    ):
        decoder = api_format.decoder("chat")
        events = decoder.feed(body, 0) + decoder.close(0)
        assert meant(calls_in(events)) == meant(CALLS)
        assert next(event for event in events if isinstance(event, Token)) == Token(
            0, "I will look."
        )


@each_case(
    "fragments, parts",
    [
        (
            [(0, "a", "f"), (0, "", ""), (1, "b", "g"), (0, "", "")],
            [(0, "a", "f"), (0,), (1, "b", "g"), (0,)],
        ),
        ([(0, "a", ""), (0, "", "f"), (0, "", "")], [(0,), (0, "a", "f"), (0,)]),
        ([(0, "a", "f"), (0, "a", "f")], [(0, "a", "f"), (0,)]),
        ([(0, "a", "f"), (0, "b", "g"), (0, "b", "")], [(0, "a", "f"), (1, "b", "g"), (1,)]),
        ([(0, "a", "f"), (0, "z", ""), (0, "y", "")], [(0, "a", "f"), (0,), (0,)]),
        ([(None, "", "f"), (None, "", ""), (None, "", "f")], [(0, "", "f"), (0,), (1, "", "f")]),
        ([(None, "", "")], [(0,)]),
        (
            [(0, "a", "f"), (7, "", ""), (7, "", ""), (1, "b", "g")],
            [(0, "a", "f"), (0,), (0,), (1, "b", "g")],
        ),
        (
            [(0, "", "f"), (0, "", ""), (0, "", "g"), (0, "", "")],
            [(0, "", "f"), (0,), (1, "", "g"), (1,)],
        ),
        (
            [(None, "a", "f"), (None, "z", ""), (None, "b", "f")],
            [(0, "a", "f"), (0,), (1, "b", "f")],
        ),
    ],
    ids=[
        "numbered",
        "name later",
        "name again",
        "all numbered 0",
        "ids made up",
        "not numbered",
        "nothing said",
        "stray number",
        "one number and no ids",
        "not numbered, with ids",
    ],
)
def test_tool_calls_are_numbered_in_any_form(
    fragments: list[tuple[int | None, str, str]], parts: list[tuple[int, str, str]]
) -> None:
    calls = ToolCalls()
    assert [calls.part(*fragment) for fragment in fragments] == [ToolPart(*part) for part in parts]


def test_each_choice_has_its_own_numbers() -> None:
    calls = ToolCalls()
    assert [calls.part(0, "a", "f", index).number for index in (0, 1)] == [0, 0]
    assert calls.begun(0) == ToolPart(0)
    assert calls.begun(1) is None
