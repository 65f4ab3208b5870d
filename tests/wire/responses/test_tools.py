"""Tools of Responses as functions, and back."""

from msgspec import Raw

from splitsecond.core.wire.responses import StreamWriter
from splitsecond.core.wire.responses.decode import ResponsesDecoder
from splitsecond.core.wire.responses.tools import (
    CarriedTool,
    carried_tools,
    custom_input,
    function_name,
)


def test_function_names_include_the_namespace_within_64() -> None:
    assert function_name("f", None) == function_name("f", "") == "f"
    assert function_name("f", "crm") == "crm__f"
    long, other = function_name("f" * 60, "namespace"), function_name("f" * 61, "namespace")
    assert (len(long), len(other)) == (64, 64)
    assert long != other


def test_only_renamed_or_custom_tools_are_listed() -> None:
    tools = b"""[{"type": "function", "name": "f"}, {"type": "web_search"},
      {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f"}]}, 5]"""
    assert carried_tools({"tools": Raw(tools)}) == {
        "c": CarriedTool("c", custom=True),
        "n__f": CarriedTool("f", "n"),
    }
    assert carried_tools({"tools": Raw(b'[{"type":"function","name":"f"}]')}) == {}
    assert carried_tools({}) == {}


def test_input_of_a_custom_tool() -> None:
    assert custom_input('{"input":"a\\nb"}') == "a\nb"
    assert custom_input('{"other":"a"}') == '{"other":"a"}'
    assert custom_input("[") == "["


def test_a_custom_call_between_others_reads_back() -> None:
    writer = StreamWriter(
        "chat", "m", id="r", created=1, tools={"c": CarriedTool("c", custom=True)}
    )
    data = b"".join(
        [
            writer.opening(),
            writer.token("Well."),
            writer.tool_call("c", "1"),
            writer.token('{"inp', "tool"),
            writer.token('ut":"+a"}', "tool"),
            writer.tool_call("f", "2"),
            writer.token("{}", "tool"),
            writer.finish("tool_calls"),
            writer.done(),
        ]
    )
    decoder = ResponsesDecoder()
    texts = [
        event.text
        for event in [*decoder.feed(data, 1), *decoder.close(1)]
        if hasattr(event, "text")
    ]
    assert texts == ["Well.", "c", "+a", "f", "{}"]
    assert data.count(b'"type":"response.custom_tool_call_input.done"') == 1
