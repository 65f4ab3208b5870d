"""Reading back what could not be written, from the files of `log/store/unwritten`.

A thread asks the log which records it contains already, because the answer can take long: the
database may hang.
"""

import contextlib
import threading
from collections.abc import Callable, Set
from pathlib import Path

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.log import Log
from splitsecond.log.store.rows import Rows, rows
from splitsecond.log.store.unwritten import FoundFile, claim

LOOK_S = 1.0
"""How often the folder is searched for files, and the log is asked again if it has not answered."""
BLOCK = 1000


class Recovery:
    """The files of a log, one after another, in blocks."""

    def __init__(self, log: Log, say: Callable[[str], None]) -> None:
        """`say` gets what was recovered, and which files cannot be read."""
        self._log = log
        self._say = say
        self._files: list[FoundFile] = []
        self._block: list[CallRecord] = []  # that the log is asked about, or will be
        self._ignored = set[Path]()
        self._look_ns = 0
        self._asking: threading.Thread | None = None
        self._contained: set[str] | None = None  # its answer; None if there was none
        self._waiting: Set[str] = frozenset()

    @property
    def waiting(self) -> int:
        """Records that this process has saved and not given to the log again. Those of workers'
        files are not counted: the workers do that."""
        own = self._files and self._files[0].expected
        return (len(self._block) if own else 0) + sum(
            max(0, each.expected - each.records) for each in self._files
        )

    @property
    def busy(self) -> bool:
        """Whether the log is being asked, or `next_block` would look for files."""
        return self._asking is not None or clock.now_ns() >= self._look_ns

    @property
    def reading(self) -> bool:
        return bool(self._files)

    def take(self, file: FoundFile) -> None:
        self._files.append(file)
        self.look_now()

    def look_now(self) -> None:
        self._look_ns = 0

    def next_block(self, waiting: Set[str]) -> list[tuple[Rows, str]]:
        """Return the rows of some records that the log does not contain, each with the id of its
        call; none: not now.

        `waiting`: calls that the log will contain soon. Call it again when all that it returned is
        written: then the file can be removed. It does not wait.
        """
        if not self.busy or (self._asking is not None and self._asking.is_alive()):
            return []
        if self._asking is not None:
            self._asking = None
            if self._contained is None:  # the database is away
                self._look_later()
                return []
            if missing := self._missing(self._contained | (self._waiting - waiting)):
                return missing
        self._find_files()
        while self._files:  # then look again: others may have been left meanwhile
            file = self._files[0]
            try:
                self._block = self._block or file.read(BLOCK)
            except (ValueError, OSError) as error:
                self._ignore(file.path, f"cannot be read: {error}")
                self._files.pop(0).close()
                continue
            if self._block:
                self._ask(waiting)
                return []
            self._say(f"log {self._log.where}: records written from {file.path}: {file.records:,}.")
            try:
                self._files.pop(0).remove()
            except OSError as error:
                self._ignore(file.path, f"are written, but it cannot be removed: {error.strerror}")
        return []

    def _missing(self, written: Set[str]) -> list[tuple[Rows, str]]:
        """End the block. Return the rows of its records that are not `written`."""
        missing = {each.call: each for each in self._block if each.call not in written}
        self._block = []
        return [(rows(each), call) for call, each in missing.items()]

    def _find_files(self) -> None:
        if not self._files:
            self._files, unreadable = claim(self._log.unwritten, self._ignored)
            for path, why in unreadable.items():
                self._ignore(path, f"cannot be read: {why}")
        if not self._files:
            self._look_later()

    def close(self) -> None:
        for each in self._files:
            each.close()
            self._say(
                f"log {self._log.where}: what is not written is kept in {each.path}; the next "
                "start writes it."
            )
        self._files.clear()

    def _ask(self, waiting: Set[str]) -> None:
        block, self._waiting, self._contained = self._block, waiting, None

        def ask() -> None:
            with contextlib.suppress(CallerFault):
                self._contained = self._log.contained(block)

        self._asking = threading.Thread(target=ask, name="splitsecond-log-recovery", daemon=True)
        # the machine has no more threads: as if the database were away
        with contextlib.suppress(RuntimeError):
            self._asking.start()

    def _look_later(self) -> None:
        self._look_ns = clock.now_ns() + round(LOOK_S * clock.NS_PER_S)

    def _ignore(self, path: Path, why: str) -> None:
        self._ignored.add(path)
        self._say(f"log {self._log.where}: the records in {path} {why}. Move the file away.")
