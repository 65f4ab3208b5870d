"""The gateway's log: every call and every attempt, in SQLite or PostgreSQL."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from msgspec import Struct

from splitsecond.store.served import Served


class Tokens(Struct, frozen=True, kw_only=True):
    """Sums over attempts: what a provider bills by."""

    attempts: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Seed(Struct, frozen=True, kw_only=True):
    """What is left of one attempt, for an estimate of its target's speed. `age_ns`: since it ended."""

    target: str
    streamed: bool
    age_ns: int
    outcome: str
    fault: str
    ttft_ns: int | None
    tpot_ns: float | None
    input_tokens: int | None
    output_tokens: int | None


class Log:
    """An open log. One per process; `put` from its event loop, read from any thread."""

    dropped: int
    """Records that were not kept: the queue was full, or the database refused them for too long."""
    errors: int
    """Batches that the database refused."""
    written: int

    @classmethod
    def open(cls, url: str, *, keep_days: int = 30) -> "Log":
        """Opens the log, makes its tables where there are none. Raises `CallerFault` where that cannot be."""
        raise NotImplementedError

    def put(self, served: Served) -> None:
        """Hands a record to the writer. Never waits, never raises."""
        raise NotImplementedError

    def close(self) -> None:
        """Writes what is queued, for a few seconds at most, and closes. Calling it again does nothing."""
        raise NotImplementedError

    def recent(self, since: timedelta, *, each: int = 200) -> Iterator[Seed]:
        """The last `each` attempts of every target that ended within `since`, oldest first."""
        raise NotImplementedError

    def spent_tokens(self, client: str, since: datetime) -> Mapping[str, Tokens]:
        """What `client` used of each target since that moment."""
        raise NotImplementedError

    def calls(self, since: datetime, until: datetime | None = None) -> Iterable[Served]:
        """The calls that came in within a window, oldest first, with their attempts."""
        raise NotImplementedError


def check_url(url: str) -> None:
    """Raises `CallerFault` where `url` cannot name a log: scheme, driver, folder. Opens nothing."""
    raise NotImplementedError
