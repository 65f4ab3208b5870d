"""OpenAI's official library as the client of a gateway, for chats, with targets of every API
format."""

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageFunctionToolCall, ChatCompletionMessageParam
from tests.gateway.api_formats.conftest import TARGETS, WITH_TOOLS, Behind
from tests.gateway.test_served import TOOL
from tests.simulator.on_loopback import SAID

from splitsecond.core.upstream.target import API_FORMATS

pytestmark = pytest.mark.system

HELLO: list[ChatCompletionMessageParam] = [{"role": "system", "content": "Be brief."}]
HELLO.append({"role": "user", "content": "hello"})


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_text(gpt: openai.OpenAI, api_format: str) -> None:
    asked: dict[str, Any] = {"model": TARGETS[api_format], "max_tokens": 8, "messages": HELLO}
    whole = gpt.chat.completions.create(**asked)
    assert whole.choices[0].message.content == SAID
    reason = "stop" if api_format == "replicate" else "length"
    assert whole.choices[0].finish_reason == reason
    chunks = list(gpt.chat.completions.create(stream=True, **asked))
    assert all(chunk.choices for chunk in chunks)  # no usage chunk, as it was not requested
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SAID
    assert chunks[-1].choices[0].finish_reason == reason
    assert len({chunk.id for chunk in chunks}) == 1
    if api_format != "replicate":  # its streams have no token counts
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 8
        counted = gpt.chat.completions.create(
            stream=True, stream_options={"include_usage": True}, **asked
        )
        usage = list(counted)[-1].usage
        assert usage is not None
        assert usage.total_tokens == usage.prompt_tokens + 8


@pytest.mark.parametrize("api_format", WITH_TOOLS)
def test_a_tool_call_and_its_result(gpt: openai.OpenAI, api_format: str) -> None:
    choice: Any = (
        "required"
        if api_format == "cohere"
        else {"type": "function", "function": {"name": "weather"}}
    )
    asked: dict[str, Any] = {"model": TARGETS[api_format], "max_tokens": 8, "tools": [TOOL]}
    answer = gpt.chat.completions.create(messages=HELLO, tool_choice=choice, **asked).choices[0]
    assert answer.finish_reason == "tool_calls"
    assert answer.message.tool_calls is not None
    (call,) = answer.message.tool_calls
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert (call.function.name, call.function.arguments) == ("weather", f'{{"text":"{SAID}"}}')
    assert 0 < len(call.id) <= 40
    with gpt.chat.completions.stream(messages=HELLO, tool_choice=choice, **asked) as events:
        streamed = events.get_final_completion().choices[0].message.tool_calls
    assert [each.function.arguments for each in streamed or ()] == [call.function.arguments]
    called: Any = call.model_dump()
    after: list[ChatCompletionMessageParam] = [
        *HELLO,
        {"role": "assistant", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": call.id, "content": "Snow."},
    ]
    assert gpt.chat.completions.create(messages=after, **asked).choices[0].message.content == SAID


@pytest.mark.parametrize("api_format", ["anthropic", "responses", "gemini", "cohere", "ollama"])
def test_reasoning(gpt: openai.OpenAI, api_format: str) -> None:
    asked: dict[str, Any] = {
        "model": f"thinks-{api_format}/thinker",
        "max_tokens": 8,
        "messages": HELLO,
    }
    message = gpt.chat.completions.create(**asked).choices[0].message
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"] == "A simulated"
    assert message.content


def test_dropped_fields_are_named_and_untranslatable_refused(
    gpt: openai.OpenAI, behind: Behind
) -> None:
    raw = gpt.chat.completions.with_raw_response.create(
        model="noted-anthropic/m", messages=HELLO, seed=1, user="u", metadata={"a": "b"}
    )
    assert set(raw.headers["x-splitsecond-dropped"].split(", ")) == {"seed", "metadata"}
    (received,) = behind.requests
    assert received.body.keys() == {
        "model",
        "stream",
        "messages",
        "system",
        "max_tokens",
        "metadata",
    }
    assert received.body["metadata"] == {"user_id": "u"}
    with pytest.raises(openai.BadRequestError, match="n 2 cannot be translated") as refused:
        gpt.chat.completions.create(model="noted-anthropic/m", messages=HELLO, n=2)
    assert refused.value.code == "not_translatable"


@pytest.mark.parametrize("api_format", API_FORMATS)
@pytest.mark.parametrize(
    ("fault", "words"), [("cut", "before the end|ended"), ("error", "failed while")]
)
def test_a_broken_stream(gpt: openai.OpenAI, api_format: str, fault: str, words: str) -> None:
    asked: dict[str, Any] = {
        "model": f"{fault}-{TARGETS[api_format]}",
        "messages": HELLO,
        "max_tokens": 8,
    }
    texts: list[str] = []
    stream = gpt.chat.completions.create(stream=True, **asked)
    with pytest.raises(openai.APIError, match=words):
        texts.extend(chunk.choices[0].delta.content or "" for chunk in stream)
    assert "".join(texts)
    assert SAID.startswith("".join(texts))
    with pytest.raises(openai.InternalServerError, match=words):
        gpt.chat.completions.create(**asked)
