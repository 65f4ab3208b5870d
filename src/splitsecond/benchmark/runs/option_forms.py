"""Forms of values on the command line: text becomes a value, or a `CallerFault` that names the
option and what it expects."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from splitsecond.core import clock
from splitsecond.core.errors import PARSER_ERRORS, parser_words
from splitsecond.core.option import Form
from splitsecond.core.validation import wrong
from splitsecond.routing.machinery.settings import Duration

LONGEST_DAYS = 30


def interval(text: str, option: str) -> int:
    """Parse the time from one round to the next, "30m", "3h" or "1d", to nanoseconds."""
    length_ns = Duration.parse(option, text, LONGEST_DAYS * 24 * 3600).ns
    if length_ns < clock.NS_PER_S:
        raise wrong(option, text, "a second or more")
    return length_ns


def seconds(text: str, option: str) -> float:
    return Duration.parse(option, text).ns / clock.NS_PER_S


def numbers(text: str, option: str, *, whole: bool) -> list[float]:
    values = []
    for part in text.split(","):
        try:
            value = int(part) if whole else float(part)
        except ValueError:
            value = 0
        if not (math.isfinite(value) and value > 0):
            kind = "whole numbers from 1" if whole else "numbers above 0"
            raise wrong(option, text, f"{kind}, separated by commas")
        values.append(value)
    return values


def share(text: str, option: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0
    if not 0 < value <= 1:
        raise wrong(option, text, "a share such as 95%, from 50% to 99.9%")
    return value


def json_object(text: str, option: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except PARSER_ERRORS as error:
        why = parser_words(error)
        raise wrong(
            option, text, f"a JSON object such as '{{\"temperature\": 0}}' ({why})"
        ) from None


def headers(lines: Sequence[str], option: str) -> dict[str, str]:
    by_name = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not line.isprintable() or not line.isascii():
            raise wrong(option, line, "'Name: value'")
        by_name[name.strip().lower()] = value.strip()
    return by_name


SECONDS = Form(seconds)
WHOLE_NUMBERS = Form(partial(numbers, whole=True))
NUMBERS = Form(partial(numbers, whole=False))
SHARE = Form(share, "{:.0%}".format)
JSON = Form(json_object)
HEADERS = Form(headers, several=True)
TEXT = Form(lambda text, option: text)
"""The command makes the value: text with several values is a sweep."""
