"""The neutral words in which features are asked and answers are reported, and what a client cannot
say."""

import asyncio
from collections.abc import Coroutine
from typing import Any

TIMEOUT_S = 30
_RUNNER = asyncio.Runner()
Ask = dict[str, Any]
Answer = dict[str, Any]


class UnsupportedError(Exception):
    """The client has no such feature."""


def only(ask: Ask, *known: str) -> None:
    """Raise `UnsupportedError` for what the client cannot say. `known`: what it can, beside
    messages and limits."""
    always = {"messages", "max_tokens", "stream", "usage", "key", "operation", "loop", "cancel"}
    if missing := set(ask) - always - set(known):
        raise UnsupportedError(", ".join(sorted(missing)))


def parts_of(ask: Ask, *kinds: str) -> None:
    """Raise `UnsupportedError` for kinds of parts that the client cannot send."""
    for message in ask["messages"]:
        for part in message["parts"]:
            found = next(key for key in part if key != "mime")
            if found in ("image", "image_url", "pdf", "audio") and found not in kinds:
                raise UnsupportedError(found)
            if found == "result" and "image" in part["result"] and "result_image" not in kinds:
                raise UnsupportedError("picture in a result")


def plain(value: Any) -> Any:
    """Return a message of a library as JSON."""
    return value.model_dump(exclude_none=True) if hasattr(value, "model_dump") else value


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on the one event loop of the process: libraries keep connections, which
    belong to a loop."""
    return _RUNNER.run(coroutine)
