"""The file of a batch: a request on each line, as OpenAI or Anthropic take it; and the file of its answers.

    {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "fast", "messages": [...]}}
    {"custom_id": "1", "params": {"model": "smart", "max_tokens": 100, "messages": [...]}}

The first is OpenAI's batch, for each of the paths at which the gateway answers, the second Anthropic's. Answers are
written as OpenAI writes them, one on each line in the order in which they come. A file of answers that is there
already is gone on with: what it holds is not asked again, which is how a batch that was stopped is resumed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from splitsecond.errors import CallerFault
from splitsecond.gateway import asked
from splitsecond.gateway.asked import Asked
from splitsecond.gateway.doors import DOORS, Door

_DEFAULT_URL = "/v1/chat/completions"
_ANTHROPIC_URL = "/v1/messages"
LONGEST_LINE = 32 << 20


class _Line(Struct):
    custom_id: str | int | None = None
    method: str = "POST"
    url: str = _DEFAULT_URL
    body: Raw = Raw()
    params: Raw = Raw()


class Item(Struct, frozen=True):
    """One request: the line it stands on, the name it was given, what it asks for and where."""

    line: int
    custom_id: str
    door: Door
    asked: Asked


class Response(Struct):
    """An answer as OpenAI's batch has it. `body` is JSON."""

    status_code: int
    request_id: str
    body: Raw


class Answer(Struct):
    """One line of the answers. `target`: who answered."""

    custom_id: str
    response: Response
    target: str = ""
    id: str = ""
    error: None = None


_decode = msgspec.json.Decoder(_Line).decode
_encoder = msgspec.json.Encoder()
_ids = msgspec.json.Decoder(Answer).decode


def read(path: Path, model: str = "") -> list[Item]:
    """All requests of a file. `model`: asked in the place of each one's own, "" for none.

    Raises `CallerFault` that names the first line which cannot be asked: nothing has been sent by then.
    """
    try:
        with path.open("rb") as file:
            items = list(_items(file, model))
    except OSError as error:
        raise CallerFault(f"cannot read {path}: {error.strerror or error}", kind="unreadable_file") from None
    if not items:
        raise CallerFault(f"there is no request in {path}", kind="empty_file")
    seen: dict[str, int] = {}
    for item in items:
        if item.custom_id in seen:
            first = seen[item.custom_id]
            raise CallerFault(
                f"{path}, line {item.line}: the custom_id {item.custom_id!r} stands on line {first} already",
                kind="bad_batch",
            )
        seen[item.custom_id] = item.line
    return items


def answered(path: Path) -> set[str]:
    """The names of what a file of answers holds; none where it is not there. Raises `CallerFault` for another file."""
    found = set()
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break  # we were stopped while we wrote it: it is asked again
                try:
                    found.add(_ids(line).custom_id)
                except (msgspec.DecodeError, RecursionError):
                    raise CallerFault(
                        f"{path}, line {number} is no answer of a batch", kind="bad_batch", hint="Name another file."
                    ) from None
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CallerFault(f"cannot read {path}: {error.strerror or error}", kind="unreadable_file") from None
    return found


def mended(path: Path) -> None:
    """Cuts off the half of a line that a batch which was stopped may have left behind."""
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(data.rfind(b"\n") + 1)


def encoded(answer: Answer) -> bytes:
    """`answer` as a line."""
    return _encoder.encode(answer) + b"\n"


def _items(lines: Iterable[bytes], model: str) -> Iterator[Item]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield _item(number, line, model)
        except CallerFault as fault:
            raise CallerFault(f"line {number}: {fault.message}", kind="bad_batch", hint=fault.hint) from None


def _item(number: int, line: bytes, model: str) -> Item:
    if len(line) > LONGEST_LINE:
        raise CallerFault(f"it is longer than {LONGEST_LINE} bytes")
    try:
        found = _decode(line)
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"it is not a request in JSON: {error}") from None
    body, url = (found.params, _ANTHROPIC_URL) if found.params else (found.body, found.url)
    door = DOORS.get(url)
    if door is None or door.counts or found.method != "POST":
        known = ", ".join(path for path, each in DOORS.items() if not each.counts)
        raise CallerFault(f"nothing answers to {found.method} {url}", hint=f"POST to one of {known}.")
    if not body:
        raise CallerFault("it has neither a body nor params")
    name = f"line-{number}" if found.custom_id is None else str(found.custom_id)
    return Item(number, name, door, asked.read(_named(bytes(body), model) if model else bytes(body)))


def _named(body: bytes, model: str) -> bytes:
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
    except (ValueError, RecursionError) as error:
        raise CallerFault(f"the request's body is not a JSON object: {error}") from None
    fields["model"] = Raw(msgspec.json.encode(model))
    return msgspec.json.encode(fields)
