"""When requests of an open loop are due: offsets from the start, computed up front.

An open loop sends on a schedule whatever the answers do, as independent users would. The whole schedule exists before
the first request leaves, as absolute times: a request that leaves late does not push those after it, and the lateness
is known for each. The same seed gives the same schedule.

Random arrivals are drawn and left as drawn. Rescaling them so that the last one falls exactly on n / rate, as some
tools do, makes every schedule look equally busy, which a Poisson process is not.
"""

import math
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from splitsecond.clock import NS_PER_S
from splitsecond.errors import CallerFault

Pattern = Literal["constant", "poisson", "gamma"]
PATTERNS: tuple[Pattern, ...] = ("constant", "poisson", "gamma")


def schedule(pattern: Pattern, *, rate: float, requests: int, seed: int, burstiness: float = 1.0) -> list[int]:
    """Offsets in ns of `requests` arrivals at `rate` a second, in order.

    "constant": evenly spaced, the first at once. "poisson": independent arrivals, as of many users. "gamma": gaps from
    a gamma distribution of shape `burstiness` with the same mean; below 1 they come in bursts, 1 is Poisson, above 1
    they are more even. Raises `CallerFault` for a rate or burstiness that is not above 0.
    """
    for name, value in (("rate", rate), ("burstiness", burstiness)):
        if not (math.isfinite(value) and value > 0):
            raise CallerFault(
                f"the {name} is {value:g}, expected a number above 0", kind="bad_arrivals", hint="Try --rate 5."
            )
    if pattern == "constant":
        return [round(number * NS_PER_S / rate) for number in range(requests)]
    random, at, offsets = Random(seed), 0.0, list[int]()
    for _ in range(requests):
        if pattern == "poisson":
            at += random.expovariate(rate)
        else:
            at += random.gammavariate(burstiness, 1 / (rate * burstiness))
        offsets.append(round(at * NS_PER_S))
    return offsets


def read_trace(path: Path) -> list[int]:
    """The offsets in ns that a file holds; see `parse_trace`. Raises `CallerFault` if it cannot be read."""
    try:
        with path.open(encoding="utf-8") as lines:
            return parse_trace(lines, str(path))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CallerFault(f"cannot read the trace {path}: {why}", kind="bad_trace") from None


def parse_trace(lines: Iterable[str], name: str) -> list[int]:
    """Offsets in ns, in order, from a trace: one request a line.

    A line is either a number, the seconds after the start, or a JSON object whose `timestamp` is in seconds on any
    clock; those count from the earliest one. Blank lines are skipped. Raises `CallerFault` with `name`:line.
    """
    offsets: list[float] = []
    dates: list[float] = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        dated = text.startswith("{")
        value = _number(text, dated)
        if value is None or not math.isfinite(value) or value < 0:
            raise CallerFault(
                f"{name}:{number}: got {text[:80]!r}, expected seconds (0 or more) or "
                'a JSON object with "timestamp" in seconds',
                kind="bad_trace",
                hint='Example lines: 0.25 or {"timestamp": 0.25}.',
            )
        (dates if dated else offsets).append(value)
    if offsets and dates:
        raise CallerFault(f"{name}: mixes plain offsets with JSON objects, expected one of them", kind="bad_trace")
    if not offsets and not dates:
        raise CallerFault(f"{name}: holds no arrival", kind="bad_trace")
    begin = min(dates, default=0.0)
    return sorted(round((value - begin) * NS_PER_S) for value in dates or offsets)


class _Dated(msgspec.Struct):
    timestamp: float


def _number(text: str, dated: bool) -> float | None:
    try:
        return msgspec.json.decode(text, type=_Dated).timestamp if dated else float(text)
    except (msgspec.MsgspecError, ValueError):
        return None
