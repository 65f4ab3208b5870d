"""Anthropic's official library as the client of a gateway, with targets of every API format."""

import asyncio
from typing import Any

import anthropic
import pytest
from anthropic.types import MessageParam, ToolParam
from tests.gateway.api_formats.conftest import SECONDS_LEFT, TARGETS, WITH_TOOLS, Behind, attempts
from tests.gateway.conftest import KEY
from tests.simulator.on_loopback import SAID, SAID_TO_SO, WAIT_S, closed_early

from splitsecond.core.upstream.target import API_FORMATS

pytestmark = pytest.mark.system

HELLO: list[MessageParam] = [{"role": "user", "content": "hello"}]
WEATHER: ToolParam = {
    "name": "weather",
    "description": "Of a city",
    "input_schema": {"type": "object"},
}
PIXEL = "iVBORw0KGgo="


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


@pytest.mark.parametrize("api_format", API_FORMATS)
@pytest.mark.parametrize("stream", [True, False])
def test_text(claude: anthropic.Anthropic, api_format: str, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": TARGETS[api_format],
        "max_tokens": 8,
        "messages": HELLO,
        "system": "Be brief.",
    }
    if stream:
        with claude.messages.stream(**asked) as events:
            assert "".join(events.text_stream) == SAID
            message = events.get_final_message()
    else:
        message = claude.messages.create(**asked)
    assert text_of(message) == SAID
    assert (message.type, message.role) == ("message", "assistant")
    assert message.stop_reason == ("end_turn" if api_format == "replicate" else "max_tokens")
    if api_format != "replicate":  # its streams have no token counts
        assert message.usage.output_tokens == 8
        assert message.usage.input_tokens > 8


@pytest.mark.parametrize("api_format", WITH_TOOLS)
@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call_and_its_result(
    claude: anthropic.Anthropic, api_format: str, stream: bool
) -> None:
    choice: Any = {"type": "any"} if api_format == "cohere" else {"type": "tool", "name": "weather"}
    asked: dict[str, Any] = {"model": TARGETS[api_format], "max_tokens": 8, "tools": [WEATHER]}
    if stream:
        with claude.messages.stream(messages=HELLO, tool_choice=choice, **asked) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(messages=HELLO, tool_choice=choice, **asked)
    (call,) = message.content
    assert call.type == "tool_use"
    assert (call.name, call.input, message.stop_reason) == ("weather", {"text": SAID}, "tool_use")
    assert call.id
    after: list[MessageParam] = [
        *HELLO,
        {"role": "assistant", "content": message.content},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": "Snow."},
                {"type": "text", "text": "So?"},
            ],
        },
    ]
    assert text_of(claude.messages.create(messages=after, **asked)) == SAID_TO_SO


@pytest.mark.parametrize("api_format", ["openai", "gemini", "cohere", "ollama"])
@pytest.mark.parametrize("stream", [True, False])
def test_reasoning(claude: anthropic.Anthropic, api_format: str, stream: bool) -> None:
    asked: dict[str, Any] = {
        "model": f"thinks-{api_format}/thinker",
        "max_tokens": 8,
        "messages": HELLO,
    }
    if stream:
        with claude.messages.stream(**asked) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(**asked)
    thought, text = message.content
    assert thought.type == "thinking"
    assert thought.thinking == "A simulated"
    assert text.type == "text"
    assert message.stop_reason == "end_turn"


def test_the_request_to_a_target_of_another_format(
    claude: anthropic.Anthropic, behind: Behind
) -> None:
    turn: Any = [
        {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    ]
    raw = claude.messages.with_raw_response.create(
        model="noted-openai/m",
        max_tokens=99,
        system=[{"type": "text", "text": "Be brief."}],
        messages=[{"role": "user", "content": turn}],
        tools=[WEATHER],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
        stop_sequences=["END"],
        extra_body={"temperature": 0.5},
        metadata={"user_id": "u"},
        output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
    )
    assert raw.headers["x-splitsecond-dropped"] == "cache_control"
    message = raw.parse()
    text, call = message.content
    assert text.type == "text"
    assert call.type == "tool_use"
    assert (text.text, call.id, call.input) == ("Well. ", "call_1", {"city": "Bern"})
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (15, 5, 9)
    (received,) = behind.requests
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"].startswith("Bearer sk-of-ours")
    assert received.body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 99,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                ],
            },
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "weather",
                    "description": "Of a city",
                    "parameters": {"type": "object"},
                },
            }
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "stop": ["END"],
        "temperature": 0.5,
        "user": "u",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
        },
    }


