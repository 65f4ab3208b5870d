"""Settings of the hub. The supervisor writes them, so this module imports nothing that only a log
or a fleet needs."""

from msgspec import Struct

from splitsecond.gateway.fleet.settings import FleetSettings
from splitsecond.log.store.settings import LogSettings

MODULE = "splitsecond.gateway.hub.process"


class HubSettings(Struct, frozen=True, kw_only=True):
    """`socket`: where the hub listens. `log`, `fleet`: None: the gateway has none.
    `internal_errors`: those of the supervisor, by place."""

    socket: str
    log: LogSettings | None = None
    fleet: FleetSettings | None = None
    internal_errors: dict[str, int] = {}
