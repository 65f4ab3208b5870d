"""Google's refusals: what its body says decides the hint, the wait and whose fault it is."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core.errors import CallerFault, Fault, ProviderFault
from splitsecond.core.wire.gemini import fault_from_response

S = 1_000_000_000


def body(code: int, message: str, status: str, *details: Any) -> bytes:
    return json.dumps(
        {"error": {"code": code, "message": message, "status": status, "details": details}}
    ).encode()


def quota(quota_id: str) -> list[Any]:
    return [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [7, {"quotaMetric": "m", "quotaId": quota_id, "quotaValue": "5"}],
        },
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"},
        "not an object",
    ]


def provider_fault(status: int, content: bytes) -> ProviderFault:
    fault = fault_from_response(status, {}, content)
    assert isinstance(fault, ProviderFault)
    return fault


def test_a_rate_limit_says_how_long_to_wait() -> None:
    details = quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
    fault = provider_fault(
        429, body(429, "You exceeded your current quota.", "RESOURCE_EXHAUSTED", *details)
    )
    assert (fault.kind, fault.retry_after_ns) == ("http_429", 34 * S)
    assert fault.message == "HTTP 429: You exceeded your current quota."


@pytest.mark.parametrize("wrap", [b"%s", b"[%s]"])
def test_exhausted_daily_quota_waits_a_day(wrap: bytes) -> None:
    details = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
    fault = provider_fault(
        429, wrap % body(429, "You exceeded your current quota.", "RESOURCE_EXHAUSTED", *details)
    )
    assert fault.retry_after_ns == 24 * 3600 * S
    assert "midnight" in fault.hint


def test_unsupported_location_is_a_provider_fault() -> None:
    said = body(400, "User location is not supported for the API use.", "FAILED_PRECONDITION")
    fault = provider_fault(400, said)
    assert (fault.kind, fault.status, fault.phase) == ("http_400", 400, "head")
    assert "region" in fault.hint


@each_case(
    "status, content, kind, type_, hint",
    [
        (
            400,
            body(400, "Invalid value at 'contents'", "INVALID_ARGUMENT"),
            "http_400",
            CallerFault,
            "",
        ),
        (
            400,
            body(
                400,
                "API key not valid. Please pass a valid API key.",
                "INVALID_ARGUMENT",
                {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"},
            ),
            "key_refused",
            ProviderFault,
            "Check the API key.",
        ),
        (
            400,
            body(
                400,
                "The input token count (1250010) exceeds the maximum number of tokens allowed "
                "(1048576).",
                "INVALID_ARGUMENT",
            ),
            "context_length_exceeded",
            CallerFault,
            "Shorten the prompt",
        ),
        (
            404,
            body(404, "models/x is not found for API version v1beta", "NOT_FOUND"),
            "http_404",
            ProviderFault,
            "v1beta",
        ),
        (503, body(503, "The model is overloaded.", "UNAVAILABLE"), "http_503", ProviderFault, ""),
        (502, b"<html>", "http_502", ProviderFault, ""),
    ],
)
def test_each_refusal_has_its_fault_and_hint(
    status: int, content: bytes, kind: str, type_: type[Fault], hint: str
) -> None:
    fault = fault_from_response(status, {}, content)
    assert type(fault) is type_
    assert fault.kind == kind
    assert hint in fault.hint


@given(
    st.integers(300, 599),
    st.recursive(
        st.none() | st.integers() | st.sampled_from(["FAILED_PRECONDITION", "PerDay", "34s"]),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    ["error", "details", "violations", "quotaId", "status", "retryDelay", "message"]
                ),
                inner,
            )
        ),
    ),
)
def test_any_response_becomes_a_fault(status: int, payload: Any) -> None:
    assert fault_from_response(status, {}, json.dumps(payload).encode()).message.startswith(
        f"HTTP {status}: "
    )
