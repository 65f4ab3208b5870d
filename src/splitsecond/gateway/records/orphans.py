"""Orphaned calls: calls that were in flight when their worker died. They are charged, logged and
reported.

The use of an orphaned call is unknown, so its reservation is charged: otherwise a client that can
make a worker crash would not pay for its calls.

The records of orphaned calls are in the log, or in a file for the hub, before the journal is
cleared. A worker that is killed before it has done that leaves the journal to the next. If it is
killed in between, the records are found twice, but written once, because the log is checked first.
"""

import contextlib
import fcntl
import glob
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from splitsecond.core import clock
from splitsecond.core.errors import CallerFault
from splitsecond.core.observation import Observation
from splitsecond.core.wording import counted_as
from splitsecond.gateway.records.journal import Journal, Reservation
from splitsecond.gateway.records.limits import today
from splitsecond.gateway.records.shared_counters import SharedCounters
from splitsecond.gateway.records.shared_memory import create_memory
from splitsecond.log.store.call_record import WORKER_DIED, CallAccounting, CallRecord
from splitsecond.log.store.remote_writer import encode
from splitsecond.log.store.settings import LogSettings
from splitsecond.log.store.unwritten import save
from splitsecond.routing.router.settings import ClientKey

if TYPE_CHECKING:  # it imports SQLAlchemy, which a gateway without a log does not need
    from splitsecond.log.store.log import Log

_SERVER_ERROR = 500
_SUFFIX = ".in-flight-"


def journal_stem(log: LogSettings | None) -> Path | None:
    file = log.file if log is not None else None
    return file and file.with_name(f"{file.name}{_SUFFIX}{secrets.token_hex(4)}")


def open_journal(stem: Path | None, worker: int, say: Callable[[str], None]) -> int:
    """Return the descriptor of a new journal for all workers of a slot, which inherit it.

    If its file cannot be created, `say` hears why, and the journal is in memory: it ends with the
    gateway.
    """
    if stem is not None:
        path = stem.with_name(f"{stem.name}-{worker}")
        try:
            return _locked(path, os.O_CREAT, fcntl.LOCK_SH)
        except OSError as error:
            say(
                f"The journal {path} cannot be created: {error.strerror}. If the whole gateway "
                f"dies, calls in flight "
                "are neither logged nor charged."
            )
    return create_memory(0)


def remove_journals(stem: Path | None) -> None:
    if stem is not None:
        _remove(_files(str(stem)))


def recover(settings: LogSettings | None, say: Callable[[str], None]) -> None:
    """Log and report the orphaned calls of gateways that wrote the same log and were killed.

    A gateway reads today's spending from the log, so these calls count against the limits of their
    keys. Journals whose calls cannot be logged are left to the next start.
    """
    file = settings.file if settings is not None else None
    if file is None or settings is None:
        return
    calls: dict[str, list[float]] = {}
    orphans: list[CallRecord] = []
    with contextlib.ExitStack() as stack:
        ended: list[Path] = []
        for path in _files(f"{file}{_SUFFIX}"):
            try:
                descriptor = _locked(path, 0, fcntl.LOCK_EX)
                stack.callback(os.close, descriptor)
                entries = Journal(descriptor, say).entries()
            except BlockingIOError:  # a living worker holds its lock
                continue
            except OSError as error:
                say(
                    f"The journal {path} of a gateway that was killed cannot be read: "
                    f"{error.strerror}."
                )
                continue
            ended.append(path)
            for entry in entries:
                orphans.append(orphan_record(entry))
                calls.setdefault(entry.client, []).append(entry.usd)
        is_saved = log_orphans(settings, orphans, say)
        if is_saved:
            _remove(ended)
    for name, usd in calls.items() if is_saved else ():
        say(
            f"A gateway was killed with {counted_as(len(usd), 'call')} of key {name!r} in flight. "
            f"The log {file} "
            f"records them with the {sum(usd):.6f} USD that they had reserved."
        )


