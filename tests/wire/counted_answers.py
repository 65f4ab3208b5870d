"""Answers of every API format with token counts, in which tests replace a count."""

from collections.abc import Mapping
from types import ModuleType

from splitsecond.core.events import Usage
from splitsecond.core.wire import anthropic, cohere, gemini, ollama, openai, replicate, responses
from splitsecond.core.wire.api_format import ServerAnswer

INPUT, OUTPUT = 123_456_789, 987_654
"""Numbers that appear nowhere else in an answer."""
COUNTS = Usage(0, INPUT, OUTPUT)
HUGE = [b"9007199254740993", b"1e400", b"1" + b"0" * 400, b"1" + b"0" * 5000]
ODD = [b"-1", b"1.5", b'"a dozen"', b"true", b"{}", b"[7]", *HUGE]
"""Counts that are none, as JSON."""


def stream(api_format: ModuleType) -> bytes:
    """Return the answer "Yes" as a stream."""
    writer = api_format.StreamWriter("chat", "m", id="x", created=1)
    begun = writer.opening(0, COUNTS) + writer.token("Yes")
    return bytes(begun + writer.finish("stop") + writer.usage(COUNTS) + writer.done())


def whole(api_format: ModuleType) -> bytes:
    """Return the answer "Yes" as one JSON object."""
    return bytes(
        api_format.StreamWriter("chat", "m", id="x", created=1).whole(
            [ServerAnswer(text="Yes")], COUNTS
        )
    )


def short_id(value: object) -> str:
    """Return a short name of a parameter for a test."""
    return value[:12].decode() if isinstance(value, bytes) else str(value)


FORMATS: Mapping[str, ModuleType] = {
    api_format.__name__.rpartition(".")[2]: api_format
    for api_format in (anthropic, cohere, gemini, ollama, openai, replicate, responses)
}
BODIES: Mapping[str, bytes] = {
    f"{name}-{make.__name__}": body
    for name, api_format in FORMATS.items()
    for make in (stream, whole)
    if str(OUTPUT).encode() in (body := make(api_format))  # Replicate counts whole answers only
}
"""The bodies that hold counts, by format and by whether they are streamed."""
