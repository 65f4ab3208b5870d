"""The Python clients against a gateway: `python clients.py CLIENT ORIGIN KEY TARGET...`.

It runs in an environment of its own, with the client only. It prints one line of JSON for each
target and feature: what the client made of the response. The test judges it.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

QUESTION = "What is the capital of France?"
WEATHER = "How is the weather in Bern?"
TRIP = "Plan a trip."
LONG = "Tell me a long story."
MAX_TOKENS = 200
Features = dict[str, Callable[[str], Any]]


class Trip(BaseModel):
    """A trip."""

    city: str
    days: int


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"{city}: sunny"


def refused(act: Callable[[], Any]) -> dict[str, Any]:
    """Return the status of the failure that the client reports, and whether it has a type of its
    own for it."""
    try:
        act()
    except Exception as error:
        causes = [error, error.__cause__, error.__context__]
        status = next(
            (found for each in causes if (found := getattr(each, "status_code", None)) is not None),
            None,
        )
        return {"status": status, "typed": type(error) is not Exception}
    return {"status": 200, "typed": False}


def langchain(model: Callable[..., Any]) -> Features:
    """A chat model of LangChain's."""

    def text(name: str) -> dict[str, Any]:
        answer = model(name).invoke(QUESTION)
        return {"text": answer.text, "tokens": answer.usage_metadata["output_tokens"]}

    def stream(name: str) -> dict[str, Any]:
        parts = [chunk.text for chunk in model(name).stream(QUESTION) if chunk.text]
        return {"text": "".join(parts), "parts": len(parts)}

    def tools(name: str) -> dict[str, Any]:
        from langchain_core.messages import HumanMessage
        from langchain_core.tools import tool

        offered = tool(weather)
        bound = model(name).bind_tools([offered])
        asked = bound.invoke([HumanMessage(WEATHER)])
        (call,) = asked.tool_calls
        answer = bound.invoke([HumanMessage(WEATHER), asked, offered.invoke(call)])
        return {"called": call["name"], "city": call["args"]["city"], "text": answer.text}

    def structured(name: str) -> dict[str, Any]:
        found: dict[str, Any] = model(name).with_structured_output(Trip).invoke(TRIP).model_dump()
        return found

    def cancel(name: str) -> dict[str, Any]:
        for chunk in model(name, max_tokens=2000).stream(LONG):
            if chunk.text:
                return {"aborted": True}
        return {"aborted": False}

    return {
        "text": text,
        "stream": stream,
        "tools": tools,
        "structured": structured,
        "error": lambda name: refused(lambda: model(name).invoke(QUESTION)),
        "cancel": cancel,
    }


def langchain_openai(origin: str, key: str) -> Features:
    """`ChatOpenAI`."""
    from langchain_openai import ChatOpenAI

    def model(name: str, max_tokens: int = MAX_TOKENS) -> Any:
        return ChatOpenAI(
            model=name,
            base_url=f"{origin}/v1",
            api_key=key,
            max_retries=0,
            max_tokens=max_tokens,
            stream_usage=True,
        )

    return langchain(model)


def langchain_anthropic(origin: str, key: str) -> Features:
    """`ChatAnthropic`."""
    from langchain_anthropic import ChatAnthropic

    def model(name: str, max_tokens: int = MAX_TOKENS) -> Any:
        return ChatAnthropic(
            model_name=name, base_url=origin, api_key=key, max_retries=0, max_tokens=max_tokens
        )

    return langchain(model)


