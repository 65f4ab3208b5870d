"""The Python clients: `python clients_python.py CLIENT ORIGIN KEY`, with one cell in each line of standard input.

It runs in an environment of its own, with the clients only. A cell is `{"model": …, "ask": …}` (see `features.py`); the
line printed for it says in neutral words what the client made of the response, or that the client has no such feature.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

TIMEOUT_S = 30
Ask = dict[str, Any]
Answer = dict[str, Any]


class UnsupportedError(Exception):
    """The client has no such feature."""


def only(ask: Ask, *known: str) -> None:
    """Raise `UnsupportedError` for what the client cannot say. `known`: what it can, beside messages and limits."""
    always = {"messages", "max_tokens", "stream", "usage", "key", "operation", "loop", "cancel"}
    if missing := set(ask) - always - set(known):
        raise UnsupportedError(", ".join(sorted(missing)))


def parts_of(ask: Ask, *kinds: str) -> None:
    """Raise `UnsupportedError` for kinds of parts that the client cannot send."""
    for message in ask["messages"]:
        for part in message["parts"]:
            found = next(key for key in part if key != "mime")
            if found in ("image", "image_url", "pdf", "audio") and found not in kinds:
                raise UnsupportedError(found)
            if found == "result" and "image" in part["result"] and "result_image" not in kinds:
                raise UnsupportedError("picture in a result")


def plain(value: Any) -> Any:
    """Return a message of a library as JSON."""
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


# OpenAI's chat, and the libraries that take its messages


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
                    content.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
                case {"image_url": url}:
                    content.append({"type": "image_url", "image_url": {"url": url}})
                case {"pdf": data}:
                    file = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{data}"}
                    content.append({"type": "file", "file": file})
                case {"audio": data}:
                    content.append({"type": "input_audio", "input_audio": {"data": data, "format": "wav"}})
                case {"call": call}:
                    calls.append(chat_call(call))
                case {"result": result}:
                    messages.append({"role": "tool", "tool_call_id": result["id"], "content": result["text"]})
        if content or calls:
            one = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else content or None
            messages.append({"role": message["role"], "content": one} | ({"tool_calls": calls} if calls else {}))
    return messages


def chat_call(call: dict[str, Any]) -> dict[str, Any]:
    function = {"name": call["name"], "arguments": json.dumps(call["arguments"])}
    return {"id": call["id"], "type": "function", "function": function}


def chat_tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["schema"]}
    return {"type": "function", "function": function}


def chat_options(ask: Ask) -> dict[str, Any]:
    options: dict[str, Any] = {
        name: ask[name]
        for name in (
            "max_tokens", "stop", "temperature", "top_p", "seed", "n", "presence_penalty", "frequency_penalty",
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
        "usage": [completion.usage.prompt_tokens, completion.usage.completion_tokens] if completion.usage else None,
        "choices": [choice.message.content for choice in completion.choices],
        "logprobs": bool(getattr(first, "logprobs", None) and first.logprobs.content),
    }


def chat_stream(chunks: Any, ask: Ask) -> tuple[Answer, dict[str, Any]]:
    """Read a stream as programs do: by index of the calls. Return the answer and the message to send back."""
    texts: list[str] = []
    reasoning, finish, usage = "", None, None
    calls: dict[int, dict[str, Any]] = {}
    logprobs = False
    for chunk in chunks:
        if chunk.usage:
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
        "text": "".join(texts), "parts": len(texts), "reasoning": reasoning, "finish": finish, "usage": usage,
        "calls": [[call["name"], call["arguments"]] for call in made], "logprobs": logprobs,
    }  # fmt: skip
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    return answer, message | ({"tool_calls": [chat_call(call) for call in made]} if made else {})


class Chat:
    """OpenAI's chat: `create(model, messages, **options)` sends a request."""

    known = (
        "system", "tools", "choice", "json", "schema", "reasoning", "effort", "stop", "temperature", "top_p", "seed",
        "presence_penalty", "frequency_penalty", "n", "logprobs", "asynchronous", "texts", "cache",
    )  # fmt: skip
    kinds: tuple[str, ...] = ("image", "image_url", "pdf", "audio")
    stream_usage = True
    """Whether a stream has token counts only on request."""

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
            return chat_answer(asyncio.run(self.create_async(model=model, messages=messages, **options)))
        answer, message = self.once(ask, model=model, messages=messages, **options)
        if "loop" in ask:
            (call,) = message["tool_calls"]
            result = {"role": "tool", "tool_call_id": call["id"], "content": ask["loop"]}
            end, _ = self.once(ask, model=model, messages=[*messages, message, result], **options)
            return end | {"calls": answer["calls"]}
        return answer

    def once(self, ask: Ask, **options: Any) -> tuple[Answer, Any]:
        if ask.get("stream"):
            if ask.get("usage") and self.stream_usage:
                options["stream_options"] = {"include_usage": True}
            return chat_stream(self.create(stream=True, **options), ask)
        completion = self.create(**options)
        return chat_answer(completion), plain(completion.choices[0].message)


