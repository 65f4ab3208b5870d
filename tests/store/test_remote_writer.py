"""The log written by a process: each record is in the log once, however often the process dies."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.store.records import answered, records
from tests.store.test_writer import locked
from tests.waiting import eventually, until

from splitsecond.core import clock
from splitsecond.gateway.hub.process import Hub
from splitsecond.log.store import database, log_receiver, remote_writer, unwritten, writer
from splitsecond.log.store.call_record import CallRecord
from splitsecond.log.store.database import unwritten_stem
from splitsecond.log.store.hub_connection import RECORD, HubConnection
from splitsecond.log.store.log import Log
from splitsecond.log.store.log_receiver import LogReceiver
from splitsecond.log.store.remote_writer import encode
from splitsecond.log.store.rows import rows
from splitsecond.log.store.sender import Sender
from splitsecond.log.store.unwritten import LENGTH, LONGEST_RECORD, save

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/log.db"


@contextlib.contextmanager
def process(url: str, path: Path) -> Iterator[Log]:
    """Run the loop of a hub in a thread. At the end, it writes what has arrived."""
    path.unlink(missing_ok=True)
    end, close = os.pipe()
    with Log.open(url) as log, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        hub = Hub(lambda: (listening, LogReceiver(log)), end)
        thread = threading.Thread(target=hub.run)
        thread.start()
        try:
            yield log
        finally:
            os.close(close)
            thread.join()
            os.close(end)


def calls(url: str) -> list[str]:
    with Log.open(url) as log:
        return [record.call for _, record in log.calls(LONG_AGO)]


def test_records_of_several_workers_are_written(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        first, second = (
            Log.open(url, hub=HubConnection(tmp_path / "log", number)) for number in range(2)
        )
        for number in range(300):
            (first if number % 3 else second).put(answered(number, ago_s=10 - number / 100))
        first.close()
        second.close()
        assert (first.written, first.dropped, second.written, second.dropped) == (200, 0, 100, 0)

    with process(url, tmp_path / "log"):
        asyncio.run(work())
    assert calls(url) == [f"req-{number}" for number in range(300)]


def test_next_process_writes_unwritten_records_once(url: str, tmp_path: Path) -> None:
    """The first process dies after it has written the first ten records, without having said so."""
    said: list[str] = []

    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=said.append)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(tmp_path / "log"))
            listening.listen()
            for number in range(30):
                log.put(answered(number, ago_s=10 - number / 10))
            connection, _ = await asyncio.to_thread(listening.accept)
            sender, received = Sender(connection), list[CallRecord]()
            while len(received) < 30:
                received += [
                    record for record, _, _ in await asyncio.to_thread(sender.receive) or ()
                ]
            with Log.open(url) as dying:
                for record in received[:10]:
                    dying.put(record)
            connection.close()
        with process(url, tmp_path / "log"):
            await eventually(
                lambda: log.written == 30, "the worker keeps what the first process had"
            )
            log.put(answered(30))
            log.close()
        assert (log.written, log.dropped) == (31, 0)

    asyncio.run(work())
    assert sorted(calls(url)) == sorted(f"req-{number}" for number in range(31))
    assert said == []


def test_sent_records_of_a_dead_worker_are_written(url: str, tmp_path: Path) -> None:
    data = [msgspec.msgpack.encode(answered(number)) for number in range(5)]
    with process(url, tmp_path / "log"), socket.socket(socket.AF_UNIX) as worker:
        worker.connect(str(tmp_path / "log"))
        worker.sendall(b"".join(LENGTH.pack(RECORD | len(each)) + each for each in data)[:-1])
    assert calls(url) == [f"req-{number}" for number in range(4)]


def test_invalid_record_closes_only_its_connection(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = msgspec.msgpack.encode(answered(1))
    with process(url, tmp_path / "log"), socket.socket(socket.AF_UNIX) as good:
        good.connect(str(tmp_path / "log"))
        for junk in (LENGTH.pack(3) + b"abc", LENGTH.pack(LONGEST_RECORD + 1)):
            with socket.socket(socket.AF_UNIX) as bad:
                bad.connect(str(tmp_path / "log"))
                bad.sendall(junk)
                assert bad.recv(1) == b""
        good.sendall(LENGTH.pack(RECORD | len(record)) + record)
        assert good.recv(16)
    assert calls(url) == ["req-1"]
    assert capsys.readouterr().err.count("is closed") == 2


def test_records_without_a_process_wait_up_to_the_limit(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_writer, "MAX_RECORDS", 3)
    monkeypatch.setattr(remote_writer, "CLOSE_S", 0.01)
    said: list[str] = []

    async def work() -> Log:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=said.append)
        for number in range(5):
            log.put(answered(number))
        assert (log.written, log.dropped) == (0, 2)
        log.close()
        log.close()
        return log

    log = asyncio.run(work())
    assert (log.written, log.dropped, log.waiting) == (3, 2, 3)
    (file,) = tmp_path.glob("log.db.unwritten-*")
    assert said == [
        f"log {tmp_path}/log.db: records are lost because too many wait to be written",
        f"log {tmp_path}/log.db: closed; records not written: 3. They are kept in {file}; "
        "the hub or the next start writes them.",
    ]
    with process(url, tmp_path / "log"):
        until(lambda: not file.exists(), "the next process does not write what is in the file")
    assert calls(url) == ["req-0", "req-1", "req-2"]


def test_records_that_cannot_be_saved_are_counted_as_lost(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_writer, "CLOSE_S", 0.01)
    monkeypatch.setattr(unwritten, "MIN_FREE", 1.5)
    said: list[str] = []

    async def work() -> Log:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=said.append)
        log.put(answered(1))
        log.close()
        return log

    assert asyncio.run(work()).dropped == 1
    limit = "[Errno 28] less than 150% of the disk is free"
    assert said == [
        f"log {tmp_path}/log.db: closed; records not written: 1. They are lost: {limit}."
    ]


def test_next_process_writes_records_the_last_could_not_write(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The database is locked. One worker has died; the other ends, and leaves its records to the
    process."""
    monkeypatch.setattr(log_receiver, "SAVE_S", 1000.0)
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    monkeypatch.setattr(writer, "CLOSE_S", 1.0)
    first = msgspec.msgpack.encode(answered(0, ago_s=10))

    async def work(failing: Log, stack: contextlib.ExitStack) -> Log:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        stack.enter_context(locked(tmp_path / "log.db"))
        with socket.socket(socket.AF_UNIX) as dying:
            dying.connect(str(tmp_path / "log"))
            dying.sendall(LENGTH.pack(RECORD | len(first)) + first)
        until(lambda: failing.failing, "the log does not fail")
        for number in range(1, 30):
            log.put(answered(number, ago_s=10 - number / 10))
        log.close()
        return log

    with contextlib.ExitStack() as stack, process(url, tmp_path / "log") as log:
        ended = asyncio.run(work(log, stack))
    assert (ended.written, ended.dropped, ended.waiting) == (0, 0, 29)
    (file,) = tmp_path.glob("log.db.unwritten-*")
    assert f"what is not written is kept in {file}" in capsys.readouterr().err
    with process(url, tmp_path / "log"):
        until(lambda: not file.exists(), "the next process does not write what is in the file")
    assert calls(url) == [f"req-{number}" for number in range(30)]
    assert f"records written from {file}: 30" in capsys.readouterr().err


