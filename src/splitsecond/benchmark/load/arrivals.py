"""Arrival schedules of open loops: when each request is due, as offsets from the start.

An open loop sends on a schedule, whatever the target does, as independent users would. The times
are absolute, so a late request does not delay those after it. Random arrivals are used as drawn: to
rescale them so that the last one falls exactly on n / rate would make every schedule equally busy,
which a Poisson process is not.
"""

import math
from random import Random
from typing import Literal

from splitsecond.core.clock import NS_PER_S
from splitsecond.core.errors import CallerFault

Pattern = Literal["constant", "poisson", "gamma"]
PATTERNS: tuple[Pattern, ...] = ("constant", "poisson", "gamma")


def schedule(
    pattern: Pattern, *, rate: float, requests: int, seed: int, burstiness: float = 1.0
) -> list[int]:
    """Return the offsets in ns of `requests` arrivals at `rate` a second, in order.

    "constant": the first one at once. "poisson": independent arrivals, as from many users. "gamma":
    gaps from a gamma distribution of shape `burstiness` with the same mean; below 1 arrivals come
    in bursts, 1 is Poisson. Raises `CallerFault` for a rate or burstiness that is not above 0.
    """
    for name, value in (("rate", rate), ("burstiness", burstiness)):
        if not (math.isfinite(value) and value > 0):
            raise CallerFault(
                f"the {name} is {value:g}, expected a number above 0",
                kind="bad_arrivals",
                hint="Try 5 per second.",
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
