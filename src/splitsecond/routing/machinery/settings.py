"""Settings of policies: typed values that remember how they were written.

A setting is written in the same way in a configuration, in `repr` and in Python (``ttft="2s"``,
``extra_load=0.05``). `Setting.parse` turns that literal into a value, or raises `CallerFault` with
what was expected.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Self

from msgspec import Struct

from splitsecond.core.clock import NS_PER_MS, NS_PER_S
from splitsecond.core.errors import CallerFault
from splitsecond.core.timing.uses import FIRST_TOKEN_USES, USES

SettingLiteral = str | int | float

_DAY_S = 24 * 3600
LONGEST_S = _DAY_S
MIN_SHARE = 0.001
"""The smallest share of calls. An event that is rarer than one in 1,000 does not show in the 1,000
calls that are remembered."""
HIGHEST_QUANTILE = 0.99
HEAVIEST = 1000
LARGEST_COUNT = 1_000_000
LARGEST_MEMORY = 64_000_000_000

_UNITS = {
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
    "h": 3600 * NS_PER_S,
    "d": _DAY_S * NS_PER_S,
}
_SIZES = {"MB": 1_000_000, "GB": 1_000_000_000}
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,9})?)%", re.ASCII)
_MEMORY = re.compile(r"(\d{1,5})(MB|GB)", re.ASCII)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_SPENDING = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)/(h|m)", re.ASCII)
_TOKEN_RATE = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)tok/s", re.ASCII)
_WEIGHTS = re.compile(r"(?:[1-9]\d{0,2}|1000)(?:, ?(?:[1-9]\d{0,2}|1000))*", re.ASCII)
_REGION = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)


class Setting(Struct, frozen=True):
    """The value of a setting, and the `literal` that stands for it in an expression."""

    literal: SettingLiteral

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        """Return the setting `name` that is written as `value`. Raises `CallerFault` where it is
        not valid."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return setting_text(self.literal)


class Duration(Setting, frozen=True):
    """A time: "300ms", "2s", "1.5m", "3h", "1d". More than zero, and at most a day or
    `longest_s`."""

    ns: int

    @classmethod
    def parse(cls, name: str, value: object, longest_s: int = LONGEST_S) -> Self:
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        ns = round(float(match[1]) * _UNITS[match[2]]) if match else 0
        if not isinstance(value, str) or not 0 < ns <= longest_s * NS_PER_S:
            most = "a day" if longest_s == _DAY_S else f"{longest_s // _DAY_S} days"
            raise invalid(name, value, f'a duration such as "2s" or "300ms", at most {most}')
        return cls(value, ns)


class Share(Setting, frozen=True):
    """A share of the calls: 0.05 or "5%" is one in twenty."""

    value: float

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        match = _PERCENT.fullmatch(value) if isinstance(value, str) else None
        number = float(match[1]) / 100 if match else _number(value)
        if number is None:
            raise invalid(name, value, 'a number such as 0.05, or "5%"')
        if not MIN_SHARE <= number <= 1:  # false for NaN too
            raise invalid(name, value, f"a number from {MIN_SHARE} to 1, such as 0.05")
        return cls(value if isinstance(value, str) else number, float(number))


class Count(Setting, frozen=True):
    """A whole number, 1 or more."""

    value: int
    least: ClassVar[int] = 1

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not cls.least <= value <= LARGEST_COUNT
        ):
            raise invalid(name, value, f"a whole number, {cls.least} or more")
        return cls(value, value)


class QueueLength(Count, frozen=True):
    """A whole number, 0 or more."""

    least: ClassVar[int] = 0


class UseCase(Setting, frozen=True):
    """The purpose of an answer ("voice", "chat", …), with its limit for the time to first token."""

    ttft_ns: float

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        word = one_of(name, value, FIRST_TOKEN_USES)
        return cls(word, USES[word].ttft_ms * NS_PER_MS)