def pydantic_ai(model: Callable[[str], Any]) -> Features:
    """Agents of pydantic-ai."""
    from pydantic_ai import Agent

    limits = {"max_tokens": MAX_TOKENS}

    def text(name: str) -> dict[str, Any]:
        answer = Agent(model(name), model_settings=limits).run_sync(QUESTION)
        usage = answer.usage() if callable(answer.usage) else answer.usage
        return {"text": answer.output, "tokens": usage.output_tokens}

    async def streamed(name: str) -> dict[str, Any]:
        async with Agent(model(name), model_settings=limits).run_stream(QUESTION) as answer:
            parts = [part async for part in answer.stream_text(delta=True, debounce_by=None)]
        return {"text": "".join(parts), "parts": len(parts)}

    def tools(name: str) -> dict[str, Any]:
        called: list[str] = []

        def noted(city: str) -> str:
            """Return the weather of a city."""
            called.append(city)
            return weather(city)

        noted.__name__ = "weather"
        answer = Agent(model(name), model_settings=limits, tools=[noted]).run_sync(WEATHER)
        (city,) = called
        return {"called": "weather", "city": city, "text": answer.output}

    def structured(name: str) -> dict[str, Any]:
        answer = Agent(model(name), model_settings=limits, output_type=Trip).run_sync(TRIP)
        found: dict[str, Any] = answer.output.model_dump()
        return found

    async def cancelled(name: str) -> dict[str, Any]:
        async with Agent(model(name), model_settings={"max_tokens": 2000}).run_stream(
            LONG
        ) as answer:
            async for _ in answer.stream_text(delta=True, debounce_by=None):
                return {"aborted": True}
        return {"aborted": False}

    return {
        "text": text,
        "stream": lambda name: asyncio.run(streamed(name)),
        "tools": tools,
        "structured": structured,
        "error": lambda name: refused(
            lambda: Agent(model(name), model_settings=limits).run_sync(QUESTION)
        ),
        "cancel": lambda name: asyncio.run(cancelled(name)),
    }


def pydantic_ai_openai(origin: str, key: str) -> Features:
    """pydantic-ai over OpenAI's library."""
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def model(name: str) -> Any:
        client = AsyncOpenAI(base_url=f"{origin}/v1", api_key=key, max_retries=0)
        return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))

    return pydantic_ai(model)


def pydantic_ai_anthropic(origin: str, key: str) -> Features:
    """pydantic-ai over Anthropic's library."""
    from anthropic import AsyncAnthropic
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider

    def model(name: str) -> Any:
        client = AsyncAnthropic(base_url=origin, api_key=key, max_retries=0)
        return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))

    return pydantic_ai(model)


def openai_agents(origin: str, key: str) -> Features:
    """Agents of OpenAI's, over the Responses API."""
    from agents import (
        Agent,
        ModelSettings,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)

    def agent(name: str, max_tokens: int = MAX_TOKENS, **options: Any) -> Any:
        client = AsyncOpenAI(base_url=f"{origin}/v1", api_key=key, max_retries=0)
        model = OpenAIResponsesModel(name, openai_client=client)
        return Agent(
            name="agent",
            model=model,
            model_settings=ModelSettings(max_tokens=max_tokens),
            **options,
        )

    def text(name: str) -> dict[str, Any]:
        answer = Runner.run_sync(agent(name), QUESTION)
        return {"text": answer.final_output, "tokens": answer.context_wrapper.usage.output_tokens}

    async def deltas(run: Any) -> Any:
        async for event in run.stream_events():
            if (
                event.type == "raw_response_event"
                and event.data.type == "response.output_text.delta"
            ):
                yield event.data.delta

    async def streamed(name: str) -> dict[str, Any]:
        run = Runner.run_streamed(agent(name), QUESTION)
        parts = [part async for part in deltas(run)]
        return {"text": run.final_output, "parts": len(parts)}

    def tools(name: str) -> dict[str, Any]:
        called: list[str] = []

        def noted(city: str) -> str:
            """Return the weather of a city."""
            called.append(city)
            return weather(city)

        answer = Runner.run_sync(
            agent(name, tools=[function_tool(noted, name_override="weather")]), WEATHER
        )
        (city,) = called
        return {"called": "weather", "city": city, "text": answer.final_output}

    def structured(name: str) -> dict[str, Any]:
        found: dict[str, Any] = Runner.run_sync(
            agent(name, output_type=Trip), TRIP
        ).final_output.model_dump()
        return found

    async def cancelled(name: str) -> dict[str, Any]:
        run = Runner.run_streamed(agent(name, max_tokens=2000), LONG)
        began = False
        async for _ in deltas(run):
            began = True
            run.cancel()
        return {"aborted": began}

    return {
        "text": text,
        "stream": lambda name: asyncio.run(streamed(name)),
        "tools": tools,
        "structured": structured,
        "error": lambda name: refused(lambda: Runner.run_sync(agent(name), QUESTION)),
        "cancel": lambda name: asyncio.run(cancelled(name)),
    }


