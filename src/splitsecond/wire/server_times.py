"""The time that an answer took its provider: what the headers say of it, and what a server has to say.

What the body says is the dialect's to read and to write.
"""

from collections.abc import Mapping

from msgspec import Struct

PROCESSING_HEADER = "openai-processing-ms"
"""OpenAI's, and Azure's: from the request's arrival to the head of the answer, in milliseconds."""


class Took(Struct, frozen=True):
    """Where a provider's own time went, in nanoseconds: until it began with the prompt, on the prompt until there was a
    first token, and from that to the last."""

    queue_ns: int
    prompt_ns: int
    output_ns: int

    @property
    def total_ns(self) -> int:
        """All of it."""
        return self.queue_ns + self.prompt_ns + self.output_ns


def processing_times(headers: Mapping[str, str]) -> dict[str, float]:
    """By a name that carries its unit, as the times in a body do. `headers` have names in lower case.

    What is no duration is taken for not said: a header that is wrong must not fail an answer that is right.
    """
    said = headers.get(PROCESSING_HEADER, "").strip()
    return {"processing_ms": float(said)} if said.isascii() and said.isdigit() and len(said) < 12 else {}
