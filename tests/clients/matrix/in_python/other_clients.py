"""LiteLLM as a client of four API formats, and instructor."""

import os
from collections.abc import Callable
from typing import Any, Literal

from chat_clients import Chat, OpenAIChat, chat_answer, chat_options
from neutral import TIMEOUT_S, Answer, Ask, UnsupportedError, only, run


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
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # without it, the import downloads a list of prices
        import litellm

        litellm.suppress_debug_info = True
        path = {"openai": "/v1", "gemini": "/v1beta"}.get(provider, "")
        settings = {"api_base": origin + path, "api_key": key, "num_retries": 0, "timeout": TIMEOUT_S}
        self.litellm, self.provider, self.settings = litellm, provider, settings

    def options(self, ask: Ask) -> dict[str, Any]:
        if self.provider == "openai" and "top_k" in ask:
            raise UnsupportedError("top_k")
        return chat_options(ask) | ({"top_k": ask["top_k"]} if "top_k" in ask else {})

    def chat(self, model: str, ask: Ask) -> Answer:
        try:
            return run(self.cancelled(model, ask)) if ask.get("cancel") else super().chat(model, ask)
        except self.litellm.UnsupportedParamsError as error:
            raise UnsupportedError(str(error)) from None

    async def cancelled(self, model: str, ask: Ask) -> Answer:
        messages = [{"role": "user", "content": ask["messages"][0]["parts"][0]["text"]}]
        stream = await self.create_async(model=model, messages=messages, stream=True, **self.options(ask))
        async for _ in stream:
            break
        await stream.aclose()
        return {"text": ""}

    def _name(self, model: str) -> str:
        return f"{'ollama_chat' if self.provider == 'ollama' else self.provider}/{model}"

    def create(self, *, model: str, **options: Any) -> Any:
        return self.litellm.completion(model=self._name(model), **options, **self.settings)

    async def create_async(self, *, model: str, **options: Any) -> Any:
        return await self.litellm.acompletion(model=self._name(model), **options, **self.settings)

    def embed(self, model: str, texts: list[str]) -> Answer:
        if self.provider == "anthropic":
            raise UnsupportedError("embeddings")
        name = f"{self.provider}/{model}"
        found = self.litellm.embedding(model=name, input=texts, **self.settings)
        return {"vectors": [each["embedding"] for each in found.data]}


class Instructor(OpenAIChat):
    """instructor with OpenAI's library. It is for answers in a schema, which it requests as a tool call."""

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
