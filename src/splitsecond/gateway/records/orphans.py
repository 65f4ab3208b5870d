"""Orphaned calls: calls that were in flight when their worker died. They are charged, logged and reported.

Workers keep their journals next to an SQLite log. If a whole gateway is killed, the next gateway with that log finds
them. Without an SQLite log, the journals are in the gateway's temporary folder and end with it.

The use of an orphaned call is unknown, so its reservation is charged: otherwise a client that can make a worker crash
would not pay for its calls.

The records of orphaned calls are in the log, or in a file for the log process, before the journal is cleared. A worker
that is killed before it has done that leaves the journal to the next. If it is killed in between, the records are found
twice, but written once, because the log is checked first.
"""

import contextlib
import fcntl
import glob
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from splitsecond import clock
from splitsecond.analysis.wording import counted_as
from splitsecond.errors import CallerFault
from splitsecond.gateway.records.journal import Journal, Reservation
from splitsecond.gateway.records.key_limits import today
from splitsecond.gateway.records.shared_counters import SharedCounters
from splitsecond.observation import Observation
from splitsecond.router.settings import LogSettings
from splitsecond.store.call_record import CallRecord
from splitsecond.store.database import sqlite_file, unwritten_stem
from splitsecond.store.log import Log
from splitsecond.store.remote_writer import encode
from splitsecond.store.unwritten import save

WORKER_DIED = "worker_died"
"""The fault of a call whose worker died."""
_SERVER_ERROR = 500
_SUFFIX = ".in-flight-"


def journal_stem(log: LogSettings | None, folder: Path | None) -> Path | None:
    """Return how the paths of a new gateway's journals begin; None: the gateway keeps no journals."""
    file = sqlite_file(log.url) if log is not None else None
    if file is not None:
        return file.with_name(f"{file.name}{_SUFFIX}{secrets.token_hex(4)}")
    return folder and folder / "in-flight"


def journal_of(stem: Path, worker: int) -> Journal:
    """Open the journal of a worker slot, which replacements of the worker use too."""
    return Journal(stem.with_name(f"{stem.name}-{worker}"))


def recover(settings: LogSettings | None, say: Callable[[str], None]) -> None:
    """Log and report the orphaned calls of gateways that wrote the same log and were killed.

    A gateway reads today's spending from the log, so these calls count against the limits of their keys.
    """
    file = sqlite_file(settings.url) if settings is not None else None
    if file is None or settings is None:
        return
    calls: dict[str, list[float]] = {}
    orphans: list[CallRecord] = []
    with contextlib.ExitStack() as stack:
        for path in sorted(file.parent.glob(f"{glob.escape(file.name + _SUFFIX)}*")):
            with contextlib.suppress(BlockingIOError):  # a living worker holds the lock of its journal
                journal = Journal(path, lock=fcntl.LOCK_EX)
                stack.callback(journal.close)
                for entry in journal.entries():
                    orphans.append(orphan_record(entry))
                    calls.setdefault(entry.client, []).append(entry.usd)
        log_orphans(settings, orphans, say)
    for name, usd in calls.items():
        say(
            f"A gateway was killed with {counted_as(len(usd), 'call')} of key {name!r} in flight. The log {file} "
            f"records them with the {sum(usd):.6f} USD that they had reserved."
        )


def settle(
    counters: SharedCounters,
    journal: Journal,
    *,
    worker: int,
    keys: Iterable[str],
    keep: Callable[[Sequence[CallRecord]], None],
    say: Callable[[str], None],
) -> None:
    """Charge, log and report the orphaned calls of the last worker in a slot, by key.

    `keep` gets the records of the calls in the journal, which is cleared when it returns. Calls for which the journal
    had no slot are charged only.
    """
    charged = counters.forfeit(keys, today())
    entries = journal.entries()
    keep([orphan_record(entry) for entry in entries])
    journal.clear()
    calls = Counter(entry.client for entry in entries)
    for name in {**charged, **calls}:
        key = f"key {name!r}" if name else "a key that is no longer in the configuration"
        say(
            f"worker {worker} died with calls of {key} in flight. The {charged.get(name, 0.0):.6f} USD that they had "
            f"reserved are charged. Calls in the log: {calls.get(name, 0):,}."
        )


def log_orphans(settings: LogSettings | None, orphans: Sequence[CallRecord], say: Callable[[str], None]) -> None:
    """Log calls at the start or the end of a gateway. If that fails, save them for the next one."""
    if settings is None or not orphans:
        return
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
            return
    try:
        kept = save(unwritten_stem(settings.url), [encode(each) for each in orphans])
    except OSError as error:
        kept = f"They are lost: {error}."
    say(f"The log lacks {counted_as(len(orphans), 'call')} of workers that died. {kept}")


def save_orphans(log: Log, orphans: Sequence[CallRecord]) -> bool:
    """Save calls for the log process, which writes them within seconds. Return whether that succeeded."""
    try:
        save(log.unwritten, [encode(each) for each in orphans])
    except OSError:
        return False
    return True


def orphan_record(entry: Reservation) -> CallRecord:
    """Return the log's record of an orphaned call, whose reservation counts as its use."""
    end_ns = clock.now_ns()
    start_ns = min(entry.start_ns, end_ns)  # a monotonic time from before a reboot may lie in the future
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
        attempts=tuple(attempts),
    )
