"""The client of OpenAI's Responses."""

import json
from typing import Any

from neutral import TIMEOUT_S, Answer, Ask, only, parts_of, run


class OpenAIResponses:
    known = (
        "system", "tools", "choice", "json", "schema", "reasoning", "effort", "temperature",
        "top_p", "logprobs",
        "asynchronous",
    )  # fmt: skip
    counts = True

    def __init__(self, origin: str, key: str) -> None:
        import openai

        settings: dict[str, Any] = {
            "base_url": f"{origin}/v1",
            "api_key": key,
            "max_retries": 0,
            "timeout": TIMEOUT_S,
        }
        self.client, self.settings, self.openai = openai.OpenAI(**settings), settings, openai

    def chat(self, model: str, ask: Ask) -> Answer:
        only(ask, *self.known)
        parts_of(ask, "image", "image_url", "pdf", "result_image")
        options = {"model": model, "input": items(ask), **responses_options(ask)}
        if ask.get("operation") == "count":
            options.pop("max_output_tokens")
            options.pop("store")
            return {"count": self.client.responses.input_tokens.count(**options).input_tokens}
        if ask.get("asynchronous"):
            return run(self.asynchronous(options))
        answer, output = self.once(ask, options)
        if "loop" in ask:
            (call,) = [item for item in output if item.type == "function_call"]
            result = {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": ask["loop"],
            }
            end, _ = self.once(ask, options | {"input": [*options["input"], *output, result]})
            return end | {"calls": answer["calls"]}
        return answer

    async def asynchronous(self, options: dict[str, Any]) -> Answer:
        async with self.openai.AsyncOpenAI(**self.settings) as client:
            return responses_answer(await client.responses.create(**options))

    def once(self, ask: Ask, options: dict[str, Any]) -> tuple[Answer, Any]:
        if not ask.get("stream"):
            response = self.client.responses.create(**options)
            return responses_answer(response), response.output
        deltas: dict[str, list[str]] = {"response.output_text.delta": [], "reasoning": []}
        response = None
        with self.client.responses.create(stream=True, **options) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    deltas[event.type].append(event.delta)
                    if ask.get("cancel"):
                        return {"text": ""}, None
                elif event.type in (
                    "response.reasoning_summary_text.delta",
                    "response.reasoning_text.delta",
                ):
                    deltas["reasoning"].append(event.delta)
                elif event.type in ("response.completed", "response.incomplete"):
                    response = event.response
                elif event.type in ("response.failed", "error"):
                    raise RuntimeError(f"the stream ended with {event}")
        if response is None:
            raise RuntimeError("the stream has no end")
        texts = deltas["response.output_text.delta"]
        answer = responses_answer(response)
        assert answer["text"] == "".join(texts), "the deltas are not the text"
        return answer | {
            "parts": len(texts),
            "reasoning": "".join(deltas["reasoning"]),
        }, response.output

    def models(self) -> Answer:
        return {"models": [each.id for each in self.client.models.list()]}


def items(ask: Ask) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in ask["messages"]:
        content: list[dict[str, Any]] = []
        for part in message["parts"]:
            match part:
                case {"text": text}:
                    content.append({"type": "input_text", "text": text})
                case {"image": data}:
                    content.append(
                        {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}
                    )
                case {"image_url": url}:
                    content.append({"type": "input_image", "image_url": url})
                case {"pdf": data}:
                    url = f"data:application/pdf;base64,{data}"
                    content.append({"type": "input_file", "filename": "a.pdf", "file_data": url})
                case {"call": call}:
                    used = {
                        "call_id": call["id"],
                        "name": call["name"],
                        "arguments": json.dumps(call["arguments"]),
                    }
                    found.append({"type": "function_call", **used})
                case {"result": result}:
                    output: Any = result["text"]
                    if "image" in result:
                        url = f"data:image/png;base64,{result['image']}"
                        output = [
                            {"type": "input_text", "text": output},
                            {"type": "input_image", "image_url": url},
                        ]
                    found.append(
                        {"type": "function_call_output", "call_id": result["id"], "output": output}
                    )
        if content and message["role"] == "assistant":
            found.append({"role": "assistant", "content": content[0]["text"]})
        elif content:
            found.append({"role": message["role"], "content": content})
    return found


def responses_options(ask: Ask) -> dict[str, Any]:
    options: dict[str, Any] = {name: ask[name] for name in ("temperature", "top_p") if name in ask}
    options |= {"max_output_tokens": ask["max_tokens"], "store": False}
    if "system" in ask:
        options["instructions"] = ask["system"]
    if "tools" in ask:
        options["tools"] = [
            {"type": "function", "name": tool["name"], "description": tool["description"],
             "parameters": tool["schema"], "strict": False}
            for tool in ask["tools"]
        ]  # fmt: skip
    match ask.get("choice"):
        case None:
            pass
        case {"name": name}:
            options["tool_choice"] = {"type": "function", "name": name}
        case word:
            options["tool_choice"] = word
    if "json" in ask:
        options["text"] = {"format": {"type": "json_object"}}
    if "schema" in ask:
        form = {"type": "json_schema", "name": "trip", "schema": ask["schema"], "strict": True}
        options["text"] = {"format": form}
    if "effort" in ask:
        options["reasoning"] = {"effort": ask["effort"]}
    if "reasoning" in ask:
        options["reasoning"] = {"effort": "medium", "summary": "auto"}
        options["include"] = ["reasoning.encrypted_content"]
    if "logprobs" in ask:
        options |= {"include": ["message.output_text.logprobs"], "top_logprobs": ask["logprobs"]}
    return options


def responses_answer(response: Any) -> Answer:
    calls = [
        [item.name, json.loads(item.arguments)]
        for item in response.output
        if item.type == "function_call"
    ]
    reason = response.incomplete_details.reason if response.incomplete_details else None
    finish = {"max_output_tokens": "length"}.get(reason or "", reason) or (
        "tool_calls" if calls else "stop"
    )
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    return {
        "text": response.output_text,
        "reasoning": "".join(
            part.text
            for item in response.output
            if item.type == "reasoning"
            for part in item.summary
        ),
        "calls": calls,
        "finish": finish,
        "usage": [response.usage.input_tokens, response.usage.output_tokens]
        if response.usage
        else None,
        "logprobs": any(getattr(part, "logprobs", None) for part in parts),
    }
