"""What providers say of their own time, as columns that can be asked for all of them together.

Each has names and units of its own. Here they become nanoseconds of five steps: `queue` (waiting before any work),
`prefill` (reading the prompt), `decode` (writing the answer), `head` (from the request's arrival to the head of the
answer), `total` (from its arrival to the end). A name that is not in the table is not kept.
"""

from collections.abc import Mapping

_NS = {"ns": 1.0, "ms": 1e6, "s": 1e9}
_STEPS: Mapping[str, Mapping[str, str]] = {
    "queue": {"queue_time": "s"},
    "prefill": {"prompt_time": "s", "prompt_ms": "ms", "prompt_eval_duration": "ns"},
    "decode": {"completion_time": "s", "predicted_ms": "ms", "eval_duration": "ns"},
    "head": {"processing_ms": "ms"},
    "total": {"total_time": "s", "total_duration": "ns"},
}
"""Names by step: of Groq, Cerebras and Replicate (seconds), of llama.cpp and OpenAI (ms), of Ollama (ns)."""
_PLACE = {name: (i, _NS[unit]) for i, step in enumerate(_STEPS.values()) for name, unit in step.items()}
_LONGEST_NS = 10**9 * 86_400
"""A day. What a server says beyond it is no time that anybody waited, and might be too large for a database."""
UNSAID: tuple[int | None, ...] = (None,) * len(_STEPS)


def server_times(said: Mapping[str, float]) -> tuple[int | None, ...]:
    """The steps of the table above in its order, nanoseconds; None where nothing, or nothing possible, was said."""
    found = list(UNSAID)
    for name, value in said.items():
        place = _PLACE.get(name)
        if place is not None:
            step, unit_ns = place
            took_ns = value * unit_ns
            if 0 <= took_ns <= _LONGEST_NS:  # which NaN is not
                found[step] = round(took_ns)
    return tuple(found)
