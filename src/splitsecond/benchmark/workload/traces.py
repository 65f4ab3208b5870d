"""Traces: recorded arrivals in a file, with the lengths of prompts and answers.

The format is recognised by the content:

- Mooncake: JSON lines with `timestamp` in milliseconds, `input_length`, `output_length`, and
  `hash_ids`, one for each block of 512 tokens of the prompt; equal ids are equal blocks
- Qwen-Bailian: the fields of Mooncake with `chat_id` and others, `timestamp` in seconds, and blocks
  of 16 tokens
- Azure LLM inference: CSV with the columns TIMESTAMP (a date), ContextTokens and GeneratedTokens
- BurstGPT: CSV with the columns Timestamp (seconds), "Request tokens" and "Response tokens"
- ours: JSON lines with `timestamp` in seconds, and perhaps `input_tokens`, `output_tokens` and
  `hash_ids`; or one number of seconds a line

Formats resemble each other, and some tools write variants. So a line of Mooncake's format with a
field that could change its meaning (a delay, a text) is refused, and so are timestamps that are
probably seconds.

Lines are read one after another, only as many as are sent, and must be in order of time. Requests
without a response in the recording have failed there and are left out.
"""

import csv
import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from pathlib import Path
from statistics import median
from typing import Annotated, NoReturn, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from splitsecond.benchmark.workload.input_lines import numbered_lines
from splitsecond.core.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from splitsecond.core.compressed_file import open_bytes
from splitsecond.core.errors import PARSER_ERRORS, CallerFault, file_faults, parser_words
from splitsecond.core.wording import counted_as

BLOCK_TOKENS = 512
"""Tokens of a block with an id, as in Mooncake."""
BAILIAN_BLOCK_TOKENS = 16
"""Tokens of a block with an id in the traces of Qwen-Bailian."""
MAX_REQUESTS = 200_000
MAX_BLOCKS = 4_000_000
"""Most ids of blocks of a trace; Mooncake's hour of conversations has 288,500."""
MAX_FRACTIONAL_RATE = 100
"""Requests per second in a trace with fractions of a millisecond. Denser ones are probably in
seconds."""
LONGEST_LINE = 1 << 20
_NOT_OURS = frozenset({"input_length", "output_length", "text_input", "delay", "session_id"})
"""Fields by which a line is of Mooncake's format, or of a variant of it that is refused."""
GRID_NS = 100 * NS_PER_MS
"""Timestamps that usually lie at least this far apart are on a grid, if requests share them."""
GRID_SHARE = 0.2
"""Least share of requests that share their timestamp with another one on a grid."""

T = TypeVar("T")
Tokens = Annotated[int, Meta(ge=0, le=2_000_000)]


class TracedRequest(Struct, frozen=True, array_like=True):
    """One request of a trace: when it is due, in ns after the start, and its lengths in tokens
    (None: not recorded).

    `hash_ids`: the blocks of `BLOCK_TOKENS` that its prompt begins with; equal ids are equal
    blocks.
    """

    due_ns: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    hash_ids: list[int] = []


class Trace(Struct, frozen=True, kw_only=True):
    """A trace as it is sent. `warning`: why its arrivals may not be those of users; "": no reason
    found."""

    requests: list[TracedRequest]
    format: str
    left_out: int = 0
    warning: str = ""

    @property
    def has_lengths(self) -> bool:
        return self.requests[0].input_tokens is not None

    def in_words(self, name: str) -> str:
        count, span_s = len(self.requests), self.requests[-1].due_ns / NS_PER_S
        words = f"{name} ({self.format}): {counted_as(count, 'request')} within {span_s:,.1f} s"
        if self.has_lengths:
            lengths = (
                [each.input_tokens or 0 for each in self.requests],
                [each.output_tokens or 0 for each in self.requests],
            )
            prompt, answer = (round(median(each)) for each in lengths)
            words += f", median prompt {counted_as(prompt, 'token')}, median answer {answer:,}"
        if self.left_out:
            words += f"; {self.left_out:,} without an answer left out"
        return f"{words}."


def read_trace(
    path: Path, *, most: int | None = None, duration_s: float | None = None, time_scale: float = 1.0
) -> Trace:
    """Read a trace: at most its first `most` requests, and those of its first `duration_s` seconds.

    Raises `CallerFault` with the line for a file that is not understood, and for more than
    `MAX_REQUESTS`.
    """
    requests: list[TracedRequest] = []
    times_ns: list[int] = []
    left_out = blocks = 0
    form, lines = _begun(path)
    for place, request, at_ns in _timed_requests(form, lines):
        if requests and (request.input_tokens is None) != (requests[0].input_tokens is None):
            _refuse(
                f"{place}: only some lines have lengths", "Give lengths in all lines or in none."
            )
        due_ns = round(at_ns * time_scale)
        if duration_s is not None and due_ns > duration_s * NS_PER_S:
            break
        if request.output_tokens == 0:
            left_out += 1
            continue
        requests.append(replace(request, due_ns=due_ns))
        times_ns.append(at_ns)
        blocks += len(request.hash_ids)
        _check_size(path, len(requests), blocks)
        if len(requests) == most:
            break
    if form is _MOONCAKE and _probably_seconds(times_ns):
        words = (
            f"{path}: its timestamps are probably seconds, but those of Mooncake's format are "
            "milliseconds"
        )
        _refuse(
            words,
            'For seconds, write {"timestamp": 0.25, "input_tokens": 512, "output_tokens": 128}.',
        )
    if not requests:
        _refuse_empty(path)
    return Trace(
        requests=requests,
        format=form.name,
        left_out=left_out,
        warning=_grid(times_ns),
    )


