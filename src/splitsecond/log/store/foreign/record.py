"""A line of a foreign file as one call with one attempt.

Two lines are the same call if they have the same id, or without an id, the same content.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import PARSER_ERRORS
from splitsecond.core.observation import FaultRecord, Observation, Outcome
from splitsecond.log.store.call_record import CallAccounting, CallRecord
from splitsecond.log.store.foreign.columns import as_number, value_of
from splitsecond.log.store.foreign.formats import ForeignFormat

WRITES_TEXT = re.compile(
    "|a?(text_)?completion|a?responses|_aresponses_websocket|a?anthropic_messages|a?generate_content(_stream)?"
    "|a?llm_passthrough_route|pass_through_endpoint|GENERATION"
)
"""LiteLLM's types of calls in which a model writes an answer, and Langfuse's type of such an
observation."""
_YEARS = (
    datetime(2015, 1, 1, tzinfo=UTC).timestamp(),
    datetime(2100, 1, 1, tzinfo=UTC).timestamp(),
)
_LONGEST_S = 7 * 86_400
_UNITS = (1, 1_000, 1_000_000, 1_000_000_000)
_YES, _NO = {"true", "1", "yes", "t"}, {"false", "0", "no", "f", "none", "null", ""}
_GOOD, _BAD = (
    {
        "",
        "success",
        "ok",
        "succeeded",
        "completed",
        "stop",
        "length",
        "default",
        "debug",
        "warning",
    },
    {"failure", "failed", "error"},
)
ADDED_TAG = "User-Agent: "
_LEFT = {"cancelled", "canceled", "aborted"}


def record_of(
    values: Mapping[str, Any], form: ForeignFormat, provider: str = ""
) -> CallRecord | None:
    """Return the call in a line, whose times count from 0.

    None for a line without a call of a provider, such as a cache hit. `provider` replaces that of
    the line. Raises `ValueError` if the line cannot be a call.
    """
    read = {field: value_of(values, column) for field, column in form.columns.items()}
    if _flag(read, "cache_hit") or not WRITES_TEXT.fullmatch(_text(read, "call_type")):
        return None
    came_us, took_ns, first_ns = _times(read)
    output_tokens = _count(read, "output_tokens")
    outcome, fault, status = _outcome(read)
    if (
        outcome == "failed"
        and "provider" in form.columns
        and not (provider or _text(read, "provider"))
    ):
        return None  # it was refused before a provider was asked
    if outcome == "ok" and not took_ns:
        raise ValueError("its duration is 0")
    streamed = _was_streamed(read, first_ns, took_ns)
    reasoning_tokens = _count(read, "reasoning_tokens")
    call = _call_id(read, values)
    target, client = _target(read, provider, form.providers), _text(read, "client")
    ended = took_ns if outcome == "ok" else None
    if first_ns in (None, took_ns):
        first_ns = ended  # LiteLLM dates the first token of a failure to its end
    attempt = Observation(
        id=f"{call}"
        ".1", call=call, target=target, role="winner", outcome=outcome, fault=fault,
        streamed=streamed,
        sent_ns=0, first_token_ns=first_ns, first_answer_ns=first_ns, last_token_ns=ended,
        end_ns=took_ns,
        tokens_so_far=[_first_tokens(output_tokens, reasoning_tokens)] if ended else [],
        status=status,
        token_source="usage" if output_tokens else "",
        input_tokens=_count(read, "input_tokens"), output_tokens=output_tokens,
        reasoning_tokens=reasoning_tokens, cached_tokens=_count(read, "cached_tokens"),
        cache_write_tokens=_count(read, "cache_write_tokens"),
        cache_write_1h_tokens=_count(read, "cache_write_1h_tokens"),
    )  # fmt: skip
    return CallRecord(
        call=call, start_ns=0, wall_us=came_us, end_ns=took_ns, first_token_ns=first_ns,
        route=_text(read, "model"),
        client=client, stream=streamed, status=status, target=target, outcome=outcome,
        fault=fault.kind if fault else "", attempts=(attempt,), accounting=_accounting(read),
    )  # fmt: skip


def _accounting(read: Mapping[str, Any]) -> CallAccounting | None:
    """Return what the line says of cost, team and tags; None if it says nothing."""
    cost = read.get("cost_usd")
    stated_usd = None if cost is None or cost == "" else as_number(cost)
    if cost not in (None, "") and (stated_usd is None or stated_usd < 0):
        raise ValueError(f"its cost_usd is {_shown(cost)}, expected US dollars")
    team, tags = _text(read, "team"), ", ".join(_tags(read.get("tags")))
    if stated_usd is None and not team and not tags:
        return None
    return CallAccounting(team=team, tags=tags, stated_usd=stated_usd)


def _tags(value: Any) -> list[str]:
    """Return the tags in a list, a JSON list, an array of PostgreSQL, or a text with commas;
    without those that LiteLLM adds to each call."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except PARSER_ERRORS:
            value = value.strip("{}").split(",")
    tags = value if isinstance(value, list) else [] if value is None else [value]
    names = {str(each).strip(' "') for each in tags}
    return sorted(each for each in names if each and not each.startswith(ADDED_TAG))


