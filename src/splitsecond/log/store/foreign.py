"""Logs of other programs as calls of ours: LiteLLM's spend log, OpenRouter's activity, any CSV, JSON and Parquet.

A file is read line by line, so its size does not matter. A line is turned into one call with one attempt. Two lines are
the same call if they have the same id, or without an id, the same content.

LiteLLM writes the table LiteLLM_SpendLogs (docs.litellm.ai, spend tracking), and gives StandardLoggingPayloads to its
callbacks. OpenRouter's file is the CSV of single generations; `generation_time_ms` is the whole time of a request from
`created_at`, the wait included: in public files, the next call of an agent begins right after it.

Langfuse's observations come from its API, or as an export of its web pages. Only generations are calls.

A column is named as in the file. `a.b` is the field `b` of a JSON object in the column `a`, `a|b` the first of two
columns that has a value, `a+b` their sum if `a` has one.
"""

import csv
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Set
from datetime import UTC, datetime
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from msgspec import Struct

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.compressed_file import open_bytes
from splitsecond.core.errors import PARSER_ERRORS, CallerFault, parser_words
from splitsecond.core.json_array import ArrayElements, ArrayError, check_encodable
from splitsecond.core.observation import FaultRecord, Observation, Outcome
from splitsecond.core.validation import nearest
from splitsecond.log.store.call_record import CallRecord

FIELDS = {
    "id": "id of the request",
    "time": "when it came in: ISO 8601 or seconds, ms, µs or ns since 1970",
    "end_time": "when its answer ended",
    "first_token_time": "when its first token came",
    "duration_s": "its whole time in seconds",
    "duration_ms": "its whole time in ms",
    "ttft_s": "its time to first token in seconds",
    "ttft_ms": "its time to first token in ms",
    "model": "name of the model",
    "provider": "name of the provider",
    "client": "name of the key or user",
    "input_tokens": "tokens of the prompt",
    "output_tokens": "tokens of the answer",
    "reasoning_tokens": "tokens of the answer that were reasoning",
    "cached_tokens": "tokens of the prompt from the provider's cache",
    "cache_write_tokens": "tokens of the prompt written to it",
    "cache_write_1h_tokens": "of these, tokens written for an hour",
    "status": "success, failure or an HTTP status",
    "error_status": "HTTP status of a failure",
    "streamed": "whether the answer was a stream",
    "cancelled": "whether the client left",
    "cache_hit": "whether it was answered without a provider",
}
"""What a column can be, for `--map`."""


def _usage(*paths: str) -> str:
    """Return the columns of a field of LiteLLM's usage: newer rows have it in one object, older ones in another."""
    objects = ("metadata.usage_object", "metadata.additional_usage_values")
    return "|".join(f"{each}.{path}" for each in objects for path in paths)