def test_the_request_to_a_target_of_the_same_format(
    claude: anthropic.Anthropic, behind: Behind
) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 2000, "odd": [1.50]}
    marked: Any = [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]
    claude.messages.create(
        model="noted-anthropic/m",
        max_tokens=4000,
        messages=[{"role": "user", "content": marked}],
        thinking=thinking,
        metadata={"user_id": "u"},
        extra_headers={
            "anthropic-beta": "one-2025-01-01,two-2025-02-02",
            "anthropic-version": "2026-10-21",
            "cookie": "a=b",
        },
    )
    (received,) = behind.requests
    assert received.body == {
        "model": "m",
        "stream": True,
        "max_tokens": 4000,
        "messages": [{"role": "user", "content": marked}],
        "thinking": thinking,
        "metadata": {"user_id": "u"},
    }
    assert received.headers["anthropic-beta"] == "one-2025-01-01,two-2025-02-02"
    assert received.headers["x-api-key"].startswith("sk-of-ours")
    assert received.headers["anthropic-version"] == "2026-10-21"
    assert KEY not in str(received.headers)
    assert "cookie" not in received.headers


# neither is Anthropic's own API
@pytest.mark.parametrize("target", ["noted-openai/m", "noted-anthropic/m"])
def test_the_tool_runner_sends_the_whole_conversation(
    claude: anthropic.Anthropic, behind: Behind, target: str
) -> None:
    cities: list[str] = []

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Return the weather.

        Args:
            city: The place.
        """
        cities.append(city)
        return "Snow."

    runner = claude.beta.messages.tool_runner(
        model=target,
        max_tokens=8,
        messages=[{"role": "user", "content": "hello"}],
        tools=[weather],
        max_iterations=2,
    )
    assert [message.stop_reason for message in runner] == ["tool_use", "tool_use"]
    assert cities[0] == "Bern"
    assert [len(each.body["messages"]) for each in behind.requests] == [1, 3]
    assert not any("thread" in each.body for each in behind.requests)


def test_request_with_a_thread_is_refused_with_anthropics_code(
    claude: anthropic.Anthropic, behind: Behind
) -> None:
    for target in (TARGETS["openai"], "noted-anthropic/m"):
        with pytest.raises(anthropic.BadRequestError, match="thread") as refused:
            claude.beta.messages.create(
                model=target, max_tokens=8, messages=[{"role": "user", "content": "So?"}],
                thread={"type": "continue", "previous_message_id": "msg_1"},
                betas=["message-threads-2026-08-12"],
            )  # fmt: skip
        body: Any = refused.value.body
        assert body["error"]["details"] == {"error_code": "thread_unsupported_request"}
    assert not behind.requests


def test_untranslatable_requests_are_refused_or_routed_elsewhere(
    claude: anthropic.Anthropic,
) -> None:
    search: Any = {"type": "web_search_20250305", "name": "web_search"}
    with pytest.raises(anthropic.BadRequestError, match="web_search_20250305") as refused:
        claude.messages.create(
            model=TARGETS["openai"], max_tokens=8, messages=HELLO, tools=[search]
        )
    assert refused.value.type == "invalid_request_error"
    turns: list[MessageParam] = [*HELLO, {"role": "assistant", "content": "Yes?"}, *HELLO]
    with pytest.raises(
        anthropic.BadRequestError, match="a conversation cannot be translated for Replicate"
    ):
        claude.messages.create(model=TARGETS["replicate"], max_tokens=8, messages=turns)
    raw = claude.messages.with_raw_response.create(model="either", max_tokens=8, messages=turns)
    assert raw.headers["x-splitsecond-target"] == TARGETS["gemini"]
    assert raw.headers["request-id"] == raw.headers["x-request-id"]
    # fields dropped for the target tried before do not count
    assert "x-splitsecond-dropped" not in raw.headers
    asked: dict[str, Any] = {"max_tokens": 8, "messages": HELLO, "metadata": {"user_id": "u"}}
    raw = claude.messages.with_raw_response.create(model="after-one-down", **asked)
    assert raw.headers["x-splitsecond-target"] == TARGETS["openai"]
    assert "x-splitsecond-dropped" not in raw.headers
    raw = claude.messages.with_raw_response.create(model=TARGETS["replicate"], **asked)
    assert raw.headers["x-splitsecond-dropped"] == "metadata, usage"


def test_a_prefilled_answer_needs_a_target_that_continues_it(
    claude: anthropic.Anthropic, behind: Behind
) -> None:
    turns: list[MessageParam] = [*HELLO, {"role": "assistant", "content": "Once"}]
    with pytest.raises(anthropic.BadRequestError, match="the beginning of the answer"):
        claude.messages.create(model="noted-openai/m", max_tokens=8, messages=turns)
    raw = claude.messages.with_raw_response.create(model="goes-on", max_tokens=8, messages=turns)
    assert raw.headers["x-splitsecond-target"] == "noted-prefix/m"
    (received,) = behind.requests
    assert received.body["messages"][-1] == {"role": "assistant", "content": "Once", "prefix": True}


@pytest.mark.parametrize("api_format", API_FORMATS)
def test_errors_have_anthropics_types(claude: anthropic.Anthropic, api_format: str) -> None:
    target = TARGETS[api_format]
    with pytest.raises(anthropic.RateLimitError) as limited:
        claude.messages.create(model=f"limited-{target}", max_tokens=8, messages=HELLO)
    assert limited.value.type == "rate_limit_error"
    assert limited.value.response.headers["retry-after"] in SECONDS_LEFT
    with pytest.raises(anthropic.InternalServerError) as failed:
        claude.messages.create(model=f"down-{target}", max_tokens=8, messages=HELLO, stream=True)
    assert failed.value.type == "api_error"


def test_unknown_models_and_keys(claude: anthropic.Anthropic, behind: Behind) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        claude.messages.create(model="nope", max_tokens=8, messages=HELLO)
    assert unknown.value.type == "not_found_error"
    for wrong in (
        anthropic.Anthropic(base_url=behind.origin, api_key="wrong", max_retries=0),
        anthropic.Anthropic(base_url=behind.origin, auth_token="wrong", max_retries=0),
    ):
        with pytest.raises(anthropic.AuthenticationError) as refused, wrong:
            wrong.messages.create(model=TARGETS["openai"], max_tokens=8, messages=HELLO)
        assert refused.value.type == "authentication_error"
    with anthropic.Anthropic(base_url=behind.origin, auth_token=KEY, max_retries=0) as bearer:
        assert (
            text_of(bearer.messages.create(model=TARGETS["openai"], max_tokens=8, messages=HELLO))
            == SAID
        )


@pytest.mark.parametrize("api_format", API_FORMATS)
@pytest.mark.parametrize(
    ("fault", "words"), [("cut", "before the end|ended"), ("error", "failed while")]
)
def test_a_broken_stream(
    claude: anthropic.Anthropic, api_format: str, fault: str, words: str
) -> None:
    texts: list[str] = []
    with (
        pytest.raises(anthropic.APIStatusError, match=words),
        claude.messages.stream(
            model=f"{fault}-{TARGETS[api_format]}", max_tokens=8, messages=HELLO
        ) as stream,
    ):
        texts.extend(stream.text_stream)
    assert SAID.startswith("".join(texts))
    assert texts
    with pytest.raises(anthropic.InternalServerError):
        claude.messages.create(model=f"{fault}-{TARGETS[api_format]}", max_tokens=8, messages=HELLO)


@pytest.mark.parametrize("api_format", ["openai", "gemini", "anthropic"])
def test_concurrent_requests_and_one_closed_early(behind: Behind, api_format: str) -> None:
    async def play() -> list[str]:
        async with anthropic.AsyncAnthropic(
            base_url=behind.origin, api_key=KEY, max_retries=0, timeout=WAIT_S
        ) as client:

            async def ask() -> str:
                asked = client.messages.stream(
                    model=TARGETS[api_format], max_tokens=8, messages=HELLO
                )
                async with asked as streamed:
                    return "".join([text async for text in streamed.text_stream])

            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(ask()) for _ in range(8)]
            long: Any = {
                "model": TARGETS[api_format],
                "max_tokens": 30_000,
                "messages": HELLO,
                "stream": True,
            }
            stream = await client.messages.create(**long)
            identity = stream.response.headers["request-id"]
            await anext(aiter(stream))
            await stream.close()
            return [identity, *(one.result() for one in asked)]

    identity, *texts = asyncio.run(play())
    assert set(texts) == {SAID}
    assert any(
        closed_early(behind.simulated.quick, name, 30_000) for name in attempts(behind, identity)
    )


def test_anthropic_counts_tokens_and_other_counts_are_estimated(
    claude: anthropic.Anthropic, behind: Behind
) -> None:
    counted = claude.messages.with_raw_response.count_tokens(
        model="noted-anthropic/m", messages=HELLO
    )
    assert "x-splitsecond-estimated" not in counted.headers
    assert counted.parse().input_tokens == 77
    (received,) = behind.requests
    assert (received.path, received.body) == (
        "/v1/messages/count_tokens",
        {"model": "m", "messages": HELLO},
    )
    answered = claude.messages.create(model=TARGETS["anthropic"], max_tokens=1, messages=HELLO)
    truly = claude.messages.with_raw_response.count_tokens(
        model=TARGETS["anthropic"], messages=HELLO
    )
    assert truly.parse().input_tokens == answered.usage.input_tokens
    assert "x-splitsecond-estimated" not in truly.headers
    guessed = claude.messages.with_raw_response.count_tokens(
        model=TARGETS["openai"], messages=[{"role": "user", "content": "four " * 400}]
    )
    assert guessed.headers["x-splitsecond-estimated"] == "input_tokens"
    assert 400 < guessed.parse().input_tokens < 600
