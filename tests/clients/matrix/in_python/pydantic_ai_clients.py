"""pydantic-ai's models, which its agents use."""

import base64
from collections.abc import Callable
from typing import Any, ClassVar

from neutral import TIMEOUT_S, Answer, Ask, only, parts_of, run


def pydantic_ai(kind: str) -> Callable[[str, str], Any]:
    """Return the maker of clients of pydantic-ai's `kind`."""
    return lambda origin, key: PydanticAI(kind, origin, key)


class PydanticAI:
    known = (
        "system", "tools", "choice", "schema", "stop", "temperature", "top_p", "asynchronous",
        "reasoning", "seed",
        "presence_penalty", "frequency_penalty", "top_k", "effort",
    )  # fmt: skip
    # Of models that pydantic-ai does not know, it sends no effort, and to Anthropic no schema.
    unknown: ClassVar[dict[str, tuple[str, ...]]] = {
        "openai": ("top_k", "effort"),
        "openai responses": (
            "top_k",
            "effort",
            "stop",
            "seed",
            "presence_penalty",
            "frequency_penalty",
        ),
        "anthropic": (
            "seed",
            "presence_penalty",
            "frequency_penalty",
            "temperature",
            "top_p",
            "top_k",
            "schema",
            "effort",
        ),
        "google": ("effort",),
    }

    def __init__(self, kind: str, origin: str, key: str) -> None:
        self.kind, self.origin, self.key = kind, origin, key

    def model(self, name: str) -> Any:
        if self.kind == "anthropic":
            from anthropic import AsyncAnthropic
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            client = AsyncAnthropic(
                base_url=self.origin, api_key=self.key, max_retries=0, timeout=TIMEOUT_S
            )
            return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
        if self.kind == "google":
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            return GoogleModel(
                name, provider=GoogleProvider(api_key=self.key, base_url=self.origin)
            )
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        api = AsyncOpenAI(
            base_url=f"{self.origin}/v1", api_key=self.key, max_retries=0, timeout=TIMEOUT_S
        )
        model = OpenAIChatModel if self.kind == "openai" else OpenAIResponsesModel
        return model(name, provider=OpenAIProvider(openai_client=api))

    def chat(self, name: str, ask: Ask) -> Answer:
        only({key: ask[key] for key in ask if key not in self.known} | dict.fromkeys(
            key for key in ask if key in self.unknown[self.kind]
        ))  # fmt: skip
        links = () if self.kind == "google" else ("image_url",)  # it fetches them itself
        sounds = ("audio",) if self.kind in ("openai", "google") else ()
        parts_of(ask, "image", "pdf", *links, *sounds)
        return run(self.asynchronous(name, ask))

    async def asynchronous(self, name: str, ask: Ask) -> Answer:
        from pydantic_ai.messages import ModelRequest, ToolReturnPart

        model, messages = self.model(name), self.messages(ask)
        answer, response = await self.once(ask, model, messages)
        if "loop" in ask:
            (call,) = response.tool_calls
            result = ToolReturnPart(
                tool_name=call.tool_name, content=ask["loop"], tool_call_id=call.tool_call_id
            )
            end, _ = await self.once(
                ask, model, [*messages, response, ModelRequest(parts=[result])]
            )
            return end | {"calls": answer["calls"]}
        return answer

    async def once(self, ask: Ask, model: Any, messages: Any) -> tuple[Answer, Any]:
        from pydantic_ai.direct import model_request, model_request_stream

        options = {
            "model_settings": self.settings(ask),
            "model_request_parameters": self.parameters(ask),
        }
        if not ask.get("stream"):
            response = await model_request(model, messages, **options)
            return pydantic_answer(response), response
        async with model_request_stream(model, messages, **options) as stream:
            async for event in stream:
                if ask.get("cancel") and event.event_kind == "part_delta":
                    return {"text": ""}, None
            response = stream.get()
        return pydantic_answer(response), response

    def settings(self, ask: Ask) -> Any:
        settings = {
            name: ask[name]
            for name in (
                "max_tokens", "temperature", "top_p", "top_k", "seed", "presence_penalty",
                "frequency_penalty",
            )
            if name in ask
        }  # fmt: skip
        if "stop" in ask:
            settings["stop_sequences"] = ask["stop"]
        if "effort" in ask:
            settings["thinking"] = ask["effort"]
        if "reasoning" in ask:
            settings["max_tokens"] = 20_000
            settings["thinking"] = True
            if self.kind == "openai responses":
                settings["openai_reasoning_summary"] = "auto"
        match ask.get("choice"):
            case None:
                pass
            case {"name": name}:
                settings["tool_choice"] = [name]
            case word:
                settings["tool_choice"] = word
        return settings

    def parameters(self, ask: Ask) -> Any:
        from pydantic_ai.models import ModelRequestParameters, OutputObjectDefinition
        from pydantic_ai.tools import ToolDefinition

        tools = [
            ToolDefinition(
                name=tool["name"],
                description=tool["description"],
                parameters_json_schema=tool["schema"],
            )
            for tool in ask.get("tools", ())
        ]
        if "schema" not in ask:
            return ModelRequestParameters(function_tools=tools)
        form = OutputObjectDefinition(json_schema=ask["schema"], name="trip")
        return ModelRequestParameters(output_mode="native", output_object=form)

    def messages(self, ask: Ask) -> list[Any]:
        from pydantic_ai import messages as made

        found: list[Any] = []
        for message in ask["messages"]:
            parts: list[Any] = []
            content: list[Any] = []
            if "system" in ask and not found:
                parts.append(made.SystemPromptPart(ask["system"]))
            for part in message["parts"]:
                match part:
                    case {"text": text}:
                        content.append(text)
                    case {"image": data}:
                        content.append(
                            made.BinaryContent(base64.b64decode(data), media_type="image/png")
                        )
                    case {"image_url": url}:
                        content.append(made.ImageUrl(url))
                    case {"pdf": data}:
                        content.append(
                            made.BinaryContent(base64.b64decode(data), media_type="application/pdf")
                        )
                    case {"audio": data}:
                        content.append(
                            made.BinaryContent(base64.b64decode(data), media_type="audio/wav")
                        )
                    case {"call": call}:
                        parts.append(made.ToolCallPart(call["name"], call["arguments"], call["id"]))
                    case {"result": result}:
                        parts.append(
                            made.ToolReturnPart(result["name"], result["text"], result["id"])
                        )
            if message["role"] == "assistant":
                texts = [made.TextPart(text) for text in content]
                found.append(made.ModelResponse(parts=[*texts, *parts]))
            else:
                asked = (
                    [made.UserPromptPart(content[0] if len(content) == 1 else content)]
                    if content
                    else []
                )
                found.append(made.ModelRequest(parts=[*parts, *asked]))
        return found


def pydantic_answer(response: Any) -> Answer:
    finish = {"tool_call": "tool_calls"}.get(response.finish_reason, response.finish_reason)
    return {
        "text": "".join(part.content for part in response.parts if part.part_kind == "text"),
        "reasoning": "".join(
            part.content for part in response.parts if part.part_kind == "thinking"
        ),
        "calls": [
            [part.tool_name, part.args_as_dict()]
            for part in response.parts
            if part.part_kind == "tool-call"
        ],
        "finish": finish,
        "usage": [response.usage.input_tokens, response.usage.output_tokens],
    }
