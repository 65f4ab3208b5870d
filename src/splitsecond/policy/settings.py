"""What the settings of policies may be, and how a policy is written down.

A setting is written in a configuration, in `repr` and in Python in the same way (``ttft="2s"``, ``extra_load=0.05``),
so there is one reader for each sort of setting. Readers raise `CallerFault` with what was expected.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence

from splitsecond.clock import NS_PER_MS, NS_PER_S
from splitsecond.errors import CallerFault
from splitsecond.timing.uses import USES

Setting = str | int | float

_DAY_S = 24 * 3600
LONGEST_S = _DAY_S
LEAST_SHARE = 0.001
"""Of calls. What is rarer than one in a thousand is not seen in the thousand calls that are remembered."""
FIGURES = ("total", "ttft", "tps")
HIGHEST_QUANTILE = 0.99
HEAVIEST = 1000

_UNITS = {"ms": NS_PER_MS, "s": NS_PER_S, "m": 60 * NS_PER_S, "h": 3600 * NS_PER_S, "d": _DAY_S * NS_PER_S}
MOST_MEMORY = 64_000_000_000
_SIZES = {"MB": 1_000_000, "GB": 1_000_000_000}
_MEMORY = re.compile(r"(\d{1,5})(MB|GB)", re.ASCII)
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_SPENDING = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)/(h|m)", re.ASCII)
_SHARES = re.compile(r"(?:[1-9]\d{0,2}|1000)(?:, ?(?:[1-9]\d{0,2}|1000))*", re.ASCII)
_REGION = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*", re.ASCII)


def duration(name: str, value: object, longest_s: int = LONGEST_S) -> int:
    """Nanoseconds: "300ms", "2s", "1.5m", "3h", "1d"; more than none and at most a day, or `longest_s`."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    ns = round(float(match[1]) * _UNITS[match[2]]) if match else 0
    if not 0 < ns <= longest_s * NS_PER_S:
        most = "a day" if longest_s == _DAY_S else f"{longest_s // _DAY_S} days"
        raise _bad(name, value, f'a duration such as "2s" or "300ms", at most {most}')
    return ns


def share(name: str, value: object) -> float:
    """A part of the calls: 0.05 is one in twenty."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(name, value, "a number such as 0.05")
    if not LEAST_SHARE <= value <= 1:  # so is what is not a number
        raise _bad(name, value, f"a number from {LEAST_SHARE} to 1, such as 0.05")
    return float(value)


def count(name: str, value: object) -> int:
    """A whole number, 1 or more."""
    return _whole(name, value, 1)


def length(name: str, value: object) -> int:
    """A whole number, 0 or more."""
    return _whole(name, value, 0)


def figure(name: str, value: object) -> str:
    """What speed is judged by: "total" (the whole answer), "ttft" or "tps"."""
    return one_of(name, value, FIGURES)


def use(name: str, value: object) -> str:
    """What an answer is for: "voice", "chat", …"""
    return one_of(name, value, tuple(USES))


def quantile(name: str, value: object) -> float:
    """A quantile of times: 0.5 is what half of them keep, 0.95 what nearly all do."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.5 <= value <= HIGHEST_QUANTILE:
        raise _bad(name, value, f"a number from 0.5 to {HIGHEST_QUANTILE}, such as 0.95")
    return float(value)


def shares(name: str, value: object) -> list[int]:
    """Whole numbers with commas between them: "3,1"."""
    if not isinstance(value, str) or not _SHARES.fullmatch(value):
        raise _bad(name, value, f'whole numbers from 1 to {HEAVIEST} such as "3,1"')
    return [int(part) for part in value.split(",")]


def region(name: str, value: object) -> str:
    """A region, or the beginning of several: "eu" is "eu-west" too."""
    if not isinstance(value, str) or not _REGION.fullmatch(value):
        raise _bad(name, value, 'a region such as "eu" or "us-east"')
    return value


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise _bad(name, value, "True or False")
    return value


def memory(name: str, value: object) -> int:
    """Bytes: "64MB", "1GB"; a million at least, and no more than 64 of the latter."""
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    size = int(match[1]) * _SIZES[match[2]] if match else 0
    if not 0 < size <= MOST_MEMORY:
        raise _bad(name, value, 'an amount of memory such as "64MB", at most 64GB')
    return size


def spending(name: str, value: object) -> float:
    """US dollars a second: "0.60/h", "0.01/m"; more than none."""
    match = _SPENDING.fullmatch(value) if isinstance(value, str) else None
    usd = float(match[1]) / (3600 if match[2] == "h" else 60) if match else 0.0
    if not usd:
        raise _bad(name, value, 'US dollars an hour or a minute such as "0.60/h" or "0.01/m"')
    return usd


def written(
    policy: str, branches: Sequence[object], named: Mapping[str, object] | None = None, **settings: Setting | None
) -> str:
    """The expression of a policy: its name, its branches, those given by name, and the settings that are not None."""
    words = [
        *map(repr, branches),
        *(f"{name}={branch!r}" for name, branch in (named or {}).items()),
        *(f"{name}={setting_text(value)}" for name, value in settings.items() if value is not None),
    ]
    return f"{policy}({', '.join(words)})"


def setting_text(value: Setting) -> str:
    """A setting, or a target, as it stands in an expression."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def one_of(name: str, value: object, words: Sequence[str]) -> str:
    """One of these words."""
    if not isinstance(value, str) or value not in words:
        raise _bad(name, value, f"one of {', '.join(words)}")
    return value


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1_000_000:
        raise _bad(name, value, f"a whole number, {least} or more")
    return value


def _bad(name: str, value: object, expected: str) -> CallerFault:
    shown = "not a number" if isinstance(value, float) and math.isnan(value) else setting_text_of(value)
    return CallerFault(f"{name} is {shown}, expected {expected}", kind="bad_policy")


def setting_text_of(value: object) -> str:
    """Any value for a message, cut where it is long."""
    text = setting_text(value) if isinstance(value, str | int | float) else repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