def litellm(form: str) -> Callable[[str, str], Features]:
    """LiteLLM's library. `form`: the provider whose API format it uses."""

    def features(origin: str, key: str) -> Features:
        # without it, the import downloads a list of prices
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        import litellm

        def complete(name: str, content: Any = QUESTION, **options: Any) -> Any:
            messages = (
                content if isinstance(content, list) else [{"role": "user", "content": content}]
            )
            base = f"{origin}/v1" if form == "openai" else origin
            return litellm.completion(
                f"{form}/{name}", messages, api_base=base, api_key=key, num_retries=0,
                **{"max_tokens": MAX_TOKENS, **options},
            )  # fmt: skip

        def text(name: str) -> dict[str, Any]:
            answer = complete(name)
            return {
                "text": answer.choices[0].message.content,
                "tokens": answer.usage.completion_tokens,
            }

        def stream(name: str) -> dict[str, Any]:
            found = (chunk.choices[0].delta.content for chunk in complete(name, stream=True))
            parts = [part for part in found if part]
            return {"text": "".join(parts), "parts": len(parts)}

        def tools(name: str) -> dict[str, Any]:
            schema = {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            }
            function = {"name": "weather", "description": "The weather.", "parameters": schema}
            offered = [{"type": "function", "function": function}]
            asked = complete(name, WEATHER, tools=offered).choices[0].message
            (call,) = asked.tool_calls
            city = json.loads(call.function.arguments)["city"]
            result = {"role": "tool", "tool_call_id": call.id, "content": weather(city)}
            messages = [{"role": "user", "content": WEATHER}, asked.model_dump(), result]
            answer = complete(name, messages, tools=offered)
            return {
                "called": call.function.name,
                "city": city,
                "text": answer.choices[0].message.content,
            }

        def structured(name: str) -> dict[str, Any]:
            answer = complete(name, TRIP, response_format=Trip)
            return Trip.model_validate_json(answer.choices[0].message.content).model_dump()

        async def cancelled(name: str) -> dict[str, Any]:
            messages = [{"role": "user", "content": LONG}]
            base = f"{origin}/v1" if form == "openai" else origin
            answer = await litellm.acompletion(
                f"{form}/{name}",
                messages,
                api_base=base,
                api_key=key,
                num_retries=0,
                max_tokens=2000,
                stream=True,
            )
            async for _ in answer:
                break
            await answer.aclose()
            return {"aborted": True}

        return {
            "text": text,
            "stream": stream,
            "tools": tools,
            "structured": structured,
            "error": lambda name: refused(lambda: complete(name)),
            "cancel": lambda name: asyncio.run(cancelled(name)),
        }

    return features


CLIENTS: dict[str, Callable[[str, str], Features]] = {
    "langchain-openai": langchain_openai,
    "langchain-anthropic": langchain_anthropic,
    "pydantic-ai with openai": pydantic_ai_openai,
    "pydantic-ai with anthropic": pydantic_ai_anthropic,
    "openai-agents": openai_agents,
    "litellm with openai": litellm("openai"),
    "litellm with anthropic": litellm("anthropic"),
}


def main(client: str, origin: str, key: str, *targets: str) -> None:
    """Try every feature of `client` with each of `targets`."""
    features = CLIENTS[client](origin, key)
    for target in targets:
        for feature, act in features.items():
            provider = {"error": "limited-", "cancel": "slow-"}.get(feature, "")
            try:
                result = act(f"{provider}{target}/m")
            except Exception as error:
                result = {"failed": f"{type(error).__name__}: {error}"}
            print(json.dumps({"target": target, "feature": feature, "result": result}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
