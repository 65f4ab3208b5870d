"""The gateway's log as commands read it: found, opened, priced, and gone through with a progress bar."""

import os
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from splitsecond import clock
from splitsecond.cli.serve import DEFAULT
from splitsecond.errors import CallerFault

if TYPE_CHECKING:
    from splitsecond.analysis.production import By, Speed
    from splitsecond.catalog.price import Price
    from splitsecond.gateway.configuration.settings import Settings
    from splitsecond.store.log import Past, Served
    from splitsecond.timing.observation import Observation

DAYS = 14.0
LONGEST_DAYS = 3650.0
_DRAWN = 500
"""Records after which the bar is drawn again."""

Record = TypeVar("Record")


class Logged:
    """The last `days` of a log. `log` is a URL or the path of a SQLite file; "": that of the configuration.

    Raises `CallerFault` where there is none, or `days` make no sense.
    """

    def __init__(self, log: str, config: Path | None, days: float) -> None:
        if not 0 < days <= LONGEST_DAYS:
            raise CallerFault(
                f"--days: got {days:g}, expected more than 0, at most {LONGEST_DAYS:g}", kind="bad_option"
            )
        self.until: datetime = clock.wall_time()
        self.since: datetime = self.until - timedelta(days=days)
        self._settings = _settings(log, config)
        self._past = _opened(log, self._settings)

    @property
    def configured(self) -> bool:
        """Whether a configuration, and so what it says of prices, is known."""
        return self._settings is not None

    @property
    def span_s(self) -> float:
        """How long that is."""
        return (self.until - self.since).total_seconds()

    @property
    def words(self) -> str:
        """From when to when, for a person."""
        return f"{self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M} UTC"

    def targets(self, only: Sequence[str] = ()) -> list[str]:
        """Those whose name holds one of `only`; all, where that is empty. Raises `CallerFault` for none."""
        named = [name for name in self._past.targets() if not only or any(text in name for text in only)]
        if not named:
            what = f"target like {' or '.join(map(repr, only))}" if only else "request"
            raise CallerFault(f"there is no {what} in the log", kind="nothing_logged")
        return named

    def price(self, targets: Sequence[str]) -> "Callable[[str], Price | None]":
        """What targets cost, by the configuration where there is one, else by the public list and the catalogue."""
        if self._settings is None:
            from splitsecond.catalog.prices import prices

            return prices(targets).get
        from splitsecond.gateway.facts import TargetFacts

        facts = TargetFacts(self._settings)
        facts.learn(facts.look_up(targets))
        return facts.price

    def attempts(self) -> "Iterator[tuple[datetime, Observation]]":
        """The attempts, in order, each with the moment of its call."""
        return self._read(self._past.attempts(self.since, self.until))

    def calls(self) -> "Iterator[tuple[datetime, Served]]":
        """The calls with their attempts, in order, each with its moment."""
        return self._read(self._past.calls(self.since, self.until))

    def nothing(self) -> CallerFault:
        """The fault of there being nothing in these days."""
        words = f"nothing was asked from {self.words}"
        return CallerFault(words, kind="nothing_logged", hint="Look further back with --days.")

    def _read(self, records: Iterator[tuple[datetime, Record]]) -> Iterator[tuple[datetime, Record]]:
        from rich.console import Console
        from rich.progress import Progress

        screen = Console(stderr=True)
        with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
            task = progress.add_task("reading the log", total=self.span_s)
            for number, (moment, record) in enumerate(records):
                if number % _DRAWN == 0:
                    progress.update(task, completed=(moment - self.since).total_seconds())
                yield moment, record


def speeds(logged: Logged, *, only: Sequence[str] = (), by: "By" = "target", least: int) -> "list[Speed]":
    """What the log says of each target whose name holds one of `only`. Raises `CallerFault` where it says nothing."""
    from splitsecond.analysis.production import Traffic

    named = logged.targets(only)
    traffic, wanted = Traffic(logged.price(named), by), frozenset(named)
    for moment, attempt in logged.attempts():
        if attempt.target in wanted:
            traffic.add(moment, attempt)
    found = traffic.speeds(least)
    if not found:
        raise logged.nothing()
    return found


def _settings(log: str, config: Path | None) -> "Settings | None":
    """The gateway's configuration: named, or found where no log is named. Nobody is asked, so no key need be there."""
    from splitsecond.gateway.configuration.reading import load

    path = config or (DEFAULT if DEFAULT.exists() and not log else None)
    return None if path is None else load(path, os.environ, serving=False)


def _opened(log: str, settings: "Settings | None") -> "Past":
    from splitsecond.store.log import Past

    if log:
        return Past.open(log if "://" in log else f"sqlite:///{log}")
    if settings is None:
        raise CallerFault(
            f"which log? There is no {DEFAULT} here",
            kind="no_log",
            hint="Name it with --log sqlite:///splitsecond.db, or the gateway's configuration with --config FILE.",
        )
    if settings.log is None:
        raise CallerFault(
            "the configuration keeps no log", kind="no_log", hint="Add log: sqlite:///splitsecond.db to it."
        )
    return Past.open(settings.log.url)
