"""A hub whose database is away for long: records wait in files, in bounded memory, and are written
once."""

import asyncio
import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest
from tests.store.records import answered
from tests.store.test_remote_writer import calls, process
from tests.store.test_remote_writer import url as url  # a fixture
from tests.store.test_writer import locked
from tests.waiting import WITHIN_S, eventually, until

from splitsecond.log.store import database, log_receiver, recovery, unwritten
from splitsecond.log.store.database import unwritten_stem
from splitsecond.log.store.hub_connection import HubConnection
from splitsecond.log.store.log import Log
from splitsecond.log.store.recovery import Recovery
from splitsecond.log.store.remote_writer import RemoteLogWriter, encode
from splitsecond.log.store.unwritten import FoundFile, UnwrittenFile, save

RECORDS = 60


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few records in memory, small blocks, and a database that says soon that it is locked."""
    monkeypatch.setattr(log_receiver, "MAX_UNSETTLED", 8)
    monkeypatch.setattr(log_receiver, "SAVE_S", 0.05)
    monkeypatch.setattr(recovery, "BLOCK", 25)
    monkeypatch.setattr(recovery, "LOOK_S", 0.05)
    monkeypatch.setattr(database, "BUSY_S", 0.01)


def in_memory(log: Log) -> int:
    """Return how many records the worker itself keeps."""
    writer = log._writer
    assert isinstance(writer, RemoteLogWriter)
    return len(writer._records) + len(writer._saving)


def files(folder: Path) -> list[Path]:
    """Return the files with records that wait for the log in `folder`."""
    return [*folder.glob("log.db.unwritten-*")]


async def send(log: Log, numbers: range) -> None:
    """Put records a few at a time, so that they arrive in many pieces."""
    for number in numbers:
        log.put(answered(number, ago_s=1000 - number / 10))
        if number % 5 == 0:
            await asyncio.sleep(0.002)


def test_records_wait_on_disk_during_an_outage(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        first, second = (
            Log.open(url, hub=HubConnection(tmp_path / "log", number)) for number in range(2)
        )
        with locked(tmp_path / "log.db"):
            await asyncio.gather(
                send(first, range(RECORDS)), send(second, range(RECORDS, 2 * RECORDS))
            )
            await eventually(
                lambda: not in_memory(first) and not in_memory(second), "workers keep their records"
            )
            await eventually(
                lambda: sorted((first.waiting, second.waiting)) == [0, 2 * RECORDS],
                "what waits is not counted once",
            )
            assert files(tmp_path)
        await eventually(lambda: not first.waiting + second.waiting, "what waited is not written")
        await eventually(lambda: not files(tmp_path), "a file whose records are written is kept")
        dropped = first.dropped + second.dropped
        for each in (first, second):
            each.close()
        # at the end, because the process waits until its workers have disconnected
        assert dropped == 0

    with process(url, tmp_path / "log"):
        asyncio.run(work())
    assert sorted(calls(url)) == sorted(f"req-{number}" for number in range(2 * RECORDS))


def test_further_outages_while_the_first_is_written(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        for begin in range(0, 4 * RECORDS, RECORDS):
            with locked(tmp_path / "log.db"):
                await send(log, range(begin, begin + RECORDS))
                await eventually(lambda: not in_memory(log), "the worker keeps its records")
            left = log.waiting
            await eventually(lambda before=left: log.waiting < before, "nothing is written")  # type: ignore[misc]
        log.close()

    with process(url, tmp_path / "log"):
        asyncio.run(work())
    with process(url, tmp_path / "log"):
        until(lambda: not files(tmp_path), "what the first process has left is not written")
    assert sorted(calls(url)) == sorted(f"req-{number}" for number in range(4 * RECORDS))


def test_workers_keep_records_beyond_the_room_on_the_disk(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = 30 * len(encode(answered(1)))
    monkeypatch.setattr(
        unwritten, "room", lambda folder: size - sum(each.stat().st_size for each in files(folder))
    )

    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        with locked(tmp_path / "log.db"):
            await send(log, range(10))
            await eventually(
                lambda: not in_memory(log), "the worker keeps records that there is room for"
            )
            await send(log, range(10, RECORDS))
            await eventually(lambda: log.waiting == RECORDS, "what waits is not counted once")
            assert RECORDS - 30 <= in_memory(log) <= RECORDS - 10
        await eventually(lambda: not log.waiting, "what waited is not written")
        assert (log.written, log.dropped) == (RECORDS, 0)
        log.close()

    with process(url, tmp_path / "log"):
        asyncio.run(work())
    assert sorted(calls(url)) == sorted(f"req-{number}" for number in range(RECORDS))
    assert capsys.readouterr().err.count("what waits cannot be saved") == 1


def test_a_record_that_can_never_be_written_is_counted_as_lost(url: str, tmp_path: Path) -> None:
    async def work() -> None:
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        with locked(tmp_path / "log.db"):
            log.put(answered(1))
            await eventually(lambda: not in_memory(log), "the worker keeps its record")
            log.put(answered(2, status=1 << 63))  # too large for the database
            log.put(answered(3))
            await eventually(lambda: log.waiting == 3, "what waits is not counted")
        await eventually(lambda: not log.waiting, "what waited is not written")
        assert (log.written, log.dropped) == (2, 1)
        log.close()

    with process(url, tmp_path / "log"):
        asyncio.run(work())
    assert calls(url) == ["req-1", "req-3"]


def test_slow_check_of_old_records_delays_no_new_record(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = threading.Event(), threading.Event()
    contained = Log.contained

    def slow(*given: object) -> set[str]:
        asked.set()
        assert answer.wait(WITHIN_S)
        return contained(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(Log, "contained", slow)
    save(unwritten_stem(url), [encode(answered(1))])

    async def work() -> None:
        await asyncio.to_thread(asked.wait, WITHIN_S)
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        log.put(answered(2))
        await eventually(lambda: log.written == 1, "a new record waits for an old one")
        log.close()

    with process(url, tmp_path / "log"), contextlib.ExitStack() as stack:
        stack.callback(answer.set)
        asyncio.run(work())
    assert sorted(calls(url)) == ["req-1", "req-2"]


def test_a_record_that_is_twice_in_a_file_is_written_once(url: str, tmp_path: Path) -> None:
    save(unwritten_stem(url), [encode(answered(1)), encode(answered(1)), encode(answered(2))])
    with process(url, tmp_path / "log"):
        pass
    assert sorted(calls(url)) == ["req-1", "req-2"]
    assert not files(tmp_path)


def test_ending_process_reads_files_closed_meanwhile(url: str, tmp_path: Path) -> None:
    """A hub that ends reads until there is nothing to do."""
    writing = UnwrittenFile(unwritten_stem(url), only_writes=True)
    writing.add([encode(answered(1))])
    save(unwritten_stem(url), [encode(answered(2))])
    said: list[str] = []
    with Log.open(url) as log:
        reading = Recovery(log, said.append)

        def read() -> bool:
            for made, _ in reading.next_block(frozenset()):
                log.put_rows(made)
            return len(files(tmp_path)) == 1

        until(read, "the file that nobody writes is not read")
        writing.close()
        until(lambda: not (read() and reading.busy), "it does not end")
    assert files(tmp_path) == []
    assert len(said) == 2


@pytest.mark.parametrize(
    ("method", "words", "written"),
    [
        ("read", "cannot be read: [Errno 5] Input/output error. Move the file away.", []),
        (
            "remove",
            "are written, but it cannot be removed: Input/output error. Move the file away.",
            ["req-1"],
        ),
    ],
)
def test_hub_survives_a_broken_disk(
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    method: str,
    words: str,
    written: list[str],
) -> None:
    def fails(file: FoundFile, *given: object) -> None:
        file.close()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    save(unwritten_stem(url), [encode(answered(1))])
    said = ""

    async def work() -> None:
        nonlocal said
        log = Log.open(url, hub=HubConnection(tmp_path / "log"))
        while words not in said:
            await asyncio.sleep(0.005)
            said += capsys.readouterr().err
        log.put(answered(2))
        await eventually(lambda: log.written == 1, "nothing is written any more")
        log.close()

    with monkeypatch.context() as patch:
        patch.setattr(FoundFile, method, fails)
        with process(url, tmp_path / "log"):
            asyncio.run(work())
    assert sorted(calls(url)) == sorted([*written, "req-2"])
    with process(url, tmp_path / "log"):
        until(lambda: not files(tmp_path), "the next process does not read the file")
    assert sorted(calls(url)) == ["req-1", "req-2"]
