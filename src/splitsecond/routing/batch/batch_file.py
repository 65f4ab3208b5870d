"""The requests of a batch, in the line format of OpenAI or Anthropic, and the file of its results.

    {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "fast",
    "messages": [...]}} {"custom_id": "1", "params": {"model": "smart", "max_tokens": 100,
    "messages": [...]}}

The first line has OpenAI's format, which is accepted for each path of the gateway; the second has
Anthropic's. If the file of results exists, the batch continues it: requests with a result are not
sent again.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from splitsecond.core.errors import PARSER_ERRORS, CallerFault, file_faults, parser_words
from splitsecond.routing.requests import parsed_request
from splitsecond.routing.requests.endpoints import ENDPOINTS, Endpoint
from splitsecond.routing.requests.parsed_request import ParsedRequest

_DEFAULT_URL = "/v1/chat/completions"
_ANTHROPIC_URL = "/v1/messages"
LONGEST_LINE = 32 << 20
"""In bytes."""


class _RequestLine(Struct):
    custom_id: str | int | None = None
    method: str = "POST"
    url: str = _DEFAULT_URL
    body: Raw = Raw()
    params: Raw = Raw()


class BatchItem(Struct, frozen=True):
    line: int
    custom_id: str
    endpoint: Endpoint
    request: ParsedRequest


class BatchResponse(Struct):
    status_code: int
    request_id: str
    body: Raw


class BatchResult(Struct):
    custom_id: str
    response: BatchResponse
    target: str = ""
    id: str = ""
    error: None = None


_decode = msgspec.json.Decoder(_RequestLine).decode
_encoder = msgspec.json.Encoder()
_decode_result = msgspec.json.Decoder(BatchResult).decode


def read(path: Path, model: str = "") -> list[BatchItem]:
    """Return all requests of a file. `model` replaces the model of each request, unless it is "".

    Raises `CallerFault`, which names the first line that is not a valid request.
    """
    with file_faults(f"cannot read {path}", kind="unreadable_file"), path.open("rb") as file:
        items = list(_items(file, path, model))
    if not items:
        raise CallerFault(f"{path} has no requests", kind="empty_file")
    seen: dict[str, int] = {}
    for item in items:
        if item.custom_id in seen:
            first = seen[item.custom_id]
            raise CallerFault(
                f"{path}, line {item.line}: line {first} has the same custom_id, "
                f"{item.custom_id!r}",
                kind="bad_batch",
            )
        seen[item.custom_id] = item.line
    return items


def result_ids(path: Path) -> set[str]:
    """Return the `custom_id` of each result in a file; an empty set if there is no such file.

    Raises `CallerFault` if the file holds anything but results.
    """
    ids = set()
    reading = file_faults(f"cannot read {path}", kind="unreadable_file")
    with reading, suppress(FileNotFoundError), path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                break  # an interrupted write: the request is sent again
            try:
                ids.add(_decode_result(line).custom_id)
            except PARSER_ERRORS:
                raise CallerFault(
                    f"{path}, line {number} is not a result of a batch",
                    kind="bad_batch",
                    hint="Name another file.",
                ) from None
    return ids


def remove_partial_line(path: Path) -> None:
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def encoded(result: BatchResult) -> bytes:
    return _encoder.encode(result).replace(b"\n", b" ") + b"\n"  # some providers indent their JSON


def _items(lines: Iterable[bytes], path: Path, model: str) -> Iterator[BatchItem]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _item(number, line, model)
        except CallerFault as fault:
            message = f"{path}, line {number}: {fault.message}"
            raise CallerFault(message, kind="bad_batch", hint=fault.hint) from None


def _item(number: int, line: bytes, model: str) -> BatchItem:
    if len(line) > LONGEST_LINE:
        raise CallerFault(f"the line is longer than {LONGEST_LINE:,} bytes")
    try:
        request = _decode(line)
    except PARSER_ERRORS as error:
        raise CallerFault(f"the line is not a request in JSON: {parser_words(error)}") from None
    body, url = (request.params, _ANTHROPIC_URL) if request.params else (request.body, request.url)
    endpoint = ENDPOINTS.get(url)
    if endpoint is None or endpoint.counts or request.method != "POST":
        paths = ", ".join(path for path, each in ENDPOINTS.items() if not each.counts)
        raise CallerFault(
            f"there is no endpoint {request.method} {url}", hint=f"Use POST and one of {paths}."
        )
    if not body:
        raise CallerFault("the request has neither a body nor params")
    name = f"line-{number}" if request.custom_id is None else str(request.custom_id)
    data = _with_model(bytes(body), model) if model else bytes(body)
    return BatchItem(number, name, endpoint, parsed_request.read(data))


def _with_model(body: bytes, model: str) -> bytes:
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
    except PARSER_ERRORS as error:
        raise CallerFault(
            f"the request's body is not a JSON object: {parser_words(error)}"
        ) from None
    fields["model"] = Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)
