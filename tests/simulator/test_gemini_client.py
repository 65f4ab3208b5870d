"""A simulator in its own process on the loopback, called by Google's official client, synchronous
and async."""

import asyncio
from collections.abc import Iterator

import pytest
from google import genai
from google.genai import errors, types
from tests.simulator.on_loopback import SAID, WAIT_S, closed_early, faulty, records

from splitsecond.simulator.process import RunningProvider

pytestmark = pytest.mark.system

WEATHER = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(name="weather", parameters_json_schema={"type": "object"})
    ]
)
CALL_IT = types.ToolConfig(
    function_calling_config=types.FunctionCallingConfig(mode=types.FunctionCallingConfigMode.ANY)
)


def a_client(of: RunningProvider) -> genai.Client:
    return genai.Client(
        api_key="none", http_options=types.HttpOptions(base_url=of.origin, timeout=WAIT_S * 1000)
    )


def config(
    fault: str = "", request_id: str = "", max_output_tokens: int = 8
) -> types.GenerateContentConfig:
    headers = {
        **(faulty(fault) if fault else {}),
        **({"x-client-request-id": request_id} if request_id else {}),
    }
    return types.GenerateContentConfig(
        max_output_tokens=max_output_tokens, http_options=types.HttpOptions(headers=headers)
    )


@pytest.fixture
def client(quick: RunningProvider) -> Iterator[genai.Client]:
    with a_client(quick) as made:
        yield made


def test_a_stream(client: genai.Client, quick: RunningProvider) -> None:
    chunks = list(
        client.models.generate_content_stream(
            model=quick.model, contents="hello", config=config(request_id="google")
        )
    )
    assert "".join(chunk.text or "" for chunk in chunks) == SAID
    assert len([chunk for chunk in chunks if chunk.text]) == 8
    reasons = [chunk.candidates[0].finish_reason for chunk in chunks if chunk.candidates]
    assert reasons[-1] == types.FinishReason.MAX_TOKENS
    counts = chunks[-1].usage_metadata
    assert counts is not None
    assert (counts.prompt_token_count, counts.candidates_token_count, counts.total_token_count) == (
        13,
        8,
        21,
    )
    (found,) = records(quick, "google")
    assert len(found["planned_ns"]) == len(found["actual_ns"]) == 8


def test_a_whole_answer(client: genai.Client, quick: RunningProvider) -> None:
    answer = client.models.generate_content(
        model=quick.model, contents="hello", config=config(max_output_tokens=3)
    )
    assert answer.text == "A simulated provider"
    assert answer.usage_metadata is not None
    assert answer.usage_metadata.candidates_token_count == 3


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning(thinker: RunningProvider, stream: bool) -> None:
    with a_client(thinker) as client:
        if stream:
            answers = list(
                client.models.generate_content_stream(model=thinker.model, contents="hello")
            )
        else:
            answers = [client.models.generate_content(model=thinker.model, contents="hello")]
    parts = [part for answer in answers for part in answer.parts or ()]
    assert "".join(part.text or "" for part in parts if part.thought) == "A simulated"
    assert (
        "".join(part.text or "" for part in parts if not part.thought)
        == "A simulated provider says"
    )
    counts = answers[-1].usage_metadata
    assert counts is not None
    assert (counts.thoughts_token_count, counts.candidates_token_count) == (2, 4)


@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call(client: genai.Client, quick: RunningProvider, stream: bool) -> None:
    asked = types.GenerateContentConfig(tools=[WEATHER], tool_config=CALL_IT)
    if stream:
        answers = list(
            client.models.generate_content_stream(model=quick.model, contents="hello", config=asked)
        )
    else:
        answers = [
            client.models.generate_content(model=quick.model, contents="hello", config=asked)
        ]
    (call,) = [call for answer in answers for call in answer.function_calls or ()]
    assert (call.name, call.args) == ("weather", {"text": SAID})


def test_async(quick: RunningProvider) -> None:
    async def play() -> tuple[str | None, str]:
        async with a_client(quick).aio as client:
            whole = await client.models.generate_content(model=quick.model, contents="hello")
            stream = await client.models.generate_content_stream(
                model=quick.model, contents="hello"
            )
            return whole.text, "".join([chunk.text or "" async for chunk in stream])

    assert asyncio.run(play()) == (SAID, SAID)


@pytest.mark.parametrize(
    ("fault", "error", "status"),
    [
        ("429; retry_after=3", errors.ClientError, "RESOURCE_EXHAUSTED"),
        ("503", errors.ServerError, "UNAVAILABLE"),
        ("401", errors.ClientError, "UNAUTHENTICATED"),
    ],
)
def test_http_errors(
    client: genai.Client,
    quick: RunningProvider,
    fault: str,
    error: type[errors.APIError],
    status: str,
) -> None:
    with pytest.raises(error) as caught:
        client.models.generate_content(model=quick.model, contents="hello", config=config(fault))
    assert (caught.value.code, caught.value.status) == (int(fault[:3]), status)


def test_invalid_requests(client: genai.Client, quick: RunningProvider) -> None:
    with pytest.raises(errors.ClientError, match="this provider serves 'quick-model'"):
        client.models.generate_content(model="other", contents="hello")
    with pytest.raises(errors.ClientError, match="maxOutputTokens"):
        client.models.generate_content(
            model=quick.model, contents="hello", config=config(max_output_tokens=-1)
        )


def test_an_error_inside_a_200(client: genai.Client, quick: RunningProvider) -> None:
    texts: list[str | None] = []
    with pytest.raises(errors.ServerError, match="the model failed while it answered"):
        texts.extend(
            chunk.text
            for chunk in client.models.generate_content_stream(
                model=quick.model, contents="hello", config=config("error_event; after=2")
            )
        )
    assert texts == ["A", " simulated"]


@pytest.mark.parametrize(
    ("fault", "words"),
    [("cut; after=3", "peer closed connection"), ("malformed; after=3", "Failed to parse")],
)
def test_a_stream_that_breaks(
    client: genai.Client, quick: RunningProvider, fault: str, words: str
) -> None:
    seen: list[str | None] = []
    with pytest.raises(Exception, match=words):
        seen.extend(
            chunk.text
            for chunk in client.models.generate_content_stream(
                model=quick.model, contents="hello", config=config(fault)
            )
        )
    assert len(seen) == 3


def test_an_early_close_ends_the_stream_on_the_server(quick: RunningProvider) -> None:
    with a_client(quick) as client:
        stream = client.models.generate_content_stream(
            model=quick.model,
            contents="hello",
            config=config(request_id="early google", max_output_tokens=30_000),
        )
        next(stream)
    assert closed_early(quick, "early google", 30_000)
