"""OpenAI's official library as the client of a gateway, for responses, with targets of every API
format."""

import asyncio
from typing import Any

import openai
import pytest
from openai.types.responses import FunctionToolParam, Response
from tests.gateway.api_formats.conftest import SECONDS_LEFT, TARGETS, WITH_TOOLS, Behind, attempts
from tests.gateway.conftest import KEY
from tests.simulator.on_loopback import SAID, WAIT_S, closed_early

from splitsecond.core.upstream.target import API_FORMATS

pytestmark = pytest.mark.system

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object"},
    "strict": False,
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def asked_for(client: openai.OpenAI, stream: bool, **asked: Any) -> Response:
    """Return the response; of a stream, that of its last event."""
    if not stream:
        whole: Response = client.responses.create(**asked)
        return whole
    *_, last = client.responses.create(stream=True, **asked)
    assert last.type in ("response.completed", "response.incomplete")
    found: Response = last.response
    return found


def test_library_accumulates_a_stream_to_the_whole_response(gpt: openai.OpenAI) -> None:
    for api_format in ("openai", "anthropic", "gemini"):
        with gpt.responses.stream(
            model=f"thinks-{api_format}/thinker", input="hello", max_output_tokens=8
        ) as events:
            found = events.get_final_response()
        assert found.output_text == "A simulated provider says"
        assert found.status == "completed"


@pytest.mark.parametrize("api_format", API_FORMATS)
@pytest.mark.parametrize("stream", [True, False])
def test_text(gpt: openai.OpenAI, api_format: str, stream: bool) -> None:
    found = asked_for(
        gpt,
        stream,
        model=TARGETS[api_format],
        input="hello",
        instructions="Be brief.",
        max_output_tokens=8,
    )
    assert found.output_text == SAID
    assert found.object == "response"
    assert found.status == ("completed" if api_format == "replicate" else "incomplete")
    if api_format != "replicate":  # its streams have no token counts
        assert found.usage is not None
        assert found.usage.output_tokens == 8
        assert found.usage.total_tokens == found.usage.input_tokens + 8


def test_the_events_of_a_stream(gpt: openai.OpenAI) -> None:
    events = list(
        gpt.responses.create(
            model=TARGETS["gemini"], input="hello", max_output_tokens=8, stream=True
        )
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (
        "".join(event.delta for event in events if event.type == "response.output_text.delta")
        == SAID
    )
    assert events[-1].type == "response.incomplete"


@pytest.mark.parametrize("api_format", WITH_TOOLS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call_and_its_result(gpt: openai.OpenAI, api_format: str, stream: bool) -> None:
    choice: Any = "required" if api_format == "cohere" else {"type": "function", "name": "weather"}
    asked: dict[str, Any] = {
        "model": TARGETS[api_format],
        "max_output_tokens": 8,
        "tools": [WEATHER],
        "store": False,
    }
    found = asked_for(gpt, stream, input="hello", tool_choice=choice, **asked)
    (call,) = found.output
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("weather", f'{{"text":"{SAID}"}}')
    assert found.status == "completed"
    after: Any = [
        {"role": "user", "content": "hello"},
        call.model_dump(exclude_none=True, exclude={"parsed_arguments"}),
        {"type": "function_call_output", "call_id": call.call_id, "output": "Snow."},
    ]
    assert asked_for(gpt, stream, input=after, **asked).output_text == SAID


@pytest.mark.parametrize("api_format", ["openai", "anthropic", "gemini", "cohere", "ollama"])
def test_reasoning(gpt: openai.OpenAI, api_format: str) -> None:
    for stream in (True, False):
        found = asked_for(
            gpt, stream, model=f"thinks-{api_format}/thinker", input="hello", max_output_tokens=8
        )
        thought, said = found.output
        assert thought.type == "reasoning"
        assert [part.text for part in thought.summary] == ["A simulated"]
        assert said.type == "message"
        assert found.status == "completed"


def test_the_request_to_a_target_of_another_format(gpt: openai.OpenAI, behind: Behind) -> None:
    raw = gpt.responses.with_raw_response.create(
        model="noted-anthropic/m",
        instructions="Be brief.",
        input=[
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
                ],
            }
        ],
        tools=[WEATHER],
        max_output_tokens=99,
        metadata={"a": "b"},
        store=False,
        text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
    )
    assert raw.headers["x-splitsecond-dropped"] == "metadata"
    text, call = raw.parse().output
    assert text.type == "message"
    assert call.type == "function_call"
    assert (call.call_id, call.arguments) == ("call_1", '{"city":"Bern"}')
    (received,) = behind.requests
    assert received.path == "/v1/messages"
    assert received.body == {
        "model": "m",
        "stream": True,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {
                        "type": "image",
                        "source": {
                            "type": "base64",
                            "media_type": "image/png",
                            "data": PIXEL.partition(",")[2],
                        },
                    },
                ],
            }
        ],
        "tools": [{"name": "weather", "input_schema": {"type": "object"}, "strict": False}],
        "max_tokens": 99,
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    }