LITELLM = {
    "id": "request_id|id", "time": "startTime", "end_time": "endTime", "first_token_time": "completionStartTime",
    "model": "model", "provider": "custom_llm_provider",
    "client": "metadata.user_api_key_alias|user|metadata.user_api_key_user_id", "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "reasoning_tokens": _usage("completion_tokens_details.reasoning_tokens"),
    "cached_tokens": _usage("prompt_tokens_details.cached_tokens", "cache_read_input_tokens"),
    "cache_write_tokens": _usage("prompt_tokens_details.cache_creation_tokens", "cache_creation_input_tokens"),
    "cache_write_1h_tokens": _usage(
        "prompt_tokens_details.cache_creation_token_details.ephemeral_1h_input_tokens",
        "cache_creation.ephemeral_1h_input_tokens",
    ),
    "status": "status", "error_status": "metadata.error_information.error_code|error_information.error_code",
    "streamed": "stream", "cache_hit": "cache_hit", "call_type": "call_type",
}  # fmt: skip
LANGFUSE = {
    "id": "id", "time": "startTime", "end_time": "endTime", "first_token_time": "completionStartTime",
    "ttft_s": "timeToFirstToken", "model": "model|providedModelName", "client": "userId",
    # `usageDetails.input` is what is left when the other kinds of input are taken away.
    "input_tokens": "usageDetails.input+usageDetails.input_cached_tokens+usageDetails.cache_read_input_tokens"
    "+usageDetails.cache_creation_input_tokens|usage.input|promptTokens|inputTokens",
    "output_tokens": "usageDetails.output+usageDetails.output_reasoning_tokens"
    "|usage.output|completionTokens|outputTokens",
    "reasoning_tokens": "usageDetails.output_reasoning_tokens",
    "cached_tokens": "usageDetails.input_cached_tokens|usageDetails.cache_read_input_tokens",
    "cache_write_tokens": "usageDetails.cache_creation_input_tokens", "status": "level", "call_type": "type",
}  # fmt: skip
OPENROUTER = {
    "id": "generation_id", "time": "created_at", "duration_ms": "generation_time_ms",
    "ttft_ms": "time_to_first_token_ms", "model": "model_permaslug", "provider": "provider_name",
    "client": "api_key_name", "input_tokens": "tokens_prompt", "output_tokens": "tokens_completion",
    "reasoning_tokens": "tokens_reasoning", "cached_tokens": "tokens_cached", "streamed": "streamed",
    "cancelled": "cancelled",
}  # fmt: skip
KNOWN: tuple[tuple[str, dict[str, str], set[str], dict[str, str]], ...] = (
    ("LiteLLM's spend log", LITELLM, {"startTime", "endTime", "completion_tokens"}, {}),
    ("Langfuse's observations", LANGFUSE, {"traceId", "startTime", "endTime"}, {}),
    (
        "OpenRouter's activity",
        OPENROUTER,
        {"created_at", "model_permaslug", "generation_time_ms"},
        {"google": "vertex"},  # Gemini's own API is "Google AI Studio" there
    ),
)
"""Formats: title, columns by field, the columns by which it is recognised, and names of providers of its own."""
SUMMARIES = (
    (
        {"Date", "Slug", "Requests", "Completion Tokens"},
        "this is OpenRouter's summary by day, which has no times of requests",
        "Export the list of generations, whose file is named openrouter_activity_DATE.csv.",
    ),
)
"""Files without single calls: the columns by which they are recognised, why they cannot be imported, and a hint."""
WRITES_TEXT = re.compile(
    "|a?(text_)?completion|a?responses|_aresponses_websocket|a?anthropic_messages|a?generate_content(_stream)?"
    "|a?llm_passthrough_route|pass_through_endpoint|GENERATION"
)
"""LiteLLM's types of calls in which a model writes an answer, and Langfuse's type of such an observation."""
PROVIDERS = {
    "vertex-ai": "vertex", "google-vertex": "vertex", "google-ai-studio": "gemini", "fireworks-ai": "fireworks",
    "together-ai": "together", "azure-ai": "azure", "amazon-bedrock": "bedrock", "hosted-vllm": "vllm",
    "moonshot-ai": "moonshot", "z.ai": "zai", "alibaba": "qwen",
}  # fmt: skip
"""Providers whose name in other programs differs from ours."""
MAX_CHARACTERS = 16 << 20
"""Longest line, or field of a CSV file."""
_BLOCK = 1 << 16
_MAX = 1 << 62
_YEARS = (datetime(2015, 1, 1, tzinfo=UTC).timestamp(), datetime(2100, 1, 1, tzinfo=UTC).timestamp())
_LONGEST_S = 7 * 86_400
_UNITS = (1, 1_000, 1_000_000, 1_000_000_000)
_YES, _NO = {"true", "1", "yes", "t"}, {"false", "0", "no", "f", "none", "null", ""}
_GOOD, _BAD = (
    {"", "success", "ok", "succeeded", "completed", "stop", "length", "default", "debug", "warning"},
    {"failure", "failed", "error"},
)
_LEFT = {"cancelled", "canceled", "aborted"}

NumberedLine = tuple[int, Mapping[str, Any] | str]
"""A line: its number, and its values by column, or why it cannot be read."""


class ForeignFormat(Struct, frozen=True):
    """How to read a file: the column of each field, the columns that are left out, and our names of providers."""

    title: str
    columns: Mapping[str, str]
    ignored: list[str]
    providers: Mapping[str, str]


