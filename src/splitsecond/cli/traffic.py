"""Where production speeds come from: the gateway's log, and what its targets cost. For `speed` and `recommend`."""

import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from splitsecond import clock
from splitsecond.cli.serve import DEFAULT
from splitsecond.errors import CallerFault

if TYPE_CHECKING:
    from splitsecond.analysis.production import By, Speed
    from splitsecond.catalog.price import Price
    from splitsecond.gateway.configuration.settings import Settings
    from splitsecond.store.log import Past

DAYS = 14.0
LONGEST_DAYS = 3650.0


class Window:
    """The days that are looked at."""

    def __init__(self, days: float) -> None:
        if not 0 < days <= LONGEST_DAYS:
            raise CallerFault(
                f"--days: got {days:g}, expected more than 0, at most {LONGEST_DAYS:g}", kind="bad_option"
            )
        self.until: datetime = clock.wall_time()
        self.since: datetime = self.until - timedelta(days=days)

    @property
    def words(self) -> str:
        """From when to when, for a person."""
        return f"{self.since:%Y-%m-%d %H:%M} to {self.until:%Y-%m-%d %H:%M} UTC"


def speeds(
    log: str, config: Path | None, window: Window, *, only: Sequence[str] = (), by: "By" = "target", least: int
) -> "list[Speed]":
    """What the log says of each target whose name holds one of `only` (all, where that is empty).

    `log` is a URL or the path of a SQLite file; "": that of the configuration. Raises `CallerFault` where there is
    none, or nothing in it.
    """
    from rich.console import Console
    from rich.progress import Progress

    from splitsecond.analysis.production import Traffic

    settings = _settings(log, config)
    past = _opened(log, settings)
    named = [name for name in past.targets() if not only or any(text in name for text in only)]
    if not named:
        what = f"target like {' or '.join(map(repr, only))}" if only else "request"
        raise CallerFault(f"there is no {what} in the log", kind="nothing_logged")
    traffic = Traffic(_prices(named, settings), by)
    wanted, read, span = frozenset(named), 0, (window.until - window.since).total_seconds()
    screen = Console(stderr=True)
    with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task("reading the log", total=span)
        for moment, attempt in past.attempts(window.since, window.until):
            if attempt.target in wanted:
                traffic.add(moment, attempt)
                read += 1
            if read % 1000 == 0:
                progress.update(task, completed=(moment - window.since).total_seconds())
    if not read:
        raise CallerFault(
            f"nothing was asked from {window.words}", kind="nothing_logged", hint="Look further back with --days."
        )
    return traffic.speeds(least)


def _settings(log: str, config: Path | None) -> "Settings | None":
    """The gateway's configuration: named, or found where no log is named."""
    from splitsecond.gateway.process.reload import Source

    path = config or (DEFAULT if DEFAULT.exists() and not log else None)
    return None if path is None else Source(path, os.environ, {}).load()


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


def _prices(targets: Sequence[str], settings: "Settings | None") -> "Callable[[str], Price | None]":
    """What targets cost, by the configuration where there is one, else by the public list and the catalogue."""
    if settings is None:
        from splitsecond.catalog.prices import prices

        return prices(targets).get
    from splitsecond.gateway.facts import TargetFacts

    facts = TargetFacts(settings)
    facts.learn(facts.look_up(targets))
    return facts.price