PATCH: Any = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edit files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"},
}
GROUP: Any = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers",
    "tools": [WEATHER, PATCH],
}


@pytest.mark.parametrize("api_format", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("stream", [True, False])
def test_custom_tools_and_namespaces_are_transcoded_both_ways(
    gpt: openai.OpenAI, api_format: str, stream: bool
) -> None:
    asked: dict[str, Any] = {
        "model": TARGETS[api_format],
        "max_output_tokens": 8,
        "tools": [PATCH, GROUP],
    }
    for choice, namespace in (({"type": "custom", "name": "apply_patch"}, None), (None, "crm")):
        given = choice or {"type": "custom", "name": "apply_patch", "namespace": "crm"}
        found = asked_for(gpt, stream, input="hello", tool_choice=given, **asked)
        (custom,) = found.output
        assert custom.type == "custom_tool_call"
        assert (custom.name, custom.namespace) == ("apply_patch", namespace)
        assert custom.input == "simulated input"
        returned = custom.call_id
    (call,) = asked_for(
        gpt,
        stream,
        input="hello",
        tool_choice={"type": "function", "name": "weather", "namespace": "crm"},
        **asked,
    ).output
    assert call.type == "function_call"
    assert (call.name, call.namespace) == ("weather", "crm")
    after: Any = [
        {"role": "user", "content": "hello"},
        *(
            each.model_dump(exclude_none=True, exclude={"parsed_arguments"})
            for each in (call, custom)
        ),
        {"type": "function_call_output", "call_id": call.call_id, "output": "Snow."},
        {"type": "custom_tool_call_output", "call_id": returned, "output": "Done."},
    ]
    assert asked_for(gpt, stream, input=after, **asked).output_text == SAID


def test_tools_are_translated_to_functions(gpt: openai.OpenAI, behind: Behind) -> None:
    called: Any = {
        "type": "custom_tool_call",
        "call_id": "c",
        "name": "apply_patch",
        "namespace": "crm",
        "input": "+a",
    }
    result: Any = {"type": "custom_tool_call_output", "call_id": "c", "output": "Done."}
    gpt.responses.create(model="noted-openai/m", input=[called, result], tools=[PATCH, GROUP])
    (received,) = behind.requests
    first, *_, last = received.body["tools"]
    assert [tool["function"]["name"] for tool in received.body["tools"]] == [
        "apply_patch", "crm__weather", "crm__apply_patch",
    ]  # fmt: skip
    text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    description = "Edit files.\n\nThe input matches this lark grammar:\nstart: /.+/"
    assert first["function"] == {
        "name": "apply_patch",
        "description": description,
        "parameters": text,
    }
    assert last["function"] == {**first["function"], "name": "crm__apply_patch"}
    (call,) = received.body["messages"][0]["tool_calls"]
    assert call["function"] == {"name": "crm__apply_patch", "arguments": '{"input":"+a"}'}


def test_server_tools_are_dropped_if_configured(gpt: openai.OpenAI, behind: Behind) -> None:
    search: Any = {"type": "web_search_preview"}
    ran: Any = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search"},
    }
    asked: dict[str, Any] = {
        "input": [ran, {"role": "user", "content": "hi"}],
        "tools": [search, WEATHER],
    }
    with pytest.raises(openai.BadRequestError, match="web_search"):
        gpt.responses.create(model="noted-openai/m", **asked)
    raw = gpt.responses.with_raw_response.create(model="noted-tools/m", **asked)
    assert raw.headers["x-splitsecond-dropped"] == "web_search_preview"
    (received,) = behind.requests
    assert [tool["function"]["name"] for tool in received.body["tools"]] == ["weather"]
    assert received.body["messages"] == [{"role": "user", "content": "hi"}]


