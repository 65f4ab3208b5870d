"""Helpers of the official libraries that check what they get, against the mock: parsing, tool loops
and more."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import anthropic
import cohere
import ollama
import openai
import pytest
from google import genai
from google.genai import types
from pydantic import BaseModel
from tests.simulator.on_loopback import WAIT_S

from splitsecond.simulator.process import RunningProvider, run_simulator

pytestmark = pytest.mark.system

MODEL = "any-model"
HELLO: list[Any] = [{"role": "user", "content": "How far is it?"}]


class Step(BaseModel):
    explanation: str
    output: str


class Answer(BaseModel):
    steps: list[Step]
    final_answer: float
    unit: Literal["m", "s"]


SCHEMA = Answer.model_json_schema()
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "answer", "parameters": SCHEMA}}


def weather(city: str, unit: Literal["c", "f"] = "c") -> str:
    """Return the weather.

    Args:
        city: the city
        unit: the unit of temperature
    """
    return f"{city}: 20 {unit}"


@pytest.fixture(scope="module")
def mock(system: None) -> Iterator[RunningProvider]:
    with run_simulator("mock") as (provider,):
        yield provider


@pytest.fixture(autouse=True)
def _begins_anew(mock: RunningProvider) -> None:
    mock.reset()


class Clients(NamedTuple):
    """The official clients of the mock. They have no types here, because their helpers have too
    many."""

    openai: Any
    anthropic: Any
    google: Any
    cohere: Any
    ollama: Any


@pytest.fixture(scope="module")
def clients(mock: RunningProvider) -> Iterator[Clients]:
    options = types.HttpOptions(base_url=mock.origin, timeout=WAIT_S * 1000)
    with (
        openai.OpenAI(
            base_url=mock.base_url, api_key="none", max_retries=2, timeout=WAIT_S
        ) as of_openai,
        anthropic.Anthropic(
            base_url=mock.origin, api_key="none", max_retries=2, timeout=WAIT_S
        ) as of_anthropic,
        genai.Client(api_key="none", http_options=options) as of_google,
        cohere.ClientV2(
            api_key="none", base_url=mock.origin, log_warning_experimental_features=False
        ) as of_cohere,
        ollama.Client(host=mock.origin, timeout=WAIT_S) as of_ollama,
    ):
        yield Clients(of_openai, of_anthropic, of_google, of_cohere, of_ollama)


def config(**fields: Any) -> types.GenerateContentConfig:
    return types.GenerateContentConfig(**fields)


def chat(clients: Clients) -> Any:
    parsed = clients.openai.chat.completions.parse(
        model=MODEL, messages=HELLO, response_format=Answer
    )
    return parsed.choices[0].message.parsed


def chat_stream(clients: Clients) -> Any:
    with clients.openai.chat.completions.stream(
        model=MODEL, messages=HELLO, response_format=Answer
    ) as stream:
        return stream.get_final_completion().choices[0].message.parsed


def chat_tool(clients: Clients) -> Any:
    tools = [openai.pydantic_function_tool(Answer)]
    parsed = clients.openai.chat.completions.parse(model=MODEL, messages=HELLO, tools=tools)
    return parsed.choices[0].message.tool_calls[0].function.parsed_arguments


def response(clients: Clients) -> Any:
    return clients.openai.responses.parse(model=MODEL, input="hi", text_format=Answer).output_parsed


def response_stream(clients: Clients) -> Any:
    with clients.openai.responses.stream(model=MODEL, input="hi", text_format=Answer) as stream:
        return stream.get_final_response().output_parsed


def message(clients: Clients) -> Any:
    asked = {"model": MODEL, "max_tokens": 999, "messages": HELLO, "output_format": Answer}
    return clients.anthropic.messages.parse(**asked).parsed_output


def message_stream(clients: Clients) -> Any:
    asked = {"model": MODEL, "max_tokens": 999, "messages": HELLO, "output_format": Answer}
    with clients.anthropic.messages.stream(**asked) as stream:
        return stream.get_final_message().parsed_output


def gemini(clients: Clients) -> Any:
    wanted = config(response_mime_type="application/json", response_schema=Answer)
    return clients.google.models.generate_content(model=MODEL, contents="hi", config=wanted).parsed


def cohere_json(clients: Clients) -> Any:
    wanted = {"type": "json_object", "schema": SCHEMA}
    answer = clients.cohere.chat(model=MODEL, messages=HELLO, response_format=wanted)
    return Answer.model_validate_json(answer.message.content[0].text)


def cohere_tool(clients: Clients) -> Any:
    (call,) = clients.cohere.chat(model=MODEL, messages=HELLO, tools=[TOOL]).message.tool_calls
    return Answer.model_validate_json(call.function.arguments)


def ollama_chat(clients: Clients) -> Any:
    answer = clients.ollama.chat(model=MODEL, messages=HELLO, format=SCHEMA)
    return Answer.model_validate_json(answer.message.content)


def ollama_generate(clients: Clients) -> Any:
    return Answer.model_validate_json(
        clients.ollama.generate(model=MODEL, prompt="hi", format=SCHEMA).response
    )


PARSED: tuple[Callable[[Clients], Any], ...] = (
    chat,
    chat_stream,
    chat_tool,
    response,
    response_stream,
    message,
    message_stream,
    gemini,
    cohere_json,
    cohere_tool,
    ollama_chat,
    ollama_generate,
)


@pytest.mark.parametrize("parsed", PARSED)
def test_structured_output_is_parsed(clients: Clients, parsed: Callable[[Clients], Any]) -> None:
    found = parsed(clients)
    assert isinstance(found, Answer)
    assert found.steps[0].explanation == "simulated explanation"


@pytest.mark.parametrize("stream", [True, False])
def test_the_tool_runner_of_anthropic(
    clients: Clients, mock: RunningProvider, stream: bool
) -> None:
    tool = anthropic.beta_tool(weather)
    runner = clients.anthropic.beta.messages.tool_runner(
        model=MODEL, max_tokens=999, messages=HELLO, tools=[tool], stream=stream
    )
    messages = [each.get_final_message() if stream else each for each in runner]
    assert [each.stop_reason for each in messages] == ["tool_use", "end_turn"]


def test_the_automatic_calls_of_google(clients: Clients, mock: RunningProvider) -> None:
    chat = clients.google.chats.create(model=MODEL, config=config(tools=[weather]))
    assert chat.send_message("hi").text.startswith("A simulated provider")
    assert len(mock.requests()) == 2


def test_a_tool_loop_of_openai_by_response_ids(clients: Clients, mock: RunningProvider) -> None:
    tool = {"type": "function", "name": "answer", "parameters": SCHEMA}
    mock.reply("It is far.", after="answer")
    first = clients.openai.responses.create(model=MODEL, input="hi", tools=[tool])
    call = first.output[-1]
    Answer.model_validate_json(call.arguments)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "3 m"}
    second = clients.openai.responses.create(
        model=MODEL, input=[result], tools=[tool], previous_response_id=first.id
    )
    assert second.output_text == "It is far."


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_only_responses_have(
    clients: Clients, mock: RunningProvider, stream: bool
) -> None:
    log = {"type": "function", "name": "log", "parameters": SCHEMA}
    tools = [{"type": "namespace", "name": "git", "description": "Git.", "tools": [log]}]
    tools.append({"type": "custom", "name": "patch"})
    mock.reply(calls=[{"name": "git__log"}, {"name": "patch", "arguments": {"input": "*** Begin"}}])
    mock.reply("Done.", after="patch")

    def created(**fields: Any) -> Any:
        if not stream:
            return clients.openai.responses.create(model=MODEL, tools=tools, **fields)
        with clients.openai.responses.stream(model=MODEL, tools=tools, **fields) as events:
            return events.get_final_response()

    first = created(input="Patch it.")
    call, patch = first.output
    assert (call.type, call.namespace, call.name) == ("function_call", "git", "log")
    Answer.model_validate_json(call.arguments)
    assert (patch.type, patch.name, patch.input) == ("custom_tool_call", "patch", "*** Begin")
    result = {"type": "custom_tool_call_output", "call_id": patch.call_id, "output": "ok"}
    assert created(input=[result], previous_response_id=first.id).output_text == "Done."


def test_a_custom_tool_is_called_where_it_is_required(
    clients: Clients, mock: RunningProvider
) -> None:
    tools = [
        {"type": "function", "name": "log", "parameters": SCHEMA},
        {"type": "custom", "name": "patch"},
    ]
    choice = {"type": "custom", "name": "patch"}
    answer = clients.openai.responses.create(
        model=MODEL, tools=tools, tool_choice=choice, input="Patch it."
    )
    assert [(item.type, item.name) for item in answer.output] == [("custom_tool_call", "patch")]
    assert answer.output[0].input


def test_a_tool_of_ollama(clients: Clients, mock: RunningProvider) -> None:
    (call,) = clients.ollama.chat(model=MODEL, messages=HELLO, tools=[weather]).message.tool_calls
    assert (call.function.name, set(call.function.arguments)) == ("weather", {"city", "unit"})


def test_log_probabilities(clients: Clients, mock: RunningProvider) -> None:
    asked = {"model": MODEL, "messages": HELLO, "logprobs": True, "top_logprobs": 3}
    whole = clients.openai.chat.completions.create(**asked).choices[0]
    with clients.openai.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion().choices[0]
    assert "".join(entry.token for entry in whole.logprobs.content) == whole.message.content
    assert streamed.logprobs.content == whole.logprobs.content
    assert len(whole.logprobs.content[0].top_logprobs) == 3
    completion = clients.openai.completions.create(model=MODEL, prompt="hi", logprobs=2).choices[0]
    assert "".join(completion.logprobs.tokens) == completion.text
    included = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    response = clients.openai.responses.create(model=MODEL, input="hi", **included)
    assert (
        "".join(entry.token for entry in response.output[0].content[0].logprobs)
        == response.output_text
    )
    answer = clients.google.models.generate_content(
        model=MODEL, contents="hi", config=config(response_logprobs=True, logprobs=2)
    )
    chosen = answer.candidates[0].logprobs_result.chosen_candidates
    assert "".join(each.token for each in chosen) == answer.text
    assert clients.cohere.chat(model=MODEL, messages=HELLO, logprobs=True).logprobs[0].text == "A"
    line = clients.ollama.chat(model=MODEL, messages=HELLO, logprobs=True, top_logprobs=1)
    assert line.logprobs[0].top_logprobs[0].logprob == line.logprobs[0].logprob


def test_embeddings_and_models(clients: Clients, mock: RunningProvider) -> None:
    found = clients.openai.embeddings.create(model=MODEL, input=["a", "b"], dimensions=8)
    first = found.data[0].embedding
    google = clients.google.models.embed_content(
        model=MODEL, contents=["a"], config=types.EmbedContentConfig(output_dimensionality=8)
    )
    floats = clients.cohere.embed(
        model=MODEL,
        texts=["a"],
        input_type="search_query",
        embedding_types=["float"],
        output_dimension=8,
    )
    lists = [
        google.embeddings[0].values,
        floats.embeddings.float_[0],
        clients.ollama.embed(model=MODEL, input="a", dimensions=8).embeddings[0],
    ]
    assert all(each == pytest.approx(first, abs=1e-6) for each in lists)
    assert (
        [each.id for each in clients.openai.models.list()]
        == [each.id for each in clients.anthropic.models.list()]
        == ["mock"]
    )
    assert [each.name for each in clients.google.models.list()] == ["models/mock"]
    assert [each.model for each in clients.ollama.list().models] == ["mock"]


def test_choices_and_stop_sequences(clients: Clients, mock: RunningProvider) -> None:
    asked = {"model": MODEL, "messages": HELLO}
    with clients.openai.chat.completions.stream(**asked, n=3, stop=[" says"]) as stream:
        choices = stream.get_final_completion().choices
    assert [choice.message.content for choice in choices] == ["A simulated provider"] * 3
    message = clients.anthropic.messages.create(**asked, max_tokens=999, stop_sequences=[" says"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " says")
    assert clients.cohere.chat(**asked, stop_sequences=[" says"]).finish_reason == "STOP_SEQUENCE"


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_retries_of_the_libraries(clients: Clients, mock: RunningProvider, name: str) -> None:
    mock.fail(503, times=2, retry_after=0)
    if name == "openai":
        clients.openai.chat.completions.create(model=MODEL, messages=HELLO)
    else:
        clients.anthropic.messages.create(model=MODEL, max_tokens=9, messages=HELLO)
    assert [request.status for request in mock.requests()] == [503, 503, 200]
    assert mock.requests()[0].body["messages"] == HELLO
