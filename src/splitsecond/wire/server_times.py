"""What an answer's headers say of the time that it took its provider. What its body says is the decoder's to read."""

from collections.abc import Mapping

PROCESSING_HEADER = "openai-processing-ms"
"""OpenAI's, and Azure's: from the request's arrival to the head of the answer, in milliseconds."""


def processing_times(headers: Mapping[str, str]) -> dict[str, float]:
    """By a name that carries its unit, as the times in a body do. `headers` have names in lower case.

    What is no duration is taken for not said: a header that is wrong must not fail an answer that is right.
    """
    said = headers.get(PROCESSING_HEADER, "").strip()
    return {"processing_ms": float(said)} if said.isascii() and said.isdigit() and len(said) < 12 else {}
