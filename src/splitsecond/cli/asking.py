"""Reading options: what a user wrote becomes values, or a `CallerFault` that says which option is wrong and how."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from splitsecond.clock import NS_PER_S
from splitsecond.errors import CallerFault
from splitsecond.load.arrivals import PATTERNS, read_trace
from splitsecond.load.plan import Load
from splitsecond.policy.settings import duration

DEFAULT_CONCURRENCY = "1,8,32"
LONGEST_DAYS = 30
INPUT_TOKENS = {"fresh": 512, "reuse": 4608}
"""How long prompts are where nobody says it, by ``--cache``. What is to be cached must be longer than `CACHED_BY_ALL`
without what is not shared."""
CACHED_BY_MOST = 1024
"""From so many tokens on OpenAI, Gemini 2.5 Flash and most of Anthropic's models cache what prompts share."""
CACHED_BY_ALL = 4096
"""From so many on every model does that says so: Claude Haiku 4.5 and Opus 4.5 no shorter ones (Anthropic's guide
"Prompt caching", 2026)."""


def wrong(option: str, got: object, expected: str) -> CallerFault:
    """The fault of an option whose value makes no sense."""
    return CallerFault(f"{option}: got {got!r}, expected {expected}", kind="bad_option")


def at_least_one(**values: float) -> None:
    """Refuses values below 1 (or no number at all) by their option's name."""
    for name, value in values.items():
        if not (math.isfinite(value) and value >= 1):
            raise wrong("--" + name.replace("_", "-"), value, "1 or more")


def interval(text: str, option: str) -> int:
    """Nanoseconds from one round to the next: "30m", "3h", "1d"; a second at least, and at most `LONGEST_DAYS`."""
    found = duration(option, text, LONGEST_DAYS * 24 * 3600)
    if found < NS_PER_S:
        raise wrong(option, text, "a second or more")
    return found


def numbers(text: str, option: str, *, whole: bool) -> list[float]:
    """A list such as "1,8,32". Raises `CallerFault`."""
    found = []
    for part in text.split(","):
        try:
            value = int(part) if whole else float(part)
        except ValueError:
            value = 0
        if not (math.isfinite(value) and value > 0):
            kind = "whole numbers from 1" if whole else "numbers above 0"
            raise wrong(option, text, f"{kind}, separated by commas")
        found.append(value)
    return found


def loads(concurrency: str, rate: str, arrivals: str, burstiness: float, trace: Path | None) -> list[Load]:
    """The loads that the options ask for: closed loops unless a rate or a trace is given without -c."""
    one_of(arrivals, "--arrivals", (*PATTERNS, "trace"))
    if arrivals == "trace" and trace is None:
        raise wrong("--arrivals", arrivals, "--trace FILE with it")
    if rate and (trace or arrivals == "trace"):
        raise wrong("--rate", rate, "either a rate or a trace")
    if not (math.isfinite(burstiness) and burstiness > 0):
        raise wrong("--burstiness", burstiness, "a number above 0")
    open_loop = bool(rate or trace)
    asked = numbers(concurrency or DEFAULT_CONCURRENCY, "-c", whole=True) if concurrency or not open_loop else []
    found = [Load(concurrency=int(value)) for value in asked]
    if trace is not None:
        found.append(Load(trace=read_trace(trace)))
    for pattern in PATTERNS:
        if rate and pattern == arrivals:
            found += [
                Load(rate=value, pattern=pattern, burstiness=burstiness)
                for value in numbers(rate, "--rate", whole=False)
            ]
    return found


def input_length(asked: int | None, cache: str) -> int:
    """How long prompts are to be, for ``--cache`` as it was asked for."""
    usual = INPUT_TOKENS[one_of(cache, "--cache", tuple(INPUT_TOKENS))]
    return usual if asked is None else asked


def too_short_to_cache(input_tokens: int) -> str:
    """What to say before a run that is about caches where its prompts may not get into them; "" where they do."""
    if input_tokens > CACHED_BY_ALL:
        return ""
    return (
        f"Prompts of {input_tokens:,} tokens may be too short for a prompt cache: many providers cache from "
        f"{CACHED_BY_MOST:,} tokens on, some models from {CACHED_BY_ALL:,}. Without --input-tokens they have "
        f"{INPUT_TOKENS['reuse']:,}."
    )


def share(text: str, option: str) -> float:
    """A share between none and all, "95%" or "0.95". Raises `CallerFault`."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0
    if not 0.5 <= value <= 0.999:
        raise wrong(option, text, "a share such as 95%, from 50% to 99.9%")
    return value


def span(first: float, last: float, *, whole: bool) -> None:
    """Refuses loads to search from and to that are no loads, or the wrong way round."""
    for option, value in (("--from", first), ("--to", last)):
        if not (math.isfinite(value) and value > 0) or (whole and value != round(value)):
            raise wrong(option, value, "a whole number from 1" if whole else "requests a second, above 0")
    if last < first:
        raise wrong("--to", last, f"{first:g} or more, as --from says")


def one_of(value: str, option: str, allowed: Sequence[str]) -> str:
    """`value`, if it is one of `allowed`."""
    if value not in allowed:
        raise wrong(option, value, " or ".join(allowed))
    return value


def json_object(text: str, option: str) -> dict[str, Any]:
    """A JSON object; "" is an empty one."""
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise wrong(option, text, f"a JSON object such as '{{\"temperature\": 0}}' ({error})") from None


def headers(lines: Sequence[str]) -> dict[str, str]:
    """Headers from "Name: value" lines."""
    found = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not line.isprintable() or not line.isascii():
            raise wrong("--header", line, "'Name: value'")
        found[name.strip().lower()] = value.strip()
    return found
