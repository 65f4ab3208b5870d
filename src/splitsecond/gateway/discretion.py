"""What a provider says of a request may repeat a part of it; what is written down must not.

A refusal that quotes the prompt is right for the client, who wrote it, and wrong for a log. Only a failure comes here,
and its words are few, so each piece of them is looked for in the texts of the request.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, structs

from splitsecond.timing.observation import Observation

LEAST_QUOTED = 16
"""Characters. Shorter ones stand in many sentences."""
LONGEST_SEARCHED = 256 * 1024
"""Bytes of a request in which quotes are looked for. Of what is said of a longer one no word is kept."""
LEFT_OUT = "[left out]"
_NO_TEXT = frozenset({"model"})
_STEP = LEAST_QUOTED // 2


def discreet(attempt: Observation, body: Mapping[str, Any]) -> Observation:
    """`attempt`, which was made for a request of these fields, without what its failure repeats of them."""
    fault = attempt.fault
    if fault is None:
        return attempt
    kept = unquoted(fault.message, body)
    if kept == fault.message:
        return attempt
    return structs.replace(attempt, fault=structs.replace(fault, message=kept))


def unquoted(words: str, body: Mapping[str, Any]) -> str:
    """`words` with a mark in the place of each longer piece that stands in a text of `body`."""
    if sum(len(memoryview(value)) for value in body.values() if isinstance(value, Raw)) > LONGEST_SEARCHED:
        status, colon, _ = words.partition(": ")
        return f"{status}: {LEFT_OUT}" if colon else LEFT_OUT
    text = " ".join("\n".join(_texts([_value(value) for name, value in body.items() if name not in _NO_TEXT])).split())
    return _without(words, [at for at in _near_quotes(words, text) if words[at : at + LEAST_QUOTED] in text])


def _near_quotes(words: str, text: str) -> Iterator[int]:
    """Where in `words` a quote of `LEAST_QUOTED` characters may begin.

    Each holds one of the pieces of `_STEP` characters that begin at the multiples of it whole, and most of these stand
    nowhere in `text`.
    """
    last = 0
    for at in range(0, len(words) - _STEP + 1, _STEP):
        if words[at : at + _STEP] in text:
            yield from range(max(at - _STEP, last), min(at + 1, len(words) - LEAST_QUOTED + 1))
            last = at + 1


def _without(words: str, quotes: Iterable[int]) -> str:
    """`words` with one mark in the place of quotes, which begin there, in order, and may lie on one another."""
    kept: list[str] = []
    done = 0
    for at in quotes:
        if at > done or not kept:
            kept += [words[done:at], LEFT_OUT]
        done = at + LEAST_QUOTED
    return "".join([*kept, words[done:]])


def _value(value: Any) -> Any:
    if not isinstance(value, Raw):
        return value
    try:
        return msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return bytes(value).decode("utf-8", "replace")


def _texts(value: Any) -> Iterator[str]:
    """Every text in `value`."""
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _texts(each)
        case list():
            for each in value:
                yield from _texts(each)
