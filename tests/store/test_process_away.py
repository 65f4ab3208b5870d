"""Records of a worker whose hub is dead, stopped or too slow: they are in a file before the worker
can die."""

import asyncio
import contextlib
import errno
import os
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.store.records import answered
from tests.store.test_outage import files, in_memory
from tests.store.test_remote_writer import calls, process
from tests.store.test_remote_writer import url as url  # a fixture
from tests.waiting import WITHIN_S, eventually, until

from splitsecond.log.store import recovery, remote_writer, unwritten
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.hub_connection import HubConnection
from splitsecond.log.store.log import Log
from splitsecond.log.store.record_counts import (
    DROPPED,
    ROWS,
    SENT,
    WAITING,
    RecordCounts,
    settle_all,
)
from splitsecond.log.store.remote_writer import RemoteLogWriter
from splitsecond.log.store.sender import Sender
from splitsecond.log.store.unwritten import UnwrittenFile


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "LOOK_S", 0.05)


@contextlib.contextmanager
def silent(path: Path) -> Iterator[socket.socket]:
    """A socket of a hub that reads nothing. At the end, it dies."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        yield listening


def saved(folder: Path) -> int:
    """Return how many records are in files."""
    return b"".join(path.read_bytes() for path in files(folder)).count(b"groq/fast") // 2


def writer(log: Log) -> RemoteLogWriter:
    assert isinstance(log._writer, RemoteLogWriter)
    return log._writer


def kill(log: Log) -> None:
    """End the worker of the log as SIGKILL would: it sends and saves nothing more."""
    killed = writer(log)
    killed._to_save.put(None)  # the kernel releases its lock
    if killed._timer is not None:
        killed._timer.cancel()
    killed._hub.close()


def written_once(url: str, folder: Path, number: int) -> None:
    """Assert that the next hub writes all records, each once."""
    with process(url, folder / "log"):
        until(lambda: not files(folder), "what was saved is not written")
    assert Counter(calls(url)) == Counter(f"req-{each}" for each in range(number))


def test_unsent_records_survive_the_worker(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        for number in range(30):
            log.put(answered(number))
            await asyncio.sleep(0)
        await eventually(lambda: not in_memory(log), "the worker keeps its records")
        assert (saved(tmp_path), log.written, log.waiting, log.dropped) == (30, 30, 30, 0)
        kill(log)

    asyncio.run(work())
    written_once(url, tmp_path, 30)


def test_records_of_a_lost_process_survive_the_worker(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        with silent(tmp_path / "log") as listening:
            for number in range(30):
                log.put(answered(number))
            connection, _ = await asyncio.to_thread(listening.accept)
            sender, received = Sender(connection), list[CallRecord]()
            while len(received) < 20:
                received += [
                    record for record, _, _ in await asyncio.to_thread(sender.receive) or ()
                ]
            connection.close()
        await eventually(lambda: not in_memory(log), "the worker keeps what the process had")
        assert saved(tmp_path) == 30
        kill(log)

    asyncio.run(work())
    written_once(url, tmp_path, 30)


def test_process_that_does_not_read_costs_no_memory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many records come as the worker may keep."""
    monkeypatch.setattr(remote_writer, "MAX_RECORDS", 1000)
    said: list[str] = []

    async def work() -> None:
        with silent(tmp_path / "log"):
            log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=said.append)
            for begin in range(0, 2000, 100):
                for number in range(begin, begin + 100):
                    log.put(answered(number))
                await eventually(
                    lambda: not (writer(log)._unsent or writer(log)._saving),
                    "the worker keeps what it cannot send",
                )
            assert (in_memory(log) + saved(tmp_path), log.dropped, log.waiting) == (2000, 0, 2000)
            assert in_memory(log) < 1000
        kill(log)
        await asyncio.sleep(0)

    asyncio.run(work())
    assert said == [
        f"log {tmp_path}/log.db: more records come than can be written; they wait in files."
    ]