class OpenAIChat(Chat):
    def __init__(self, origin: str, key: str) -> None:
        super().__init__(origin, key)
        import openai

        settings: dict[str, Any] = {"base_url": f"{origin}/v1", "api_key": key, "max_retries": 0, "timeout": TIMEOUT_S}
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


# Anthropic's Messages


class Anthropic:
    known = (
        "system", "tools", "choice", "schema", "reasoning", "effort", "stop", "temperature", "top_p", "top_k",
        "asynchronous", "cache",
    )  # fmt: skip

    def __init__(self, origin: str, key: str) -> None:
        import anthropic

        settings: dict[str, Any] = {"base_url": origin, "api_key": key, "max_retries": 0, "timeout": TIMEOUT_S}
        self.client, self.settings, self.anthropic = anthropic.Anthropic(**settings), settings, anthropic

    def chat(self, model: str, ask: Ask) -> Answer:
        only(ask, *self.known)
        parts_of(ask, "image", "image_url", "pdf", "result_image")
        options = {"model": model, "messages": anthropic_messages(ask), **anthropic_options(ask)}
        if ask.get("operation") == "count":
            options.pop("max_tokens")
            return {"count": self.client.messages.count_tokens(**options).input_tokens}
        if ask.get("asynchronous"):
            return asyncio.run(self.asynchronous(options))
        answer, content = self.once(ask, options)
        if "loop" in ask:
            (call,) = [part for part in content if part.type == "tool_use"]
            result = {"type": "tool_result", "tool_use_id": call.id, "content": ask["loop"]}
            back = [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
            end, _ = self.once(ask, options | {"messages": [*options["messages"], *back]})
            return end | {"calls": answer["calls"]}
        return answer

    async def asynchronous(self, options: dict[str, Any]) -> Answer:
        async with self.anthropic.AsyncAnthropic(**self.settings) as client:
            return anthropic_answer(await client.messages.create(**options))

    def once(self, ask: Ask, options: dict[str, Any]) -> tuple[Answer, Any]:
        if not ask.get("stream"):
            message = self.client.messages.create(**options)
            return anthropic_answer(message), message.content
        parts = 0
        with self.client.messages.stream(**options) as stream:
            for _ in stream.text_stream:
                parts += 1
                if ask.get("cancel"):
                    return {"text": ""}, None
            message = stream.get_final_message()
        return anthropic_answer(message) | {"parts": parts}, message.content

    def models(self) -> Answer:
        return {"models": [each.id for each in self.client.models.list()]}


def anthropic_messages(ask: Ask) -> list[dict[str, Any]]:
    def source(data: str, kind: str) -> dict[str, Any]:
        return {"type": "base64", "media_type": kind, "data": data}

    messages = []
    for message in ask["messages"]:
        content: list[dict[str, Any]] = []
        for part in message["parts"]:
            match part:
                case {"text": text}:
                    content.append({"type": "text", "text": text})
                case {"image": data}:
                    content.append({"type": "image", "source": source(data, "image/png")})
                case {"image_url": url}:
                    content.append({"type": "image", "source": {"type": "url", "url": url}})
                case {"pdf": data}:
                    content.append({"type": "document", "source": source(data, "application/pdf")})
                case {"call": call}:
                    used = {"id": call["id"], "name": call["name"], "input": call["arguments"]}
                    content.append({"type": "tool_use", **used})
                case {"result": result}:
                    inner: list[dict[str, Any]] = [{"type": "text", "text": result["text"]}]
                    if "image" in result:
                        inner.append({"type": "image", "source": source(result["image"], "image/png")})
                    content.append({"type": "tool_result", "tool_use_id": result["id"], "content": inner})
        messages.append({"role": "user" if message["role"] == "tool" else message["role"], "content": content})
    return messages


def anthropic_options(ask: Ask) -> dict[str, Any]:
    options = {name: ask[name] for name in ("max_tokens", "temperature", "top_p", "top_k") if name in ask}
    if "system" in ask:
        marked = {"type": "text", "text": ask["system"], "cache_control": {"type": "ephemeral"}}
        options["system"] = [marked] if ask.get("cache") else ask["system"]
    if "stop" in ask:
        options["stop_sequences"] = ask["stop"]
    if "tools" in ask:
        options["tools"] = [
            {"name": tool["name"], "description": tool["description"], "input_schema": tool["schema"]}
            for tool in ask["tools"]
        ]
    match ask.get("choice"):
        case None:
            pass
        case {"name": name}:
            options["tool_choice"] = {"type": "tool", "name": name}
        case word:
            options["tool_choice"] = {"type": {"required": "any"}.get(word, word)}
    if "schema" in ask:
        options["output_config"] = {"format": {"type": "json_schema", "schema": ask["schema"]}}
    if "effort" in ask:
        options["output_config"] = {"effort": ask["effort"]}
    if "reasoning" in ask:
        options |= {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    return options


ANTHROPIC_FINISH = {
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
    "refusal": "content_filter",
}  # fmt: skip


def anthropic_answer(message: Any) -> Answer:
    return {
        "text": "".join(part.text for part in message.content if part.type == "text"),
        "reasoning": "".join(part.thinking for part in message.content if part.type == "thinking"),
        "calls": [[part.name, part.input] for part in message.content if part.type == "tool_use"],
        "finish": ANTHROPIC_FINISH.get(message.stop_reason, message.stop_reason),
        "usage": [message.usage.input_tokens, message.usage.output_tokens],
    }


CLIENTS: dict[str, Callable[[str, str], Any]] = {
    "openai": OpenAIChat,
    "anthropic": Anthropic,
}


def failure(error: BaseException) -> dict[str, Any]:
    """Return the kind, the status and the words of an exception, and of those that it came from."""
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in chain:
        chain.append(each)
        each = each.__cause__ or each.__context__
    statuses = [getattr(one, name, None) for one in chain for name in ("status_code", "code", "http_status")]
    status = next((found for found in statuses if isinstance(found, int)), None)
    return {
        "kinds": [kind.__name__ for kind in type(error).__mro__ if kind not in (object, BaseException)],
        "status": status,
        "message": " | ".join(str(one) for one in chain)[:2000],
    }


def tried(make: Callable[[str], Any], key: str, cell: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a cell. `make` returns the client for a key."""
    ask = cell["ask"]
    try:
        client = make(ask.get("key", key))
        match ask.get("operation"):
            case "embed":
                return {"answer": client.embed(cell["model"], ask["texts"])}
            case "models":
                return {"answer": client.models()}
            case "count" if not getattr(client, "counts", hasattr(client, "anthropic")):
                return {"unsupported": "count"}
        return {"answer": client.chat(cell["model"], ask)}
    except UnsupportedError as error:
        return {"unsupported": str(error)}
    except AttributeError as error:
        if str(error).endswith(("'embed'", "'models'")):
            return {"unsupported": str(error)}
        return {"failure": failure(error)}
    except Exception as error:
        return {"failure": failure(error)}


def main(name: str, origin: str, key: str) -> None:
    """Try each cell of standard input with the client `name`."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # without it, the import downloads a list of prices
    make = cache(partial(CLIENTS[name], origin))
    for line in sys.stdin:
        print(json.dumps({"result": tried(make, key, json.loads(line))}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
