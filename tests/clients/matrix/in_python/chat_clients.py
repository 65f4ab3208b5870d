"""Clients of OpenAI's chat, and libraries that take its messages."""

import json
import os
from collections.abc import Callable
from typing import Any, Literal

from neutral import TIMEOUT_S, Answer, Ask, UnsupportedError, only, parts_of, plain, run


def chat_messages(ask: Ask, *, native: str = "openai") -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if "system" in ask:
        system: Any = ask["system"]
        if ask.get("cache"):
            system = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
        messages.append({"role": "system", "content": system})
    for message in ask["messages"]:
        content, calls = [], []
        for part in message["parts"]:
            match part:
                case {"text": text}:
                    content.append({"type": "text", "text": text})
                case {"image": data}:
                    content.append(
                        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
                    )
                case {"image_url": url}:
                    content.append({"type": "image_url", "image_url": {"url": url}})
                case {"pdf": data}:
                    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}
                    content.append({"type": "file", "file": file})
                case {"audio": data}:
                    content.append(
                        {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
                    )
                case {"call": call}:
                    calls.append(chat_call(call))
                case {"result": result}:
                    messages.append(
                        {"role": "tool", "tool_call_id": result["id"], "content": result["text"]}
                    )
        if content or calls:
            one = (
                content[0]["text"]
                if len(content) == 1 and content[0]["type"] == "text"
                else content or None
            )
            messages.append(
                {"role": message["role"], "content": one} | ({"tool_calls": calls} if calls else {})
            )
    return messages


def chat_call(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {"id": call["id"], "type": "function", "function": function}


def chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["schema"],
    }
    return {"type": "function", "function": function}


def chat_options(ask: Ask) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: ask[name]
        for name in (
            "max_tokens", "stop", "temperature", "top_p", "seed", "n", "presence_penalty",
            "frequency_penalty",
        )
        if name in ask
    }  # fmt: skip
    if "tools" in ask:
        options["tools"] = [chat_tool(tool) for tool in ask["tools"]]
    match ask.get("choice"):
        case None:
            pass
        case {"name": name}:
            options["tool_choice"] = {"type": "function", "function": {"name": name}}
        case word:
            options["tool_choice"] = word
    if "json" in ask:
        options["response_format"] = {"type": "json_object"}
    if "schema" in ask:
        form = {"name": "trip", "schema": ask["schema"], "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": form}
    if "logprobs" in ask:
        options |= {"logprobs": True, "top_logprobs": ask["logprobs"]}
    if "effort" in ask:
        options["reasoning_effort"] = ask["effort"]
    if "reasoning" in ask:
        options["reasoning_effort"] = "medium"
    return options


def reasoning_in(message: Any) -> str:
    return getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or ""


def chat_answer(completion: Any) -> Answer:
    first = completion.choices[0]
    calls = first.message.tool_calls or ()
    return {
        "text": first.message.content or "",
        "reasoning": reasoning_in(first.message),
        "calls": [[call.function.name, json.loads(call.function.arguments)] for call in calls],
        "finish": first.finish_reason,
        "usage": [completion.usage.prompt_tokens, completion.usage.completion_tokens]
        if completion.usage
        else None,
        "choices": [choice.message.content for choice in completion.choices],
        "logprobs": bool(getattr(first, "logprobs", None) and first.logprobs.content),
    }


def chat_stream(chunks: Any, ask: Ask) -> tuple[Answer, dict[str, Any]]:
    """Read a stream as programs do: by index of the calls. Return the answer and the message to
    send back."""
    texts: list[str] = []
    reasoning, finish, usage = "", None, None
    calls: dict[int, dict[str, Any]] = {}
    logprobs = False
    for chunk in chunks:
        if getattr(chunk, "usage", None):
            usage = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens]
        for choice in chunk.choices:
            if choice.delta.content:
                texts.append(choice.delta.content)
                if ask.get("cancel"):
                    (chunks.close if hasattr(chunks, "close") else chunks.response.close)()
                    return {"text": ""}, {}
            reasoning += reasoning_in(choice.delta)
            logprobs = logprobs or bool(getattr(choice, "logprobs", None))
            finish = choice.finish_reason or finish
            for fragment in choice.delta.tool_calls or ():
                call = calls.setdefault(fragment.index, {"id": "", "name": "", "arguments": ""})
                call["id"] = fragment.id or call["id"]
                call["name"] += fragment.function.name or ""
                call["arguments"] += fragment.function.arguments or ""
    made = [call | {"arguments": json.loads(call["arguments"])} for call in calls.values()]
    answer = {
        "text": "".join(texts), "parts": len(texts), "reasoning": reasoning, "finish": finish,
        "usage": usage,
        "calls": [[call["name"], call["arguments"]] for call in made], "logprobs": logprobs,
    }  # fmt: skip
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    return answer, message | ({"tool_calls": [chat_call(call) for call in made]} if made else {})


