"""The client of Anthropic's Messages."""

from typing import Any

from neutral import TIMEOUT_S, Answer, Ask, only, parts_of, run


class Anthropic:
    known = (
        "system",
        "tools",
        "choice",
        "schema",
        "reasoning",
        "effort",
        "stop",
        "asynchronous",
        "cache",
    )

    def __init__(self, origin: str, key: str) -> None:
        import anthropic

        settings: dict[str, Any] = {
            "base_url": origin,
            "api_key": key,
            "max_retries": 0,
            "timeout": TIMEOUT_S,
        }
        self.client, self.settings, self.anthropic = (
            anthropic.Anthropic(**settings),
            settings,
            anthropic,
        )

    def chat(self, model: str, ask: Ask) -> Answer:
        only(ask, *self.known)
        parts_of(ask, "image", "image_url", "pdf", "result_image")
        options = {"model": model, "messages": anthropic_messages(ask), **anthropic_options(ask)}
        if ask.get("operation") == "count":
            options.pop("max_tokens")
            return {"count": self.client.messages.count_tokens(**options).input_tokens}
        if ask.get("asynchronous"):
            return run(self.asynchronous(options))
        answer, content = self.once(ask, options)
        if "loop" in ask:
            (call,) = [part for part in content if part.type == "tool_use"]
            result = {"type": "tool_result", "tool_use_id": call.id, "content": ask["loop"]}
            back = [
                {"role": "assistant", "content": content},
                {"role": "user", "content": [result]},
            ]
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
                        inner.append(
                            {"type": "image", "source": source(result["image"], "image/png")}
                        )
                    content.append(
                        {"type": "tool_result", "tool_use_id": result["id"], "content": inner}
                    )
        messages.append(
            {"role": "user" if message["role"] == "tool" else message["role"], "content": content}
        )
    return messages


def anthropic_options(ask: Ask) -> dict[str, Any]:
    options = {name: ask[name] for name in ("max_tokens",) if name in ask}
    if "system" in ask:
        marked = {"type": "text", "text": ask["system"], "cache_control": {"type": "ephemeral"}}
        options["system"] = [marked] if ask.get("cache") else ask["system"]
    if "stop" in ask:
        options["stop_sequences"] = ask["stop"]
    if "tools" in ask:
        options["tools"] = [
            {
                "name": tool["name"],
                "description": tool["description"],
                "input_schema": tool["schema"],
            }
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
