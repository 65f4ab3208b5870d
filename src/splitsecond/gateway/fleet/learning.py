"""The hub's part of what workers learn from each other: it collects, exchanges and hands out
reports."""

from collections.abc import Callable

from splitsecond.core import clock
from splitsecond.gateway.fleet.database import FleetDatabase, Neighbour
from splitsecond.gateway.fleet.learned import (
    InvalidReport,
    TargetReport,
    decode_targets,
    encode_targets,
    merged_targets,
)
from splitsecond.gateway.fleet.turns import Turns
from splitsecond.gateway.fleet.view import STALE_S, FleetView, GatewayStatus, WorkerReport

ALONE_S = 10.0
"""Time without an answer of the database after which the workers of this gateway take turns among
themselves."""
USED_S = 15.0
"""The age at which a report of another gateway is no longer used."""
MAX_SHOWN = 20


class Learning:
    """`reports`: the latest of each worker. `publish` gets their views."""

    def __init__(
        self, workers: int, say: Callable[[str], None], publish: Callable[[int, FleetView], None]
    ) -> None:
        self.reports: dict[int, WorkerReport] = {}
        self._workers = workers
        self._say = say
        self._publish = publish
        self._turns = Turns()
        self._own: dict[int, dict[str, TargetReport]] = {}
        self._others: dict[str, tuple[int, dict[str, TargetReport]]] = {}
        """By gateway: when its report was made, on this machine's clock, and the report."""
        self._claims: list[str] = []
        self._granted: dict[str, tuple[int, int]] = {}
        self._reached_ns = 0
        self._invalid: set[str] = set()
        self.invalid = 0

    @property
    def turns(self) -> int:
        return len(self._granted)

    def collect(self, now_ns: int) -> None:
        self._own, made_ns = {}, {}
        for number in range(self._workers):
            report = self.reports.get(number)
            if report is not None and now_ns - report.at_ns < STALE_S * clock.NS_PER_S:
                since_s = max(now_ns - report.at_ns, 0) / clock.NS_PER_S
                self._own[number] = merged_targets([(since_s, report.targets)])
                made_ns[number] = report.at_ns
        self._claims = self._turns.claims(self._own, made_ns, now_ns)

    async def exchange(self, database: FleetDatabase) -> None:
        begin_ns = clock.now_ns()
        text = encode_targets(merged_targets([(0.0, targets) for targets in self._own.values()]))
        received = await database.learn(text, self._claims)
        now_ns = clock.now_ns()
        self._reached_ns = begin_ns
        self._granted = self._turns.granted(received.turns, begin_ns)
        self._others = {}
        for gateway, silent_s, theirs in received.reports:
            try:
                self._others[gateway] = (
                    now_ns - round(silent_s * clock.NS_PER_S),
                    decode_targets(theirs),
                )
            except InvalidReport as why:
                self.invalid += 1
                if gateway not in self._invalid and len(self._invalid) < MAX_SHOWN:
                    self._invalid.add(gateway)
                    self._say(
                        f"the report of gateway {gateway} in the database of the fleet is not "
                        f"used: {why}"
                    )

    def publish(self, name: str, fleet: tuple[Neighbour, ...], answered_ns: int) -> None:
        now_ns = clock.now_ns()
        used = {
            gateway: ((now_ns - at_ns) / clock.NS_PER_S, targets)
            for gateway, (at_ns, targets) in self._others.items()
            if now_ns - at_ns < USED_S * clock.NS_PER_S
        }
        if not self._reached_ns or now_ns - self._reached_ns >= ALONE_S * clock.NS_PER_S:
            self._granted = self._turns.granted(set(self._claims), now_ns)
        since_s = (now_ns - answered_ns) / clock.NS_PER_S
        down = {gateway: _down(targets) for gateway, (_, targets) in used.items()}
        down[name] = _down(merged_targets([(0.0, targets) for targets in self._own.values()]))
        gateways = tuple(
            GatewayStatus(
                name=each.name,
                version=each.about.version,
                workers=each.about.workers,
                silent_s=each.silent_s + since_s,
                sees=each.about.sees,
                down=down.get(each.name, ()),
            )
            for each in sorted(fleet, key=lambda each: each.name)
        )
        others = merged_targets(list(used.values()))
        for number in range(self._workers):
            siblings = [(0.0, targets) for other, targets in self._own.items() if other != number]
            view = FleetView(
                at_ns=now_ns,
                name=name,
                answered_s=since_s if answered_ns else None,
                gateways=gateways,
                targets=merged_targets([(0.0, others), *siblings]) if siblings else others,
                turns={
                    target: until_ns
                    for target, (worker, until_ns) in self._granted.items()
                    if worker == number
                },
            )
            self._publish(number, view)


def _down(targets: dict[str, TargetReport]) -> tuple[str, ...]:
    return tuple(name for name, report in targets.items() if report.opening is not None)[:MAX_SHOWN]
