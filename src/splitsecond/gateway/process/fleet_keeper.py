"""The fleet process, if the configuration has `shared`: it starts before the workers and ends after them."""

import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from splitsecond.gateway.configuration.settings import GatewaySettings
from splitsecond.gateway.fleet.settings import MODULE, FleetProcessSettings, LimitedKey
from splitsecond.gateway.process.kept_process import KeptProcess

START_S = 8.0
"""How long the workers wait for the first answer of the database."""
STOP_S = 40.0
"""Time that the fleet process has to leave the fleet before it is killed."""


@contextlib.asynccontextmanager
async def fleet_process(
    settings: GatewaySettings, folder: Path, port: int
) -> AsyncIterator[Callable[[GatewaySettings], Awaitable[None]]]:
    """Run the fleet process while the context is open, if the gateway is in a fleet. Gives a function for new settings.

    `folder`: of the workers' shared files. `port`: that of the gateway, a part of its name.
    """
    if settings.shared is None:
        yield _nothing
        return
    gateway, instance = f"{socket.gethostname()}:{port}", secrets.token_hex(8)
    workers, url = settings.listen.workers, settings.shared.url

    def line(wanted: GatewaySettings) -> bytes:
        keys = tuple(
            LimitedKey(each.name, each.requests_per_minute, each.usd_per_day)
            for each in wanted.keys
            if each.requests_per_minute is not None or each.usd_per_day is not None
        )
        return msgspec.json.encode(
            FleetProcessSettings(
                url=url, gateway=gateway, instance=instance, folder=os.fspath(folder), workers=workers, keys=keys
            )
        )

    kept = KeptProcess(
        MODULE,
        line(settings),
        name="fleet process",
        consequence="the gateway keeps its part of each limit",
        stop_s=STOP_S,
        announces=True,
    )
    async with kept.running():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(kept.ready.wait(), START_S)
        yield lambda wanted: kept.send(line(wanted))


async def _nothing(settings: GatewaySettings) -> None:
    pass
