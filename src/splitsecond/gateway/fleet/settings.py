"""Settings of the fleet process. The supervisor writes them, so this module imports nothing that only a fleet needs."""

from msgspec import Struct

MODULE = "splitsecond.gateway.fleet.process"


class LimitedKey(Struct, frozen=True):
    name: str
    requests_per_minute: int | None = None
    usd_per_day: float | None = None


class FleetProcessSettings(Struct, frozen=True, kw_only=True):
    """`gateway`: its name in the fleet. `instance`: that of this run. `folder`: of the workers' shared files.

    `counters` and `ceilings`: descriptors of the workers' shared tables, which the process inherits.
    """

    url: str
    gateway: str
    instance: str
    folder: str
    counters: int
    ceilings: int
    workers: int
    keys: tuple[LimitedKey, ...] = ()
