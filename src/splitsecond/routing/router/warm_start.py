"""Observations from before this process started: from the gateway's own log and from runs of the
bench."""

import glob
from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.loading import loading
from splitsecond.core.observation import Observation
from splitsecond.core.session import CallSession
from splitsecond.log.store.folder import seeds
from splitsecond.log.store.settings import LogSettings

if TYPE_CHECKING:
    from splitsecond.log.store.hub_connection import HubConnection
    from splitsecond.log.store.log import Log

Aged = tuple[Observation, int]
"""An earlier attempt, and its age in nanoseconds."""


class History(NamedTuple):
    """Earlier attempts, and those that answered the latest turns of sessions, the oldest first:
    each with its session and the age of its call in nanoseconds."""

    attempts: list[Aged]
    turns: list[tuple[Observation, CallSession, int]]


REMEMBERED = timedelta(days=1)
"""How far back the log is read. Older attempts say little about today."""


def open_log(
    settings: LogSettings | None, say: Callable[[str], None], *, hub: "HubConnection | None" = None
) -> "Log | None":
    """Open the log; None if none is configured. Raises `CallerFault` if that fails."""
    if settings is None:
        return None
    with loading():  # SQLAlchemy, which a gateway without a log does not need
        from splitsecond.log.store.log import Log

    away = None if hub is None else lambda why: None
    return Log.open(settings.url, keep_days=settings.keep_days, say=say, hub=hub, away=away)


def history(log: "Log | None", patterns: Iterable[str], say: Callable[[str], None]) -> History:
    past = History([], [])
    for folder in (Path(each) for pattern in patterns for each in sorted(glob.glob(pattern))):
        try:
            past.attempts.extend(of_run(folder))
        except CallerFault as fault:
            say(f"seeds: {fault}")
    if log is not None:
        try:
            for attempt, age_s in log.recent(REMEMBERED):
                past.attempts.append((attempt, round(age_s * clock.NS_PER_S)))
            for attempt, session, age_s in log.recent_turns(REMEMBERED):
                past.turns.append((attempt, session, round(age_s * clock.NS_PER_S)))
        except CallerFault as fault:
            say(str(fault))
    return past


def of_run(folder: Path) -> list[Aged]:
    """Return the attempts of a bench, without the observations of whole calls of a policy, which
    are no target.

    Raises `CallerFault` if the folder contains no run.
    """
    return [
        (each, round(age_s * clock.NS_PER_S))
        for each, age_s in seeds(folder)
        if "(" not in each.target
    ]
