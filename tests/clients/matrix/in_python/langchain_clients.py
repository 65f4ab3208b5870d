"""LangChain's chat models."""

from collections.abc import Callable
from typing import Any, ClassVar

from neutral import TIMEOUT_S, Answer, Ask, UnsupportedError, only, parts_of, run

_FINISH = {
    "end_turn": "stop", "STOP": "stop", "stop_sequence": "stop", "max_tokens": "length",
    "MAX_TOKENS": "length",
    "refusal": "content_filter", "SAFETY": "content_filter", "tool_use": "tool_calls",
}  # fmt: skip
_COMMON = ("temperature", "top_p")


def langchain(kind: str) -> Callable[[str, str], Any]:
    """Return the maker of clients of LangChain's `kind`."""
    return lambda origin, key: LangChain(kind, origin, key)


class LangChain:
    known = (
        "system",
        "tools",
        "choice",
        "schema",
        "stop",
        "temperature",
        "top_p",
        "asynchronous",
        "reasoning",
        "texts",
    )
    more: ClassVar[dict[str, tuple[str, ...]]] = {
        "openai": ("json", "seed", "presence_penalty", "frequency_penalty", "logprobs", "effort"),
        "openai responses": ("json", "effort"),
        "anthropic": ("top_k", "effort", "cache"),
        "google": ("top_k", "json", "seed"),
        "ollama": ("top_k", "json", "seed"),
    }

    def __init__(self, kind: str, origin: str, key: str) -> None:
        self.kind, self.origin, self.key = kind, origin, key

    def model(self, name: str, ask: Ask) -> Any:
        """Return the model with the options of `ask`."""
        options = {each: ask[each] for each in (*_COMMON, "top_k", "seed") if each in ask}
        limit = ask.get("max_tokens", 100)
        match self.kind:
            case "openai" | "openai responses":
                from langchain_openai import ChatOpenAI

                options |= {
                    each: ask[each]
                    for each in ("presence_penalty", "frequency_penalty")
                    if each in ask
                }
                if "logprobs" in ask:
                    options |= {"logprobs": True, "top_logprobs": ask["logprobs"]}
                if "effort" in ask:
                    options["reasoning_effort"] = ask["effort"]
                if "reasoning" in ask and self.kind == "openai":
                    raise UnsupportedError("reasoning in chats")
                if "reasoning" in ask:
                    options |= {"reasoning": {"effort": "medium", "summary": "auto"}}
                if self.kind != "openai":
                    options |= {"use_responses_api": True, "store": False}
                return ChatOpenAI(
                    model=name, base_url=f"{self.origin}"
                    f"/v1", api_key=self.key, max_retries=0, max_tokens=limit,
                    stream_usage=True, timeout=TIMEOUT_S, **options,
                )  # fmt: skip
            case "anthropic":
                from langchain_anthropic import ChatAnthropic

                if "effort" in ask:
                    options["effort"] = ask["effort"]
                if "reasoning" in ask:
                    options["thinking"] = {"type": "enabled", "budget_tokens": 1024}
                    limit = 4000
                return ChatAnthropic(
                    model=name, base_url=self.origin, api_key=self.key, max_retries=0,
                    max_tokens=limit,
                    timeout=TIMEOUT_S, **options,
                )  # fmt: skip
            case "google":
                from langchain_google_genai import ChatGoogleGenerativeAI

                if "reasoning" in ask:
                    options |= {"include_thoughts": True, "thinking_budget": 2000}
                if "json" in ask:
                    options["response_mime_type"] = "application/json"
                return ChatGoogleGenerativeAI(
                    model=name, base_url=self.origin, google_api_key=self.key, max_retries=0,
                    max_output_tokens=limit,
                    timeout=TIMEOUT_S, **options,
                )  # fmt: skip
        from langchain_ollama import ChatOllama

        if "reasoning" in ask:
            options["reasoning"] = True
        if "json" in ask:
            options["format"] = "json"
        settings = {"headers": {"authorization": f"Bearer {self.key}"}, "timeout": TIMEOUT_S}
        return ChatOllama(
            model=name, base_url=self.origin, client_kwargs=settings, num_predict=limit, **options
        )

    def chat(self, name: str, ask: Ask) -> Answer:
        only(ask, *self.known, *self.more[self.kind])
        kinds = {"ollama": ("image",), "google": ("image", "pdf")}.get(
            self.kind, ("image", "image_url", "pdf")
        )
        if "stop" in ask and self.kind == "openai responses":
            raise UnsupportedError("stop")
        parts_of(ask, *kinds, *(("audio",) if self.kind in ("openai", "google") else ()))
        model = self.model(name, ask)
        options: dict[str, Any] = {"stop": ask["stop"]} if "stop" in ask else {}
        if "json" in ask and self.kind.startswith("openai"):
            model = model.bind(response_format={"type": "json_object"})
        if "tools" in ask:
            options |= self.bound_choice(ask)
            tools = [
                {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": tool["schema"],
                }
                for tool in ask["tools"]
            ]
            model = model.bind_tools(
                [{"type": "function", "function": tool} for tool in tools], **options
            )
            options = {}
        if "schema" in ask:
            return self.structured(model, ask)
        messages = self.messages(ask)
        if ask.get("asynchronous"):
            return langchain_answer(run(model.ainvoke(messages, **options)))
        answer, message = self.once(ask, model, messages, options)
        if "loop" in ask:
            from langchain_core.messages import ToolMessage

            result = ToolMessage(
                ask["loop"], tool_call_id=message.tool_calls[0]["id"], name="weather"
            )
            end, _ = self.once(ask, model, [*messages, message, result], options)
            return end | {"calls": answer["calls"]}
        return answer

    def bound_choice(self, ask: Ask) -> dict[str, Any]:
        match ask.get("choice"):
            case None:
                return {}
            case _ if self.kind == "ollama":
                raise UnsupportedError("choice")
            case {"name": name}:
                return {"tool_choice": name}
            case "required":
                return {"tool_choice": "any"}
            case "none" if self.kind == "anthropic":
                return {"tool_choice": {"type": "none"}}
            case word:
                return {"tool_choice": word}

    def once(
        self, ask: Ask, model: Any, messages: Any, options: dict[str, Any]
    ) -> tuple[Answer, Any]:
        if not ask.get("stream"):
            message = model.invoke(messages, **options)
            return langchain_answer(message), message
        whole, parts = None, 0
        stream = model.stream(messages, **options)
        for chunk in stream:
            whole = chunk if whole is None else whole + chunk
            parts += bool(chunk.text)
            if ask.get("cancel") and chunk.text:
                stream.close()
                return {"text": ""}, None
        return langchain_answer(whole) | {"parts": parts}, whole

    def structured(self, model: Any, ask: Ask) -> Answer:
        schema = {"title": "trip", "description": "A trip.", **ask["schema"]}
        bound = model.with_structured_output(schema)
        if not ask.get("stream"):
            return {"object": bound.invoke(self.messages(ask))}
        found = None
        for part in bound.stream(self.messages(ask)):
            found = part
        return {"object": found}

    def messages(self, ask: Ask) -> list[Any]:
        from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

        found: list[Any] = []
        if "system" in ask:
            system: Any = ask["system"]
            if ask.get("cache"):
                system = [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}]
            found.append(SystemMessage(system))
        for message in ask["messages"]:
            content: list[Any] = []
            calls: list[Any] = []
            for part in message["parts"]:
                match part:
                    case {"text": text}:
                        content.append({"type": "text", "text": text})
                    case {"image": data}:
                        content.append({"type": "image", "base64": data, "mime_type": "image/png"})
                    case {"image_url": url}:
                        content.append({"type": "image", "url": url})
                    case {"pdf": data}:
                        file = {"base64": data, "mime_type": "application/pdf", "filename": "a.pdf"}
                        content.append({"type": "file", **file})
                    case {"audio": data}:
                        content.append({"type": "audio", "base64": data, "mime_type": "audio/wav"})
                    case {"call": call}:
                        calls.append(
                            {"id": call["id"], "name": call["name"], "args": call["arguments"]}
                        )
                    case {"result": result}:
                        found.append(
                            ToolMessage(
                                result["text"], tool_call_id=result["id"], name=result["name"]
                            )
                        )
            one: Any = (
                content[0]["text"]
                if len(content) == 1 and content[0]["type"] == "text"
                else content
            )
            if message["role"] == "user":
                found.append(HumanMessage(one))
            elif message["role"] == "assistant":
                found.append(AIMessage(one or "", tool_calls=calls))
        return found

    def embed(self, name: str, texts: list[str]) -> Answer:
        match self.kind:
            case "openai":
                from langchain_openai import OpenAIEmbeddings

                maker: Any = OpenAIEmbeddings(
                    model=name, base_url=f"{self.origin}"
                    f"/v1", api_key=self.key, check_embedding_ctx_length=False,
                    max_retries=0,
                )  # fmt: skip
            case "google":
                from langchain_google_genai import GoogleGenerativeAIEmbeddings

                maker = GoogleGenerativeAIEmbeddings(
                    model=name, base_url=self.origin, google_api_key=self.key
                )
            case "ollama":
                from langchain_ollama import OllamaEmbeddings

                settings = {"headers": {"authorization": f"Bearer {self.key}"}}
                maker = OllamaEmbeddings(model=name, base_url=self.origin, client_kwargs=settings)
            case _:
                raise UnsupportedError("embeddings")
        return {"vectors": maker.embed_documents(texts)}


def langchain_answer(message: Any) -> Answer:
    usage, about = message.usage_metadata, message.response_metadata
    finish = about.get("finish_reason") or about.get("stop_reason") or about.get("done_reason")
    if finish is None and about.get("incomplete_details"):
        finish = {"max_output_tokens": "length"}.get(
            about["incomplete_details"]["reason"], about["incomplete_details"]["reason"]
        )
    blocks = message.content_blocks
    return {
        "text": message.text,
        "reasoning": "".join(block.get("reasoning", "") for block in blocks
        if block["type"] == "reasoning"),
        "calls": [[call["name"], call["args"]] for call in message.tool_calls],
        "finish": _FINISH.get(finish, finish) or "stop",
        "usage": [usage["input_tokens"], usage["output_tokens"]] if usage else None,
        "logprobs": bool(about.get("logprobs")) or any(
            part.get("logprobs") for part in (message.content if isinstance(message.content, list)
            else ())
            if isinstance(part, dict)
        ),
    }  # fmt: skip
