"""Answers that break and are resumed at another target: the official libraries see one whole
answer."""

import anthropic
import openai
import pytest
from tests.gateway.api_formats.conftest import RESUMED, Behind, attempts
from tests.simulator.on_loopback import SAID

pytestmark = pytest.mark.system

ROUTES = [f"{first}-then-{then}" for first, then in RESUMED]


@pytest.mark.parametrize("route", ROUTES)
def test_anthropics_messages(claude: anthropic.Anthropic, behind: Behind, route: str) -> None:
    with claude.messages.stream(
        model=route, max_tokens=8, messages=[{"role": "user", "content": "hello"}]
    ) as events:
        assert "".join(events.text_stream) == SAID
        message = events.get_final_message()
        identity = events.response.headers["x-request-id"]
    (block,) = message.content
    assert (block.type, message.stop_reason) == ("text", "max_tokens")
    assert message.usage.output_tokens == 8
    assert len(attempts(behind, identity)) == 2


@pytest.mark.parametrize("route", ROUTES)
def test_openais_responses(gpt: openai.OpenAI, route: str) -> None:
    events = list(
        gpt.responses.create(model=route, input="hello", max_output_tokens=8, stream=True)
    )
    first, last = events[0], events[-1]
    assert first.type == "response.created"
    assert last.type == "response.incomplete"
    found = last.response
    assert found.id == first.response.id
    assert (
        "".join(event.delta for event in events if event.type == "response.output_text.delta")
        == SAID
    )
    assert found.output_text == SAID
    assert found.status == "incomplete"
    assert found.usage is not None
    assert found.usage.output_tokens == 8
    numbers = [event.sequence_number - first.sequence_number for event in events]
    assert numbers == list(range(len(events)))


def test_a_resumed_tool_call(claude: anthropic.Anthropic, gpt: openai.OpenAI) -> None:
    for route in ROUTES:
        with claude.messages.stream(
            model=route,
            max_tokens=8,
            messages=[{"role": "user", "content": "hello"}],
            tools=[{"name": "weather", "input_schema": {"type": "object"}}],
            tool_choice={"type": "tool", "name": "weather"},
        ) as events:
            (call,) = events.get_final_message().content
        assert call.type == "tool_use"
        assert (call.name, call.input) == ("weather", {"text": SAID})
