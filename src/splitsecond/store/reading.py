"""What the log is asked for: the latest attempts of each target, what a client used, the calls of some days.

Strategy: no question reads the whole log. Each goes along an index from one key to the next, so that it takes as long
in a log of a year as in one of a day.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import Column, Connection, Double, Row, Select, and_, cast, func, or_, select

from splitsecond import clock
from splitsecond.store.rows import ATTEMPT_COLUMNS, CALL_COLUMNS, observation, served
from splitsecond.store.served import Served
from splitsecond.store.tables import ATTEMPTS, CALLS
from splitsecond.timing.observation import Observation

_PAGE = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


class Tokens(Struct, frozen=True, kw_only=True):
    """Sums over attempts, those that lost included: they are billed too."""

    attempts: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0


def recent(connection: Connection, since: timedelta, each: int) -> list[tuple[Observation, float]]:
    """The last `each` attempts of every target that began within `since`, in the order of time, with their age in
    seconds."""
    now_us = _us(clock.wall_time())
    after_us = now_us - since // _US
    found: list[Row[Any]] = []
    for target in targets(connection):
        wanted = (ATTEMPTS.c.target == target, ATTEMPTS.c.came_us >= after_us)
        found += connection.execute(
            select(*ATTEMPT_COLUMNS).where(*wanted).order_by(ATTEMPTS.c.came_us.desc()).limit(each)
        )
    aged = [(observation(row), row.came_us) for row in found]
    aged.sort(key=lambda one: one[1] + one[0].end_ns // 1000)
    return [(o, max(0.0, (now_us - came_us - o.end_ns / 1000) / 1e6)) for o, came_us in aged]


def targets(connection: Connection) -> Iterator[str]:
    """Every target, sorted, each by a step along the index; DISTINCT would read all of it."""
    target: Column[str] = ATTEMPTS.c.target
    name = connection.execute(select(func.min(target))).scalar()
    while name is not None:
        yield name
        name = connection.execute(select(func.min(target)).where(target > name)).scalar()


def spent_tokens(connection: Connection, client: str, since: datetime) -> dict[str, Tokens]:
    """What `client` used of each target since that moment."""
    a = ATTEMPTS.c
    names = ("input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens")
    # As floating point: a sum of whole numbers that a provider made up may be too large for the database.
    sums = [func.coalesce(func.sum(cast(a[name], Double)), 0) for name in names]
    asked = select(a.target, func.count(), *sums).where(a.client == client, a.came_us >= _us(since)).group_by(a.target)
    return {
        target: Tokens(attempts=attempts, **dict(zip(names, map(int, counts), strict=True)))
        for target, attempts, *counts in connection.execute(asked)
    }


def calls(connection: Connection, since: datetime, until: datetime) -> Iterator[tuple[datetime, Served]]:
    """The calls that came in from `since` until before `until`, in order, each with the moment and its attempts."""
    c = CALLS.c
    page: Select[Any] = select(*CALL_COLUMNS).where(c.came_us < _us(until)).order_by(c.came_us, c.n).limit(_PAGE)
    after = c.came_us >= _us(since)
    while found := connection.execute(page.where(after)).all():
        first, last = found[0], found[-1]
        attempts = _attempts(connection, first.came_us, last.came_us)
        for row in found:
            yield _EPOCH + row.came_us * _US, served(row, attempts[row.call])
        after = and_(c.came_us >= last.came_us, or_(c.came_us > last.came_us, c.n > last.n))


def attempts(connection: Connection, since: datetime, until: datetime) -> Iterator[tuple[datetime, Observation]]:
    """The attempts for calls that came in from `since` until before `until`, in order, each with that moment."""
    a = ATTEMPTS.c
    page = select(*ATTEMPT_COLUMNS, a.n).where(a.came_us < _us(until)).order_by(a.came_us, a.n).limit(_PAGE)
    after = a.came_us >= _us(since)
    while found := connection.execute(page.where(after)).all():
        for row in found:
            yield _EPOCH + row.came_us * _US, observation(row[:-1])
        last = found[-1]
        after = and_(a.came_us >= last.came_us, or_(a.came_us > last.came_us, a.n > last.n))


def _attempts(connection: Connection, first_us: int, last_us: int) -> defaultdict[str, list[Observation]]:
    a = ATTEMPTS.c
    asked = select(*ATTEMPT_COLUMNS).where(a.came_us.between(first_us, last_us)).order_by(a.came_us, a.n)
    found: defaultdict[str, list[Observation]] = defaultdict(list)
    for row in connection.execute(asked):
        found[row.call].append(observation(row))
    return found


def _us(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // _US
