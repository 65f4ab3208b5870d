"""One limit of a client key or a team in a fleet: how much of it each gateway may use.

Each gateway has a ceiling. Its workers admit a request only while their own use, over the sliding
minute, the day or the month, stays below it (`records/key_limits`). The sum of all ceilings never
exceeds the limit, so the use of the whole fleet never does, whatever is delayed, lost or cut off. A
gateway whose report is missing still counts with its ceiling.

About once a second a gateway reports its use and what it wants, and gets a new ceiling: its use,
plus what it wants or an equal part of half of what nobody uses, whichever is more. If the fleet
wants more than the limit, each gateway gets at least an equal part. A ceiling that falls counts in
full until the next report confirms that the workers see it, because the answer may have been lost.

Each gateway also has a share, an equal part of the limit, for the time in which it cannot reach the
database. Others reserve the share of a gateway that has been silent for `SILENT_S`. That gateway
uses its share from `RAISE_S` on: by then the requests of the others, which count for two minutes at
most, have made room. Spending never makes room, so there a ceiling stays as it is.

The database's clock may be set. Ages are measured in fleet time, which advances with that clock by
`LONGEST_STEP_S` at most from one report of any gateway to the next, and never goes back.

Amounts are whole: requests, or billionths of a US dollar. Times are arguments, and nothing here
does I/O.
"""

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from splitsecond.gateway.records.shared_counters import month_of

Period = Literal["minute", "day", "month"]

SILENT_S = 10.0
"""Time without a report after which a gateway may use its share, and others reserve it."""
COUNTS_S = 120.0
"""Longest time for which a request counts: until the end of the minute after its own."""
RAISE_S = SILENT_S + COUNTS_S + 2 * SILENT_S
"""Time without an answer after which a gateway may raise its ceiling to its share. The others
notice its silence `SILENT_S` after its last report, or lose the database themselves at most that
much later."""
FORGET_S = 3600.0
"""Time without a report after which a gateway counts as gone."""
LONGEST_STEP_S = 5.0


class Holding(Struct, omit_defaults=True):
    """One gateway's part. `instance`: a run of the gateway. `used` and `target`: its use and what
    it wants to reach."""

    instance: str
    ceiling: int = 0
    share: int = 0
    used: int = 0
    target: int = 0


class Departed(Struct, omit_defaults=True):
    at_s: float
    amount: int


class SharedLimit(Struct, omit_defaults=True):
    """Stored state of one limit. `spent`: use of departed gateways on this `day`, which counts
    until its end. For a limit by the month, `day` is the number of the month.

    `other_day` and `other_spent`: the same of the day that was current before, for a clock that
    steps and returns.
    """

    gateways: dict[str, Holding] = {}
    departed: list[Departed] = []
    day: int = 0
    spent: int = 0
    other_day: int = 0
    other_spent: int = 0


class Report(Struct, frozen=True, kw_only=True):
    """A gateway's report about a limit: its use, the ceiling and share that it believes to have,
    and what it wants beyond its use."""

    limit: int
    used: int
    ceiling: int
    share: int
    wanted: int


class Lease(Struct, frozen=True):
    """The answer. `others`: use of all other gateways as far as it is reported. `short`: it is less
    than wanted."""

    ceiling: int
    share: int
    others: int
    short: bool


class Present(Struct, frozen=True):
    """A gateway of the fleet: its run, and whether it has not reported for `SILENT_S`."""

    instance: str
    silent: bool = False


class Moment(Struct, frozen=True):
    fleet_s: float
    day: int


def renew(
    shared: SharedLimit,
    name: str,
    report: Report,
    fleet: Mapping[str, Present],
    *,
    period: Period,
    now: Moment,
) -> Lease:
    _clear(shared, fleet, period, now)
    others = {other: holding for other, holding in shared.gateways.items() if other != name}
    gone = shared.spent + math.ceil(
        sum(each.amount * _weight(now.fleet_s - each.at_s) for each in shared.departed)
    )
    limit, used = report.limit, report.used
    committed = gone
    for other, holding in others.items():
        committed += max(holding.ceiling, holding.used, holding.share if fleet[other].silent else 0)
    others_used = gone + sum(each.used for each in others.values())
    number = len(fleet)
    left = limit - gone - sum(each.target for each in others.values())
    target = used + max(
        report.wanted, (limit - others_used - used) // (2 * number), 1 if left > used else 0
    )
    ceiling = max(min(limit - committed, target, max(limit // number, left)), 0)
    share = 0
    if period == "minute":
        share = max(min(limit // number, limit - sum(each.share for each in others.values())), 0)
    shared.gateways[name] = Holding(
        instance=fleet[name].instance,
        ceiling=max(ceiling, report.ceiling),
        share=max(share, report.share),
        used=used,
        target=target,
    )
    return Lease(ceiling, share, others_used, short=ceiling < used + report.wanted)


def leave(
    shared: SharedLimit,
    name: str,
    used: int,
    fleet: Mapping[str, Present],
    *,
    period: Period,
    now: Moment,
) -> None:
    _clear(shared, fleet, period, now)
    if shared.gateways.pop(name, None) is not None:
        _depart(shared, used, period, now)


def decode(stored: bytes) -> SharedLimit:
    return msgspec.json.decode(stored, type=SharedLimit)


def encode(shared: SharedLimit) -> bytes:
    return msgspec.json.encode(shared)


def _clear(shared: SharedLimit, fleet: Mapping[str, Present], period: Period, now: Moment) -> None:
    """Remove what no longer counts. What a gateway that is gone could have used, its ceiling,
    counts as used."""
    number = month_of(now.day) if period == "month" else now.day
    if number != shared.day:
        spent = shared.other_spent if number == shared.other_day else 0
        shared.other_day, shared.other_spent = shared.day, shared.spent
        shared.day, shared.spent = number, spent
    for name, holding in list(shared.gateways.items()):
        present = fleet.get(name)
        if present is None or present.instance != holding.instance:
            del shared.gateways[name]
            _depart(shared, max(holding.ceiling, holding.used), period, now)
    shared.departed = [each for each in shared.departed if now.fleet_s - each.at_s < COUNTS_S]


def _weight(age_s: float) -> float:
    """Return how much of a request still counts: all of it in its minute, then less and less in the
    next minute."""
    return min(1.0, 2 - age_s / (COUNTS_S / 2))


def _depart(shared: SharedLimit, amount: int, period: Period, now: Moment) -> None:
    if period != "minute":
        shared.spent += amount
    elif amount:
        shared.departed.append(Departed(now.fleet_s, amount))
