"""OpenAI's official library as the client of a gateway process: uses beyond those of
`test_served`."""

import asyncio
import json
import socket
import urllib.request
from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel
from tests.gateway.conftest import KEY, ServedGateway
from tests.gateway.test_served import TOOL, cleared, closed_by_us
from tests.waiting import WITHIN_S

pytestmark = pytest.mark.system

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


class Trip(BaseModel):
    """The form that an answer is asked for in."""

    city: str
    days: int


@pytest.fixture
def client(served: ServedGateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=served.base_url, api_key=KEY, max_retries=0, timeout=WITHIN_S
    ) as found:
        yield found


def asynchronous(served: ServedGateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=served.base_url, api_key=KEY, max_retries=0, timeout=WITHIN_S
    )


def test_library_accumulates_a_stream_to_the_whole_response(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="fast", messages=ASK, max_tokens=7, stream_options={"include_usage": True}
    ) as events:
        # so it says that the answer was cut by its limit
        with pytest.raises(openai.LengthFinishReasonError) as ended:
            events.get_final_completion()
        completion = ended.value.completion
    whole = client.chat.completions.create(model="fast", messages=ASK, max_tokens=7)
    assert completion.choices[0].message.content == whole.choices[0].message.content
    assert completion.choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert whole.usage is not None
    assert completion.usage.completion_tokens == whole.usage.completion_tokens == 7


def test_library_accumulates_a_streamed_tool_call(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="canned/m", messages=ASK, tools=[TOOL]) as events:
        completion = events.get_final_completion()
    calls = completion.choices[0].message.tool_calls
    assert calls is not None
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("c0", "weather", '{"city":"Bern"}')
    ]
    assert completion.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("model", ["canned/m", "whole/m"])
def test_library_parses_structured_output(
    client: openai.OpenAI, served: ServedGateway, model: str
) -> None:
    served.asked.clear()
    answer = client.chat.completions.parse(model=model, messages=ASK, response_format=Trip)
    assert answer.choices[0].message.parsed == Trip(city="Bern", days=3)
    with client.chat.completions.stream(model=model, messages=ASK, response_format=Trip) as events:
        assert events.get_final_completion().choices[0].message.parsed == Trip(city="Bern", days=3)
    for _, body in served.asked:
        assert body["response_format"]["json_schema"]["schema"]["required"] == ["city", "days"]


def test_embeddings(client: openai.OpenAI, served: ServedGateway) -> None:
    served.asked.clear()
    answer = client.embeddings.create(model="canned/m", input=["a", "b"], encoding_format="float")
    assert answer.data[0].embedding == [0.25, 1.5]
    (_, body) = served.asked[0]
    assert body == {"model": "m", "input": ["a", "b"], "encoding_format": "float"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.InternalServerError),  # our key is refused: the client's is good
        (403, openai.InternalServerError),
        (404, openai.InternalServerError),
        (413, openai.APIStatusError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
        (529, openai.InternalServerError),
    ],
)
def test_each_status_raises_its_error_class(
    client: openai.OpenAI, status: int, error: type[openai.APIStatusError], stream: bool
) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(model=f"says-{status}/quick", messages=ASK, stream=stream)
    assert type(caught.value) is error
    # the provider's own, for the client
    codes = {401: "key_refused"} | dict.fromkeys((400, 413, 422), "simulated")
    code = codes.get(status, f"http_{status}")
    assert caught.value.code == code or "not asked" in str(caught.value)
    assert caught.value.request_id
    assert KEY not in str(caught.value)


def test_the_library_tries_again_by_itself(served: ServedGateway) -> None:
    cleared(served)
    with openai.OpenAI(
        base_url=served.base_url, api_key=KEY, max_retries=2, timeout=WITHIN_S
    ) as client:
        with pytest.raises(openai.InternalServerError):
            client.chat.completions.create(model="says-502/quick", messages=ASK)
        assert client.chat.completions.create(model="fast", messages=ASK).choices[0].message.content
    with urllib.request.urlopen(f"{served.simulated.origin}/truth", timeout=WITHIN_S) as answer:
        faults = [record["fault"] for record in json.load(answer)]
    assert faults.count("http") == 3


@pytest.mark.system
def test_unreachable_gateway_raises_a_connection_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with (
        openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY, max_retries=0) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.chat.completions.create(model="fast", messages=ASK)


def test_async_calls_raise_for_broken_and_late_streams(served: ServedGateway) -> None:
    async def main() -> None:
        async with asynchronous(served) as client:
            stream = await client.chat.completions.create(
                model="cut/quick", messages=ASK, stream=True
            )
            with pytest.raises(openai.APIError, match="closed before the end"):
                async for _ in stream:
                    pass
            with pytest.raises(openai.APITimeoutError):
                await client.with_options(timeout=0.3).chat.completions.create(
                    model="stuck/quick", messages=ASK
                )

    asyncio.run(main())


def test_cancelled_async_call_closes_its_connection(served: ServedGateway) -> None:
    async def one(client: openai.AsyncOpenAI, *, begun: asyncio.Event) -> None:
        async for _ in await client.chat.completions.create(
            model="sim/quick", messages=ASK, stream=True, max_tokens=4000
        ):
            begun.set()

    async def main() -> None:
        async with asynchronous(served) as client, asyncio.TaskGroup() as group:
            begun = [asyncio.Event() for _ in range(8)]
            asking = [group.create_task(one(client, begun=each)) for each in begun]
            for each in begun:
                await each.wait()
            for task in asking:
                task.cancel()

    cleared(served)
    asyncio.run(main())
    closed_by_us(served, 8)
