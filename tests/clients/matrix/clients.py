"""The clients that the table names."""

from msgspec import Struct


class Client(Struct, frozen=True):
    """A client: its `name` in the scripts, the `api` that it uses, and the `packages` whose versions are shown."""

    name: str
    api: str
    packages: tuple[str, ...]
    python: bool = True


CLIENTS = (
    Client("openai", "chat", ("openai",)),
    Client("groq", "chat", ("groq",)),
    Client("mistralai", "chat", ("mistralai",)),
    Client("openrouter", "chat", ("openrouter",)),
    Client("litellm with openai", "chat", ("litellm", "openai")),
    Client("langchain-openai", "chat", ("langchain-openai",)),
    Client("pydantic-ai with openai", "chat", ("pydantic-ai-slim", "openai")),
    Client("openai responses", "responses", ("openai",)),
    Client("langchain-openai responses", "responses", ("langchain-openai",)),
    Client("pydantic-ai with openai responses", "responses", ("pydantic-ai-slim", "openai")),
    Client("anthropic", "messages", ("anthropic",)),
    Client("litellm with anthropic", "messages", ("litellm",)),
    Client("langchain-anthropic", "messages", ("langchain-anthropic",)),
    Client("pydantic-ai with anthropic", "messages", ("pydantic-ai-slim", "anthropic")),
    Client("google-genai", "gemini", ("google-genai",)),
    Client("litellm with gemini", "gemini", ("litellm",)),
    Client("langchain-google-genai", "gemini", ("langchain-google-genai",)),
    Client("pydantic-ai with google", "gemini", ("pydantic-ai-slim", "google-genai")),
    Client("ollama", "ollama", ("ollama",)),
    Client("litellm with ollama", "ollama", ("litellm",)),
    Client("langchain-ollama", "ollama", ("langchain-ollama",)),
)
