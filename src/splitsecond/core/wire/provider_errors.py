"""Error responses of providers: any status and body to one fault.

The status decides who is at fault: the caller for those that every provider would refuse (400, 413, 422); for the
others (our key, our model name, the provider's limits and failures) another target may serve the request. The body
gives the message, in any of the forms in use, and in four cases more than the message:

- A refused key or account (Gemini reports a bad key as 400) gets the kind `KEY_REFUSED`, which locks its targets for
  all clients. Only an error's structured fields can do so, and only if they name no field of the request: a status
  401 alone may be about the model.
- A request that is larger than the account's tokens per minute (Groq: 413, OpenAI: 429) gets the kind
  `LARGER_THAN_LIMIT`. Another target may serve it, waiting does not help, and smaller requests are not limited.
- A message about a bad key in a 400 (xAI has no code for it) sends this one request to another target, and nothing
  more: providers quote the request in their messages, so a client can put any text there.
- A prompt too long for the model sends this one request to a target with a larger context.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import CallerFault, Fault, Phase, ProviderFault, excerpt

_CALLERS = frozenset({400, 413, 422})
_CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_CONTEXT_WORDS = re.compile(
    r"context (length|window|size|limit)|(prompt|input) is too long|too many tokens|input token count .*exceeds",
    re.IGNORECASE,
)
_KEY_WORDS = re.compile(r"api[ _]key", re.IGNORECASE)
LARGER_THAN_LIMIT = "larger_than_limit"
"""Kind of a request that alone exceeds the account's limit of tokens per minute."""
_LIMIT_CODES = frozenset({"rate_limit_exceeded", "tokens", "rate_limit_error"})
_LARGER_WORDS = re.compile(r"request too large", re.IGNORECASE)
KEY_REFUSED = "key_refused"
"""Kind of a refusal of our key or account, by the provider's error code."""
_KEY_CODES = frozenset({
    "account_deactivated", "account_disabled", "account_suspended", "api_key_expired", "api_key_invalid",
    "api_key_service_blocked", "authentication_error", "billing_disabled", "billing_not_active", "consumer_suspended",
    "expired_api_key", "invalid_api_key", "invalid_authentication", "invalid_authentication_error",
    "organization_deactivated", "service_disabled", "unauthenticated",
})  # fmt: skip
"""The error codes of that, in lower case."""
_KEY_STATUSES = frozenset({400, 401, 403, 413, 422})
_MODEL_STATUSES = frozenset({403, 404})
"""Statuses that are about the model, unless the error names another field of the request."""
THREADS = "thread_"
"""The beginning of the codes of Anthropic's API about conversations that it has kept. Clients act on them."""
_WORD = re.compile(r"[\w.\[\]-]{1,100}", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")
_LONGEST_WAIT_S = 24 * 3600.0

_HINTS = {
    301: "The address has moved: check the base URL.",
    302: "The address redirects: check the base URL.",
    307: "The address redirects: check the base URL.",
    308: "The address has moved: check the base URL.",
    401: "Check the API key.",
    402: "The account has too little credit for this request.",
    403: "Check that the key may use this model, and that the provider serves your region.",
    404: "Check the model's name and the base URL (it usually ends in /v1).",
    405: "Check the base URL (it usually ends in /v1).",
    429: "Rate limited: lower the concurrency or rate, or wait.",
}
HTML_HINT = "The response is a web page, not an API: check the base URL (it usually ends in /v1)."
_CONTEXT_HINT = "Shorten the prompt, or ask for fewer output tokens."


class ProviderError(Struct, frozen=True):
    """An error as the provider reports it. `codes` are the values of its "code", "type" and "status".

    `code` is the first of these alone, and `param` the request field that it names; "" if missing or not a word.
    """

    message: str
    codes: tuple[str, ...] = ()
    code: str = ""
    param: str = ""


def fault_from_response(
    status: int, headers: Mapping[str, str], body: bytes, *, phase: Phase = "head", now: datetime | None = None
) -> Fault:
    """Return the fault of a response with this `status` (not 200).

    A ``Retry-After`` with a date is relative to the response's own ``Date``, or to `now` (UTC; None: the wall clock) if
    it has none. Waits longer than a day are shortened to a day.
    """
    payload = _json(body)
    error = parse_error(body)
    shown = excerpt(body)
    message_text = error.message or shown or "the body is empty"
    message = f"HTTP {status}: {message_text}"
    html = body.lstrip()[:1] == b"<"
    hint = HTML_HINT if html and status < 500 else _HINTS.get(status, "")
    refused = (
        status in _KEY_STATUSES
        and error.param in ("", "api_key")
        and not _KEY_CODES.isdisjoint(map(str.lower, (*error.codes, *_reasons(payload))))
    )
    larger = status in (413, 429) and not _LIMIT_CODES.isdisjoint(error.codes)
    larger = larger and (status == 413 or _LARGER_WORDS.search(message_text) is not None)
    if refused:
        hint = _HINTS[401]
    elif larger:
        hint = _CONTEXT_HINT
    elif status in _CALLERS or error.code.startswith(THREADS) or _is_missing(status, payload, error):
        too_long = bool(_CONTEXT_CODES.intersection(error.codes) or _CONTEXT_WORDS.search(message_text))
        if too_long or status not in _CALLERS or not _KEY_WORDS.search(message_text):
            return CallerFault(
                message,
                kind="context_length_exceeded" if too_long else f"http_{status}",
                phase=phase,
                status=status,
                excerpt=shown,
                hint=_CONTEXT_HINT if too_long else hint,
                code="" if too_long else error.code,
                param=error.param,
            )
        hint = _HINTS[401]
    lowered = {name.lower(): value for name, value in headers.items()}
    wait_s = _retry_after_s(lowered, now)
    if wait_s is None:
        wait_s = _retry_delay_s(payload)
    return ProviderFault(
        message,
        kind=KEY_REFUSED if refused else LARGER_THAN_LIMIT if larger else f"http_{status}",
        phase=phase,
        status=status,
        excerpt=shown,
        hint=hint,
        retry_after_ns=None if wait_s is None else round(min(max(wait_s, 0.0), _LONGEST_WAIT_S) * NS_PER_S),
    )


def not_the_callers(fault: CallerFault, hint: str) -> ProviderFault:
    """Return `fault` as one of our account, for which another target may serve the request."""
    return ProviderFault(
        fault.message, kind=fault.kind, phase=fault.phase, status=fault.status, excerpt=fault.excerpt, hint=hint
    )


def with_hints(hints: Mapping[int, str]) -> Callable[..., Fault]:
    """Return `fault_from_response` with other `hints` for some statuses."""

    def fault_with_hint(status: int, headers: Mapping[str, str], body: bytes, *, phase: Phase = "head") -> Fault:
        fault = fault_from_response(status, headers, body, phase=phase)
        fault.hint = hints.get(status, fault.hint)
        return fault

    return fault_with_hint


def parse_error(data: bytes) -> ProviderError:
    """Return the error in `data`, which should be JSON."""
    payload = _json(data)
    return error_of(payload) if payload is not None else ProviderError(excerpt(data))


def error_of(payload: Any) -> ProviderError:
    """Return the error in JSON of any form that providers use."""
    try:
        return _find_error(payload)
    except RecursionError:
        return ProviderError("an error nested too deeply to read")


def _find_error(payload: Any) -> ProviderError:
    match payload:
        case str():
            return ProviderError(excerpt(payload))
        case [dict() as first, *_] if "msg" in first:  # FastAPI, inside "detail"
            return ProviderError(
                excerpt("; ".join(_validation_message(entry) for entry in payload if isinstance(entry, dict)))
            )
        case [first, *_]:  # Gemini wraps its error in a list
            return _find_error(first)
        case {"error": (str() | dict() | list()) as inner} if inner:
            error = _find_error(inner)
            return ProviderError(error.message, error.codes + _codes(payload), error.code, error.param)
        case {"message": str(message)} if message:
            details = payload.get("details")  # Anthropic's code of the problem is in here
            code = _word(payload, "code") or (_word(details, "error_code") if isinstance(details, dict) else "")
            return ProviderError(excerpt(message), _codes(payload), code, _word(payload, "param"))
        case {"base_resp": {"status_msg": str(message), **rest}}:
            return ProviderError(excerpt(message), tuple(excerpt(str(value)) for value in rest.values()))
        case {"detail": (str() | list()) as inner}:
            return _find_error(inner)
        case None:
            return ProviderError("")
        case _:
            return ProviderError(excerpt(json.dumps(payload, default=str)), _codes(payload))


def _codes(payload: Any) -> tuple[str, ...]:
    if not isinstance(payload, dict):
        return ()
    values = (payload.get(name) for name in ("code", "type", "status"))
    return tuple(excerpt(str(value)) for value in values if isinstance(value, str | int))


def _word(payload: dict[str, Any], name: str) -> str:
    """Return the field's value if it is a word, not a number or a sentence."""
    value = payload.get(name)
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _validation_message(entry: dict[str, Any]) -> str:
    place = entry.get("loc")
    where = ".".join(str(part) for part in place) + ": " if isinstance(place, list) else ""
    return f"{where}{entry.get('msg')}"


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _retry_after_s(headers: Mapping[str, str], now: datetime | None) -> float | None:
    milliseconds = finite_number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds * NS_PER_MS / NS_PER_S
    value = headers.get("retry-after")
    seconds = finite_number(value)
    if seconds is not None:
        return seconds
    then, since = http_date(value), http_date(headers.get("date")) or now or clock.wall_time()
    return (then - since).total_seconds() if then else None


def _retry_delay_s(payload: Any) -> float | None:
    """Return the wait in Google's RetryInfo, in the body (``"retryDelay": "34s"``)."""
    for detail in _details(payload):
        match detail:
            case {"retryDelay": str(delay)} if found := _DURATION.fullmatch(delay):
                return float(found[1])
    return None


def _reasons(payload: Any) -> list[str]:
    """Return the reasons in Google's ErrorInfo (``"reason": "API_KEY_INVALID"``)."""
    return [detail["reason"] for detail in _details(payload) if isinstance(detail.get("reason"), str)]


def error_details(body: bytes) -> list[dict[str, Any]]:
    """Return the details of an error in Google's form; empty if it has none."""
    return _details(_json(body))


def _details(payload: Any) -> list[dict[str, Any]]:
    match payload:
        case {"error": {"details": [*details]}} | [{"error": {"details": [*details]}}, *_]:
            return [detail for detail in details if isinstance(detail, dict)]
    return []


def _is_missing(status: int, payload: Any, error: ProviderError) -> bool:
    """Return whether an error's status and structured fields are about something that this one request names, and not
    about the model.

    OpenAI names the field that refers to something missing (``previous_response_id``), and OpenRouter's moderation
    quotes the input that it flagged.
    """
    if status not in _MODEL_STATUSES:
        return False
    match payload:
        case {"error": {"metadata": {"flagged_input": _}}}:
            return True
    return error.param not in ("", "model")


def finite_number(text: str | None) -> float | None:
    """Return the number in the text of a header; None if it is not a number."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def http_date(text: str | None) -> datetime | None:
    """Return the moment of a header with an HTTP date; None if it has none."""
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
