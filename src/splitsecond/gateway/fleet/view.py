"""Messages between the workers of a gateway and its hub about the fleet.

Times in them are those of the monotonic clock, which all processes of a machine share.
"""

from msgspec import Struct

from splitsecond.gateway.fleet.learned import TargetReport

STALE_S = 10.0
"""A report or view that was not replaced for this long is not used: its process has died, or has
been stopped."""


class WorkerReport(Struct, frozen=True, tag=True):
    at_ns: int
    targets: dict[str, TargetReport]


class GatewayStatus(Struct, frozen=True, kw_only=True):
    """A gateway of the fleet. `silent_s`: time since its last report. `sees`: the gateways that
    reported recently, as far as it knows. `down`: targets whose circuit breakers are open there
    because of failures."""

    name: str
    version: str
    workers: int
    silent_s: float
    sees: tuple[str, ...] = ()
    down: tuple[str, ...] = ()


class FleetView(Struct, frozen=True, kw_only=True, tag=True):
    """The fleet and its reports, for one worker. All ages are as of `at_ns`.

    `name`: that of its gateway. `answered_s`: time since the database answered; None: it has not
    yet. `targets`: what all other workers of the fleet report together. `turns`: targets that this
    worker may probe, and before which time the probe may begin.
    """

    at_ns: int
    name: str
    answered_s: float | None = None
    gateways: tuple[GatewayStatus, ...] = ()
    targets: dict[str, TargetReport] = {}
    turns: dict[str, int] = {}
