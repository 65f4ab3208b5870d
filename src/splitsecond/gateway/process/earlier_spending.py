"""What keys and teams with a limit in US dollars used before the gateway started, from the log."""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from splitsecond.core import clock
from splitsecond.gateway.records.limits import begin_of
from splitsecond.routing.router.settings import ClientKey, Team

if TYPE_CHECKING:
    from splitsecond.log.store.log import Log, SpentTokens

    EarlierUse = tuple[list[SpentTokens], list[SpentTokens]]
    """What was used today, and on the days before it in this month."""


def spenders(keys: Iterable[ClientKey]) -> list[ClientKey | Team]:
    """Return the keys and teams with a limit in US dollars, each once."""
    found = {bearer.counter: bearer for key in keys for bearer in key.bearers if bearer.in_usd}
    return [*found.values()]


def earlier_use(log: "Log", bearer: ClientKey | Team, until: datetime) -> "EarlierUse":
    """Return what was used before `until`. The days before today are only read for a limit by the
    month. Raises `CallerFault` if the log cannot be read."""
    read = log.team_tokens if isinstance(bearer, Team) else log.spent_tokens
    now = clock.wall_time()
    midnight = begin_of("day", now)
    earlier: list[SpentTokens] = []
    if bearer.usd_per_month is not None:
        earlier = read(bearer.name, begin_of("month", now), min(midnight, until))
    return read(bearer.name, midnight, until), earlier
