"""Google's official library as the client of a gateway, with targets of every API format."""

from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types
from tests.gateway.api_formats.conftest import TARGETS, WITH_TOOLS, Behind
from tests.gateway.conftest import KEY
from tests.simulator.on_loopback import SAID, WAIT_S

from splitsecond.core.upstream.target import API_FORMATS

pytestmark = pytest.mark.system

WEATHER = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name="weather",
            description="Of a city",
            parameters=types.Schema(
                type=types.Type.OBJECT,
                properties={"text": types.Schema(type=types.Type.STRING, nullable=True)},
            ),
        )
    ]
)
PIXEL = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def google(behind: Behind) -> Iterator[genai.Client]:
    behind.requests.clear()
    with genai.Client(
        api_key=KEY, http_options=types.HttpOptions(base_url=behind.origin, timeout=WAIT_S * 1000)
    ) as made:
        yield made


def answers(
    client: genai.Client, stream: bool, **asked: Any
) -> list[types.GenerateContentResponse]:
    if stream:
        return list(client.models.generate_content_stream(**asked))
    return [client.models.generate_content(**asked)]


def parts(found: list[types.GenerateContentResponse]) -> list[types.Part]:
    return [part for answer in found for part in answer.parts or ()]


@pytest.mark.parametrize("api_format", API_FORMATS)
@pytest.mark.parametrize("stream", [True, False])
def test_text(google: genai.Client, api_format: str, stream: bool) -> None:
    config = types.GenerateContentConfig(max_output_tokens=8, system_instruction="Be brief.")
    found = answers(google, stream, model=TARGETS[api_format], contents="hello", config=config)
    assert "".join(answer.text or "" for answer in found) == SAID
    (reason,) = [
        each.finish_reason
        for answer in found
        for each in answer.candidates or ()
        if each.finish_reason
    ]
    expected = (
        types.FinishReason.STOP if api_format == "replicate" else types.FinishReason.MAX_TOKENS
    )
    assert reason == expected
    if api_format != "replicate":  # its streams have no token counts
        counts = found[-1].usage_metadata
        assert counts is not None
        assert counts.candidates_token_count == 8


@pytest.mark.parametrize("api_format", WITH_TOOLS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call_and_its_result(google: genai.Client, api_format: str, stream: bool) -> None:
    names = [] if api_format == "cohere" else ["weather"]
    calling = types.FunctionCallingConfig(
        mode=types.FunctionCallingConfigMode.ANY, allowed_function_names=names or None
    )
    config = types.GenerateContentConfig(
        max_output_tokens=8,
        tools=[WEATHER],
        tool_config=types.ToolConfig(function_calling_config=calling),
    )
    found = answers(google, stream, model=TARGETS[api_format], contents="hello", config=config)
    (called,) = [part.function_call for part in parts(found) if part.function_call]
    assert (called.name, called.args) == ("weather", {"text": "simulated text"})
    turns = [
        types.Content(role="user", parts=[types.Part(text="hello")]),
        types.Content(role="model", parts=[types.Part(function_call=called)]),
        types.Content(
            role="user",
            parts=[types.Part.from_function_response(name="weather", response={"output": "Snow."})],
        ),
    ]
    after = types.GenerateContentConfig(max_output_tokens=8, tools=[WEATHER])
    found = answers(google, stream, model=TARGETS[api_format], contents=turns, config=after)
    assert "".join(answer.text or "" for answer in found) == SAID


@pytest.mark.parametrize("api_format", ["openai", "anthropic", "gemini", "ollama"])
@pytest.mark.parametrize("stream", [True, False])
def test_reasoning(google: genai.Client, api_format: str, stream: bool) -> None:
    found = answers(google, stream, model=f"thinks-{api_format}/thinker", contents="hello")
    assert "".join(part.text or "" for part in parts(found) if part.thought) == "A simulated"


def test_the_request_that_a_target_receives(google: genai.Client, behind: Behind) -> None:
    config = types.GenerateContentConfig(
        temperature=0.5, top_p=0.9, top_k=3, seed=7, stop_sequences=["END"], max_output_tokens=99,
        system_instruction="Be brief.", tools=[WEATHER], response_mime_type="application/json",
        response_json_schema={"type": "object"},
        safety_settings=[types.SafetySetting(
            category=types.HarmCategory.HARM_CATEGORY_HARASSMENT,
            threshold=types.HarmBlockThreshold.BLOCK_NONE
        )],
    )  # fmt: skip
    contents: Any = ["What is this?", types.Part.from_bytes(data=PIXEL, mime_type="image/png")]
    found = google.models.generate_content(model="noted-openai/m", contents=contents, config=config)
    assert found.sdk_http_response is not None
    headers = found.sdk_http_response.headers
    assert headers is not None
    assert headers["x-splitsecond-dropped"] == "safetySettings"
    text, call = parts([found])
    assert call.function_call is not None
    assert (text.text, call.function_call.args) == ("Well. ", {"city": "Bern"})
    (received,) = behind.requests
    assert received.path == "/v1/chat/completions"
    assert KEY not in str(received.headers)
    schema = {"name": "answer", "schema": {"type": "object"}, "strict": False}
    properties = {"text": {"type": ["string", "null"]}}
    function = {"name": "weather", "description": "Of a city"}
    assert received.body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {
                        "type": "image_url",
                        "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="},
                    },
                ],
            },
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    **function,
                    "parameters": {"type": "object", "properties": properties},
                },
            }
        ],
        "response_format": {"type": "json_schema", "json_schema": schema},
        "max_tokens": 99,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 3,
        "seed": 7,
        "stop": ["END"],
    }