def parse_map(given: str) -> dict[str, str]:
    """Return the columns by field, from "field=column,field=column". Raises `CallerFault` for an unknown field."""
    found = {}
    for part in filter(None, given.split(",")):
        field, equals, column = (each.strip() for each in part.partition("="))
        if not equals or not column:
            raise _bad(f"--map: got {part!r}, expected field=column")
        if field not in FIELDS:
            raise _bad(f"--map: unknown field {field!r}", nearest(field, FIELDS) or f"Fields: {', '.join(FIELDS)}.")
        found[field] = column
    return found


def format_of(columns: list[str], mapped: Mapping[str, str]) -> ForeignFormat:
    """Return how to read a file with these columns: a known format, or columns with the names of our fields.

    `mapped` adds to it. Raises `CallerFault` if a column is missing, with those that the file has.
    """
    for recognised_by, why, hint in SUMMARIES:
        if recognised_by <= set(columns):
            raise _bad(why, hint)
    title, known, names = next(
        ((title, known, names) for title, known, needs, names in KNOWN if needs <= set(columns)),
        ("a table", dict.fromkeys(FIELDS, ""), {}),
    )
    found = {field: column or field for field, column in known.items() if _heads(column or field) & {*columns}}
    found |= mapped
    there = f"the file's columns are {', '.join(columns)}"
    if missing := [column for column in mapped.values() if not _heads(column) & {*columns}]:
        raise _bad(f"--map: no column {missing[0]!r}; {there}", nearest(missing[0], columns))
    if lacking := _lacking(found.keys()):
        raise _bad(f"no column is known to be {lacking}; {there}", "Name it with --map field=column,field=column.")
    used = set().union(*map(_heads, found.values()))
    return ForeignFormat(title, found, [column for column in columns if column not in used], PROVIDERS | names)


_NEEDED: Mapping[str, tuple[set[str], ...]] = {
    "model": ({"model"},),
    "time": ({"time"}, {"end_time"}),
    "duration_s, duration_ms or both time and end_time": ({"duration_s"}, {"duration_ms"}, {"time", "end_time"}),
}
"""What a file needs, by name: all fields of at least one of the sets."""


def _lacking(fields: Set[str]) -> str:
    return next((name for name, sets in _NEEDED.items() if not any(each <= fields for each in sets)), "")


def _heads(column: str) -> set[str]:
    """Return the columns of a file that `column` can be read from."""
    return {column, *(each.partition(".")[0] for each in re.split(r"[|+]", column))}


