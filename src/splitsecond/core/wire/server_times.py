"""Processing times that a server reports in headers. The decoders read those in a body."""

from collections.abc import Mapping

PROCESSING_HEADER = "openai-processing-ms"
"""OpenAI's and Azure's header: milliseconds from the request's arrival to the response's
headers."""


def processing_times(headers: Mapping[str, str]) -> dict[str, float]:
    """Return the times in `headers` (names in lower case), by names with their units.

    An unreadable duration counts as missing: a wrong header must not fail a valid response.
    """
    text = headers.get(PROCESSING_HEADER, "").strip()
    return (
        {"processing_ms": float(text)}
        if text.isascii() and text.isdigit() and len(text) < 12
        else {}
    )
