"""Limits of a key or a team as they are checked, and the days and months that they are for."""

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from splitsecond.core import clock
from splitsecond.gateway.records.shared_counters import SpendingPeriod
from splitsecond.routing.router.settings import ClientKey, Team

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
