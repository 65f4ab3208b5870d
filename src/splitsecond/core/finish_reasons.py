"""Finish reasons that are known, by API format, each with OpenAI's reason for it, or "error" for a
failure.

A reason means the same in every format that has it, so one table serves all, in any case of
letters. Only a known good reason is success: a failure breaks the answer, and so does an unknown
reason of an answer without content. An unknown reason of another answer is "stop", and is counted
(`Observation.odd_fields`).

`tests/vocabulary/test_finish_reasons.py` compares the lists with those of the providers' own
libraries.
"""

from collections.abc import Mapping

FAILURE = "error"
LONGEST_REASON = 100
"""Longest finish reason in an observation, in characters: a provider can send any text there."""

KNOWN: Mapping[str, Mapping[str, str]] = {
    "openai": {
        "stop": "stop",
        "length": "length",
        "tool_calls": "tool_calls",
        "function_call": "tool_calls",
        "content_filter": "content_filter",
    },
    # vLLM (`FinishReason`, `RequestStatus`), SGLang, llama.cpp, TGI, Mistral, DeepSeek, Z.ai,
    # OpenRouter
    "compatible": {
        "eos": "stop",
        "eos_token": "stop",
        "stop_sequence": "stop",
        "end_of_text": "stop",
        "model_length": "length",
        "sensitive": "content_filter",
        "abort": FAILURE,
        "error": FAILURE,
        "insufficient_system_resource": FAILURE,
        "network_error": FAILURE,
    },
    "responses": {
        "completed": "stop",
        "steered": "stop",
        "max_messages": "length",
        "max_output_tokens": "length",
        "failed": FAILURE,
        "cancelled": FAILURE,
        "incomplete": FAILURE,
    },
    "anthropic": {
        "end_turn": "stop",
        "pause_turn": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "tool_use": "tool_calls",
        "refusal": "content_filter",
    },
    "gemini": {
        "safety": "content_filter",
        "recitation": "content_filter",
        "language": "content_filter",
        "blocklist": "content_filter",
        "prohibited_content": "content_filter",
        "spii": "content_filter",
        "image_safety": "content_filter",
        "image_prohibited_content": "content_filter",
        "image_recitation": "content_filter",
        "model_armor": "content_filter",
        "jailbreak": "content_filter",
        "malformed_function_call": FAILURE,
        "malformed_response": FAILURE,
        "missing_thought_signature": FAILURE,
        "too_many_tool_calls": FAILURE,
        "unexpected_tool_call": FAILURE,
    },
    "cohere": {
        "complete": "stop",
        "tool_call": "tool_calls",
        "error_limit": FAILURE,
        "error_toxic": FAILURE,
        "timeout": FAILURE,
        "user_cancel": FAILURE,
    },
    "ollama": {"load": "stop", "unload": "stop"},
    "replicate": {"done": "stop", "succeeded": "stop", "canceled": FAILURE},
}
"""OpenAI's reason for each reason. What several formats have is in the first of them."""

_MEANINGS = {reason: meaning for reasons in KNOWN.values() for reason, meaning in reasons.items()}
_CUT = ("length", "content_filter")


def meaning(reason: str) -> str:
    """Return OpenAI's finish reason for `reason` of any format, "error" for a failure, and "" if it
    is unknown.

    Google's endpoint in OpenAI's format writes another word before it: ``function_call_filter:
    ...``.
    """
    return _MEANINGS.get(reason) or _MEANINGS.get(reason.rpartition(": ")[2].lower(), "")


def openai_reason(reason: str, *, called: bool = False) -> str:
    """Return OpenAI's finish reason for `reason` of any format; an unknown one is "stop".

    `called`: whether the answer holds tool calls. It decides whether the reason is "tool_calls",
    unless the answer was cut or filtered: Gemini and Ollama have no reason of their own for tool
    calls, and some servers give it without one.
    """
    word = meaning(reason)
    return word if word in _CUT else "tool_calls" if called else "stop"