class Chat:
    """OpenAI's chat: `create(model, messages, **options)` sends a request."""

    known: tuple[str, ...] = (
        "system", "tools", "choice", "json", "schema", "reasoning", "effort", "stop",
        "temperature", "top_p", "seed",
        "presence_penalty", "frequency_penalty", "n", "logprobs", "asynchronous", "texts", "cache",
    )  # fmt: skip
    kinds: tuple[str, ...] = ("image", "image_url", "pdf", "audio")
    stream_usage = True
    """Whether a program can ask for the token counts of a stream."""

    def __init__(self, origin: str, key: str) -> None:
        self.origin, self.key = origin, key

    def create(self, **options: Any) -> Any:
        raise NotImplementedError

    async def create_async(self, **options: Any) -> Any:
        raise UnsupportedError("asynchronous")

    def options(self, ask: Ask) -> dict[str, Any]:
        return chat_options(ask)

    def chat(self, model: str, ask: Ask) -> Answer:
        only(ask, *self.known)
        parts_of(ask, *self.kinds)
        messages, options = chat_messages(ask), self.options(ask)
        if ask.get("asynchronous"):
            return chat_answer(run(self.create_async(model=model, messages=messages, **options)))
        answer, message = self.once(ask, model=model, messages=messages, **options)
        if "loop" in ask:
            (call,) = message["tool_calls"]
            result = {"role": "tool", "tool_call_id": call["id"], "content": ask["loop"]}
            end, _ = self.once(ask, model=model, messages=[*messages, message, result], **options)
            return end | {"calls": answer["calls"]}
        return answer

    def once(self, ask: Ask, **options: Any) -> tuple[Answer, Any]:
        if ask.get("stream"):
            if ask.get("usage"):
                if not self.stream_usage:
                    raise UnsupportedError("token counts of a stream")
                options["stream_options"] = {"include_usage": True}
            return chat_stream(self.create(stream=True, **options), ask)
        completion = self.create(**options)
        return chat_answer(completion), plain(completion.choices[0].message)


class OpenAIChat(Chat):
    def __init__(self, origin: str, key: str) -> None:
        super().__init__(origin, key)
        import openai

        settings: dict[str, Any] = {
            "base_url": f"{origin}/v1",
            "api_key": key,
            "max_retries": 0,
            "timeout": TIMEOUT_S,
        }
        self.client, self.settings, self.openai = openai.OpenAI(**settings), settings, openai

    def create(self, **options: Any) -> Any:
        return self.client.chat.completions.create(**options)

    async def create_async(self, **options: Any) -> Any:
        async with self.openai.AsyncOpenAI(**self.settings) as client:
            return await client.chat.completions.create(**options)

    def embed(self, model: str, texts: list[str]) -> Answer:
        found = self.client.embeddings.create(model=model, input=texts)
        return {"vectors": [each.embedding for each in found.data]}

    def models(self) -> Answer:
        return {"models": [each.id for each in self.client.models.list()]}


class GroqChat(OpenAIChat):
    known = tuple(each for each in Chat.known if each not in ("cache", "texts"))
    kinds = ("image", "image_url")
    stream_usage = False

    def __init__(self, origin: str, key: str) -> None:
        Chat.__init__(self, origin, key)
        import groq

        settings: dict[str, Any] = {
            "base_url": origin,
            "api_key": key,
            "max_retries": 0,
            "timeout": TIMEOUT_S,
        }
        self.client, self.settings, self.groq = groq.Groq(**settings), settings, groq

    async def create_async(self, **options: Any) -> Any:
        async with self.groq.AsyncGroq(**self.settings) as client:
            return await client.chat.completions.create(**options)

    def embed(self, model: str, texts: list[str]) -> Answer:
        raise UnsupportedError("embeddings")

    def models(self) -> Answer:
        raise UnsupportedError("models")


class OpenRouterChat(Chat):
    known = (*(each for each in Chat.known if each not in ("texts", "asynchronous", "n")), "top_k")

    def __init__(self, origin: str, key: str) -> None:
        super().__init__(origin, key)
        from openrouter import OpenRouter
        from openrouter.utils import BackoffStrategy, RetryConfig

        never = RetryConfig("none", BackoffStrategy(1, 1, 1, 1), False)
        settings: dict[str, Any] = {"timeout_ms": TIMEOUT_S * 1000, "retry_config": never}
        self.client = OpenRouter(api_key=key, server_url=f"{origin}/api/v1", **settings)

    def options(self, ask: Ask) -> dict[str, Any]:
        options = chat_options(ask)
        if "top_k" in ask:
            options["top_k"] = ask["top_k"]
        return options

    def create(self, **options: Any) -> Any:
        return self.client.chat.send(**options)

    def embed(self, model: str, texts: list[str]) -> Answer:
        found = self.client.embeddings.generate(model=model, input=texts)
        return {"vectors": [each.embedding for each in found.data]}


