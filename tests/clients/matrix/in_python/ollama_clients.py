"""Ollama's client."""

from typing import Any

from neutral import TIMEOUT_S, Answer, Ask, UnsupportedError, only, parts_of, run

_OPTIONS = {
    "max_tokens": "num_predict", "stop": "stop", "temperature": "temperature", "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed", "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}  # fmt: skip


class Ollama:
    known = (
        "system", "tools", "json", "schema", "reasoning", "effort", "stop", "temperature", "top_p",
        "top_k", "seed",
        "presence_penalty", "frequency_penalty", "logprobs", "asynchronous", "texts",
    )  # fmt: skip

    def __init__(self, origin: str, key: str) -> None:
        import ollama

        self.settings: dict[str, Any] = {
            "headers": {"authorization": f"Bearer {key}"},
            "timeout": TIMEOUT_S,
        }
        self.origin, self.ollama = origin, ollama
        self.client = ollama.Client(host=origin, **self.settings)

    def chat(self, model: str, ask: Ask) -> Answer:
        only(ask, *self.known)
        parts_of(ask, "image", "result_image")
        options = {"model": model, "messages": messages(ask), **ollama_options(ask)}
        if ask.get("asynchronous"):
            return run(self.asynchronous(options))
        answer, message = self.once(ask, options)
        if "loop" in ask:
            result = {"role": "tool", "tool_name": "weather", "content": ask["loop"]}
            end, _ = self.once(ask, options | {"messages": [*options["messages"], message, result]})
            return end | {"calls": answer["calls"]}
        return answer

    async def asynchronous(self, options: dict[str, Any]) -> Answer:
        return ollama_answer(
            [await self.ollama.AsyncClient(host=self.origin, **self.settings).chat(**options)]
        )

    def once(self, ask: Ask, options: dict[str, Any]) -> tuple[Answer, Any]:
        if not ask.get("stream"):
            response = self.client.chat(**options)
            return ollama_answer([response]), response.message
        chunks: list[Any] = []
        stream: Any = self.client.chat(stream=True, **options)
        for chunk in stream:
            chunks.append(chunk)
            if ask.get("cancel"):
                stream.close()
                return {"text": ""}, None
        if not chunks or not chunks[-1].done:
            raise RuntimeError("the stream has no end")
        calls = [call for chunk in chunks for call in chunk.message.tool_calls or ()]
        answer = ollama_answer(chunks)
        message = self.ollama.Message(
            role="assistant",
            content=answer["text"],
            thinking=answer["reasoning"] or None,
            tool_calls=calls or None,
        )
        return answer, message

    def embed(self, model: str, texts: list[str]) -> Answer:
        return {"vectors": self.client.embed(model=model, input=texts).embeddings}

    def models(self) -> Answer:
        return {"models": [each.model for each in self.client.list().models]}


def messages(ask: Ask) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if "system" in ask:
        found.append({"role": "system", "content": ask["system"]})
    for message in ask["messages"]:
        fields: dict[str, Any] = {"role": message["role"], "content": ""}
        for part in message["parts"]:
            match part:
                case {"text": text}:
                    fields["content"] += text
                case {"image": data}:
                    fields.setdefault("images", []).append(data)
                case {"call": call}:
                    function = {"name": call["name"], "arguments": call["arguments"]}
                    fields.setdefault("tool_calls", []).append({"function": function})
                case {"result": result}:
                    fields |= {"tool_name": result["name"], "content": result["text"]}
                    if "image" in result:
                        fields["images"] = [result["image"]]
        found.append(fields)
    return found


def ollama_options(ask: Ask) -> dict[str, Any]:
    if "choice" in ask:
        raise UnsupportedError("choice")
    options: dict[str, Any] = {
        "options": {own: ask[name] for name, own in _OPTIONS.items() if name in ask}
    }
    if "tools" in ask:
        options["tools"] = [
            {"type": "function", "function": {
                "name": tool["name"], "description": tool["description"],
                "parameters": tool["schema"]}}
            for tool in ask["tools"]
        ]  # fmt: skip
    if "json" in ask or "schema" in ask:
        options["format"] = ask.get("schema", "json")
    if "reasoning" in ask or "effort" in ask:
        options["think"] = ask.get("effort", True)
    if "logprobs" in ask:
        options |= {"logprobs": True, "top_logprobs": ask["logprobs"]}
    return options


def ollama_answer(chunks: list[Any]) -> Answer:
    texts = [chunk.message.content for chunk in chunks if chunk.message.content]
    calls = [call for chunk in chunks for call in chunk.message.tool_calls or ()]
    last = chunks[-1]
    return {
        "text": "".join(texts),
        "parts": len(texts),
        "reasoning": "".join(chunk.message.thinking or "" for chunk in chunks),
        "calls": [[call.function.name, dict(call.function.arguments)] for call in calls],
        "finish": last.done_reason,
        "usage": [last.prompt_eval_count, last.eval_count],
        "logprobs": any(chunk.logprobs for chunk in chunks),
    }
