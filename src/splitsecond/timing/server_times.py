"""Durations that servers report about their own work, in one unit.

Each server has its own names; their endings show the unit: ``prompt_ms`` (llama.cpp, OpenAI), ``prompt_time`` (Groq,
Cerebras; seconds), ``eval_duration`` (Ollama; nanoseconds), ``time_to_first_token`` (Replicate; seconds). A name with
another ending is a count or a rate, and a time per token is TPOT under another name.
"""

_NS = {"_ms": 1e6, "_time": 1e9, "_duration": 1.0, "_to_first_token": 1e9}


def duration_ns(name: str, value: float) -> float | None:
    """Return the duration that a server reports as `value` under `name`, in nanoseconds; None if it is no duration."""
    if "_per_" in name:
        return None
    return next((value * ns for ending, ns in _NS.items() if name.endswith(ending)), None)


def step_name(name: str) -> str:
    """Return a duration's name without its unit: "prompt_ms" becomes "prompt"."""
    for ending in ("_ms", "_time", "_duration"):
        name = name.removesuffix(ending)
    return name
