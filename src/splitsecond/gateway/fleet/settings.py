"""Settings of the fleet. The supervisor writes them, so this module imports nothing that only a
fleet needs."""

from msgspec import Struct


class LimitedKey(Struct, frozen=True):
    name: str
    requests_per_minute: int | None = None
    usd_per_day: float | None = None
    usd_per_month: float | None = None
    is_team: bool = False


class FleetSettings(Struct, frozen=True, kw_only=True):
    """`gateway`: its name in the fleet. `instance`: that of this run.

    `counters`, `ceilings` and `budgets`: descriptors of the workers' shared tables, which the hub
    inherits.
    """

    url: str
    gateway: str
    instance: str
    counters: int
    ceilings: int
    budgets: int
    workers: int
    keys: tuple[LimitedKey, ...] = ()