def _value(values: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column, of a field inside it, or of the first of several that has one."""
    if column in values:
        return values[column]
    for path in column.split("|"):
        found, *more = (_field(values, each) for each in path.split("+"))
        if found is not None and found != "":
            return (_number(found) or 0) + sum(_number(each) or 0 for each in more) if more else found
    return None


def _field(values: Mapping[str, Any], path: str) -> Any:
    found: Any = values
    for name in path.split("."):
        found = _object(found) if isinstance(found, str) else found
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def lines_of(path: Path) -> Iterator[NumberedLine]:
    """Yield the lines of a CSV file, of a file of JSON lines, the objects of a JSON list or of pages of an API
    (``{"data": […]}``), or the rows of a Parquet file, each with its number. The file may be compressed by gzip.

    Raises `CallerFault` for a CSV file whose first line cannot be read, because it names the columns.
    """
    with TextIOWrapper(open_bytes(path), encoding="utf-8-sig", errors="replace", newline="") as file:
        begin = file.read(_BLOCK).lstrip()[:4]
        file.seek(0)
        if begin == "PAR1":
            from splitsecond.log.store.parquet import rows_as_text

            yield from rows_as_text(path)
            return
        begin = begin[:1]
        if begin == "[":
            yield from _json_list(file)
        elif begin == "{":
            yield from _json_lines(file)
        else:
            yield from _csv(file)


def _csv(file: TextIO) -> Iterator[NumberedLine]:
    csv.field_size_limit(MAX_CHARACTERS)
    reader = csv.reader(file)
    try:
        head = next(reader, [])
    except csv.Error as error:
        raise _bad(f"{file.name}, line 1: it is no CSV ({error})", "It names the columns.") from None
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, f"it is no CSV ({error})"
            continue
        if row and len(row) != len(head):
            yield reader.line_num, f"it has {len(row):,} fields, and the head {len(head):,}"
        elif row:
            yield reader.line_num, dict(zip(head, row, strict=True))


def _json_lines(file: TextIO) -> Iterator[NumberedLine]:
    number = 0
    while text := file.readline(MAX_CHARACTERS):
        number += 1
        if not text.strip():
            continue
        found = _object(text)
        if isinstance(found, str) and number == 1:  # one object over several lines, or no JSON at all
            rest = file.read(MAX_CHARACTERS - len(text))
            whole = _object(text + rest)
            if isinstance(whole, str):
                file.seek(0)
                file.readline(MAX_CHARACTERS)
            else:
                found = whole
        if not isinstance(found, str) and isinstance(found.get("data"), list | dict):
            yield from _page(found["data"])
        else:
            yield number, found


def _page(data: Any) -> Iterator[NumberedLine]:
    """Yield the objects of a page of an API, each with its number in the page."""
    for number, found in enumerate(data if isinstance(data, list) else [data], 1):
        yield number, found if isinstance(found, dict) else "it is no object"


def _json_list(file: TextIO) -> Iterator[NumberedLine]:
    """Yield the objects of a list without reading all of it. The number is that of the object, from 1."""
    number = 0
    try:
        for number, (_, found) in enumerate(ArrayElements(file, MAX_CHARACTERS), 1):
            yield number, found if isinstance(found, dict) else "it is no object"
    except ArrayError:
        yield number + 1, "the list ends in the middle, or is no JSON from here on"


@lru_cache(maxsize=4)
def _object(text: str) -> Mapping[str, Any] | str:
    try:
        found = json.loads(text)
        check_encodable(found)
    except PARSER_ERRORS as error:
        return f"it is no JSON ({parser_words(error)})"
    return found if isinstance(found, dict) else "it is no object"


def record_of(values: Mapping[str, Any], form: ForeignFormat, provider: str = "") -> CallRecord | None:
    """Return the call in a line, whose times count from 0.

    None for a line without a call of a provider, such as a cache hit. `provider` replaces that of the line. Raises
    `ValueError` if the line cannot be a call.
    """
    read = {field: _value(values, column) for field, column in form.columns.items()}
    if _flag(read, "cache_hit") or not WRITES_TEXT.fullmatch(_text(read, "call_type")):
        return None
    came_us, took_ns, first_ns = _times(read)
    output_tokens = _count(read, "output_tokens")
    outcome, fault, status = _outcome(read)
    if outcome == "failed" and "provider" in form.columns and not (provider or _text(read, "provider")):
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
        id=f"{call}.1", call=call, target=target, role="winner", outcome=outcome, fault=fault, streamed=streamed,
        sent_ns=0, first_token_ns=first_ns, first_answer_ns=first_ns, last_token_ns=ended, end_ns=took_ns,
        tokens_so_far=[_first_tokens(output_tokens, reasoning_tokens)] if ended else [], status=status,
        token_source="usage" if output_tokens else "",
        input_tokens=_count(read, "input_tokens"), output_tokens=output_tokens,
        reasoning_tokens=reasoning_tokens, cached_tokens=_count(read, "cached_tokens"),
        cache_write_tokens=_count(read, "cache_write_tokens"),
        cache_write_1h_tokens=_count(read, "cache_write_1h_tokens"),
    )  # fmt: skip
    return CallRecord(
        call=call, start_ns=0, wall_us=came_us, end_ns=took_ns, first_token_ns=first_ns, route=_text(read, "model"),
        client=client, stream=streamed, status=status, target=target, outcome=outcome,
        fault=fault.kind if fault else "", attempts=(attempt,),
    )  # fmt: skip


def _call_id(read: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    content = str(read.get("id") or "") or json.dumps(values, sort_keys=True, default=str)
    return f"import-{hashlib.blake2b(content.encode(errors='replace'), digest_size=16).hexdigest()}"


def _was_streamed(read: Mapping[str, Any], first_ns: int | None, took_ns: int) -> bool:
    if first_ns is None:
        return False
    return first_ns < took_ns if read.get("streamed") in (None, "") else _flag(read, "streamed")


def _first_tokens(output_tokens: int | None, reasoning_tokens: int | None) -> int:
    """Return how many tokens had come with the first one: all of them, so that there is no TPS, if some were reasoning.

    Some providers stream the reasoning, others stay silent until it has ended. No file says which.
    """
    return max(output_tokens or 0, 1) if reasoning_tokens else 1


def _times(read: Mapping[str, Any]) -> tuple[int, int, int | None]:
    """Return when the call came in, in µs since 1970, its duration and its time to first token in ns."""
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
    return round(came_s * 1e6), took_ns, None if first_s is None else min(round(first_s * NS_PER_S), took_ns)


def _moment(read: Mapping[str, Any], field: str) -> float | None:
    """Return a time in seconds since 1970. A time without an offset is UTC."""
    value = read.get(field)
    if value is None or value == "":
        return None
    number = _number(value)
    if number is not None:
        found = next((number / unit for unit in _UNITS if _YEARS[0] <= number / unit < _YEARS[1]), None)
    else:
        try:
            parsed = datetime.fromisoformat(str(value).strip().removesuffix(" UTC"))
        except ValueError:
            parsed = None
        found = None if parsed is None else (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    if found is None or not _YEARS[0] <= found < _YEARS[1]:
        raise ValueError(f"its {field} is {_shown(value)}, expected ISO 8601 or a number since 1970")
    return found


def _seconds(read: Mapping[str, Any], name: str) -> float | None:
    for field, unit in ((f"{name}_s", 1.0), (f"{name}_ms", 1e-3)):
        value = read.get(field)
        if value is not None and value != "":
            number = _number(value)
            if number is None or number < 0:
                raise ValueError(f"its {field} is {_shown(value)}, expected a number")
            return number * unit
    return None


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < _MAX and not isinstance(value, bool) else None


def _count(read: Mapping[str, Any], field: str) -> int | None:
    value = read.get(field)
    if value is None or value == "":
        return None
    number = _number(value)
    if number is None or number < 0 or number != int(number):
        raise ValueError(f"its {field} is {_shown(value)}, expected a whole number")
    return int(number)


def _flag(read: Mapping[str, Any], field: str) -> bool:
    text = str(read.get(field, "")).strip().lower()
    if text not in _YES | _NO:
        raise ValueError(f"its {field} is {_shown(text)}, expected true or false")
    return text in _YES


def _outcome(read: Mapping[str, Any]) -> tuple[Outcome, FaultRecord | None, int]:
    """Return how the call ended, its fault, and its HTTP status."""
    text = _text(read, "status").lower()
    if _flag(read, "cancelled") or text in _LEFT:
        return "cancelled", None, 200
    status = _http_status(text)
    if text in _GOOD or 200 <= status < 300:
        return "ok", None, status or 200
    if text in _BAD or status:
        status = status or _http_status(_text(read, "error_status"))
        kind = f"http_{status}" if status else "failed"
        return "failed", FaultRecord(type="ProviderFault", kind=kind, phase="", message="", status=status), status
    raise ValueError(f"its status is {_shown(text)}, expected success, failure or an HTTP status")


def _http_status(text: str) -> int:
    """Return an HTTP status; 0 for anything else."""
    return int(text) if re.fullmatch("[1-5][0-9][0-9]", text) else 0


def _target(read: Mapping[str, Any], provider: str, names: Mapping[str, str]) -> str:
    model = _text(read, "model")
    if not model:
        raise ValueError("it has no model")
    named = _text(read, "provider")
    if provider or named:
        name = provider or re.sub(r"[\s_]+", "-", named.lower())
        return f"{names.get(name, name)}/{model.removeprefix(f'{named}/')}"
    return model if "/" in model else f"unknown/{model}"


def _text(read: Mapping[str, Any], field: str) -> str:
    value = read.get(field)
    return "" if value is None else str(value).strip()


def _shown(value: Any) -> str:
    text = str(value)
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _bad(message: str, hint: str = "") -> CallerFault:
    return CallerFault(message, kind="bad_import", hint=hint)
