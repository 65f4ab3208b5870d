"""The hub's part that writes the log, so that no thread competes with a worker's event loop.

Workers send `CallRecord`s (`log/store/hub_connection`). The hub answers with `Settled`: how many it
has taken, and how many of these are written, in a file, or lost for good. A worker keeps each
record until it is settled (`log/store/remote_writer`), so a hub that dies loses nothing.

A record that has waited for the log for a second is saved in a file (`log/store/unwritten`), with
all others that wait. From then on records are only saved, until the log has written what waits in
memory: an outage costs disk space, not memory. If the disk is full, a few thousand records are read
into memory and no more. When the log is written again, the hub reads its file back, and those of
processes that have died (`log/store/recovery`).

At its end the hub reads what workers send until they have disconnected. What cannot be written
within a few seconds stays in files for the next hub.
"""

from collections import deque

from splitsecond.core import clock
from splitsecond.core.errors import say
from splitsecond.log.store.log import Log
from splitsecond.log.store.recovery import Recovery
from splitsecond.log.store.sender import Arrival, Sender
from splitsecond.log.store.unwritten import UnwrittenFile
from splitsecond.log.store.writer import QUEUE, SAY_NS

IDLE_S = 1.0
"""How often workers without records learn whether the log is failing."""
SAVE_S = 1.0
"""How long a record waits for the log until all that wait are saved in a file."""
MAX_UNSETTLED = QUEUE // 2
"""Records that the log may have to write before no more are read from workers."""

Unsettled = tuple[Sender | None, bool, str, bytes, int]
"""A record that may not be in the log yet: its sender, None if it is in a file and so settled
already; whether it was given to the log before; the id of its call; the encoded record; and when it
was given to the log."""


