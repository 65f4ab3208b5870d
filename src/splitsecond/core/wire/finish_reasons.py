"""Finish reasons of all API formats, translated to OpenAI's.

A reason means the same in every format that has it, so one table serves all. Gemini and Ollama have no reason of
their own for an answer with tool calls; then the presence of calls decides.
"""

from collections.abc import Mapping

_FILTERED = (
    "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR", "JAILBREAK",
    "refusal",
)  # fmt: skip

_REASONS: Mapping[str, str] = {
    # OpenAI's older ones, and those of compatible providers
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
_CUT = ("length", "content_filter")


def openai_reason(reason: str, *, called: bool = False) -> str:
    """Return OpenAI's finish reason for `reason` of any format. An unknown one passes unchanged.

    `called`: whether the answer holds tool calls. Then it ends with "tool_calls", unless it was cut or filtered.
    """
    word = _REASONS.get(reason, reason)
    return "tool_calls" if called and word not in _CUT else word
