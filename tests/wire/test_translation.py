"""What a translation leaves out is named in the notes of the call, for the client to see."""

from types import ModuleType
from typing import Any

from tests.cases import each_case

from splitsecond.core.service import Call
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.core.wire.api_format import Quirks
from splitsecond.core.wire.translation import without_tools

BODY = {
    "messages": [{"role": "user", "content": "Hi"}],
    "model": "m",
    "stream": True,
    "stream_options": {"include_usage": True},
    "user": "u",
    "metadata": None,
    "seed": 7,
}


@each_case(
    "api_format, dropped",
    [
        (openai, []),
        (responses, ["seed"]),
        (anthropic, ["seed"]),
        (gemini, ["user"]),
        (cohere, ["user"]),
        (ollama, ["user"]),
        (replicate, ["user", "usage"]),
    ],
)
def test_dropped_fields_are_noted_once(api_format: ModuleType, dropped: list[str]) -> None:
    call = Call(id="1", body=BODY)
    for _ in range(2):
        api_format.encode(call, "o/m", Quirks())
    assert call.notes.dropped == dropped


def test_tools_inside_an_item_are_left_out_like_others() -> None:
    search, own = {"type": "web_search_preview"}, {"type": "function", "name": "weather"}
    items: list[Any] = [
        {"type": "additional_tools", "tools": [search, own]},
        {"type": "web_search_call"},
        "odd",
    ]
    call = Call(id="req-1", body={"input": items, "tools": [own, search]}, api_format="responses")
    body = without_tools(call, "input", ["web_search"]).body
    assert body["tools"] == [own]
    assert body["input"] == [{"type": "additional_tools", "tools": [own]}, "odd"]
    assert call.notes.dropped == ["web_search_preview"]