def _call_id(read: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    content = str(read.get("id") or "") or json.dumps(values, sort_keys=True, default=str)
    return f"import-{hashlib.blake2b(content.encode(errors='replace'), digest_size=16).hexdigest()}"


def _was_streamed(read: Mapping[str, Any], first_ns: int | None, took_ns: int) -> bool:
    if first_ns is None:
        return False
    return first_ns < took_ns if read.get("streamed") in (None, "") else _flag(read, "streamed")


def _first_tokens(output_tokens: int | None, reasoning_tokens: int | None) -> int:
    """Return how many tokens had come with the first one: all of them, so that there is no TPS, if
    some were reasoning.

    Some providers stream the reasoning, others stay silent until it has ended. No file says which.
    """
    return max(output_tokens or 0, 1) if reasoning_tokens else 1


def _times(read: Mapping[str, Any]) -> tuple[int, int, int | None]:
    """Return when the call came in, in µs since 1970, its duration and its time to first token in
    ns."""
    came_s, end_s = _moment(read, "time"), _moment(read, "end_time")
    took_s = _seconds(read, "duration")
    if took_s is None:
        if came_s is None or end_s is None:
            raise ValueError("it has no duration")
        took_s = end_s - came_s
    if came_s is None:
        if end_s is None:
            raise ValueError("it has no time")
        came_s = end_s - took_s
    if not 0 <= took_s <= _LONGEST_S:
        raise ValueError(f"its duration is {took_s:g} s")
    first_s = _seconds(read, "ttft")
    if first_s is None and (at := _moment(read, "first_token_time")) is not None:
        first_s = at - came_s
    if first_s is not None and not 0 <= first_s <= took_s:
        first_s = None  # LiteLLM writes the time of an earlier attempt after a retry
    took_ns = round(took_s * NS_PER_S)
    return (
        round(came_s * 1e6),
        took_ns,
        None if first_s is None else min(round(first_s * NS_PER_S), took_ns),
    )


def _moment(read: Mapping[str, Any], field: str) -> float | None:
    """Return a time in seconds since 1970. A time without an offset is UTC."""
    value = read.get(field)
    if value is None or value == "":
        return None
    number = as_number(value)
    if number is not None:
        seconds = next(
            (number / unit for unit in _UNITS if _YEARS[0] <= number / unit < _YEARS[1]), None
        )
    else:
        try:
            parsed = datetime.fromisoformat(str(value).strip().removesuffix(" UTC"))
        except ValueError:
            parsed = None
        seconds = (
            None
            if parsed is None
            else (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
        )
    if seconds is None or not _YEARS[0] <= seconds < _YEARS[1]:
        raise ValueError(
            f"its {field} is {_shown(value)}, expected ISO 8601 or a number since 1970"
        )
    return seconds


def _seconds(read: Mapping[str, Any], name: str) -> float | None:
    for field, unit in ((f"{name}_s", 1.0), (f"{name}_ms", 1e-3)):
        value = read.get(field)
        if value is not None and value != "":
            number = as_number(value)
            if number is None or number < 0:
                raise ValueError(f"its {field} is {_shown(value)}, expected a number")
            return number * unit
    return None


def _count(read: Mapping[str, Any], field: str) -> int | None:
    value = read.get(field)
    if value is None or value == "":
        return None
    number = as_number(value)
    if number is None or number < 0 or number != int(number):
        raise ValueError(f"its {field} is {_shown(value)}, expected a whole number")
    return int(number)


def _flag(read: Mapping[str, Any], field: str) -> bool:
    text = str(read.get(field, "")).strip().lower()
    if text not in _YES | _NO:
        raise ValueError(f"its {field} is {_shown(text)}, expected true or false")
    return text in _YES


def _outcome(read: Mapping[str, Any]) -> tuple[Outcome, FaultRecord | None, int]:
    text = _text(read, "status").lower()
    if _flag(read, "cancelled") or text in _LEFT:
        return "cancelled", None, 200
    status = _http_status(text)
    if text in _GOOD or 200 <= status < 300:
        return "ok", None, status or 200
    if text in _BAD or status:
        status = status or _http_status(_text(read, "error_status"))
        kind = f"http_{status}" if status else "failed"
        return (
            "failed",
            FaultRecord(type="ProviderFault", kind=kind, phase="", message="", status=status),
            status,
        )
    raise ValueError(f"its status is {_shown(text)}, expected success, failure or an HTTP status")


def _http_status(text: str) -> int:
    """Return an HTTP status; 0 for anything else."""
    return int(text) if re.fullmatch("[1-5][0-9][0-9]", text) else 0


def _target(read: Mapping[str, Any], provider: str, names: Mapping[str, str]) -> str:
    model = _text(read, "model")
    if not model:
        raise ValueError("it has no model")
    given_provider = _text(read, "provider")
    if provider or given_provider:
        name = provider or re.sub(r"[\s_]+", "-", given_provider.lower())
        return f"{names.get(name, name)}/{model.removeprefix(f'{given_provider}/')}"
    return model if "/" in model else f"unknown/{model}"


def _text(read: Mapping[str, Any], field: str) -> str:
    value = read.get(field)
    return "" if value is None else str(value).strip()


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else f"{text[:40]}…")
