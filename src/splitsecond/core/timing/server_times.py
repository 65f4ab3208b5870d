"""Durations that servers report about their own work, in one unit.

Each server has its own names; their endings show the unit: ``prompt_ms`` (llama.cpp, OpenAI),
``prompt_time`` (Groq, Cerebras; seconds), ``eval_duration`` (Ollama; nanoseconds),
``time_to_first_token`` (Replicate; seconds). A name with another ending is a count or a rate, and a
time per token is TPOT under another name.
"""

MAX_NS = 24 * 3600 * 1e9
"""A day. A server that reports more is wrong, and the number can be too large for a database."""
_NS = {"_ms": 1e6, "_time": 1e9, "_duration": 1.0, "_to_first_token": 1e9}


def duration_ns(name: str, value: float) -> float | None:
    if "_per_" in name:
        return None
    took_ns = next((value * ns for ending, ns in _NS.items() if name.endswith(ending)), None)
    return took_ns if took_ns is not None and 0 <= took_ns <= MAX_NS else None  # NaN is neither


def step_name(name: str) -> str:
    for ending in ("_ms", "_time", "_duration"):
        name = name.removesuffix(ending)
    return name
