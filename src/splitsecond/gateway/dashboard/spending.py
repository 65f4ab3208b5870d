"""What clients and teams have spent today and in this month, for the dashboard.

The log is read in a thread at the first request of a day, and again when clients or teams change.
What calls cost since then is that of the counters. Calls that ended less than about a second before
that reading may be missing, as the log writes with a delay.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.errors import CallerFault
from splitsecond.gateway.records.limits import begin_of, today, used_tokens
from splitsecond.log.production.token_cost import spent_usd
from splitsecond.routing.router.settings import ClientKey

if TYPE_CHECKING:
    from splitsecond.gateway.records.limits import Used
    from splitsecond.log.store.log import Log

PATIENCE_S = 1.0
"""How long the data of the dashboard wait for the log. Later ones have what it says."""


class Spending(NamedTuple):
    """US dollars of a client or a team. None: not known, or not yet."""

    today_usd: float | None = None
    month_usd: float | None = None


class Spender(NamedTuple):
    """A client, or a team of `clients`."""

    name: str
    clients: tuple[str, ...]
    is_team: bool = False


class LoggedSpending:
    def __init__(self, log: "Log | None", say: Callable[[str], None]) -> None:
        self._log = log
        self._say = say
        self._of: tuple[int, dict[str, Spender]] | None = None
        self._reading: asyncio.Task[dict[str, Used]] | None = None
        self._counted: Mapping[str, float] = {}  # the counters when `_reading` began

    async def spent(
        self,
        spenders: dict[str, Spender],
        usd_by_client: Mapping[str, float],
        began: datetime,
        price: Callable[[str], Price | None],
    ) -> tuple[float | None, dict[str, Spending]]:
        """Return what all have spent today, and what each of `spenders` has spent.

        `usd_by_client`: what the calls of each client cost since the gateway `began`.
        """
        if self._log is None:
            return _since(began, spenders, usd_by_client)
        if self._of != (today(), spenders):
            self._of, self._counted = (today(), spenders), usd_by_client
            look = asyncio.to_thread(self._look, self._log, spenders, clock.wall_time())
            self._reading = asyncio.create_task(look)
        assert self._reading is not None  # set with `_of`
        if not self._reading.done():
            await asyncio.wait([self._reading], timeout=PATIENCE_S)
        if not self._reading.done():
            return None, dict.fromkeys(spenders, Spending())
        used, spending = self._reading.result(), dict[str, Spending]()
        growth = {name: usd - self._counted.get(name, 0.0) for name, usd in usd_by_client.items()}
        all_usd = sum(growth.values())
        for counter, spender in spenders.items():
            now, earlier = used.get(counter, (None, None))
            logged_usd = spent_usd(now or [], price)
            usd = logged_usd + sum(growth.get(client, 0.0) for client in spender.clients)
            month_usd = None if earlier is None else usd + spent_usd(earlier, price)
            spending[counter] = Spending(usd, month_usd)
            all_usd += 0.0 if spender.is_team else logged_usd
        return all_usd, spending

    def _look(self, log: "Log", spenders: dict[str, Spender], now: datetime) -> "dict[str, Used]":
        used: dict[str, Used] = {}
        try:
            for counter, each in spenders.items():
                used[counter] = used_tokens(log, each.name, now, is_team=each.is_team)
        except CallerFault as fault:
            self._say(f"{fault} The dashboard counts today's cost from now on.")
        return used


def spenders(keys: Sequence[ClientKey], unnamed: str) -> dict[str, Spender]:
    if not keys:
        return {unnamed: Spender(unnamed, (unnamed,))}
    by_counter = {key.counter: Spender(key.name, (key.name,)) for key in keys}
    for team in {key.team.counter: key.team for key in keys if key.team is not None}.values():
        clients = tuple(key.name for key in keys if key.team == team)
        by_counter[team.counter] = Spender(team.name, clients, is_team=True)
    return by_counter


def _since(
    began: datetime, spenders: Mapping[str, Spender], usd_by_client: Mapping[str, float]
) -> tuple[float | None, dict[str, Spending]]:
    """Return the same of a gateway without a log: it knows the time since it `began`."""
    now = clock.wall_time()
    this_day, this_month = began >= begin_of("day", now), began >= begin_of("month", now)
    spending = {}
    for counter, spender in spenders.items():
        usd = sum(usd_by_client.get(client, 0.0) for client in spender.clients)
        spending[counter] = Spending(usd if this_day else None, usd if this_month else None)
    return sum(usd_by_client.values()) if this_day else None, spending
