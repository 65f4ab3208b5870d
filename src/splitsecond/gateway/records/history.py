"""What was seen before this process began: in the gateway's own log, and in the runs of a bench."""

import glob
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from splitsecond import clock
from splitsecond.catalog.price import Price
from splitsecond.errors import CallerFault
from splitsecond.gateway.configuration.settings import LogGiven
from splitsecond.store.folder import seeds
from splitsecond.timing.observation import Observation

if TYPE_CHECKING:
    from splitsecond.store.log import Log
    from splitsecond.store.reading import Tokens

Aged = tuple[Observation, int]
"""An attempt of another time, and how long ago (ns) it ended."""

REMEMBERED = timedelta(days=1)
"""How far back the log is asked. What is older says little of today."""


def opened(given: LogGiven | None, say: Callable[[str], None]) -> "Log | None":
    """The log; None where none is kept. Raises `CallerFault` where it cannot be opened."""
    if given is None:
        return None
    from splitsecond.store.log import Log  # with SQLAlchemy, which a gateway without a log need not hold

    return Log.open(given.url, keep_days=given.keep_days, say=say)


def history(log: "Log | None", patterns: Iterable[str], say: Callable[[str], None]) -> list[Aged]:
    """Attempts of other times: of the run folders that match `patterns`, then of the log.

    What cannot be read is said, and left out.
    """
    found: list[Aged] = []
    for folder in (Path(each) for pattern in patterns for each in sorted(glob.glob(pattern))):
        try:
            found += of_run(folder)
        except CallerFault as fault:
            say(f"seeds: {fault}")
    if log is not None:
        try:
            found += [(attempt, round(age_s * clock.NS_PER_S)) for attempt, age_s in log.recent(REMEMBERED)]
        except CallerFault as fault:
            say(str(fault))
    return found


def of_run(folder: Path) -> list[Aged]:
    """The attempts of a bench. Calls that a policy served are none: they are timed like a target, but are not one.

    Raises `CallerFault` where the folder holds no run.
    """
    return [(each, round(age_s * clock.NS_PER_S)) for each, age_s in seeds(folder) if "(" not in each.target]


def spent_usd(used: "Mapping[str, Tokens]", price: Callable[[str], Price | None]) -> float:
    """What tokens cost, those of a target without a price nothing."""
    total = 0.0
    for target, tokens in used.items():
        if (found := price(target)) is not None:
            total += found.cost_usd(
                input_tokens=tokens.input_tokens,
                output_tokens=tokens.output_tokens,
                cached_tokens=tokens.cached_tokens,
                cache_write_tokens=tokens.cache_write_tokens,
            )
    return total
