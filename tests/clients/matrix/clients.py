"""The clients that the table names."""

from msgspec import Struct


class Client(Struct, frozen=True):
    """A client: its `name` in the scripts, the `api` that it uses, and the `packages` whose
    versions are shown.

    `apart`: its packages need other versions of those of other clients.
    """

    name: str
    api: str
    packages: tuple[str, ...]
    python: bool = True
    apart: bool = False


CLIENTS = (
    Client("openai", "chat", ("openai",)),
    Client("groq", "chat", ("groq",)),
    Client("openrouter", "chat", ("openrouter",)),
    Client("langchain-openai", "chat", ("langchain-openai",)),
    Client("pydantic-ai with openai", "chat", ("pydantic-ai-slim", "openai")),
    Client("instructor with openai", "chat", ("instructor", "openai"), apart=True),
    Client("litellm with openai", "chat", ("litellm", "openai"), apart=True),
    Client("openai for JavaScript", "chat", ("openai",), python=False),
    Client("groq-sdk", "chat", ("groq-sdk",), python=False),
    Client("@openrouter/sdk", "chat", ("@openrouter/sdk",), python=False),
    Client(
        "ai with @ai-sdk/openai",
        "chat",
        (
            "ai",
            "@ai-sdk/openai",
        ),
        python=False,
    ),
    Client(
        "ai with @ai-sdk/openai-compatible",
        "chat",
        (
            "ai",
            "@ai-sdk/openai-compatible",
        ),
        python=False,
    ),
    Client(
        "ai with @openrouter/ai-sdk-provider",
        "chat",
        (
            "ai",
            "@openrouter/ai-sdk-provider",
        ),
        python=False,
    ),
    Client("@langchain/openai", "chat", ("@langchain/openai",), python=False),
    Client("openai responses", "responses", ("openai",)),
    Client("langchain-openai responses", "responses", ("langchain-openai",)),
    Client("pydantic-ai with openai responses", "responses", ("pydantic-ai-slim", "openai")),
    Client("openai responses for JavaScript", "responses", ("openai",), python=False),
    Client(
        "ai with @ai-sdk/openai responses",
        "responses",
        (
            "ai",
            "@ai-sdk/openai",
        ),
        python=False,
    ),
    Client("anthropic", "messages", ("anthropic",)),
    Client("langchain-anthropic", "messages", ("langchain-anthropic",)),
    Client("pydantic-ai with anthropic", "messages", ("pydantic-ai-slim", "anthropic")),
    Client("litellm with anthropic", "messages", ("litellm",), apart=True),
    Client("@anthropic-ai/sdk", "messages", ("@anthropic-ai/sdk",), python=False),
    Client(
        "ai with @ai-sdk/anthropic",
        "messages",
        (
            "ai",
            "@ai-sdk/anthropic",
        ),
        python=False,
    ),
    Client("@langchain/anthropic", "messages", ("@langchain/anthropic",), python=False),
    Client("google-genai", "gemini", ("google-genai",)),
    Client("langchain-google-genai", "gemini", ("langchain-google-genai",)),
    Client("pydantic-ai with google", "gemini", ("pydantic-ai-slim", "google-genai")),
    Client("litellm with gemini", "gemini", ("litellm",), apart=True),
    Client("@google/genai", "gemini", ("@google/genai",), python=False),
    Client(
        "ai with @ai-sdk/google",
        "gemini",
        (
            "ai",
            "@ai-sdk/google",
        ),
        python=False,
    ),
    Client("@langchain/google-genai", "gemini", ("@langchain/google-genai",), python=False),
    Client("ollama", "ollama", ("ollama",)),
    Client("langchain-ollama", "ollama", ("langchain-ollama",)),
    Client("litellm with ollama", "ollama", ("litellm",), apart=True),
    Client("ollama for JavaScript", "ollama", ("ollama",), python=False),
    Client("@langchain/ollama", "ollama", ("@langchain/ollama",), python=False),
)
BY_NAME = {client.name: client for client in CLIENTS}
