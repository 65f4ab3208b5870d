import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from rich.progress import Progress

from splitsecond.cli.console import Console
from splitsecond.cli.options import CONFIG, config_file
from splitsecond.core import clock
from splitsecond.core.catalog.price import Price
from splitsecond.core.catalog.prices import prices
from splitsecond.core.errors import CallerFault
from splitsecond.core.timing.columns import US_PER_HOUR, AttemptColumns
from splitsecond.log.production.row_names import SIDES
from splitsecond.log.production.speed import By, ProductionSpeed, SpeedComparison, period_hours
from splitsecond.log.production.traffic import ProductionTraffic
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.log import PARQUET, LoggedSession, Past, StatedCost
from splitsecond.log.store.parquet_export import ExportedLog
from splitsecond.log.store.request_columns import RequestColumns
from splitsecond.routing.configuration.reading import load
from splitsecond.routing.configuration.settings import GatewaySettings
from splitsecond.routing.construction.expression import Expression, TargetName
from splitsecond.routing.machinery.definition import Policy
from splitsecond.routing.machinery.settings import Duration
from splitsecond.routing.router.settings import RouterSettings
from splitsecond.routing.router.target_directory import TargetDirectory
from splitsecond.routing.targets.target_info import TargetInfo

DAYS = 14.0
LONGEST_DAYS = 3650.0
S_PER_DAY = 24 * 3600


def days_of(since: str) -> float:
    """Parse ``--since``: 30m, 12h or 14d."""
    longest_s = round(LONGEST_DAYS) * S_PER_DAY
    return Duration.parse("--since", since, longest_s).ns / clock.NS_PER_S / S_PER_DAY


class LoggedTraffic:
    """The last `days` of a log. `log` is a URL, the path of a SQLite file, or a folder of Parquet
    files; "": the log of the configuration, or without a configuration that of `splitsecond run`.

    Raises `CallerFault` if there is no log, or for an invalid number of days.
    """

    def __init__(self, log: str, config: Path | None, days: float) -> None:
        if not 0 < days <= LONGEST_DAYS:
            raise CallerFault(
                f"--days: got {days:g}, expected more than 0, at most {LONGEST_DAYS:g}",
                kind="bad_option",
            )
        self.until: datetime = clock.wall_time()
        self.since: datetime = self.until - timedelta(days=days)
        self._settings = _settings(log, config)
        self.url: str = _url(log, self._settings)
        self._past = Past.open(self.url)
        self._billing: TargetDirectory | None = None

    def price_notes(self, unpriced: int) -> list[str]:
        """Return why some attempts may have no price, if the configuration is not known."""
        if not unpriced or self._settings is not None or self.url == f"sqlite:///{runs_log()}":
            return []
        return ["Prices from the gateway's configuration are missing: name it with --config."]

    @property
    def span_s(self) -> float:
        return (self.until - self.since).total_seconds()

    @property
    def words(self) -> str:
        return f"{self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M} UTC"

    def targets(self, only: Sequence[str] = ()) -> list[str]:
        """Return the targets whose name contains one of `only`, or all targets. Raises
        `CallerFault` for none."""
        names = [
            name for name in self._past.targets() if not only or any(text in name for text in only)
        ]
        if not names:
            what = f"target like {' or '.join(map(repr, only))}" if only else "request"
            raise CallerFault(f"the log has no {what}", kind="nothing_logged")
        return names

    def price(self, targets: Sequence[str]) -> Callable[[str], Price | None]:
        """Return the prices of targets by the configuration, or by the public list and the
        catalogue without one."""
        return prices(targets).get if self._settings is None else self._directory(targets).price

    def facts(self, targets: Sequence[str]) -> Callable[[str], TargetInfo]:
        return self._directory(targets).facts

    def _directory(self, targets: Sequence[str]) -> TargetDirectory:
        directory = TargetDirectory(self._settings or RouterSettings())
        directory.learn(directory.look_up(targets))
        return directory

    def policy(self, route: str) -> Expression | None:
        """Return the policy of a route by the configuration; that of a target is the target. None:
        not known."""
        configured = None if self._settings is None else self._settings.routes.get(route)
        return TargetName(route) if configured is None and "/" in route else configured

    def policies(self) -> Mapping[str, Policy]:
        return (
            self._settings.policies.policies() if self._settings and self._settings.policies else {}
        )

    def routes(self) -> list[tuple[str, int]]:
        """Return the routes in the log and the numbers of their calls, the most frequent first."""
        return self._past.routes(self.since, self.until)

    def requests(self, route: str, max_calls: int) -> tuple[RequestColumns, int]:
        """Return calls to `route` with their attempts, and how many calls there are: if these are
        more than `max_calls`, whole hours that are evenly spread over the time."""
        hours = self._past.calls_by_hour(route, self.since, self.until)
        count = sum(calls for _, calls in hours)
        every = max(count / max_calls, 1.0)
        taken = dict.fromkeys(
            hours[int(place * every)][0] for place in range(int(len(hours) / every))
        )
        first_us, last_us = (round(each.timestamp() * 1e6) for each in (self.since, self.until))
        spans = [
            (max(at * US_PER_HOUR, first_us), min((at + 1) * US_PER_HOUR, last_us)) for at in taken
        ]
        return self._past.requests(route, spans), count

    def stops_billing(self, target: str) -> bool | None:
        """Return whether output is not billed that would have come after we closed a request; None:
        not known."""
        if self._billing is None:
            self._billing = TargetDirectory(self._settings or RouterSettings())
        return self._billing.closing_stops_billing(target)

    def attempts(self, targets: Sequence[str] = ()) -> Iterator[AttemptColumns]:
        with self._progress() as update:
            for columns, share in self._past.attempts(self.since, self.until, targets):
                update(share * self.span_s)
                yield columns

    def stated_costs(self, targets: Sequence[str]) -> list[StatedCost]:
        costs = self._past.stated_costs(self.since, self.until)
        return [each for each in costs if each.target in targets]

    def sessions(self) -> list[LoggedSession]:
        return self._past.sessions(self.since, self.until)

    def calls(self, session: str) -> Iterator[tuple[datetime, CallRecord]]:
        return self._past.calls(self.since, self.until, session=session)

    def first(self) -> datetime:
        began = self._past.first(self.since)
        if began is None or began >= self.until:
            raise self.nothing()
        return began

    def export(self, folder: Path) -> ExportedLog:
        """Write these days as Parquet. Raises `CallerFault` without calls, or as `Past.export`."""
        first = self.first()
        with self._progress() as update:
            rest_s = (self.until - first).total_seconds()
            return self._past.export(
                folder, first, self.until, lambda share: update(self.span_s - (1 - share) * rest_s)
            )

    def nothing(self) -> CallerFault:
        words = f"the log has no calls from {self.words}"
        return CallerFault(words, kind="nothing_logged", hint="Look further back with --days.")

    @contextmanager
    def _progress(self) -> Iterator[Callable[[float], None]]:
        screen = Console(stderr=True)
        with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
            task = progress.add_task("reading the log", total=self.span_s)
            yield lambda seconds: progress.update(task, completed=seconds)