class LogReceiver:
    """Puts the records of all `senders` into the log. Call `turn` again and again, soon if
    `is_busy`.

    `paused`: nothing should be read from senders. `ending`: no further senders come, so all must be
    read.
    """

    def __init__(self, log: Log) -> None:
        self.senders: list[Sender] = []
        self.ending = False
        self.yield_processor = log.yield_processor
        self._log = log
        self._changed: set[Sender] = set()  # senders with counts that they do not know
        self._unsettled: deque[Unsettled] = deque()
        self._attributed = self._lost = 0  # records settled, and those of them that are lost
        self._failing = False
        self._reported_ns = 0
        self._file = UnwrittenFile(log.unwritten)
        self._saving = False  # all that waits is in the file, and what arrives is only saved
        self._only_saved = 0  # records of the file that were not given to the log
        self._in_files = 0  # unsettled records that are in a file too
        self._full_ns: int | None = None  # when the file could not be written
        self._complained_ns: int | None = None
        self._recovery = Recovery(log, say)

    @property
    def is_busy(self) -> bool:
        return bool(self._unsettled or self._failing or self._saving or self._recovery.busy)

    @property
    def is_recovering(self) -> bool:
        return self._recovery.reading and not self._log.failing

    @property
    def paused(self) -> bool:
        return len(self._unsettled) >= MAX_UNSETTLED and not self.ending and not self._saving

    @property
    def may_recover(self) -> bool:
        """Whether the records of files may soon be written."""
        return self._recovery.busy and not self._log.failing

    def turn(self) -> None:
        self._settle()
        self._save_late_ones()
        self._recover()
        self._report_state()

    def add(self, sender: Sender) -> None:
        self.senders.append(sender)
        if self._failing:
            sender.report(failing=True)

    def remove(self, sender: Sender) -> None:
        self.senders.remove(sender)
        sender.ended = True

    def receive(self, sender: Sender, arrivals: list[Arrival]) -> None:
        sender.taken += len(arrivals)
        full = self.ending and len(self._unsettled) >= MAX_UNSETTLED
        if not self._saving and (full or any(again for _, _, again in arrivals)):
            self._save_waiting()
        if self._saving and self._save([data for _, data, _ in arrivals]):
            self._only_saved += len(arrivals)
            sender.settle(len(arrivals))
            self._changed.add(sender)
            return
        now_ns = clock.now_ns()
        for record, data, _ in arrivals:
            self._unsettled.append((sender, False, record.call, data, now_ns))
            self._log.put(record)

    def _settle(self) -> None:
        dropped = self._log.dropped
        left = self._log.written + dropped - self._attributed
        self._attributed += left
        lost, self._lost = dropped - self._lost, dropped
        while self._unsettled and (left or self._unsettled[0][1]):
            sender, is_duplicate, _, _, _ = self._unsettled.popleft()
            is_lost = not is_duplicate and lost > 0
            left -= not is_duplicate
            lost -= is_lost
            if sender is None:
                self._in_files -= 1
            else:
                sender.settle()
            if sender is None or sender.ended:
                sender = self.senders[0] if is_lost and self.senders else None
            if sender is not None:
                sender.lost += is_lost
                self._changed.add(sender)

    def _report_state(self) -> None:
        if self.senders:
            saved = self._only_saved + self._in_files + self._recovery.waiting
            if self.senders[0].saved != saved:
                self.senders[0].saved = saved
                self._changed.add(self.senders[0])
        if self._log.failing != self._failing:
            self._failing = self._log.failing
            self._changed.update(self.senders)
        for sender in self._changed:
            sender.report(failing=self._failing)
        self._changed.clear()
        if (now_ns := clock.now_ns()) >= self._reported_ns + IDLE_S * clock.NS_PER_S:
            self._reported_ns = now_ns
            for sender in self.senders:
                sender.report_taken(failing=self._failing)

    def _save_late_ones(self) -> None:
        now_ns = clock.now_ns()
        if self._unsettled and now_ns - self._unsettled[0][4] >= SAVE_S * clock.NS_PER_S:
            full = self._full_ns is not None and now_ns - self._full_ns < SAVE_S * clock.NS_PER_S
            if not self._saving and not full:
                self._save_waiting()
        elif not self._in_files:
            self._saving = False
            if self._only_saved:
                self._recovery.take(self._file.found())
            else:
                self._file.remove()
            if self._file.records:
                self._file, self._only_saved = UnwrittenFile(self._log.unwritten), 0

    def _save_waiting(self) -> None:
        waiting = [data for sender, _, _, data, _ in self._unsettled if sender is not None]
        self._saving = self._save(waiting)
        if not self._saving:
            return
        self._in_files = len(self._unsettled)
        for i, (sender, is_duplicate, call, _, at_ns) in enumerate(self._unsettled):
            if sender is not None:
                sender.settle()
                self._changed.add(sender)
                self._unsettled[i] = None, is_duplicate, call, b"", at_ns

    def _save(self, records: list[bytes]) -> bool:
        try:
            self._file.add(records)
        except OSError as error:
            self._saving, self._full_ns = False, clock.now_ns()
            if self._complained_ns is None or self._full_ns - self._complained_ns >= SAY_NS:
                self._complained_ns = self._full_ns
                say(f"log {self._log.where}: what waits cannot be saved: {error}.")
            return False
        return True

    def _recover(self) -> None:
        if self._in_files or self._saving or self.paused or not self._recovery.busy:
            return
        waiting = {call for _, _, call, _, _ in self._unsettled}
        now_ns = clock.now_ns()
        for record_rows, call in self._recovery.next_block(waiting):
            self._in_files += 1
            self._unsettled.append((None, call in waiting, call, b"", now_ns))
            if call not in waiting:
                self._log.put_rows(record_rows)

    def look_for_files(self) -> None:
        self._recovery.look_now()
        self._recover()

    def close(self) -> None:
        self._save_waiting()
        self._log.close()
        self._settle()
        self._recovery.close()
        if not self._log.waiting and not self._only_saved:
            self._file.remove()
        elif self._file.records:
            say(
                f"log {self._log.where}: what is not written is kept in {self._file.path}; the "
                "next start writes it."
            )
        self._file.close()