def settle(
    counters: SharedCounters,
    journal: Journal,
    *,
    worker: int,
    keys: Sequence[ClientKey],
    keep: Callable[[Sequence[CallRecord]], bool],
    say: Callable[[str], None],
) -> bool:
    """Charge, log and report the orphaned calls of the last worker in a slot, by key.

    `keep` gets the records of the calls in the journal, and returns whether they are kept: then the
    journal is cleared. Return whether nothing is left in the journal.
    """
    teams = {key.team.counter for key in keys if key.team is not None}
    charged = counters.forfeit([*(key.counter for key in keys), *teams], today())
    entries: list[Reservation] = []
    try:
        entries = journal.entries()
        is_saved = keep([orphan_record(entry) for entry in entries])
        if is_saved:
            journal.clear()
    except OSError as error:
        is_saved = False
        say(
            f"worker {worker} died, and the journal of its calls cannot be read or cleared: "
            f"{error.strerror}."
        )
    calls = Counter(entry.client for entry in entries)
    for name in [each for each in {**charged, **calls} if each not in teams]:
        key = f"key {name!r}" if name else "a key that is no longer in the configuration"
        say(
            f"worker {worker} died with calls of {key} in flight. The "
            f"{charged.get(name, 0.0):.6f} USD that they had "
            f"reserved are charged. Calls in the log: {calls.get(name, 0) if is_saved else 0:,}."
        )
    return is_saved


def log_orphans(
    settings: LogSettings | None, orphans: Sequence[CallRecord], say: Callable[[str], None]
) -> bool:
    """Log calls at the start or the end of a gateway. If that fails, save them for the next one.

    Return False if neither is possible; they remain in their journals, which must be kept.
    """
    if settings is None or not orphans:
        return True
    from splitsecond.log.store.database import unwritten_stem
    from splitsecond.log.store.log import Log

    try:
        with Log.open(settings.url, keep_days=settings.keep_days, say=say) as log:
            logged = log.contained(orphans)
            for each in orphans:
                if each.call not in logged:
                    log.put(each)
    except CallerFault as fault:
        say(str(fault))
    else:
        if not log.waiting:
            return True
    is_saved = True
    try:
        where = save(unwritten_stem(settings.url), [encode(each) for each in orphans])
    except OSError as error:
        is_saved, where = False, f"They cannot be saved: {error}."
    say(f"The log lacks {counted_as(len(orphans), 'call')} of workers that died. {where}")
    return is_saved


def save_orphans(log: "Log", orphans: Sequence[CallRecord]) -> bool:
    try:
        save(log.unwritten, [encode(each) for each in orphans])
    except OSError:
        return False
    return True


def orphan_record(entry: Reservation) -> CallRecord:
    end_ns = clock.now_ns()
    # a monotonic time from before a reboot may lie in the future
    start_ns = min(entry.start_ns, end_ns)
    attempts = [
        Observation(
            id=f"{entry.call}.{number}",
            call=entry.call,
            target=usage.target,
            role="loser",
            outcome="cancelled",
            streamed=entry.stream,
            start_ns=start_ns,
            sent_ns=start_ns,
            end_ns=end_ns,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
        )
        for number, usage in enumerate(entry.usages, 1)
    ]
    return CallRecord(
        call=entry.call,
        start_ns=start_ns,
        end_ns=end_ns,
        route=entry.route,
        client=entry.client,
        operation=entry.operation,
        stream=entry.stream,
        status=_SERVER_ERROR,
        outcome="failed",
        fault=WORKER_DIED,
        wall_us=clock.wall_offset_us(),
        accounting=CallAccounting(team=entry.team) if entry.team else None,
        attempts=tuple(attempts),
    )


def _files(beginning: str) -> list[Path]:
    return sorted(map(Path, glob.glob(f"{glob.escape(beginning)}*")))


def _locked(path: Path, flags: int, lock: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(descriptor, lock | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove(paths: Iterable[Path]) -> None:
    """Remove journals. One that stays is found again at the next start, which logs no call
    twice."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
