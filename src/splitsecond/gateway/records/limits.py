"""Limits of a key or a team as they are checked, and the days and months that they are for."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.gateway.records.shared_counters import SpendingPeriod
from splitsecond.routing.router.settings import ClientKey, Team

if TYPE_CHECKING:
    from splitsecond.log.store.log import Log, SpentTokens

    Used = tuple[list[SpentTokens], list[SpentTokens]]
    """What was used today, and on the days before it in this month."""

DAY_S = 24 * 3600


class RequestLimit(Struct, frozen=True):
    """Requests per minute of a key or a team. `counter`: the name under which they are counted.
    `owner`: what has the limit, in words."""

    counter: str
    owner: str
    requests: int


class SpendingLimit(Struct, frozen=True):
    """US dollars that a key or a team may spend in each period. Names as in `RequestLimit`."""

    counter: str
    owner: str
    period: SpendingPeriod
    usd: float

    @property
    def period_words(self) -> str:
        return "today" if self.period == "day" else "this month"


def today() -> int:
    """Return the number of the day in UTC, from 1970."""
    return int(clock.wall_time().timestamp()) // DAY_S


def owner(bearer: ClientKey | Team) -> str:
    return f"the {'team' if isinstance(bearer, Team) else 'key'} {bearer.name!r}"


def spending_limits(bearer: ClientKey | Team) -> list[SpendingLimit]:
    amounts: list[tuple[SpendingPeriod, float | None]] = [
        ("day", bearer.usd_per_day),
        ("month", bearer.usd_per_month),
    ]
    return [
        SpendingLimit(bearer.counter, owner(bearer), period, usd)
        for period, usd in amounts
        if usd is not None
    ]


def begin_of(period: SpendingPeriod, moment: datetime) -> datetime:
    midnight = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight if period == "day" else midnight.replace(day=1)


def next_period(period: SpendingPeriod) -> datetime:
    begin = begin_of(period, clock.wall_time())
    # a month has 31 days at most
    return begin_of(period, begin + timedelta(days=1 if period == "day" else 32))


def with_budget(keys: Iterable[ClientKey]) -> list[ClientKey | Team]:
    """Return the keys and teams with a limit in US dollars, each once."""
    bearers = {bearer.counter: bearer for key in keys for bearer in key.bearers if bearer.in_usd}
    return [*bearers.values()]


def used_tokens(
    log: "Log", name: str, until: datetime, *, is_team: bool, of_month: bool = True
) -> "Used":
    """Return what the key or team `name` used before `until`, by the log. `of_month` False: only
    today. Raises `CallerFault` if the log cannot be read."""
    read = log.team_tokens if is_team else log.spent_tokens
    now = clock.wall_time()
    midnight = begin_of("day", now)
    earlier = read(name, begin_of("month", now), min(midnight, until)) if of_month else []
    return read(name, midnight, until), earlier
