"""Refusals: any status and any body become one fault with words in it."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each_case

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault, Fault, ProviderFault
from splitsecond.core.wire.anthropic import error_body
from splitsecond.core.wire.provider_errors import (
    error_of,
    fault_from_response,
    in_band_fault,
    parse_error,
)
from splitsecond.routing.machinery.fault_handling import remedy

S = 1_000_000_000


def fault(status: int, body: bytes = b"", **headers: str) -> Fault:
    return fault_from_response(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, body
    )


def retry_after(
    status: int = 429, body: bytes = b"", now: datetime | None = None, **headers: str
) -> int | None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    found = fault_from_response(status, named, body, now=now)
    assert isinstance(found, ProviderFault)
    return found.retry_after_ns


@each_case(
    "payload, words",
    [
        ({"error": {"message": "bad thing", "type": "t", "code": None}}, "bad thing"),
        ({"error": "Unauthorized"}, "Unauthorized"),
        ({"error": ["first", "second"]}, "first"),
        ({"error": {"error": {"message": "nested"}}}, "nested"),
        ({"object": "error", "message": "Mistral says no", "type": "x"}, "Mistral says no"),
        ({"detail": "Not Found"}, "Not Found"),
        (
            {"detail": [{"loc": ["body", "n"], "msg": "too big"}, {"msg": "too small"}]},
            "body.n: too big; too small",
        ),
        ([{"error": {"code": 400, "message": "Gemini", "status": "INVALID_ARGUMENT"}}], "Gemini"),
        ({"base_resp": {"status_code": 1004, "status_msg": "login fail"}}, "login fail"),
        ("a JSON string", "a JSON string"),
        ({"code": 7, "reason": "x"}, '{"code": 7, "reason": "x"}'),
        ({"error": {}}, '{"error": {}}'),
        (17, "17"),
        (None, "null"),
    ],
)
def test_message_is_found_in_any_error_body(payload: Any, words: str) -> None:
    assert fault(500, json.dumps(payload).encode()).message == f"HTTP 500: {words}"


@pytest.mark.parametrize("status", [400, 404, 409])
def test_thread_error_is_a_caller_fault(status: int) -> None:
    details = {"error_code": "thread_not_found"}
    error = {"type": "invalid_request_error", "message": "no such message", "details": details}
    found = fault(status, json.dumps({"type": "error", "error": error}).encode())
    assert isinstance(found, CallerFault)
    assert (found.status, found.code) == (status, "thread_not_found")
    written = json.loads(error_body(status, "x", "", found.code))
    assert written["error"]["details"] == details


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "the body is empty"),
        (b"upstream connect error\r\n", "upstream connect error"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[" * 100_000, "[" * 599 + "…"),
    ],
)
def test_bodies_that_are_not_json(body: bytes, words: str) -> None:
    assert fault(502, body).message == f"HTTP 502: {words}"


def test_an_error_nested_deeply() -> None:
    for depth in range(800, 1000, 10):
        assert fault(500, b"[" * depth + b"]" * depth).message.startswith("HTTP 500: ")
    nested: Any = "lost"
    for _ in range(5000):
        nested = [nested]
    assert error_of(nested).message == "an error nested too deeply to read"


def test_a_web_page_in_place_of_an_api() -> None:
    assert "base URL" in fault(404, b"<!DOCTYPE html><html>").hint
    assert fault(502, b"<html>Bad gateway</html>").hint == ""


@pytest.mark.parametrize("status", [400, 413, 422])
def test_the_callers_faults(status: int) -> None:
    found = fault(status, b'{"error":{"message":"no"}}')
    assert isinstance(found, CallerFault)
    assert (found.kind, found.status, found.phase) == (f"http_{status}", status, "head")
    assert found.excerpt == '{"error":{"message":"no"}}'


@each_case(
    "error, code, param",
    [
        (
            {"message": "no", "code": "unsupported_value", "param": "temperature"},
            "unsupported_value",
            "temperature",
        ),
        ({"message": "no", "code": None, "param": None}, "", ""),
        ({"message": "no", "code": 400, "param": "messages[0].content"}, "", "messages[0].content"),
        ({"message": "no", "code": "what\r\nof this", "param": "x" * 101}, "", ""),
        (
            {"message": "too long", "code": "context_length_exceeded", "param": "messages"},
            "",
            "messages",
        ),
        ("no", "", ""),
    ],
)
def test_code_and_param_of_the_provider_are_kept(error: Any, code: str, param: str) -> None:
    found = fault(400, json.dumps({"error": error}).encode())
    assert isinstance(found, CallerFault)
    assert (found.code, found.param) == (code, param)


@each_case(
    "status, hint",
    [(401, "key"), (402, "credit"), (403, "key"), (404, "model"), (429, "Rate"), (308, "base URL")],
)
def test_the_providers_faults_with_a_hint(status: int, hint: str) -> None:
    found = fault(status)
    assert isinstance(found, ProviderFault)
    assert (found.kind, found.status) == (f"http_{status}", status)
    assert hint in found.hint


@pytest.mark.parametrize("status", [408, 409, 500, 503, 529])
def test_the_providers_faults(status: int) -> None:
    assert isinstance(fault(status), ProviderFault)
    assert fault(status).kind == f"http_{status}"


@pytest.mark.parametrize(
    "body",
    [
        b'{"error":{"message":"too long","code":"context_length_exceeded"}}',
        b'{"error":{"code":400,"message":"request too large","type":"exceed_context_size_error"}}',
        b'{"error":{"message":"This model\'s maximum context length is 2048 tokens."}}',
        b'{"message":"prompt is too long: 9 tokens"}',
    ],
)
def test_a_prompt_too_long(body: bytes) -> None:
    found = fault(400, body)
    assert isinstance(found, CallerFault)
    assert found.kind == "context_length_exceeded"
    assert found.status == 400


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (
            400,
            {"code": 400, "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]},
        ),
        (
            403,
            {
                "code": 403,
                "status": "PERMISSION_DENIED",
                "details": [{}, {"reason": "API_KEY_SERVICE_BLOCKED"}],
            },
        ),
        (400, {"code": "invalid_api_key", "type": "invalid_request_error"}),
        (401, {"code": "invalid_api_key", "type": "invalid_request_error", "param": None}),
        (403, {"type": "authentication_error"}),
    ],
)
def test_error_code_about_the_key_is_key_refused(status: int, error: dict[str, Any]) -> None:
    for payload in ({"error": {**error, "message": "no"}}, [{"error": {**error, "message": "no"}}]):
        found = fault(status, json.dumps(payload).encode())
        assert isinstance(found, ProviderFault)
        assert (found.kind, found.status, found.hint) == (
            "key_refused",
            status,
            "Check the API key.",
        )


@pytest.mark.parametrize("param", ["model", "messages[0]"])
def test_key_code_with_a_request_param_does_not_lock_the_key(param: str) -> None:
    error = {"message": "this key may not use it", "code": "invalid_api_key", "param": param}
    assert fault(401, json.dumps({"error": error}).encode()).kind == "http_401"


TOO_LONG = {
    "xAI": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Moonshot": "Invalid request: Your request exceeded model token limit: "
    "262144 (requested: 291351)",
    "Poolside": "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "Copilot": "prompt token count of 74490 exceeds the limit of 72000",
    "Anthropic": "prompt is too long: 213462 tokens > 200000 maximum",
    "vLLM": "This model's maximum context length is 4096 tokens. "
    "However, you requested 5000 tokens.",
    "Google": "The input token count (1196265) exceeds the maximum number of tokens allowed "
    "(1048575)",
    "Groq": "Please reduce the length of the messages or completion",
    "Mistral": "Prompt contains 65673 tokens, too large for model with "
    "32768 maximum context length",
    "MiniMax": "invalid params, context window exceeds limit (2013)",
    "Alibaba": "Range of input length should be [1, 129024]",
    "Z.ai": "Prompt exceeds max length",
    "TGI": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: "
    "5000 `inputs` tokens",
}


@pytest.mark.parametrize("words", TOO_LONG.values(), ids=TOO_LONG)
def test_a_prompt_too_long_in_the_words_of_a_provider(words: str) -> None:
    body = json.dumps({"error": {"message": words, "type": "invalid_request_error"}}).encode()
    found = fault(400, body)
    assert isinstance(found, CallerFault)
    assert (found.kind, remedy(found)) == ("context_length_exceeded", "elsewhere")
    inside = in_band_fault(parse_error(body), body, phase="first token")
    assert (type(inside), inside.kind, remedy(inside)) == (
        CallerFault,
        "context_length_exceeded",
        "elsewhere",
    )
    assert in_band_fault(parse_error(body), body, phase="between tokens").kind == "in_band_error"


def test_openrouter_quotes_its_own_provider() -> None:
    raw = json.dumps(
        {"error": {"message": "maximum context length is 5 tokens", "code": "invalid_api_key"}}
    )
    error = {
        "message": "Provider returned error",
        "code": 400,
        "metadata": {"raw": raw, "provider_name": "x"},
    }
    found = fault(400, json.dumps({"error": error}).encode())
    assert found.kind == "context_length_exceeded"
    assert found.message == "HTTP 400: Provider returned error: maximum context length is 5 tokens"


@pytest.mark.parametrize("code", ["rate_limit_error", "rate_limit_exceeded", "tokens"])
def test_a_rate_limit_inside_a_stream_is_no_matter_of_size(code: str) -> None:
    body = json.dumps(
        {"error": {"type": code, "message": "Rate limit reached on tokens per minute"}}
    ).encode()
    assert in_band_fault(parse_error(body), body, phase="first token").kind == "in_band_error"


MODEL_GONE: dict[str, tuple[int, dict[str, Any], str]] = {
    "Groq": (
        400,
        {
            "message": "The model `m` has been decommissioned.",
            "code": "model_decommissioned",
        },
        "model_not_served",
    ),
    "OpenAI": (
        400,
        {"message": "no such model", "code": "model_not_found", "param": "model"},
        "model_not_served",
    ),
    "Together": (
        400,
        {"message": "Unable to access m.", "code": "model_not_available"},
        "model_not_served",
    ),
    "Mistral": (
        400,
        {"message": "Invalid model: m", "type": "invalid_model", "code": "1500"},
        "model_not_served",
    ),
    "Copilot": (
        400,
        {"message": "no", "code": "model_not_supported", "param": "model"},
        "model_not_served",
    ),
    "Z.ai": (
        400,
        {"message": "Unknown Model, please check the model code.", "code": "1211"},
        "model_not_served",
    ),
    "OpenRouter": (400, {"message": "a/m is not a valid model ID", "code": 400}, "http_400"),
    "DeepSeek": (400, {"message": "Model Not Exist", "code": "invalid_request_error"}, "http_400"),
    "OpenAI, no code": (400, {"message": "The requested model 'm' does not exist."}, "http_400"),
    "Azure": (410, {"message": "gone", "code": "ModelDeprecated"}, "model_not_served"),
}


@pytest.mark.parametrize(("status", "error", "kind"), MODEL_GONE.values(), ids=MODEL_GONE)
def test_another_target_may_have_the_model(status: int, error: dict[str, Any], kind: str) -> None:
    found = fault(status, json.dumps({"error": error}).encode())
    assert isinstance(found, ProviderFault)
    assert (found.kind, found.status, remedy(found)) == (kind, status, "elsewhere")
    assert "model" in found.hint


@pytest.mark.parametrize(
    "error",
    [
        {"message": "The model `m` does not support images.", "code": "unsupported_value"},
        {"message": "no", "code": "model_not_found", "param": "previous_response_id"},
    ],
)
def test_other_errors_that_name_the_model_are_the_callers(error: dict[str, Any]) -> None:
    assert isinstance(fault(400, json.dumps({"error": error}).encode()), CallerFault)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (
            429,
            {"message": "no", "type": "insufficient_quota", "code": "insufficient_quota"},
        ),
        (429, {"message": "suspended", "type": "exceeded_current_quota_error"}),
        (429, {"message": "Insufficient balance", "type": "rate_limit_error", "code": "1113"}),
        (403, {"message": "no", "type": "new_api_error", "code": "insufficient_user_quota"}),
    ],
    ids=["OpenAI", "Moonshot", "Z.ai", "New API"],
)
def test_an_account_without_credit_is_no_rate_limit(status: int, error: dict[str, Any]) -> None:
    body = json.dumps({"error": error}).encode()
    found = fault(status, body)
    assert (found.kind, remedy(found)) == ("no_credit", "elsewhere")
    assert "billing" in found.hint
    assert in_band_fault(parse_error(body), body, phase="first token").kind == "no_credit"


LIMIT = (
    "Request too large for model `m` in organization `o` on tokens per minute (TPM): Limit 8000, "
    "Requested 10200, "
    "please reduce your message size and try again."
)


@pytest.mark.parametrize("status", [413, 429])
def test_request_above_the_accounts_limit_is_a_provider_fault(status: int) -> None:
    error = {"message": LIMIT, "type": "tokens", "code": "rate_limit_exceeded"}
    found = fault(status, json.dumps({"error": error}).encode())
    assert isinstance(found, ProviderFault)
    assert (found.kind, found.status, remedy(found)) == ("larger_than_limit", status, "elsewhere")


def test_rate_limit_is_not_a_too_large_request() -> None:
    error = {
        "message": "Rate limit reached: Limit 8000, Used 7900",
        "type": "tokens",
        "code": "rate_limit_exceeded",
    }
    assert fault(429, json.dumps({"error": error}).encode()).kind == "http_429"
    assert fault(413, b'{"error":{"message":"Request too large"}}').kind == "http_413"


@pytest.mark.parametrize("status", [400, 401, 403, 413, 422])
def test_message_about_a_key_does_not_lock_the_key(status: int) -> None:
    body = (
        b'{"error":{"message":"role: got \'my api '
        b'key\'","type":"invalid_request_error","details":["API_KEY_INVALID"]}}'
    )
    found = fault(status, body)
    assert isinstance(found, ProviderFault)
    assert found.kind == f"http_{status}"


@pytest.mark.parametrize("status", [403, 404])
def test_error_with_a_request_param_is_a_caller_fault(status: int) -> None:
    found = fault(status, b'{"error":{"message":"not found","param":"previous_response_id"}}')
    assert isinstance(found, CallerFault)
    assert (found.kind, found.status) == (f"http_{status}", status)


def test_retry_after() -> None:
    assert retry_after() is None
    assert retry_after(Retry_After="2") == 2 * S
    assert retry_after(retry_after="0.5") == S // 2
    assert retry_after(retry_after="9", retry_after_ms="120") == 120_000_000
    assert retry_after(status=503, retry_after="-3") == 0
    assert retry_after(retry_after="1e300") == 24 * 3600 * S
    assert retry_after(retry_after="soon") is None
    assert retry_after(retry_after="nan") is None
    assert retry_after(retry_after="Fri, 20 Nov 2026 10:00:30 +99999999999999") is None


def test_retry_after_a_date() -> None:
    then = "Fri, 20 Nov 2026 10:00:30 GMT"
    soon = clock.wall_time() + timedelta(seconds=60)
    assert retry_after(retry_after=format_datetime(soon, usegmt=True)) == pytest.approx(
        60 * S, abs=5 * S
    )
    assert retry_after(retry_after=then, date="Fri, 20 Nov 2026 10:00:00 GMT") == 30 * S
    now = datetime(2026, 11, 20, 10, 0, 10, tzinfo=UTC)
    assert retry_after(retry_after=then, now=now) == 20 * S
    assert retry_after(retry_after="Fri, 20 Nov 2026 10:00:30 -0000", now=now) == 20 * S


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        (
            [{"@type": "QuotaFailure"}, {"@type": "RetryInfo", "retryDelay": "34.5s"}],
            34_500_000_000,
        ),
        ([{"retryDelay": "soon"}], None),
        ([7], None),
        ([], None),
    ],
)
def test_the_wait_inside_googles_body(details: list[Any], expected: int | None) -> None:
    payload = {"error": {"code": 429, "message": "quota", "details": details}}
    assert retry_after(body=json.dumps(payload).encode()) == expected
    assert retry_after(body=json.dumps([payload]).encode()) == expected


@given(
    st.integers(300, 599),
    st.binary()
    | st.recursive(
        st.none() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "error",
                        "message",
                        "detail",
                        "code",
                        "msg",
                        "base_resp",
                        "status_msg",
                        "details",
                    ]
                ),
                inner,
            )
        ),
    ).map(lambda value: json.dumps(value).encode()),
    st.text(),
)
def test_any_response_becomes_a_bounded_fault(status: int, body: bytes, header: str) -> None:
    found = fault_from_response(status, {"Retry-After": header, "Date": header}, body)
    assert len(found.message) < 700
    assert found.message.isprintable()
