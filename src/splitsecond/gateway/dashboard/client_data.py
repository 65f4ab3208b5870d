"""Data of the dashboard about clients and teams: requests, limits and spending."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from splitsecond.core.errors import CLIENT_LEFT
from splitsecond.gateway.dashboard.spending import Spending
from splitsecond.gateway.records.key_limits import KeyLimits
from splitsecond.gateway.records.metric_fields import MetricCounts
from splitsecond.routing.router.settings import ClientKey, Team

MAX_SHOWN = 100
"""Clients in the data, those with most requests."""
_TOO_MANY = 429
_SERVER_ERROR = 500


class Requests(Struct, kw_only=True):
    """Numbers of requests by their end. `failed`: failures of targets; `refused`: errors of the
    client; `left`: the client closed the connection."""

    all: int = 0
    failed: int = 0
    refused: int = 0
    left: int = 0

    def add(self, status: int, number: int) -> None:
        self.all += number
        if status == CLIENT_LEFT:
            self.left += number
        elif (
            status >= _SERVER_ERROR or status == _TOO_MANY
        ):  # 429 of a provider: the gateway's own is no call
            self.failed += number
        elif status >= 400:
            self.refused += number


class BearerOverview(Struct, frozen=True, kw_only=True):
    """What a client's key or a team has spent, and its limits. `requests_used` and `reserved_usd`,
    the money of calls in flight, are None without such a limit; spending is None if it is not
    known."""

    name: str
    requests: Requests
    requests_per_minute: int | None
    requests_used: float | None
    usd_per_day: float | None
    usd_today: float | None
    usd_per_month: float | None
    usd_month: float | None
    reserved_usd: float | None


class ClientOverview(BearerOverview, frozen=True, kw_only=True):
    """A client's key. `usd`: since the gateway started. `priced`: whether any of its calls has a
    known cost."""

    team: str
    usd: float
    priced: bool


class TeamOverview(BearerOverview, frozen=True, kw_only=True):
    clients: list[str]


def requests_by(counts: MetricCounts, label: Callable[[str, str], str]) -> dict[str, Requests]:
    requests: dict[str, Requests] = {}
    for (route, client, status), number in counts.requests.items():
        if route:
            requests.setdefault(label(route, client), Requests()).add(status, number)
    return requests


def client_overviews(
    counts: MetricCounts,
    keys: Collection[ClientKey],
    limits: KeyLimits,
    spending: Mapping[str, Spending],
) -> tuple[list[ClientOverview], int]:
    requests = requests_by(counts, lambda route, client: client)
    usd: dict[str, float] = {}
    for (client, _), cost in counts.cost_usd.items():
        usd[client] = usd.get(client, 0.0) + cost
    calls = {key.name: requests.get(key.name, Requests()) for key in keys}
    busiest = set(sorted(calls, key=lambda name: -calls[name].all)[:MAX_SHOWN])
    seen = [
        ClientOverview(
            team="" if key.team is None else key.team.name,
            usd=usd.get(key.name, 0.0),
            priced=key.name in usd,
            **_bearer(key, calls[key.name], limits, spending),
        )
        for key in keys
        if key.name in busiest
    ]
    return seen, len(calls) - len(busiest)


def team_overviews(
    counts: MetricCounts,
    keys: Collection[ClientKey],
    limits: KeyLimits,
    spending: Mapping[str, Spending],
) -> list[TeamOverview]:
    teams = {key.name: key.team.name for key in keys if key.team is not None}
    requests = requests_by(counts, lambda route, client: teams.get(client, ""))
    by_name = {key.team.name: key.team for key in keys if key.team is not None}
    return [
        TeamOverview(
            clients=[client for client, its in teams.items() if its == name],
            **_bearer(team, requests.get(name, Requests()), limits, spending),
        )
        for name, team in by_name.items()
    ]


def _bearer(
    bearer: ClientKey | Team,
    requests: Requests,
    limits: KeyLimits,
    spending: Mapping[str, Spending],
) -> dict[str, Any]:
    """Return the fields of `BearerOverview`. What counts for a limit in US dollars is what the
    limits say, in a fleet for all gateways."""
    counter, by_minute = bearer.counter, bearer.requests_per_minute is not None
    spent = spending.get(counter, Spending())
    usd_today, usd_month = spent
    if bearer.usd_per_day is not None:
        usd_today = limits.spent_usd(counter)
    if bearer.usd_per_month is not None:
        usd_month = limits.spent_usd(counter, "month")
    elif usd_month is not None and spent.today_usd is not None and usd_today is not None:
        usd_month += usd_today - spent.today_usd
    return {
        "name": bearer.name,
        "requests": requests,
        "requests_per_minute": bearer.requests_per_minute,
        "requests_used": limits.requests_used(counter) if by_minute else None,
        "usd_per_day": bearer.usd_per_day,
        "usd_today": usd_today,
        "usd_per_month": bearer.usd_per_month,
        "usd_month": usd_month,
        "reserved_usd": limits.reserved_usd(counter) if bearer.in_usd else None,
    }