def speeds(
    logged: LoggedTraffic,
    *,
    only: Sequence[str] = (),
    by: By = "target",
    least: int,
    also: Callable[[AttemptColumns], None] = lambda columns: None,
) -> tuple[list[ProductionSpeed], list[SpeedComparison]]:
    """Return the speed of each row, and comparisons of targets that serve one model and are in
    different rows.

    Counts the targets whose name contains one of `only`, or all. `also` receives the same attempts.
    Raises `CallerFault` without calls.
    """
    names = logged.targets(only)
    period_h = period_hours((logged.until - logged.first()).total_seconds())
    prices = logged.price(names)
    traffic = ProductionTraffic(prices, by, period_h)
    targets = ProductionTraffic(prices, "target", period_h) if by in SIDES else traffic
    for columns in logged.attempts(names if only else ()):
        also(columns)
        traffic.add(columns)
        if targets is not traffic:
            targets.add(columns)
    rows = traffic.speeds(least)
    if not rows:
        raise logged.nothing()
    if by == "target":
        return rows, traffic.comparisons(rows)
    return rows, targets.comparisons(targets.speeds(least), by) if by in SIDES else []


def runs_log() -> Path:
    """Return the log of `splitsecond run`, in the folder for data of this user."""
    return (
        Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
        / "splitsecond/runs.db"
    )


def log_url(log: str) -> str:
    if "://" in log or log.startswith(PARQUET):
        return log
    return f"{PARQUET}{log}" if Path(log).is_dir() else f"sqlite:///{log}"


def _settings(log: str, config: Path | None) -> GatewaySettings | None:
    """Load the gateway's configuration: `config`, or without a `log` the default file. Keys are not
    needed."""
    path = config if log else config_file(config)
    return None if path is None else load(path, os.environ, serving=False)


def _url(log: str, settings: GatewaySettings | None) -> str:
    if log:
        return log_url(log)
    if settings is None and runs_log().exists():
        return f"sqlite:///{runs_log()}"
    if settings is None:
        raise CallerFault(
            f"no log is given, and there is no {CONFIG} here",
            kind="no_log",
            hint="Name it with --log sqlite:///splitsecond.db, or the gateway's configuration "
            "with --config FILE.",
        )
    if settings.log is None:
        raise CallerFault(
            "the configuration has no log",
            kind="no_log",
            hint="Add log: sqlite:///splitsecond.db to it.",
        )
    return settings.log.url
