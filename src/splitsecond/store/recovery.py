"""Reading back what other processes could not write before they ended, from the files of `store/unwritten`."""

from collections.abc import Callable
from pathlib import Path

from splitsecond import clock
from splitsecond.errors import CallerFault
from splitsecond.store.call_record import CallRecord
from splitsecond.store.log import Log
from splitsecond.store.rows import Rows, rows
from splitsecond.store.unwritten import FoundFile, claim

LOOK_S = 5.0
"""How often the folder is searched for files."""
AWAY_S = 30.0
"""Time until the log is asked again after it has not answered, which can take seconds."""
BLOCK = 500


class Recovery:
    """The files of a log, one after another, in blocks."""

    def __init__(self, log: Log, say: Callable[[str], None]) -> None:
        """`say` gets what was recovered, and which files cannot be read."""
        self._log = log
        self._say = say
        self._files: list[FoundFile] = []
        self._block: list[CallRecord] = []  # that the log has not been asked about
        self._unreadable = set[Path]()
        self._look_ns = 0

    def next_block(self) -> list[tuple[Rows, str]]:
        """Return the rows of some records that the log does not contain, each with the id of its call; none: not now.

        Call it again when they are written: then the file can be removed.
        """
        now_ns = clock.now_ns()
        if now_ns < self._look_ns:
            return []
        if not self._files:
            self._files, unreadable = claim(self._log.unwritten, self._unreadable)
            for path, why in unreadable.items():
                self._ignore(path, why)
        while self._files:
            file = self._files[0]
            try:
                self._block = self._block or file.read(BLOCK)
                contained = self._log.contained(self._block, file.wall_us)
            except ValueError as error:
                self._ignore(file.path, str(error))
                self._files.pop(0).close()
                continue
            except CallerFault:  # the database is away
                self._look_ns = now_ns + round(AWAY_S * clock.NS_PER_S)
                return []
            block, self._block = self._block, []
            if not block:
                self._say(f"log {self._log.where}: records written from {file.path}: {file.records:,}.")
                self._files.pop(0).remove()
            elif missing := [each for each in block if each.call not in contained]:
                return [(rows(each, file.wall_us), each.call) for each in missing]
        self._look_ns = now_ns + round(LOOK_S * clock.NS_PER_S)
        return []

    def close(self) -> None:
        """Leave the files to others."""
        for each in self._files:
            each.close()
        self._files.clear()

    def _ignore(self, path: Path, why: str) -> None:
        self._unreadable.add(path)
        self._say(f"log {self._log.where}: the records in {path} cannot be read: {why}. Move the file away.")
