"""Errors of providers: any status and body, or an error inside a stream, to one fault.

The status decides who is at fault: the caller for those that every provider would refuse (400, 413,
422); for the others (our key, our model name, the provider's limits and failures) another target
may serve the request. `RULES` is the table of the errors that mean something else than their
status. Only the error's structured fields, or a message of a provider that is known from its first
to its last word, can have consequences for other requests: any other part of a message may quote
the request, so a client can put any text there.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from splitsecond.core import clock
from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import (
    CONTEXT_EXCEEDED,
    KEY_REFUSED,
    LARGER_THAN_LIMIT,
    MODEL_NOT_SERVED,
    NO_CREDIT,
    USAGE_LIMIT,
    CallerFault,
    Fault,
    Phase,
    ProviderFault,
    excerpt,
)

IN_BAND = 200
"""Status of an error inside a stream, or in the place of an answer."""
_CALLERS = frozenset({400, 413, 422})
_IN_RULES = frozenset({400, 413, 422, IN_BAND})
_KEY_STATUSES = frozenset({400, 401, 403, 413, 422, IN_BAND})
_CREDIT_STATUSES = frozenset({400, 403, 429, IN_BAND})
_MODEL_STATUSES = frozenset({403, 404})
"""Statuses that are about the model, unless the error names another field of the request."""
_MODEL_RULE = frozenset({400, 410, 422, IN_BAND})
"""Statuses with which some providers say that they do not have a model, beside 404."""
THREADS = "thread_"
"""The beginning of Anthropic's codes about kept conversations, on which clients act."""
_WORD = re.compile(r"[\w.\[\]-]{1,100}", re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s")
_DAY_S = 24 * 3600.0
_LONGEST_WAIT_S = _DAY_S

_HINTS = {
    **dict.fromkeys((301, 308), "The address has moved: check the base URL."),
    **dict.fromkeys((302, 307), "The address redirects: check the base URL."),
    401: "Check the API key.",
    402: "The account has too little credit for this request.",
    403: "Check that the key may use this model, and that the provider serves your region.",
    404: "Check the model's name and the base URL (it usually ends in /v1).",
    405: "Check the base URL (it usually ends in /v1).",
    429: "Rate limited: lower the concurrency or rate, or wait.",
}
_NO_HINTS: Mapping[int, str] = {}
HTML_HINT = "The response is a web page, not an API: check the base URL (it usually ends in /v1)."
_DAY_HINT = "The daily quota is used up; Google resets it at midnight Pacific time."
_CONTEXT_HINT = "Shorten the prompt, or ask for fewer output tokens."
_RULE_HINTS = {
    CONTEXT_EXCEEDED: _CONTEXT_HINT,
    LARGER_THAN_LIMIT: _CONTEXT_HINT,
    KEY_REFUSED: _HINTS[401],
    NO_CREDIT: "The account has no credit or quota left: check its plan and billing.",
    USAGE_LIMIT: "The account has reached its own spending limit: check "
    "its billing and its limits.",
    MODEL_NOT_SERVED: "The provider does not serve this model: check the model's name.",
}
_OF_ONE_REQUEST = frozenset({CONTEXT_EXCEEDED, LARGER_THAN_LIMIT})
_FIELDS: Mapping[str, tuple[str, ...]] = {
    KEY_REFUSED: ("", "api_key"),
    MODEL_NOT_SERVED: ("", "model"),
}
"""The request fields that an error of a kind may name; about another field it is another error."""


class Rule(Struct, frozen=True):
    """The `kind` of errors with one of `statuses` that match in one of three ways.

    `codes`: values of the error's structured fields, in lower case. `sentence`: all of the message.
    `words`: a part of the message; then a kind with consequences for other requests is replaced by
    that of the status, and the request is sent to another target. `hint`: what to try, if it is not
    that of the kind. Patterns ignore case, and are compiled when an error is first compared.
    """

    kind: str
    statuses: frozenset[int]
    codes: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    sentence: str = ""
    hint: str = ""

    def matches(self, status: int, error: "ProviderError") -> bool:
        """Return whether `error` is of this kind for certain."""
        if status not in self.statuses:
            return False
        if error.param not in _FIELDS.get(self.kind, (error.param,)):
            return False
        if not self.codes.isdisjoint(map(str.lower, error.codes)):
            return True
        return self.sentence_in(error) is not None

    def sentence_in(self, error: "ProviderError") -> re.Match[str] | None:
        return re.fullmatch(self.sentence, error.message, re.IGNORECASE) if self.sentence else None

    def resembles(self, status: int, error: "ProviderError") -> bool:
        """Return whether the message of `error` has the words of this kind."""
        if status not in self.statuses or (status == IN_BAND and self.kind not in _OF_ONE_REQUEST):
            return False
        return any(re.search(words, error.message, re.IGNORECASE) for words in self.words)


def _codes_of(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


RULES: tuple[Rule, ...] = (
    # Our key, or our account as a whole.
    Rule(
        KEY_REFUSED,
        _KEY_STATUSES,
        _codes_of(
            # OpenAI, and those that copy its codes
            "account_deactivated account_disabled account_suspended api_key_expired",
            "billing_not_active expired_api_key invalid_api_key organization_deactivated",
            # Google: reasons of its ErrorInfo, also with 400
            "api_key_invalid api_key_service_blocked billing_disabled consumer_suspended",
            "service_disabled unauthenticated",
            "authentication_error",  # Anthropic
            "invalid_authentication invalid_authentication_error",  # Moonshot
        ),
    ),
    Rule(  # Anthropic, as 400
        KEY_REFUSED,
        _KEY_STATUSES,
        words=("organization has been disabled",),
        sentence=r"This organization has been disabled\.",
        hint="Anthropic does not serve this account: check the API key and the account's billing.",
    ),
    Rule(
        NO_CREDIT,
        _CREDIT_STATUSES,
        _codes_of(
            "insufficient_quota",  # OpenAI, as 429
            "exceeded_current_quota_error",  # Moonshot, as 429
            "1113",  # Z.ai, as 429, on its OpenAI and Anthropic addresses
            "insufficient_user_quota",  # New API and One API (relays), as 403
        ),
        words=("credit balance",),  # Anthropic, as 400
        sentence=r"Your credit balance is too low to access the (Anthropic|Claude) API\."
        r"( Please go to Plans & Billing to upgrade or purchase credits\.)?",
    ),
    Rule(  # Anthropic, as 400
        USAGE_LIMIT,
        _IN_RULES,
        words=("API usage limits",),
        sentence=r"You have reached your specified (workspace )?API usage limits\. You will regain "
        r"access on (?P<date>\d{4}-\d\d-\d\d) at (?P<time>\d\d:\d\d) UTC\.",
    ),
    # The size of this request.
    Rule(  # Groq: above the tokens per minute of the account
        LARGER_THAN_LIMIT,
        frozenset({413}),
        _codes_of("rate_limit_error rate_limit_exceeded tokens"),
        words=("tokens per (minute|day)",),
    ),
    Rule(LARGER_THAN_LIMIT, frozenset({429, IN_BAND}), words=("request too large",)),  # OpenAI
    Rule(
        CONTEXT_EXCEEDED,
        _IN_RULES,
        _codes_of(
            "context_length_exceeded",  # OpenAI, Azure, Groq, vLLM, SGLang
            "exceed_context_size_error",  # llama.cpp
            "request_too_large",  # Anthropic, for more than 32 MB
            "tokens_limit_reached",  # GitHub Models
            "model_max_prompt_tokens_exceeded",  # GitHub Copilot
            "1261",  # Z.ai
        ),
        words=(
            "(prompt|input) is too long",  # Anthropic, Bedrock
            r"token count of \d+ exceeds the limit",  # GitHub Copilot
            # OpenAI, OpenRouter, Together, Mistral, vLLM, SGLang, LM Studio, MiniMax, llama.cpp,
            # Anthropic
            "context (length|window|size|limit)",
            "input token count .*exceeds",  # Google
            "too many tokens",  # Cohere
            "maximum prompt length",  # xAI
            "exceeded model token limit",  # Moonshot
            "maximum (allowed )?input length",  # Poolside
            "reduce the length of the messages",  # Groq
            "range of input length should be",  # Alibaba (DashScope)
            "prompt exceeds max length",  # Z.ai
            r"`inputs` (tokens \+ `max_new_tokens` )?must (be|have)",  # TGI
        ),
    ),
    Rule(  # Ollama
        CONTEXT_EXCEEDED,
        frozenset({400, 500, IN_BAND}),
        words=("prompt too long|exceeds the context length",),
    ),
    # The model. As 403 and 404 it needs no rule.
    Rule(
        MODEL_NOT_SERVED,
        _MODEL_RULE,
        _codes_of(
            "model_not_found",  # OpenAI, DashScope, Hugging Face: also as 400
            "model_decommissioned",  # Groq, as 400
            "model_not_available",  # Together, as 400
            "invalid_model",  # Mistral, Perplexity: the type, as 400
            "model_not_supported",  # GitHub Copilot, Hugging Face
            "modeldeprecated deploymentnotfound",  # Azure, as 410
            "1211",  # Z.ai, as 400
        ),
        words=(
            r"\bmodel ([`'\"]?\S{1,200} )?(does not exist|not exist|was not found|not found|"
            r"is not supported|has been (decommissioned|deprecated|retired)|"
            r"is (deprecated|no longer (available|supported)))",
            "decommissioned",  # Groq
            "^unknown model",  # Z.ai
            "is not a valid model ID",  # OpenRouter, as 400
        ),
    ),
    # The account, without consequences for other requests.
    Rule(  # Google: a region that is not served, no billing, or a file that is being processed
        "",
        _IN_RULES,
        _codes_of("failed_precondition"),
        hint="Google does not serve this account in this region: check its region and billing.",
    ),
    Rule(KEY_REFUSED, _IN_RULES, words=("api[ _]key",)),  # xAI, as 400 without a code
)
"""The first rule that matches decides; certain matches come before resemblances."""


class ProviderError(Struct, frozen=True):
    """An error as the provider reports it. `codes`: the values of its "code", "type" and "status",
    and of the reasons in Google's details.

    `code` is the first of these alone, and `param` the request field that it names; "" if missing
    or not a word.
    """

    message: str
    codes: tuple[str, ...] = ()
    code: str = ""
    param: str = ""


def fault_from_response(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    phase: Phase = "head",
    now: datetime | None = None,
    hints: Mapping[int, str] = _NO_HINTS,
) -> Fault:
    """Return the fault of a response with this `status` (not 200). `hints`: those of the API
    format, by status.

    A ``Retry-After`` with a date is relative to the response's ``Date``, or else to `now` (UTC;
    None: the wall clock). Waits are at most a day.
    """
    payload = _json(body)
    error, text = _error_in(payload, body), excerpt(body)
    message = f"HTTP {status}: {error.message or text or 'the body is empty'}"
    rule, kind = _rule_of(status, error)
    hint = hints.get(status, _hint(rule, status, body))
    common: dict[str, Any] = {"kind": kind or f"http_{status}", "phase": phase, "excerpt": text}
    too_long = kind == CONTEXT_EXCEEDED
    if too_long or (rule is None and _is_callers(status, payload, error)):
        code = "" if too_long else error.code
        status = status if status < 500 else 400
        return CallerFault(
            message, **common, status=status, hint=hint, code=code, param=error.param
        )
    wait_s = _until_access_s(rule, error, now) if kind == USAGE_LIMIT else None
    if wait_s is None and _is_daily(payload):
        hint, wait_s = _DAY_HINT, _DAY_S
    if wait_s is None:
        wait_s = _requested_wait_s(headers, payload, now)
    wait_ns = None if wait_s is None else round(min(max(wait_s, 0.0), _LONGEST_WAIT_S) * NS_PER_S)
    return ProviderFault(message, **common, status=status, hint=hint, retry_after_ns=wait_ns)


def in_band_fault(error: ProviderError, data: bytes, *, phase: Phase) -> Fault:
    """Return the fault of an `error` inside a stream, or in the place of an answer. `data`: as it
    arrived.

    Before the first token it means the same as with a status of its own. Later it breaks the
    answer.
    """
    words = error.message or ", ".join(error.codes) or "no message"
    message = f"the provider put an error inside a 200: {words}"
    kind = _rule_of(IN_BAND, error)[1] if phase == "first token" else ""
    details: dict[str, Any] = {"phase": phase, "excerpt": excerpt(data)}
    details |= {"kind": kind, "hint": _RULE_HINTS[kind]} if kind else {"kind": "in_band_error"}
    if kind == CONTEXT_EXCEEDED:
        return CallerFault(message, **details, param=error.param)
    return ProviderFault(message, **details, status=IN_BAND)


def _rule_of(status: int, error: ProviderError) -> tuple[Rule | None, str]:
    """Return the rule for `error`, and the kind of its fault: "" for that of the status."""
    rule = next((each for each in RULES if each.matches(status, error)), None)
    if rule is not None:
        return rule, rule.kind
    rule = next((each for each in RULES if each.resembles(status, error)), None)
    return rule, rule.kind if rule is not None and rule.kind in _OF_ONE_REQUEST else ""


def _hint(rule: Rule | None, status: int, body: bytes) -> str:
    if rule is not None:
        return rule.hint or _RULE_HINTS[rule.kind]
    html = body.lstrip()[:1] == b"<"
    return HTML_HINT if html and status < 500 else _HINTS.get(status, "")


def _is_callers(status: int, payload: Any, error: ProviderError) -> bool:
    """Return whether an error without a rule is the caller's."""
    return (
        status in _CALLERS or error.code.startswith(THREADS) or _is_missing(status, payload, error)
    )


def _until_access_s(rule: Rule | None, error: ProviderError, now: datetime | None) -> float | None:
    """Return the seconds until the moment that the message names; None if it names none."""
    match = rule.sentence_in(error) if rule else None
    try:
        until = match and datetime.fromisoformat(f"{match['date']}T{match['time']}+00:00")
    except ValueError:
        return None
    return (until - (now or clock.wall_time())).total_seconds() if until else None


def address_hints(address: str, model: str = "Check the model's name") -> Mapping[int, str]:
    """Return the hints of a format for a wrong model or base URL; `address`: the usual one."""
    return {404: f"{model}, and the base URL ({address}).", 405: f"Check the base URL ({address})."}


def parse_error(data: bytes) -> ProviderError:
    return _error_in(_json(data), data)


def _error_in(payload: Any, data: bytes) -> ProviderError:
    """Return the error in `payload`, the JSON of `data`; None: `data` is no JSON, but a text."""
    return error_of(payload) if payload is not None else ProviderError(excerpt(data))


def error_of(payload: Any) -> ProviderError:
    try:
        return _find_error(payload)
    except RecursionError:
        return ProviderError("an error nested too deeply to read")


def _find_error(payload: Any) -> ProviderError:
    match payload:
        case str():
            return ProviderError(excerpt(payload))
        case [dict() as first, *_] if "msg" in first:  # FastAPI, inside "detail"
            entries = (each for each in payload if isinstance(each, dict))
            return ProviderError(excerpt("; ".join(map(_validation_message, entries))))
        case [first, *_]:  # Gemini wraps its error in a list
            return _find_error(first)
        case {"error": (str() | dict() | list()) as inner} if inner:
            error = _find_error(inner)
            return replace(error, codes=error.codes + _codes(payload))
        case {"message": str(message)} if message:
            return _error_with_message(message, payload)
        case {"base_resp": {"status_msg": str(message), **rest}}:
            return ProviderError(excerpt(message), tuple(map(_code, rest.values())))
        case {"detail": (str() | list()) as inner}:
            return _find_error(inner)
        case None:
            return ProviderError("")
        case _:
            return ProviderError(excerpt(json.dumps(payload, default=str)), _codes(payload))


def _error_with_message(message: str, fields: dict[str, Any]) -> ProviderError:
    code = _word(fields, "code")
    match fields.get("details"):
        case dict() as details if not code:  # Anthropic's code of the problem is in here
            code = _word(details, "error_code")
    match fields.get("metadata"):
        case {"raw": str(raw)} if raw:  # OpenRouter quotes what its own provider said
            message = f"{message}: {parse_error(raw.encode(errors='replace')).message}"
    return ProviderError(excerpt(message), _codes(fields), code, _word(fields, "param"))


def _codes(payload: Any) -> tuple[str, ...]:
    if not isinstance(payload, dict):
        return ()
    values = [payload.get(name) for name in ("code", "type", "status")]
    details = payload.get("details")
    if isinstance(details, list):  # the reasons of Google's ErrorInfo
        values += [each.get("reason") for each in details if isinstance(each, dict)]
    return tuple(_code(value) for value in values if isinstance(value, str | int))


def _code(value: Any) -> str:
    return excerpt(str(value))


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


def _requested_wait_s(
    headers: Mapping[str, str], payload: Any, now: datetime | None
) -> float | None:
    wait_s = _retry_after_s({name.lower(): value for name, value in headers.items()}, now)
    return _retry_delay_s(payload) if wait_s is None else wait_s


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
            case {"retryDelay": str(delay)} if duration := _DURATION.fullmatch(delay):
                return float(duration[1])
    return None


def _is_daily(payload: Any) -> bool:
    """Return whether Google's QuotaFailure says that a quota for the day is used up: the wait of
    some seconds beside it is useless."""
    violations = (detail.get("violations") for detail in _details(payload))
    return any(
        isinstance(each, dict) and "PerDay" in str(each.get("quotaId"))
        for match in violations
        if isinstance(match, list)
        for each in match
    )


def _details(payload: Any) -> list[dict[str, Any]]:
    match payload:
        case {"error": {"details": [*details]}} | [{"error": {"details": [*details]}}, *_]:
            return [detail for detail in details if isinstance(detail, dict)]
    return []


def _is_missing(status: int, payload: Any, error: ProviderError) -> bool:
    """Return whether an error's status and structured fields are about something that this one
    request names, and not about the model: OpenAI names a field (``previous_response_id``),
    OpenRouter's moderation quotes the input that it flagged."""
    if status not in _MODEL_STATUSES:
        return False
    match payload:
        case {"error": {"metadata": {"flagged_input": _}}}:
            return True
    return error.param not in ("", "model")


def finite_number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def http_date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