class Statistic(Setting, frozen=True):
    """What stands for times that vary: "mean", or a quantile (half of them are within 0.5, nearly
    all within 0.95).

    `quantile`: None for the mean.
    """

    quantile: float | None

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        if value == "mean":
            return cls("mean", None)
        number = _number(value)
        if number is None or not 0.5 <= number <= HIGHEST_QUANTILE:
            raise invalid(
                name, value, f'"mean", or a number from 0.5 to {HIGHEST_QUANTILE}, such as 0.95'
            )
        return cls(number, float(number))


class TokenRate(Setting, frozen=True):
    """Tokens per second: "8tok/s", "0.5tok/s". More than zero."""

    tokens_per_s: float

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        match = _TOKEN_RATE.fullmatch(value) if isinstance(value, str) else None
        rate = float(match[1]) if match else 0.0
        if not isinstance(value, str) or not rate:
            raise invalid(name, value, 'tokens per second such as "8tok/s"')
        return cls(value, rate)


class Weights(Setting, frozen=True):
    """Whole numbers with commas between them: "3,1"."""

    values: tuple[int, ...]

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        if not isinstance(value, str) or not _WEIGHTS.fullmatch(value):
            raise invalid(name, value, f'whole numbers from 1 to {HEAVIEST} such as "3,1"')
        return cls(value, tuple(int(part) for part in value.split(",")))


class RegionName(Setting, frozen=True):
    """A region, or the first part of the names of several: "eu" includes "eu-west"."""

    name: str

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        if not isinstance(value, str) or not _REGION.fullmatch(value):
            raise invalid(name, value, 'a region such as "eu" or "us-east"')
        return cls(value, value)


class MemorySize(Setting, frozen=True):
    """An amount of memory: "64MB", "1GB". At least a megabyte (a million bytes), at most 64 GB."""

    size: int
    """Bytes."""

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
        size = int(match[1]) * _SIZES[match[2]] if match else 0
        if not isinstance(value, str) or not 0 < size <= LARGEST_MEMORY:
            raise invalid(name, value, 'an amount of memory such as "64MB", at most 64GB')
        return cls(value, size)


class SpendingRate(Setting, frozen=True):
    """US dollars an hour or a minute: "0.60/h", "0.01/m". More than zero."""

    usd_per_s: float

    @classmethod
    def parse(cls, name: str, value: object) -> Self:
        match = _SPENDING.fullmatch(value) if isinstance(value, str) else None
        usd = float(match[1]) / (3600 if match[2] == "h" else 60) if match else 0.0
        if not isinstance(value, str) or not usd:
            raise invalid(
                name, value, 'US dollars an hour or a minute such as "0.60/h" or "0.01/m"'
            )
        return cls(value, usd)


def flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise invalid(name, value, "True or False")
    return value


def one_of(name: str, value: object, words: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in words:
        raise invalid(name, value, f"one of {', '.join(words)}")
    return value


def policy_text(
    policy: str,
    branches: Sequence[object],
    named_branches: Mapping[str, object],
    settings: Mapping[str, object],
) -> str:
    words = [
        *map(repr, branches),
        *(f"{name}={branch!r}" for name, branch in named_branches.items()),
        *(
            f"{name}={setting_text(value) if isinstance(value, str) else repr(value)}"
            for name, value in settings.items()
            if value is not None
        ),
    ]
    return f"{policy}({', '.join(words)})"


def setting_text(value: SettingLiteral) -> str:
    if not isinstance(value, str):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


def short_text(value: object) -> str:
    text = setting_text(value) if isinstance(value, str | int | float) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def invalid(name: str, value: object, expected: str) -> CallerFault:
    text = "not a number" if isinstance(value, float) and math.isnan(value) else short_text(value)
    return CallerFault(f"{name} is {text}, expected {expected}", kind="bad_policy")


def _number(value: object) -> int | float | None:
    return None if isinstance(value, bool) or not isinstance(value, int | float) else value
