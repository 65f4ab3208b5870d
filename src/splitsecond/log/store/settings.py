"""Settings of the log. A gateway without a log reads this module, too, so it imports nothing that
only a log needs."""

from pathlib import Path

from msgspec import Struct


class LogSettings(Struct, frozen=True):
    """Database of the log. The repr omits the URL, which may contain a password."""

    url: str
    keep_days: int = 31

    @property
    def file(self) -> Path | None:
        """The file of a log in SQLite, or None."""
        # it imports SQLAlchemy, which takes half a second, and a gateway without a log needs none
        from splitsecond.log.store.database import sqlite_file

        return sqlite_file(self.url)

    def __repr__(self) -> str:
        return f"LogSettings({self.url.partition(':')[0]}, keep_days={self.keep_days})"