Lines = Iterator[tuple[str, str]]
"""Lines of a file, each after its place."""


def _begun(path: Path) -> "tuple[_Format, Lines]":
    """Return the format of a trace, and the lines with its requests."""
    lines = ((f"{path}:{number}", line) for number, line in _lines(path))
    first = next(lines, None)
    if first is None:
        _refuse_empty(path)
    place, line = first
    form, is_header = _recognised(line, place)
    return form, lines if is_header else chain([first], lines)


def _timed_requests(form: "_Format", lines: Lines) -> Iterator[tuple[str, TracedRequest, int]]:
    """Yield the place of each request, the request, and its time from the start of the trace, in
    ns."""
    begun_ns: int | None = 0 if form is _SECONDS else None
    before_ns = 0
    for place, line in lines:
        request = form.request(line, place)
        if begun_ns is None:
            begun_ns = request.due_ns
        at_ns = request.due_ns - begun_ns
        if at_ns < before_ns:
            _refuse(
                f"{place}: the timestamp is earlier than that of the line before",
                "Sort the file by time.",
            )
        before_ns = at_ns
        yield place, request, at_ns


def _check_size(path: Path, requests: int, blocks: int) -> None:
    if requests > MAX_REQUESTS or blocks > MAX_BLOCKS:
        limit = f"{MAX_REQUESTS:,} requests" if blocks <= MAX_BLOCKS else f"{MAX_BLOCKS:,} blocks"
        _refuse(
            f"{path}: the trace has more than {limit}",
            "Limit the number of requests, or the duration.",
        )


def _refuse_empty(path: Path) -> NoReturn:
    _refuse(f"{path}: no request found, expected one a line", FORMATS)


FORMATS = (
    'Known are seconds ("0.25"), our JSON lines ({"timestamp": 0.25, "input_tokens": 512, '
    '"output_tokens": 128}), '
    "the JSONL of Mooncake and Qwen-Bailian, and the CSV files of Azure and BurstGPT."
)


class _Format(Struct, frozen=True):
    name: str
    request: Callable[[str, str], TracedRequest]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with file_faults(f"cannot read {path}", kind="bad_trace"), open_bytes(path) as file:
        yield from numbered_lines(file, str(path), LONGEST_LINE, "bad_trace", FORMATS)


def _refuse(message: str, hint: str) -> NoReturn:
    raise CallerFault(message, kind="bad_trace", hint=hint)


def _wrong(place: str, line: str, expected: str) -> NoReturn:
    _refuse(f"{place}: got {line[:80]!r}, expected {expected}", FORMATS)


def _recognised(line: str, place: str) -> tuple[_Format, bool]:
    if line.startswith("{"):
        return _json_format(line, place), False
    columns = [column.strip() for column in _cells(line)]
    for names, kind, seconds in (
        (("TIMESTAMP", "ContextTokens", "GeneratedTokens"), "Azure", _date_ns),
        (("Timestamp", "Request tokens", "Response tokens"), "BurstGPT", _seconds_ns),
    ):
        if all(name in columns for name in names):
            return _csv_format(kind, names, [columns.index(name) for name in names], seconds), True
    if _seconds_ns(line) is None:
        _wrong(place, line, "the first line of a trace")
    return _SECONDS, False


def _json_format(line: str, place: str) -> _Format:
    """Return the format of JSON lines by the fields of the first one."""
    try:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).keys()
    except PARSER_ERRORS as error:
        _wrong(place, line, f"a JSON object ({parser_words(error)})")
    if "chat_id" in fields:
        return _BAILIAN
    return _OURS if fields.isdisjoint(_NOT_OURS) else _MOONCAKE


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell of more than 128 KiB
        return []


def _seconds_ns(text: str) -> int | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return round(value * NS_PER_S) if 0 <= value < 1e11 else None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _date_ns(text: str) -> int | None:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return (date - _EPOCH) // timedelta(microseconds=1) * NS_PER_US


def _plain(line: str, place: str) -> TracedRequest:
    due_ns = _seconds_ns(line)
    if due_ns is None:
        _wrong(place, line, "a number of seconds, as in the first line")
    return TracedRequest(due_ns)


