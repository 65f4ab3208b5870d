"""Why an answer ended, in the words of each dialect, to OpenAI's.

The words of one dialect mean the same wherever another has them too, so one table serves all. Gemini and Ollama say of
an answer with tool calls what they say of any other; that there are calls then tells.
"""

from collections.abc import Mapping

_FILTERED = (
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR", "JAILBREAK",
    "refusal",
)  # fmt: skip

_REASONS: Mapping[str, str] = {
    # OpenAI's own, and those of its compatible providers that are not
    "function_call": "tool_calls",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "max_output_tokens": "length",
    "completed": "stop",
    # Replicate's
    "done": "stop",
    "succeeded": "stop",
    # Anthropic's
    "end_turn": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    # Gemini's
    "STOP": "stop",
    "MAX_TOKENS": "length",
    # Cohere's
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "TOOL_CALL": "tool_calls",
    **dict.fromkeys(_FILTERED, "content_filter"),
}


def openai_reason(reason: str, *, called: bool = False) -> str:
    """OpenAI's word for `reason`, which may be a word of any dialect. What no table knows goes through as it is.

    `called`: the answer holds tool calls.
    """
    word = _REASONS.get(reason, reason)
    return "tool_calls" if called and word == "stop" else word