def test_the_request_to_a_target_of_the_same_format(gpt: openai.OpenAI, behind: Behind) -> None:
    asked: dict[str, Any] = {
        "input": "hi",
        "include": ["reasoning.encrypted_content"],
        "store": False,
    }
    asked["tools"] = [{"type": "web_search"}]
    found = gpt.responses.create(model="noted-responses/m", extra_body={"odd": [1.5]}, **asked)
    assert found.id == "id-1"
    (received,) = behind.requests
    assert received.path == "/v1/responses"
    assert received.body == {"model": "m", "stream": True, "odd": [1.5], **asked}


@pytest.mark.parametrize(
    ("asked", "words", "code"),
    [
        ({"tools": [{"type": "web_search"}]}, "a tool of type 'web_search'", "not_translatable"),
        (
            {"previous_response_id": "resp_1"},
            "Send the whole conversation",
            "previous_response_not_found",
        ),
        (
            {"input": [{"type": "item_reference", "id": "x"}]},
            "of type 'item_reference'",
            "not_translatable",
        ),
    ],
)
def test_untranslatable_requests_are_refused(
    gpt: openai.OpenAI, asked: dict[str, Any], words: str, code: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as refused:
        gpt.responses.create(**{"model": TARGETS["openai"], "input": "hello", **asked})
    assert refused.value.code == code


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_errors(gpt: openai.OpenAI, api_format: str) -> None:
    target = TARGETS[api_format]
    with pytest.raises(openai.RateLimitError) as limited:
        gpt.responses.create(model=f"limited-{target}", input="hello")
    assert limited.value.response.headers["retry-after"] in SECONDS_LEFT
    for fault, words in (("cut", "before the end|ended"), ("error", "failed while")):
        stream = gpt.responses.create(
            model=f"{fault}-{target}", input="hello", max_output_tokens=8, stream=True
        )
        seen: list[Any] = []
        with pytest.raises(openai.APIError, match=words):
            seen.extend(stream)
        assert any(event.type == "response.output_text.delta" for event in seen)
        with pytest.raises(openai.InternalServerError, match=words):
            gpt.responses.create(model=f"{fault}-{target}", input="hello", max_output_tokens=8)


@pytest.mark.parametrize("api_format", ["openai", "anthropic", "responses"])
def test_concurrent_requests_and_one_closed_early(behind: Behind, api_format: str) -> None:
    async def play() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{behind.origin}/v1", api_key=KEY, max_retries=0, timeout=WAIT_S
        ) as client:

            async def ask() -> str:
                found = await client.responses.create(
                    model=TARGETS[api_format], input="hello", max_output_tokens=8
                )
                return str(found.output_text)

            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(ask()) for _ in range(8)]
            long: Any = {
                "model": TARGETS[api_format],
                "input": "hello",
                "max_output_tokens": 30_000,
                "stream": True,
            }
            stream = await client.responses.create(**long)
            identity = stream.response.headers["x-request-id"]
            await anext(aiter(stream))
            await stream.close()
            return [identity, *(one.result() for one in asked)]

    identity, *texts = asyncio.run(play())
    assert set(texts) == {SAID}
    assert any(
        closed_early(behind.simulated.quick, name, 30_000) for name in attempts(behind, identity)
    )
