"""The Python clients: `python clients_python.py CLIENT ORIGIN KEY`, with one cell in each line of
standard input.

It runs in an environment of its own, with the clients only. A cell is `{"model": …, "ask": …}` (see
`features.py`); the line printed for it says in neutral words what the client made of the response,
or that the client has no such feature.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from chat_clients import GroqChat, Instructor, OpenAIChat, OpenRouterChat, litellm
from google_clients import GoogleGenai
from langchain_clients import langchain
from messages_clients import Anthropic
from neutral import UnsupportedError
from ollama_clients import Ollama
from pydantic_ai_clients import pydantic_ai
from responses_clients import OpenAIResponses

CLIENTS: dict[str, Callable[[str, str], Any]] = {
    "openai": OpenAIChat,
    "openai responses": OpenAIResponses,
    "anthropic": Anthropic,
    "google-genai": GoogleGenai,
    "ollama": Ollama,
    "groq": GroqChat,
    "openrouter": OpenRouterChat,
    "langchain-openai": langchain("openai"),
    "langchain-openai responses": langchain("openai responses"),
    "langchain-anthropic": langchain("anthropic"),
    "langchain-google-genai": langchain("google"),
    "langchain-ollama": langchain("ollama"),
    "instructor with openai": Instructor,
    "litellm with openai": litellm("openai"),
    "litellm with anthropic": litellm("anthropic"),
    "litellm with gemini": litellm("gemini"),
    "litellm with ollama": litellm("ollama"),
    "pydantic-ai with openai": pydantic_ai("openai"),
    "pydantic-ai with openai responses": pydantic_ai("openai responses"),
    "pydantic-ai with anthropic": pydantic_ai("anthropic"),
    "pydantic-ai with google": pydantic_ai("google"),
}


def failure(error: BaseException) -> dict[str, Any]:
    """Return the kind, the status and the words of an exception, and of those that it came from."""
    chain: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in chain:
        chain.append(each)
        each = each.__cause__ or each.__context__
    statuses = [
        getattr(one, name, None) for one in chain for name in ("status_code", "code", "http_status")
    ]
    status = next((found for found in statuses if isinstance(found, int)), None)
    return {
        "kinds": [
            kind.__name__ for kind in type(error).__mro__ if kind not in (object, BaseException)
        ],
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


def use_one_certificate() -> None:
    """Let libraries load one certificate for each new client, not all: that would take most of the
    time."""
    import certifi

    end = "-----END CERTIFICATE-----"
    first, _, _ = Path(certifi.where()).read_text("utf-8").partition(end)
    with NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(first + end + "\n")
    os.environ["SSL_CERT_FILE"] = file.name


def main(name: str, origin: str, key: str) -> None:
    """Try each cell of standard input with the client `name`."""
    use_one_certificate()
    make = cache(partial(CLIENTS[name], origin))
    for line in sys.stdin:
        began = time.monotonic()
        result = tried(make, key, json.loads(line))
        print(json.dumps({"result": result | {"seconds": time.monotonic() - began}}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
