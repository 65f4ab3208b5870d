"""The finish reasons that are known are those of the providers' own libraries, and of the servers'
source."""

from collections.abc import Iterable
from typing import get_args

import anthropic.types
import cohere
import pytest
from google.genai.types import BlockedReason, FinishReason
from openai.types.chat.chat_completion import Choice
from openai.types.responses import ResponseStatus
from openai.types.responses.response import IncompleteDetails

from splitsecond.core.finish_reasons import meaning

pytestmark = pytest.mark.system

DOUBTFUL = {
    "FINISH_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED", "OTHER", "IMAGE_OTHER", "NO_IMAGE",
    "ESCALATION",
    "PUP_LIMITED_DISABLED", "CONTINUATION",
}  # fmt: skip
"""Gemini's reasons that do not tell whether the answer is good: its content decides, as for unknown
ones."""


def words(annotation: object) -> list[str]:
    """Return the texts in an annotation with literals."""
    found = [word for each in get_args(annotation) for word in words(each)]
    return [annotation] if isinstance(annotation, str) else found


SOURCES: dict[str, Iterable[str]] = {
    "openai: "
    "openai.types.chat.ChatCompletion": words(Choice.model_fields["finish_reason"].annotation),
    "responses: "
    "openai.types.responses.ResponseStatus": {*words(ResponseStatus)} - {"in_progress", "queued"},
    "responses: IncompleteDetails": words(IncompleteDetails.model_fields["reason"].annotation),
    "anthropic: anthropic.types.StopReason": words(anthropic.types.StopReason),
    "gemini: google.genai.types.FinishReason": {each.value for each in FinishReason} - DOUBTFUL,
    "gemini: google.genai.types.BlockedReason": {each.value for each in BlockedReason} - DOUBTFUL,
    "cohere: cohere.ChatFinishReason": words(cohere.ChatFinishReason),
    "ollama: api/types.go, DoneReason": ("stop", "length", "load", "unload"),
    "vllm: v1/engine/__init__.py, FINISH_REASON_STRINGS": ("stop", "length", "abort", "error"),
    "tgi: router/src/infer, FinishReason": ("length", "eos_token", "stop_sequence"),
    "mistral: docs.mistral.ai, "
    "finish_reason": ("stop", "length", "model_length", "error", "tool_calls"),
    "deepseek: api-docs.deepseek.com, "
    "finish_reason": ("length", "content_filter", "insufficient_system_resource"),
    "z.ai: docs.z.ai, "
    "finish_reason": ("stop", "tool_calls", "length", "sensitive", "network_error"),
    "replicate: status of a prediction": ("succeeded", "failed", "canceled"),
}  # fmt: skip


@pytest.mark.parametrize("source", SOURCES)
def test_each_reason_of_a_library_is_known(source: str) -> None:
    assert [reason for reason in SOURCES[source] if not meaning(reason)] == []