def litellm(provider: str) -> Callable[[str, str], Any]:
    """Return the maker of clients that use LiteLLM's `provider`."""
    return lambda origin, key: LiteLLM(provider, origin, key)


_NOT_SENT = {
    "anthropic": ("json", "audio"),
    "gemini": ("system", "schema", "presence_penalty", "frequency_penalty", "cache"),
    "ollama": ("choice", "image_url", "audio", "cache"),
}
"""What LiteLLM leaves out itself, or writes into the prompt, for models that it does not know."""


class LiteLLM(Chat):
    known = (*(each for each in Chat.known if each not in ("texts", "n")), "top_k")

    def __init__(self, provider: str, origin: str, key: str) -> None:
        super().__init__(origin, key)
        self.known = tuple(each for each in self.known if each not in _NOT_SENT.get(provider, ()))
        self.kinds = tuple(each for each in self.kinds if each not in _NOT_SENT.get(provider, ()))
        # without it, the import downloads a list of prices
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        import litellm

        litellm.suppress_debug_info = True
        path = {"openai": "/v1", "gemini": "/v1beta"}.get(provider, "")
        settings = {
            "api_base": origin + path,
            "api_key": key,
            "num_retries": 0,
            "timeout": TIMEOUT_S,
        }
        self.litellm, self.provider, self.settings = litellm, provider, settings

    def options(self, ask: Ask) -> dict[str, Any]:
        if self.provider == "openai" and "top_k" in ask:
            raise UnsupportedError("top_k")
        return chat_options(ask) | ({"top_k": ask["top_k"]} if "top_k" in ask else {})

    def chat(self, model: str, ask: Ask) -> Answer:
        try:
            return (
                run(self.cancelled(model, ask)) if ask.get("cancel") else super().chat(model, ask)
            )
        except self.litellm.UnsupportedParamsError as error:
            raise UnsupportedError(str(error)) from None

    async def cancelled(self, model: str, ask: Ask) -> Answer:
        messages = [{"role": "user", "content": ask["messages"][0]["parts"][0]["text"]}]
        stream = await self.create_async(
            model=model, messages=messages, stream=True, **self.options(ask)
        )
        async for _ in stream:
            break
        await stream.aclose()
        return {"text": ""}

    def _named(self, options: dict[str, Any]) -> dict[str, Any]:
        name = "ollama_chat" if self.provider == "ollama" else self.provider
        return options | self.settings | {"model": f"{name}/{options['model']}"}

    def create(self, **options: Any) -> Any:
        return self.litellm.completion(**self._named(options))

    async def create_async(self, **options: Any) -> Any:
        return await self.litellm.acompletion(**self._named(options))

    def embed(self, model: str, texts: list[str]) -> Answer:
        if self.provider == "anthropic":
            raise UnsupportedError("embeddings")
        name = f"{self.provider}/{model}"
        found = self.litellm.embedding(model=name, input=texts, **self.settings)
        return {"vectors": [each["embedding"] for each in found.data]}


class Instructor(OpenAIChat):
    """instructor with OpenAI's library. It is for answers in a schema, which it requests as a tool
    call."""

    def chat(self, model: str, ask: Ask) -> Answer:
        only(ask, "schema", "system")
        if "schema" not in ask and set(ask) - {"messages", "max_tokens", "key"}:
            raise UnsupportedError("answers without a schema")
        return super().chat(model, ask)

    def once(self, ask: Ask, **options: Any) -> tuple[Answer, Any]:
        import instructor
        from pydantic import BaseModel

        class Trip(BaseModel):
            city: Literal["Bern"]
            days: Literal[3]

        options.pop("response_format", None)
        create = instructor.from_openai(self.client).chat.completions
        if "schema" not in ask:
            return chat_answer(create.create(response_model=None, max_retries=0, **options)), None
        if ask.get("stream"):
            *_, trip = create.create_partial(response_model=Trip, max_retries=0, **options)
        else:
            trip = create.create(response_model=Trip, max_retries=0, **options)
        return {"object": trip.model_dump()}, None

    def embed(self, model: str, texts: list[str]) -> Answer:
        raise UnsupportedError("embeddings")

    def models(self) -> Answer:
        raise UnsupportedError("models")