def test_token_counts_are_estimated(google: genai.Client) -> None:
    counted = google.models.count_tokens(model=TARGETS["gemini"], contents="four " * 400)
    assert counted.total_tokens is not None
    assert 400 < counted.total_tokens < 600


@pytest.mark.parametrize("api_format", ["openai", "gemini", "cohere", "ollama"])
def test_embeddings(google: genai.Client, api_format: str) -> None:
    settings = types.EmbedContentConfig(output_dimensionality=16, task_type="CLUSTERING")
    asked: Any = ["a red house", "a blue car"]
    found = google.models.embed_content(model=TARGETS[api_format], contents=asked, config=settings)
    house, car = (each.values or [] for each in found.embeddings or [])
    assert [len(house), len(car), house == car] == [16, 16, False]


def test_models(google: genai.Client) -> None:
    names = [model.name for model in google.models.list()]
    assert "models/either" in names
    assert google.models.get(model="either").name == "models/either"


@pytest.mark.parametrize("stream", [True, False])
def test_errors(google: genai.Client, behind: Behind, stream: bool) -> None:
    for model, status in (
        ("nope", 404),
        (f"limited-{TARGETS['openai']}", 429),
        (f"down-{TARGETS['gemini']}", 502),
    ):
        with pytest.raises(errors.APIError) as failed:
            answers(google, stream, model=model, contents="hello")
        assert failed.value.code == status
        assert failed.value.message
    search = types.GenerateContentConfig(tools=[types.Tool(google_search=types.GoogleSearch())])
    with pytest.raises(errors.ClientError, match="googleSearch"):
        answers(google, stream, model=TARGETS["openai"], contents="hello", config=search)
    options = types.HttpOptions(base_url=behind.origin, timeout=WAIT_S * 1000)
    with (
        genai.Client(api_key="wrong", http_options=options) as wrong,
        pytest.raises(errors.ClientError) as refused,
    ):
        answers(wrong, stream, model=TARGETS["openai"], contents="hello")
    assert refused.value.code == 401


@pytest.mark.parametrize("api_format", API_FORMATS)
@pytest.mark.parametrize("fault", ["cut", "error"])
def test_a_broken_answer(google: genai.Client, api_format: str, fault: str) -> None:
    for stream in (True, False):
        with pytest.raises(errors.APIError):
            answers(google, stream, model=f"{fault}-{TARGETS[api_format]}", contents="hello")
