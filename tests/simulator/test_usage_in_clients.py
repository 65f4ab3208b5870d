"""Usage as official clients read it: cached tokens, timings, rate limits, token counts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import cohere
import httpx
import ollama
import openai
import pytest
from anthropic.types import TextBlockParam
from google.genai import errors
from openai.types.chat import ChatCompletionMessageParam
from tests.simulator.on_loopback import QUICK, WAIT_S, records
from tests.simulator.test_gemini_client import a_client as a_gemini_client
from tests.simulator.test_openai_client import a_client as an_openai_client

from splitsecond.simulator.process import RunningProvider, run_simulator

pytestmark = pytest.mark.system

KEEPS = "natural_tokens = 6" + QUICK + "[prompt_cache]\nfrom_tokens = 16\nblock_tokens = 8\n"
GROQ = 'server_timings = "groq"\n' + KEEPS.replace("quick-model", "groq-model")
LIMITED = (
    QUICK.replace("quick-model", "limited")
    + "[rate_limits]\nrequests_per_minute = 1\ntokens_per_minute = 900\n"
)
BLOCKS = 10
CACHED = BLOCKS * 8
PROMPT = CACHED + 11
"""A prompt of so many blocks, and the template around it."""
streamed_or_not = pytest.mark.parametrize("stream", [True, False])


class Kept(NamedTuple):
    """`keeps` has a prompt cache, `groq` also reports timings; `limited` serves one request a
    minute."""

    keeps: RunningProvider
    groq: RunningProvider
    limited: RunningProvider


@pytest.fixture(scope="module")
def kept(system: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    folder: Path = tmp_path_factory.mktemp("kept")
    for name, text in (("keeps", KEEPS), ("groq", GROQ), ("limited", LIMITED)):
        (folder / f"{name}.toml").write_text(text)
    with run_simulator(
        *(str(folder / f"{name}.toml") for name in ("keeps", "groq", "limited"))
    ) as found:
        yield Kept(*found)


def prompt(request: pytest.FixtureRequest) -> str:
    """Return a prompt that is unique to the test."""
    name: str = request.node.name
    return (name * 80)[: CACHED * 4]


def asked(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


@streamed_or_not
def test_openai_chat(kept: Kept, request: pytest.FixtureRequest, stream: bool) -> None:
    with an_openai_client(kept.keeps) as client:

        def cached() -> int | None:
            messages = asked(prompt(request))
            if stream:
                chunks = client.chat.completions.create(
                    model=kept.keeps.model,
                    messages=messages,
                    stream=True,
                    stream_options={"include_usage": True},
                )
                usage = list(chunks)[-1].usage
            else:
                usage = client.chat.completions.create(
                    model=kept.keeps.model, messages=messages
                ).usage
            assert usage is not None
            assert usage.prompt_tokens == PROMPT
            assert usage.prompt_tokens_details is not None
            return usage.prompt_tokens_details.cached_tokens

        assert [cached(), cached()] == [0, CACHED]


@streamed_or_not
def test_openai_responses_async(kept: Kept, request: pytest.FixtureRequest, stream: bool) -> None:
    async def play() -> list[int]:
        async with openai.AsyncOpenAI(
            base_url=kept.keeps.base_url, api_key="none", timeout=WAIT_S
        ) as client:

            async def cached() -> int:
                given: dict[str, Any] = {"model": kept.keeps.model, "input": prompt(request)}
                if stream:
                    async with client.responses.stream(**given) as events:
                        answer = await events.get_final_response()
                else:
                    answer = await client.responses.create(**given)
                assert answer.usage is not None
                return answer.usage.input_tokens_details.cached_tokens

            return [await cached(), await cached()]

    assert asyncio.run(play()) == [0, CACHED]


def marked(text: str) -> list[TextBlockParam]:
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]


ANTHROPIC = [(11 + 2, CACHED, 0), (11 + 2, 0, CACHED)]
"""Input that is neither, what was written, what was read: of the first request and of the same
again."""


def anthropic_counts(usage: anthropic.types.Usage) -> tuple[int, int | None, int | None]:
    return usage.input_tokens, usage.cache_creation_input_tokens, usage.cache_read_input_tokens


@streamed_or_not
def test_anthropic(kept: Kept, request: pytest.FixtureRequest, stream: bool) -> None:
    with anthropic.Anthropic(base_url=kept.keeps.origin, api_key="none", timeout=WAIT_S) as client:

        def counted() -> tuple[int, int | None, int | None]:
            given: dict[str, Any] = {
                "model": kept.keeps.model,
                "max_tokens": 4,
                "system": marked(prompt(request)),
                "messages": [{"role": "user", "content": "hello"}],
            }
            if not stream:
                return anthropic_counts(client.messages.create(**given).usage)
            with client.messages.stream(**given) as events:
                begun = [event.message.usage for event in events if event.type == "message_start"]
                counts = anthropic_counts(events.get_final_message().usage)
                assert [anthropic_counts(usage) for usage in begun] == [counts], (
                    "said at once, and again at the end"
                )
                return counts

        assert [counted(), counted()] == ANTHROPIC


def test_anthropic_async_caches_only_marked_content(
    kept: Kept, request: pytest.FixtureRequest
) -> None:
    async def play() -> list[tuple[int, int | None, int | None]]:
        async with anthropic.AsyncAnthropic(
            base_url=kept.keeps.origin, api_key="none", timeout=WAIT_S
        ) as client:
            text = prompt(request)
            given: list[dict[str, Any]] = [
                {"system": text},
                {"system": text},
                {"system": marked(text)},
            ] * 2
            return [
                anthropic_counts(
                    (
                        await client.messages.create(
                            model=kept.keeps.model,
                            max_tokens=4,
                            messages=[{"role": "user", "content": "hello"}],
                            **fields,
                        )
                    ).usage
                )
                for fields in given
            ]

    plain = (PROMPT + 2, 0, 0)
    assert asyncio.run(play()) == [plain, plain, ANTHROPIC[0], plain, plain, ANTHROPIC[1]]


@streamed_or_not
def test_gemini(kept: Kept, request: pytest.FixtureRequest, stream: bool) -> None:
    with a_gemini_client(kept.keeps) as client:

        def cached() -> int | None:
            given: dict[str, Any] = {"model": kept.keeps.model, "contents": prompt(request)}
            if stream:
                counts = list(client.models.generate_content_stream(**given))[-1].usage_metadata
            else:
                counts = client.models.generate_content(**given).usage_metadata
            assert counts is not None
            assert counts.prompt_token_count == PROMPT
            return counts.cached_content_token_count

        assert [cached(), cached()] == [0, CACHED]


def test_gemini_async(kept: Kept, request: pytest.FixtureRequest) -> None:
    async def play() -> list[int | None]:
        async with a_gemini_client(kept.keeps).aio as client:
            answers = [
                await client.models.generate_content(
                    model=kept.keeps.model, contents=prompt(request)
                )
                for _ in range(2)
            ]
            return [
                each.usage_metadata.cached_content_token_count
                for each in answers
                if each.usage_metadata
            ]

    assert asyncio.run(play()) == [0, CACHED]


@streamed_or_not
def test_cohere(kept: Kept, request: pytest.FixtureRequest, stream: bool) -> None:
    with httpx.Client(timeout=WAIT_S) as connections:
        client = cohere.ClientV2(
            api_key="none", base_url=kept.keeps.origin, httpx_client=connections
        )

        def cached() -> float | None:
            given: dict[str, Any] = {"model": kept.keeps.model, "messages": asked(prompt(request))}
            usage: Any
            if stream:
                (usage,) = [
                    event.delta.usage
                    for event in client.chat_stream(**given)
                    if event.type == "message-end" and event.delta is not None
                ]
            else:
                usage = client.chat(**given).usage
            assert usage.tokens.input_tokens == PROMPT
            found: float | None = usage.cached_tokens
            return found

        assert [cached(), cached()] == [0, CACHED]


def agree(prompt_ns: float, output_ns: float, truth: dict[str, Any], stream: bool) -> None:
    """Check the reported times: the first and last token were sent then, or were due then in a
    whole response."""
    first, last = truth["arrived_ns"] + prompt_ns, truth["arrived_ns"] + prompt_ns + output_ns
    if stream:
        assert [first, last] == pytest.approx(
            [truth["actual_ns"][0], truth["actual_ns"][-1]], rel=0, abs=1000
        )
    else:
        assert truth["planned_ns"][0] - 1000 <= first <= last
        assert truth["planned_ns"][-1] - 1000 <= last <= truth["actual_ns"][-1] + 1000


@streamed_or_not
def test_times_reported_by_ollama_equal_the_truth(
    kept: Kept, request: pytest.FixtureRequest, stream: bool
) -> None:
    identity = f"durations {stream}"
    with ollama.Client(
        host=kept.keeps.origin, timeout=WAIT_S, headers={"x-client-request-id": identity}
    ) as client:
        answer: Any = client.chat(
            model=kept.keeps.model, messages=asked(prompt(request)), stream=stream
        )
        last = list(answer)[-1] if stream else answer
    (truth,) = records(kept.keeps, identity)
    assert last.load_duration == truth["began_ns"] - truth["arrived_ns"] == 0
    agree(last.prompt_eval_duration, last.eval_duration, truth, stream)
    assert last.total_duration == last.prompt_eval_duration + last.eval_duration


@streamed_or_not
def test_times_reported_by_groq_equal_the_truth(
    kept: Kept, request: pytest.FixtureRequest, stream: bool
) -> None:
    """Groq's own client is OpenAI's with its fields beside; OpenAI's keeps what it does not
    know."""
    identity = f"groq {stream}"
    with an_openai_client(kept.groq) as client:
        given: dict[str, Any] = {
            "model": kept.groq.model,
            "messages": asked(prompt(request)),
            "extra_headers": {"x-client-request-id": identity},
        }
        if stream:
            last = list(client.chat.completions.create(**given, stream=True))[-1]
            assert last.choices[0].finish_reason == "stop"
            said = (last.model_extra or {})["x_groq"]["usage"]
        else:
            whole = client.chat.completions.create(**given).usage
            assert whole is not None
            said = whole.model_dump()
    (truth,) = records(kept.groq, identity)
    assert said["completion_tokens"] == len(truth["planned_ns"]) == 6
    assert said["queue_time"] == 0
    agree(said["prompt_time"] * 1e9, said["completion_time"] * 1e9, truth, stream)
    assert said["total_time"] == pytest.approx(said["prompt_time"] + said["completion_time"])


def test_counting_tokens(kept: Kept) -> None:
    text = "four" * 20
    with anthropic.Anthropic(base_url=kept.keeps.origin, api_key="none", timeout=WAIT_S) as claude:
        counted = claude.messages.count_tokens(
            model=kept.keeps.model, messages=[{"role": "user", "content": text}]
        )
        assert counted.input_tokens == 31
        with pytest.raises(anthropic.NotFoundError, match="unknown model 'other'"):
            claude.messages.count_tokens(
                model="other", messages=[{"role": "user", "content": text}]
            )
    with a_gemini_client(kept.keeps) as gemini:
        assert gemini.models.count_tokens(model=kept.keeps.model, contents=text).total_tokens == 31
    with an_openai_client(kept.keeps) as gpt:
        assert (
            gpt.responses.input_tokens.count(model=kept.keeps.model, input=text).input_tokens == 31
        )


def test_counting_tokens_async(kept: Kept) -> None:
    async def play() -> tuple[int, int | None]:
        async with anthropic.AsyncAnthropic(
            base_url=kept.keeps.origin, api_key="none", timeout=WAIT_S
        ) as claude:
            counted = await claude.messages.count_tokens(
                model=kept.keeps.model,
                system="hell",
                messages=[{"role": "user", "content": "hello"}],
            )
        async with a_gemini_client(kept.keeps).aio as gemini:
            return counted.input_tokens, (
                await gemini.models.count_tokens(model=kept.keeps.model, contents="hello")
            ).total_tokens

    assert asyncio.run(play()) == (11 + 3, 11 + 2)


def test_each_client_reads_the_rate_limits(kept: Kept) -> None:
    """All ask the same provider, whose one request the first client has had."""
    with an_openai_client(kept.limited) as gpt:
        given: dict[str, Any] = {"model": kept.limited.model, "messages": asked("hello")}
        raw = gpt.chat.completions.with_raw_response
        head = raw.create(**given).headers
        assert (head["x-ratelimit-limit-requests"], head["x-ratelimit-remaining-requests"]) == (
            "1",
            "0",
        )
        assert head["x-ratelimit-reset-requests"] == "1m0s"
        assert head["x-ratelimit-remaining-tokens"] == str(900 - 13 - 8)
        with pytest.raises(
            openai.RateLimitError, match="requests per minute: limit 1"
        ) as of_openai:
            gpt.chat.completions.create(**given)
    assert (of_openai.value.code, of_openai.value.type) == ("rate_limit_exceeded", "requests")
    assert 0 < int(of_openai.value.response.headers["retry-after"]) <= 60
    with (
        anthropic.Anthropic(base_url=kept.limited.origin, api_key="none", max_retries=0) as claude,
        pytest.raises(
            anthropic.RateLimitError, match="requests per minute: limit 1"
        ) as of_anthropic,
    ):
        claude.messages.create(
            model=kept.limited.model, max_tokens=8, messages=[{"role": "user", "content": "hello"}]
        )
    assert of_anthropic.value.type == "rate_limit_error"
    head = of_anthropic.value.response.headers
    assert head["anthropic-ratelimit-requests-remaining"] == "0"
    assert head["anthropic-ratelimit-requests-reset"].endswith("Z")
    with a_gemini_client(kept.limited) as gemini, pytest.raises(errors.ClientError) as of_google:
        gemini.models.generate_content(model=kept.limited.model, contents="hello")
    assert (of_google.value.code, of_google.value.status) == (429, "RESOURCE_EXHAUSTED")
    (detail,) = of_google.value.details["error"]["details"]
    assert detail["retryDelay"].endswith("s")
    with (
        ollama.Client(host=kept.limited.origin) as client,
        pytest.raises(ollama.ResponseError) as of_ollama,
    ):
        client.chat(model=kept.limited.model, messages=asked("hello"))
    assert of_ollama.value.status_code == 429
