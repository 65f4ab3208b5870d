"""Redaction of prompts: a provider's error message may quote the request, and logs must not contain
it.

The client wrote the prompt, so it may see the quote; the log may not. Only failures are redacted. A
provider may change the case, the spaces and the punctuation of what it quotes, and escape it. So
letters and digits are compared, without case.
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from msgspec import Raw, structs

from splitsecond.core.observation import Observation
from splitsecond.core.validation import plain_value

MIN_QUOTED = 12
"""Letters and digits. Shorter matches occur in many sentences."""
LONGEST_SEARCHED = 256 * 1024
"""Bytes of a request that are searched. The whole message is removed for a larger request."""
LEFT_OUT = "[left out]"
_NO_TEXT = frozenset({"model"})
_STEP = MIN_QUOTED // 2
# A run of backslashes counts as one: escaped text may be escaped again. No repetition can be tried
# in several ways.
_ESCAPES = re.compile(
    r"\\++(?:u(?P<code>[0-9a-fA-F]{4})|U[0-9a-fA-F]{8}|[abfnrtv]|x[0-9a-fA-F]{2}(?:\\++x[0-9a-fA-F]{2})*+)"
    r"|%[0-9a-fA-F]{2}(?:%[0-9a-fA-F]{2})*+"
    r"|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});"
)
_BYTE = re.compile("(?<=[x%])[0-9a-fA-F]{2}")
_NO_LETTERS = re.compile(r"[^\w\x00-\x7f]+")
_PUNCTUATION = bytes(each for each in range(1, 128) if not chr(each).isalnum())
"""All but the zero, which separates texts."""


def redact(attempt: Observation, body: Mapping[str, Any]) -> Observation:
    fault = attempt.fault
    if fault is None:
        return attempt
    message = without_quotes(fault.message, body)
    if message == fault.message:
        return attempt
    return structs.replace(attempt, fault=structs.replace(fault, message=message))


def without_quotes(message: str, body: Mapping[str, Any]) -> str:
    if (
        sum(len(memoryview(value)) for value in body.values() if isinstance(value, Raw))
        > LONGEST_SEARCHED
    ):
        status, colon, _ = message.partition(": ")
        return f"{status}: {LEFT_OUT}" if colon else LEFT_OUT
    text = _letters(
        "\0".join(_texts([_value(value) for name, value in body.items() if name not in _NO_TEXT]))
    )
    occurs = cache(text.__contains__)
    spans = _quotes(message, _plain_places(message, 0, len(message)), occurs)
    # the request may contain them as well, so both readings are searched
    if _ESCAPES.search(message):
        spans += _quotes(_ESCAPES.sub(_unescaped, message), _places(message), occurs)
    return _without(message, sorted(spans))


def _letters(text: str) -> str:
    text = text.casefold()
    if not text.isascii():
        text = _NO_LETTERS.sub("", text)
    return text.encode("utf-8", "replace").translate(None, _PUNCTUATION).decode()


def _unescaped(escape: re.Match[str]) -> str:
    if escape[0][0] == "&":
        return html.unescape(escape[0])
    if code := escape["code"]:
        return chr(int(code, 16))
    # of UTF-8, or else the numbers of characters
    data = bytes.fromhex("".join(_BYTE.findall(escape[0])))
    try:
        return data.decode() or " "
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _quotes(
    reading: str, places: Iterable[tuple[int, int]], occurs: Callable[[str], bool]
) -> list[tuple[int, int]]:
    letters = _letters(reading)
    starts = [at for at in _near_quotes(letters, occurs) if occurs(letters[at : at + MIN_QUOTED])]
    if not starts:
        return []
    spans = list(places)
    return [(spans[at][0], spans[at + MIN_QUOTED - 1][1]) for at in starts]


def _near_quotes(letters: str, occurs: Callable[[str], bool]) -> Iterator[int]:
    """Yield the places in `letters` where a quote of `MIN_QUOTED` letters may begin.

    Every quote contains a whole piece of `_STEP` letters that begins at a multiple of `_STEP`, and
    most of these pieces do not occur in the request.
    """
    last = 0
    for at in range(0, len(letters) - _STEP + 1, _STEP):
        if occurs(letters[at : at + _STEP]):
            yield from range(max(at - _STEP, last), min(at + 1, len(letters) - MIN_QUOTED + 1))
            last = at + 1


def _without(message: str, spans: Iterable[tuple[int, int]]) -> str:
    parts: list[str] = []
    done = 0
    for begin, end in spans:
        if begin >= done:
            parts += [message[done:begin], LEFT_OUT]
        done = max(done, end)
    return "".join([*parts, message[done:]])


def _places(message: str) -> Iterator[tuple[int, int]]:
    at = 0
    for escape in _ESCAPES.finditer(message):
        yield from _plain_places(message, at, escape.start())
        at = escape.end()
        for _ in _letters(_unescaped(escape)):
            yield escape.span()
    yield from _plain_places(message, at, len(message))


def _plain_places(message: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    for at in range(begin, end):
        for _ in _letters(message[at]):
            yield at, at + 1


def _value(field: Raw | Any) -> Any:
    plain = plain_value(field)
    return (
        bytes(field).decode("utf-8", "replace")
        if plain is None and isinstance(field, Raw)
        else plain
    )


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in `value`, in order. It uses its own stack, because clients choose the
    depth of nesting."""
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
