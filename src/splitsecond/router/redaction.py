"""Redaction of prompts: a provider's error message may quote the request, and logs must not contain it.

The client wrote the prompt, so it may see the quote; the log may not. Only failures are redacted. Their messages are
short, so each piece of a message is searched in the texts of the request.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Raw, structs

from splitsecond.observation import Observation
from splitsecond.validation import plain_value

LEAST_QUOTED = 16
"""Characters. Shorter matches occur in many sentences."""
LONGEST_SEARCHED = 256 * 1024
"""Bytes of a request that are searched. The whole message is removed for a larger request."""
LEFT_OUT = "[left out]"
_NO_TEXT = frozenset({"model"})
_STEP = LEAST_QUOTED // 2


def redact(attempt: Observation, body: Mapping[str, Any]) -> Observation:
    """Return `attempt` without quotes of the request `body` in its failure."""
    fault = attempt.fault
    if fault is None:
        return attempt
    kept = without_quotes(fault.message, body)
    if kept == fault.message:
        return attempt
    return structs.replace(attempt, fault=structs.replace(fault, message=kept))


def without_quotes(message: str, body: Mapping[str, Any]) -> str:
    """Return `message` with `LEFT_OUT` instead of each piece that occurs in a text of `body`."""
    if sum(len(memoryview(value)) for value in body.values() if isinstance(value, Raw)) > LONGEST_SEARCHED:
        status, colon, _ = message.partition(": ")
        return f"{status}: {LEFT_OUT}" if colon else LEFT_OUT
    text = " ".join("\n".join(_texts([_value(value) for name, value in body.items() if name not in _NO_TEXT])).split())
    return _without(message, [at for at in _near_quotes(message, text) if message[at : at + LEAST_QUOTED] in text])


def _near_quotes(message: str, text: str) -> Iterator[int]:
    """Yield the places in `message` where a quote of `LEAST_QUOTED` characters may begin.

    Every quote contains a whole piece of `_STEP` characters that begins at a multiple of `_STEP`, and most of these
    pieces do not occur in `text`.
    """
    last = 0
    for at in range(0, len(message) - _STEP + 1, _STEP):
        if message[at : at + _STEP] in text:
            yield from range(max(at - _STEP, last), min(at + 1, len(message) - LEAST_QUOTED + 1))
            last = at + 1


def _without(message: str, quotes: Iterable[int]) -> str:
    """Return `message` with `LEFT_OUT` for each run of quotes, which begin at `quotes`, in order, and may overlap."""
    kept: list[str] = []
    done = 0
    for at in quotes:
        if at > done or not kept:
            kept += [message[done:at], LEFT_OUT]
        done = at + LEAST_QUOTED
    return "".join([*kept, message[done:]])


def _value(field: Raw | Any) -> Any:
    """Return the value of a request's field, as text if it is not valid JSON."""
    found = plain_value(field)
    return bytes(field).decode("utf-8", "replace") if found is None and isinstance(field, Raw) else found


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in `value`, in order. It uses its own stack, because clients choose the depth of nesting."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        match each:
            case str():
                yield each
            case dict():
                waiting.extend(reversed(each.values()))
            case list():
                waiting.extend(reversed(each))
