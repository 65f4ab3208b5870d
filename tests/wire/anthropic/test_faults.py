"""Anthropic's refusals, in its own words."""

import json
from datetime import UTC, datetime

import pytest

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault, ProviderFault
from splitsecond.core.wire import anthropic


def refusal(kind: str, message: str) -> bytes:
    return json.dumps(
        {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_01"}
    ).encode()


def test_invalid_request_is_a_caller_fault() -> None:
    fault = anthropic.fault_from_response(
        400, {}, refusal("invalid_request_error", "max_tokens: Field required")
    )
    assert isinstance(fault, CallerFault)
    assert (fault.kind, fault.message) == ("http_400", "HTTP 400: max_tokens: Field required")


@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease "
        "input length",
    ],
)
def test_a_prompt_that_is_too_long(message: str) -> None:
    fault = anthropic.fault_from_response(400, {}, refusal("invalid_request_error", message))
    assert isinstance(fault, CallerFault)
    assert fault.kind == "context_length_exceeded"


LIMIT = (
    "You have reached your specified API usage limits. You will regain access on 2099-08-01 "
    "at 00:00 UTC."
)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("Your credit balance is too low to access the Anthropic API.", "no_credit"),
        (LIMIT, "usage_limit"),
        ("This organization has been disabled.", "key_refused"),
        (f"messages.0.role: got '{LIMIT}'", "http_400"),
        ("messages.0.role: got 'credit balance'", "http_400"),
    ],
)
def test_disabled_or_unpaid_account_is_a_provider_fault(message: str, kind: str) -> None:
    fault = anthropic.fault_from_response(400, {}, refusal("invalid_request_error", message))
    assert isinstance(fault, ProviderFault)
    assert (fault.kind, fault.status) == (kind, 400)
    assert message in fault.message
    assert "billing" in fault.hint


def test_a_usage_limit_says_until_when_it_lasts() -> None:
    now = datetime(2099, 7, 31, 22, tzinfo=UTC)
    fault = anthropic.fault_from_response(400, {}, refusal("invalid_request_error", LIMIT), now=now)
    assert isinstance(fault, ProviderFault)
    assert fault.retry_after_ns == 2 * 3600 * NS_PER_S


@pytest.mark.parametrize(
    ("status", "kind", "message", "hint"),
    [
        (403, "permission_error", "Request not allowed", "region"),
        (404, "not_found_error", "model: claude-0", "model's name"),
        (529, "overloaded_error", "Overloaded", ""),
        (500, "api_error", "Internal server error", ""),
    ],
)
def test_target_specific_refusals_are_provider_faults(
    status: int, kind: str, message: str, hint: str
) -> None:
    fault = anthropic.fault_from_response(status, {}, refusal(kind, message))
    assert isinstance(fault, ProviderFault)
    assert (fault.kind, fault.status) == (f"http_{status}", status)
    assert fault.message == f"HTTP {status}: {message}"
    assert hint in fault.hint


def test_rejected_key_is_key_refused() -> None:
    fault = anthropic.fault_from_response(
        401, {}, refusal("authentication_error", "invalid x-api-key")
    )
    assert isinstance(fault, ProviderFault)
    assert (fault.kind, fault.status, fault.hint) == ("key_refused", 401, "Check the API key.")


def test_a_rate_limit_says_how_long_to_wait() -> None:
    headers = {"retry-after": "12", "anthropic-ratelimit-requests-reset": "2026-07-01T00:00:00Z"}
    fault = anthropic.fault_from_response(429, headers, refusal("rate_limit_error", "slow down"))
    assert isinstance(fault, ProviderFault)
    assert fault.retry_after_ns == 12 * NS_PER_S