def test_next_process_writes_left_records_once(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        with silent(tmp_path / "log") as listening:
            log = Log.open(url, hub=HubConnection(tmp_path / "log"))
            for number in range(1000):
                log.put(answered(number))
            await eventually(lambda: saved(tmp_path), "nothing is saved")
            listening.accept()[0].close()
        await eventually(lambda: not in_memory(log), "the worker keeps its records")
        with process(url, tmp_path / "log"):
            await eventually(lambda: not files(tmp_path), "what was saved is not written")
            log.close()

    asyncio.run(work())
    written_once(url, tmp_path, 1000)


def test_refusing_disk_fills_memory_before_records_are_dropped(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(remote_writer, "MAX_RECORDS", 3)
    monkeypatch.setattr(remote_writer, "SAVE_AGAIN_S", 0)
    said: list[str] = []

    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=said.append)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            for number in range(3):
                log.put(answered(number))
            await eventually(lambda: said, "the disk does not refuse")
            for number in range(3, 5):
                log.put(answered(number))
        assert (in_memory(log), log.dropped) == (3, 2)
        await eventually(
            lambda: not in_memory(log) and log.written, "the records are not saved later"
        )
        assert (log.written, log.dropped) == (3, 2)
        kill(log)

    asyncio.run(work())
    assert said == [
        f"log {tmp_path}/log.db: what waits cannot be saved: [Errno 28] No space left on device.",
        f"log {tmp_path}/log.db: records are lost because too many wait to be written",
    ]
    written_once(url, tmp_path, 3)


def test_sent_records_that_cannot_be_saved_are_written_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first process has written them, and dies before it says so."""
    monkeypatch.setattr(unwritten, "MIN_FREE", 1.5)

    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=lambda words: None)
        with silent(tmp_path / "log") as listening:
            for number in range(5):
                log.put(answered(number))
            connection, _ = await asyncio.to_thread(listening.accept)
            sender, received = Sender(connection), list[CallRecord]()
            while len(received) < 5:
                received += [
                    record for record, _, _ in await asyncio.to_thread(sender.receive) or ()
                ]
            with Log.open(url) as dying:
                for record in received:
                    dying.put(record)
            connection.close()
            await eventually(lambda: writer(log)._save_ns, "the disk does not refuse")
        monkeypatch.undo()
        with process(url, tmp_path / "log"):
            log.put(answered(5))
            await eventually(lambda: not in_memory(log), "the next process does not take them")
            log.close()
        assert log.dropped == 0

    asyncio.run(work())
    written_once(url, tmp_path, 6)


def test_a_disk_that_does_not_answer_delays_no_call(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, add = threading.Event(), UnwrittenFile.add

    def slow(file: UnwrittenFile, records: list[bytes]) -> None:
        assert answer.wait(WITHIN_S)
        add(file, records)

    monkeypatch.setattr(UnwrittenFile, "add", slow)
    monkeypatch.setattr(remote_writer, "LAST_SAVE_S", 0.01)
    said: list[str] = []

    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=said.append)
        log.put(answered(0))
        await eventually(lambda: writer(log)._saving, "nothing is saved")
        log.put(answered(1))
        assert (log.waiting, log.dropped) == (2, 0)
        log.close()
        assert (log.written, log.waiting, log.dropped) == (0, 0, 2)

    asyncio.run(work())
    answer.set()
    lost = "closed; records not written: 2. They are lost: the disk does not answer."
    assert said == [f"log {tmp_path}/log.db: {lost}"]


def test_a_machine_without_more_threads_keeps_records_in_memory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    said: list[str] = []

    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=said.append)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", none)
            log.put(answered(0))
            await eventually(lambda: said, "a thread starts")
            assert in_memory(log) == 1
        log.close()

    asyncio.run(work())
    assert said[0] == f"log {tmp_path}/log.db: what waits cannot be saved: can't start new thread."
    written_once(url, tmp_path, 1)


@pytest.mark.parametrize(("process_dies", "lost"), [(False, 2), (True, 7)])
def test_next_worker_counts_the_records_lost_with_the_last(
    url: str, tmp_path: Path, process_dies: bool, lost: int
) -> None:
    """Five records are sent, and two are not. Another worker has lost nothing."""
    said: list[str] = []

    async def work() -> None:
        with silent(tmp_path / "log") as listening, contextlib.ExitStack() as stack:
            log, other = (
                Log.open(url, hub=HubConnection(tmp_path / "log", number)) for number in (1, 2)
            )
            for number in range(5):
                log.put(answered(number))
                other.put(answered(number + 10))
            await eventually(
                lambda: not writer(log)._unsent and not writer(other)._unsent, "nothing is sent"
            )
            await eventually(lambda: not writer(log)._timer, "it is not counted")
            log.put(answered(5))
            log.put(answered(6))
            kill(log)
            if process_dies:
                listening.close()
                (tmp_path / "log").unlink()
                stack.enter_context(silent(tmp_path / "log"))
            for _ in range(2):  # it is counted once
                log = Log.open(url, hub=HubConnection(tmp_path / "log", 1), say=said.append)
                assert (log.dropped, other.dropped) == (lost, 0)
                kill(log)
            kill(other)

    asyncio.run(work())
    assert said == [f"worker 1 died: its last records for the log are lost: {lost} at most."]


def test_sent_records_of_a_dead_worker_count_if_the_log_dies(url: str, tmp_path: Path) -> None:
    """Of five records, the hub has settled two when it dies, after the worker. The next worker has
    another."""
    said: list[str] = []

    async def work() -> None:
        with silent(tmp_path / "log") as listening:
            log = Log.open(url, hub=HubConnection(tmp_path / "log", 1))
            for number in range(5):
                log.put(answered(number))
            await eventually(lambda: not writer(log)._timer, "it is not counted")
            sender, received = Sender(listening.accept()[0]), list[CallRecord]()
            while len(received) < 5:
                received += [
                    record for record, _, _ in await asyncio.to_thread(sender.receive) or ()
                ]
            kill(log)
            log = Log.open(url, hub=HubConnection(tmp_path / "log", 1), say=said.append)
            assert (log.dropped, said) == (0, [])
            sender.settle(2)
            log.put(answered(5))
            await eventually(lambda: not writer(log)._timer, "it is not counted")
            sender.connection.close()
            listening.accept()[0].close()
            await eventually(lambda: log.dropped, "nothing is counted")
            await eventually(lambda: not in_memory(log), "the worker keeps its own record")
            assert (log.dropped, log.waiting) == (3, 1)
            kill(log)

    asyncio.run(work())
    assert said == ["worker 1 died: its last records for the log are lost: 3 at most."]


def test_connections_beyond_the_table_count_what_is_unsettled(tmp_path: Path) -> None:
    counts = RecordCounts(tmp_path / "log", 0, lambda words: None)
    for _ in range(ROWS):
        counts.row(counts.connect(hub=1))[SENT] = 2
    assert counts.cells[DROPPED] == 0
    counts.connect(hub=1)
    assert counts.cells[DROPPED] == 2
    counts.settle(hub=1)
    assert counts.cells[DROPPED] == 2
    counts.settle(hub=2)
    assert counts.cells[DROPPED] == 2 * ROWS


@pytest.mark.parametrize("room", [0, 8])
def test_worker_starts_although_the_folder_is_full(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    said: list[str] = []
    pwrite = os.pwrite

    def full(descriptor: int, data: bytes, at: int) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data[:room], at)

    monkeypatch.setattr(os, "pwrite", full)
    counts = RecordCounts(tmp_path / "log", 3, said.append)
    counts.cells[WAITING] += 1
    counts.settle()
    assert counts.cells[DROPPED] == 1
    why = "No space left on device. What is lost if worker 3 dies is not counted."
    assert said[0] == f"{tmp_path}/log-3 cannot be written: {why}"


def test_lost_records_of_removed_workers_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for worker, put in enumerate((1, 0, 2000)):
        RecordCounts(tmp_path / "log", worker).cells[WAITING] += put
    settle_all(tmp_path / "log")
    assert capsys.readouterr().err == (
        "splitsecond: worker 0 died: its last records for the log are lost: 1 at most.\n"
        "splitsecond: worker 2 died: its last records for the log are lost: 2,000 at most.\n"
    )


def test_counts_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    RecordCounts(tmp_path / "log", 0, pytest.fail)
    assert (tmp_path / "log-0").stat().st_mode & 0o777 == 0o600


def test_the_dropped_records_of_a_dead_worker_stay_counted(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=lambda words: None)
        log.put(msgspec.structs.replace(answered(0), status=1 << 64))  # too large for MessagePack
        kill(log)
        assert Log.open(url, hub=HubConnection(tmp_path / "log")).dropped == 1

    asyncio.run(work())
