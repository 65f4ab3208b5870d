"""A text that matches a regular expression, for the ``pattern`` of a JSON schema."""

import re
from typing import Any

import regex

_parse: Any = re._parser.parse  # type: ignore[attr-defined]
_PREFERRED = "aA0 -_.@/"
MAX_REPEATS = 10_000
CHECK_S = 0.2
"""How long the check of the text may take: a pattern can take exponential time."""


class PatternTooHard(Exception):
    """The pattern uses something for which no text is found."""


def text_for(pattern: str, least: int = 0) -> str:
    """Return a text in which `pattern` is found, of at least `least` characters where the pattern allows.

    Raises `PatternTooHard`, and `re.error` for a pattern that is no regular expression of Python.
    """
    parsed = _parse(pattern)
    text = _Writer(0).sequence(parsed)
    if len(text) < least:
        text = _Writer(least - len(text)).sequence(parsed)
    if not pattern.endswith("$") and len(text) < least:
        text += "a" * (least - len(text))
    try:
        found = regex.search(pattern, text, timeout=CHECK_S)
    except (TimeoutError, regex.error) as error:
        raise PatternTooHard(str(error) or "it takes too long") from error
    if not found:
        raise PatternTooHard("no text is found for it")
    return text


class _Writer:
    """Writes one text; `extra` characters are added where something may be repeated."""

    def __init__(self, extra: int) -> None:
        self._extra = extra
        self._groups: dict[int, str] = {}

    def sequence(self, items: Any) -> str:
        return "".join(self._item(str(operation), argument) for operation, argument in items)

    def _item(self, operation: str, argument: Any) -> str:
        match operation:
            case "LITERAL":
                return chr(argument)
            case "NOT_LITERAL":
                return next(each for each in _PREFERRED if each != chr(argument))
            case "ANY":
                return "a"
            case "IN":
                return _one_of(argument)
            case "AT" | "ASSERT_NOT":
                return ""
            case "ASSERT":
                return ""
            case "BRANCH":
                return self.sequence(argument[1][0])
            case "SUBPATTERN":
                text = self.sequence(argument[-1])
                if argument[0] is not None:
                    self._groups[argument[0]] = text
                return text
            case "ATOMIC_GROUP":
                return self.sequence(argument)
            case "GROUPREF":
                return self._groups.get(argument, "")
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                return self._repeated(*argument)
        raise PatternTooHard(f"{operation} is not understood")

    def _repeated(self, least: int, most: Any, items: Any) -> str:
        if least > MAX_REPEATS:
            raise PatternTooHard("it is too long")
        texts = [self.sequence(items) for _ in range(least)]
        room = min(int(most), MAX_REPEATS) - least
        while self._extra > 0 and room > 0 and (text := self.sequence(items)):
            texts.append(text)
            self._extra -= len(text)
            room -= 1
        return "".join(texts)


def _one_of(choices: Any) -> str:
    """Return a character of a set."""
    fits = re.compile(_as_set(choices)).fullmatch
    ranges = [first for operation, bounds in choices if str(operation) == "RANGE" for first in map(chr, bounds)]
    literals = [chr(code) for operation, code in choices if str(operation) == "LITERAL"]
    found: str | None = next(
        (each for each in (*_PREFERRED, *literals, *ranges, *map(chr, range(33, 256))) if fits(each)), None
    )
    if found is None:
        raise PatternTooHard("no character is found for a set")
    return found


_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def _as_set(choices: Any) -> str:
    parts = []
    for operation, argument in choices:
        match str(operation):
            case "NEGATE":
                parts.append("^")
            case "LITERAL":
                parts.append(re.escape(chr(argument)))
            case "RANGE":
                parts.append("-".join(re.escape(chr(code)) for code in argument))
            case "CATEGORY":
                parts.append(_CATEGORIES[str(argument)])
    return f"[{''.join(parts)}]"