def test_ending_process_saves_more_records_than_its_queue_holds(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway is killed while the database is away: its workers have sent more than the process
    reads at once."""
    frames = [
        LENGTH.pack(RECORD | len(data)) + data
        for data in map(msgspec.msgpack.encode, map(answered, range(20)))
    ]
    with monkeypatch.context() as impatient:
        impatient.setattr(log_receiver, "MAX_UNSETTLED", 4)
        impatient.setattr(database, "BUSY_S", 0.01)
        impatient.setattr(writer, "CLOSE_S", 0.1)
        with contextlib.ExitStack() as stack, process(url, tmp_path / "log") as log:
            stack.enter_context(locked(tmp_path / "log.db"))
            worker = stack.enter_context(socket.socket(socket.AF_UNIX))
            worker.connect(str(tmp_path / "log"))
            worker.sendall(b"".join(frames[:5]))
            until(lambda: log.failing, "the log does not fail")
            worker.sendall(b"".join(frames[5:]))
            worker.shutdown(socket.SHUT_WR)
    (file,) = tmp_path.glob("log.db.unwritten-*")
    with process(url, tmp_path / "log"):
        until(lambda: not file.exists(), "what is in the file is not written")
    assert sorted(calls(url)) == sorted(f"req-{number}" for number in range(20))


def test_records_in_two_files_and_the_log_are_written_once(url: str, tmp_path: Path) -> None:
    stem = unwritten_stem(url)
    records = {number: answered(number) for number in (1, 2, 3, 4)}
    with Log.open(url) as log:
        log.put(records[1])
    for numbers in ((1, 2, 3), (2, 3, 4)):
        save(stem, [encode(records[number]) for number in numbers])
    with process(url, tmp_path / "log"):
        until(
            lambda: not [*tmp_path.glob("log.db.unwritten-*")],
            "what is in the files is not written",
        )
    assert sorted(calls(url)) == ["req-1", "req-2", "req-3", "req-4"]


def test_records_keep_their_time_over_a_reboot(url: str, tmp_path: Path) -> None:
    """Before it the monotonic clock was an hour ahead of what it is since."""
    hour_ns = 3600 * clock.NS_PER_S
    came, now_ns, wall_ns = clock.wall_time(), clock.now_ns, clock._wall_ns
    with clock.using(lambda: now_ns() + hour_ns, wall_ns):
        save(unwritten_stem(url), [encode(answered(1, ago_s=60))])
    with process(url, tmp_path / "log"):
        until(
            lambda: not [*tmp_path.glob("log.db.unwritten-*")], "what is in the file is not written"
        )
    with Log.open(url) as log:
        ((at, record),) = log.calls(LONG_AGO)
    assert abs((came - at).total_seconds() - 60) < 10
    assert record.end_ns == 501 * clock.NS_PER_MS


def test_only_records_that_cannot_be_written_are_dropped(url: str, tmp_path: Path) -> None:
    async def work() -> Log:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"), say=lambda words: None)
        log.put(answered(0, status=1 << 64))  # too large for MessagePack
        log.put(answered(1, status=1 << 63))  # too large for the database
        log.put(answered(2, route="half \ud800 a pair"))
        log.put(answered(3))
        log.close()
        return log

    with process(url, tmp_path / "log"):
        log = asyncio.run(work())
    assert (log.written, log.dropped) == (2, 2)
    assert calls(url) == ["req-2", "req-3"]


@given(record=records())
def test_sent_records_give_the_same_rows(record: CallRecord) -> None:
    assert rows(msgspec.msgpack.decode(encode(record), type=CallRecord)) == rows(record)


def test_the_times_of_tokens_are_not_sent() -> None:
    one = answered(1)
    (attempt,) = one.attempts
    long = msgspec.structs.replace(
        attempt, token_at=1000 * list(attempt.token_at), token_lengths=1000 * [10]
    )
    many = msgspec.structs.replace(one, attempts=(long,))
    assert len(encode(many)) == len(encode(one))


@given(sizes=st.lists(st.integers(1, 700), max_size=30))
def test_records_are_read_from_any_splits(sizes: list[int]) -> None:
    sent = [answered(number) for number in range(3)]
    data = b"".join(
        LENGTH.pack(RECORD | len(each)) + each for each in map(msgspec.msgpack.encode, sent)
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, found = Sender(theirs), list[CallRecord]()
        for size in [*sizes, len(data)]:
            if data:
                ours.sendall(data[:size])
                data = data[size:]
                found += [record for record, _, _ in sender.receive() or ()]
    assert found == sent