def _csv_format(
    name: str, columns: Sequence[str], places: Sequence[int], time_ns: Callable[[str], int | None]
) -> _Format:
    def request(line: str, place: str) -> TracedRequest:
        cells = _cells(line)
        try:
            at, *lengths = (cells[index].strip() for index in places)
            prompt, answer = (msgspec.convert(int(each), Tokens) for each in lengths)
        except (IndexError, ValueError):
            at = ""
        due_ns = time_ns(at)
        if due_ns is None:
            _wrong(place, line, f"{', '.join(columns)} as in the header")
        return TracedRequest(due_ns, prompt, answer)

    return _Format(name, request)


class _Ours(Struct, frozen=True):
    timestamp: Annotated[float, Meta(ge=0, lt=1e11)]
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    hash_ids: list[int] = []


class _Mooncake(Struct, frozen=True, forbid_unknown_fields=True):
    timestamp: Annotated[float, Meta(ge=0, lt=1e14)]
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[int] = []


class _Bailian(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of Qwen-Bailian. Its `timestamp` counts from the start, also of later turns of a
    conversation."""

    timestamp: Annotated[float, Meta(ge=0, lt=1e11)]
    input_length: Tokens
    output_length: Tokens
    chat_id: int
    parent_chat_id: int | None = None
    type: str = ""
    turn: int = 0
    hash_ids: list[int] = []


def _read(line: str, place: str, shape: type[T], expected: str) -> T:
    try:
        return msgspec.json.decode(line, type=shape)
    except PARSER_ERRORS as error:
        _wrong(place, line, f"{expected} ({parser_words(error)})")


def _ours(line: str, place: str) -> TracedRequest:
    row = _read(line, place, _Ours, 'a JSON object with "timestamp" in seconds')
    prompt, answer = row.input_tokens, row.output_tokens
    if (prompt is None) != (answer is None):
        _wrong(place, line, "both input_tokens and output_tokens, or neither")
    _check_blocks(row.hash_ids, prompt or 0, BLOCK_TOKENS, line, place)
    return TracedRequest(round(row.timestamp * NS_PER_S), prompt, answer, row.hash_ids)


def _mooncake(line: str, place: str) -> TracedRequest:
    expected = "timestamp in milliseconds, input_length and output_length"
    row = _read(line, place, _Mooncake, expected)
    prompt, answer = row.input_length, row.output_length
    _check_blocks(row.hash_ids, prompt, BLOCK_TOKENS, line, place)
    return TracedRequest(round(row.timestamp * NS_PER_MS), prompt, answer, row.hash_ids)


def _bailian(line: str, place: str) -> TracedRequest:
    expected = "timestamp in seconds, input_length, output_length and chat_id"
    row = _read(line, place, _Bailian, expected)
    prompt, answer = row.input_length, row.output_length
    _check_blocks(row.hash_ids, prompt, BAILIAN_BLOCK_TOKENS, line, place)
    size = BLOCK_TOKENS // BAILIAN_BLOCK_TOKENS
    whole = range(0, len(row.hash_ids) - size + 1, size)
    ids = [_block_id(row.hash_ids[at : at + size]) for at in whole]
    return TracedRequest(round(row.timestamp * NS_PER_S), prompt, answer, ids)


def _block_id(small: Sequence[int]) -> int:
    """Return the id of a block of `BLOCK_TOKENS` that consists of these smaller blocks."""
    text = ",".join(map(str, small)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big")


def _check_blocks(ids: Sequence[int], prompt: int, size: int, line: str, place: str) -> None:
    most = math.ceil(prompt / size)
    if len(ids) > most:
        expected = f"at most {most:,} hash_ids, one for each {size} tokens of the prompt"
        _wrong(place, line, expected)


_SECONDS = _Format("seconds", _plain)
_OURS = _Format("JSON lines", _ours)
_MOONCAKE = _Format("Mooncake", _mooncake)
_BAILIAN = _Format("Qwen-Bailian", _bailian)


def _probably_seconds(times_ns: Sequence[int]) -> bool:
    """Return whether times that were read as milliseconds have fractions, and more than 100
    requests in a second."""
    fractions = any(at % NS_PER_MS for at in times_ns)
    return fractions and times_ns[-1] < len(times_ns) * NS_PER_S // MAX_FRACTIONAL_RATE


def _grid(times_ns: Iterable[int]) -> str:
    counts = Counter(times_ns)
    sharing = sum(count for count in counts.values() if count > 1)
    gaps = [later - earlier for earlier, later in pairwise(counts)]
    if not gaps or median(gaps) < GRID_NS or sharing < GRID_SHARE * counts.total():
        return ""
    return (
        f"in the trace, {sharing:,} of {counts.total():,} requests share their timestamp with "
        f"others, and the timestamps lie {median(gaps) / NS_PER_S:.3g} s apart: these bursts come "
        "from the recording, not from users."
    )
