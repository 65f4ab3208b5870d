"""What a provider says when it refuses: any status, any body, to one fault.

The status decides whose fault it is: the caller's are those that every provider would refuse (400, 413, 422); the rest
(our key, our model name, the provider's limits and troubles) another target may still serve. The body decides the
words, in any of the forms seen in the wild, and in two cases more than the words: a prompt too long for the model, and
a bad key reported as 400 (Gemini, xAI).
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct

from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.errors import CallerFault, Fault, Phase, ProviderFault, excerpt

_CALLERS = frozenset({400, 413, 422})
_CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_CONTEXT_WORDS = re.compile(
    r"context (length|window|size|limit)|(prompt|input) is too long|too many tokens|input token count .*exceeds",
    re.IGNORECASE,
)
_KEY_WORDS = re.compile(r"api[ _]key", re.IGNORECASE)
_WORD = re.compile(r"[\w.\[\]-]{1,100}", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")
_LONGEST_WAIT_S = 24 * 3600.0

_HINTS = {
    301: "The address has moved: check the base URL.",
    302: "The address redirects: check the base URL.",
    307: "The address redirects: check the base URL.",
    308: "The address has moved: check the base URL.",
    401: "Check the API key.",
    402: "The account has no credit left.",
    403: "Check that the key may use this model, and that the provider serves your region.",
    404: "Check the model's name and the base URL (it usually ends in /v1).",
    405: "Check the base URL (it usually ends in /v1).",
    429: "Rate limited: lower the concurrency or rate, or wait.",
}
HTML_HINT = "That is a web page, not an API: check the base URL (it usually ends in /v1)."
_CONTEXT_HINT = "Shorten the prompt, or ask for fewer output tokens."


class Said(Struct, frozen=True):
    """An error in the provider's words. `codes` holds what it calls the error, under "code", "type" or "status".

    `code` is the first of these alone, and `param` the request's field that it names; "" where it says no such word.
    """

    message: str
    codes: tuple[str, ...] = ()
    code: str = ""
    param: str = ""


def fault_from_response(
    status: int, headers: Mapping[str, str], body: bytes, *, phase: Phase = "head", now: datetime | None = None
) -> Fault:
    """The fault that a response with this `status` (not 200), these `headers` and this `body` amounts to.

    A ``Retry-After`` that is a date is counted from the response's own ``Date``, or from `now` (wall clock, UTC) where
    it has none. Waits longer than a day count as a day.
    """
    payload = _json(body)
    said = said_in(body)
    shown = excerpt(body)
    words = said.message or shown or "the body is empty"
    message = f"HTTP {status}: {words}"
    html = body.lstrip()[:1] == b"<"
    hint = HTML_HINT if html and status < 500 else _HINTS.get(status, "")
    if status in _CALLERS:
        too_long = bool(_CONTEXT_CODES.intersection(said.codes) or _CONTEXT_WORDS.search(words))
        if too_long or not _KEY_WORDS.search(words):
            return CallerFault(
                message,
                kind="context_length_exceeded" if too_long else f"http_{status}",
                phase=phase,
                status=status,
                excerpt=shown,
                hint=_CONTEXT_HINT if too_long else hint,
                code="" if too_long else said.code,
                param=said.param,
            )
        hint = _HINTS[401]
    lowered = {name.lower(): value for name, value in headers.items()}
    wait_s = _retry_after_s(lowered, now)
    if wait_s is None:
        wait_s = _retry_delay_s(payload)
    return ProviderFault(
        message,
        kind=f"http_{status}",
        phase=phase,
        status=status,
        excerpt=shown,
        hint=hint,
        retry_after_ns=None if wait_s is None else round(min(max(wait_s, 0.0), _LONGEST_WAIT_S) * NS_PER_S),
    )


def said_in(data: bytes) -> Said:
    """The words of an error in `data`, which should be JSON."""
    payload = _json(data)
    return error_said(payload) if payload is not None else Said(excerpt(data))


def error_said(payload: Any) -> Said:
    """The words of an error, out of whatever JSON a provider sends for one."""
    try:
        return _find_words(payload)
    except RecursionError:
        return Said("an error nested too deeply to read")


def _find_words(payload: Any) -> Said:
    match payload:
        case str():
            return Said(excerpt(payload))
        case [dict() as first, *_] if "msg" in first:  # FastAPI, inside "detail"
            return Said(excerpt("; ".join(_validation_said(entry) for entry in payload if isinstance(entry, dict))))
        case [first, *_]:  # Gemini wraps its error in a list
            return _find_words(first)
        case {"error": (str() | dict() | list()) as inner} if inner:
            said = _find_words(inner)
            return Said(said.message, said.codes + _codes(payload), said.code, said.param)
        case {"message": str(message)} if message:
            return Said(excerpt(message), _codes(payload), _word(payload, "code"), _word(payload, "param"))
        case {"base_resp": {"status_msg": str(message), **rest}}:
            return Said(excerpt(message), tuple(str(value) for value in rest.values()))
        case {"detail": (str() | list()) as inner}:
            return _find_words(inner)
        case None:
            return Said("")
        case _:
            return Said(excerpt(json.dumps(payload, default=str)), _codes(payload))


def _codes(payload: Any) -> tuple[str, ...]:
    if not isinstance(payload, dict):
        return ()
    return tuple(str(payload[name]) for name in ("code", "type", "status") if isinstance(payload.get(name), str | int))


def _word(payload: dict[str, Any], name: str) -> str:
    """What stands there, where it is a word and not a status or a sentence."""
    value = payload.get(name)
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _validation_said(entry: dict[str, Any]) -> str:
    place = entry.get("loc")
    where = ".".join(str(part) for part in place) + ": " if isinstance(place, list) else ""
    return f"{where}{entry.get('msg')}"


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _retry_after_s(headers: Mapping[str, str], now: datetime | None) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds * NS_PER_MS / NS_PER_S
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    then, since = http_date(value), http_date(headers.get("date")) or now
    return (then - since).total_seconds() if then and since else None


def _retry_delay_s(payload: Any) -> float | None:
    """Google's RetryInfo, which stands in the body (``"retryDelay": "34s"``)."""
    match payload:
        case {"error": {"details": [*details]}} | [{"error": {"details": [*details]}}, *_]:
            for detail in details:
                match detail:
                    case {"retryDelay": str(delay)} if found := _DURATION.fullmatch(delay):
                        return float(found[1])
    return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def http_date(text: str | None) -> datetime | None:
    """The moment that a header names, as HTTP writes it; None where there is none."""
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
